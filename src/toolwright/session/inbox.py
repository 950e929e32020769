"""Input from outside for waiting calls: resolutions, signals, and a person's decisions. Owns checking them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.argument_checks import require_count
from toolwright.calls.authorise.approvals import (
    Approval,
    approved,
    asked_about,
    denied,
    remember,
    require_fitting,
    to_approval,
)
from toolwright.errors import KeyRefused, ToolwrightError
from toolwright.plain_data import plain_data
from toolwright.session.open_sessions import OpenSessions, require_session_id
from toolwright.session.parts import SharedParts
from toolwright.stores.contracts.waits import INBOX, Resolution, Standing, Wait, WaitKey, WaitKind
from toolwright.tools.arguments import HIDDEN
from toolwright.tools.outcome import Failure


class Resolved(Struct, frozen=True):
    """The resolution of a key. `first` is False if it was resolved before: then nothing was changed.

    `status` is "ok", "error", "cancelled" or "expired"; `value` and `failure` are the result that the call got.
    """

    first: bool
    status: Literal["ok", "error", "cancelled", "expired"]
    value: Any = None
    failure: Failure | None = None
    reason: str | None = None
    at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class Inbox:
    """Takes input for the calls of a store."""

    def __init__(self, shared: SharedParts, sessions: OpenSessions) -> None:
        self._sessions = sessions
        self._controller = shared.effects
        self._clock = shared.clock

    async def resolve(self, key: str, value: object) -> Resolved:
        """Complete the wait of a key with a value."""
        named = self._read(key, "completion", "event")
        return await self._settle(named, Resolution("ok", self._clock.now(), _json(value)))

    async def reject(self, key: str, code: str, message: str, category: str) -> Resolved:
        """Complete the wait of a key with an error."""
        named = self._read(key, "completion", "event")
        said = await self._sessions.redacted(named.call.session, message)
        failure = Failure(message=said, code=code, category=category, source="tool")
        return await self._settle(named, Resolution("error", self._clock.now(), failure=failure))

    async def cancel(self, key: str, reason: str) -> Resolved:
        """Cancel the wait of a key."""
        named = self._read(key, "completion", "event")
        said = await self._sessions.redacted(named.call.session, reason)
        return await self._settle(named, Resolution("cancelled", self._clock.now(), reason=said))

    async def expire(self, key: str) -> Resolved:
        """Let the wait of a key reach its deadline now."""
        named = self._read(key, "completion", "event")
        return await self._settle(named, Resolution("expired", self._clock.now()))

    async def signal(self, key: str, payload: object) -> int:
        """Send a signal, and return how many of its name were sent."""
        return await self._controller.signal(self._read(key, "signal"), _json(payload))

    async def approvals(self, session: str | None) -> list[Approval]:
        """The requests that wait for a person, oldest first."""
        if session is not None:
            require_session_id(session)
        waits = await self._controller.waits.waiting(session, INBOX)
        return [to_approval(self._controller, wait) for wait in waits]

    async def decisions(self, session: str | None, limit: int, before: int | None) -> list[Approval]:
        """The decisions, the newest first."""
        if session is not None:
            require_session_id(session)
        require_count("limit", limit)
        if before is not None:
            require_count("before", before, 0)
        decided = await self._controller.waits.decided(session, before, limit)
        return [await self._shown(to_approval(self._controller, each.wait, each.number)) for each in decided]

    async def _shown(self, approval: Approval) -> Approval:
        """An approval without the secrets that a person may have put into other arguments."""
        decision = approval.decision
        if decision is None or not decision.edited:
            return approval
        written = await self._sessions.redacted(approval.session, jsonx.encode(decision.arguments).decode())
        try:
            arguments = jsonx.decode(written)
        except jsonx.DecodeError:  # a handle stands where it breaks the JSON
            arguments = HIDDEN
        return replace(approval, decision=replace(decision, arguments=arguments))

    async def approve(
        self,
        key: str,
        arguments: Mapping[str, Any] | None,
        always: Mapping[str, Any] | None,
        by: str | None,
    ) -> Resolved:
        """Let a call run. Other arguments are checked first where the tool is known here."""
        resolution = approved(self._clock.now(), arguments, by, always)
        if arguments is not None and (asked := await self._asked(self._read(key, *INBOX))) is not None:
            name, tool_id = asked_about(asked)
            tool = self._sessions.tool(asked.key.call.session, name)
            if tool is not None and tool.definition.id == tool_id:
                require_fitting(tool, arguments)
        return await self._decide(key, resolution, "allow", always)

    async def deny(self, key: str, reason: str | None, always: Mapping[str, Any] | None, by: str | None) -> Resolved:
        """Deny a call."""
        said = reason
        if reason is not None:
            said = await self._sessions.redacted(self._read(key, *INBOX).call.session, reason)
        return await self._decide(key, denied(self._clock.now(), said, by, always), "deny", always)

    async def _decide(
        self, key: str, resolution: Resolution, effect: Literal["allow", "deny"], always: Mapping[str, Any] | None
    ) -> Resolved:
        named = self._read(key, *INBOX)
        if always is None:
            return await self._settle(named, resolution)
        if named.kind != "approval":
            raise ToolwrightError("A call that a crash cut off is decided each time; leave out always=")
        asked = await self._asked(named)
        remembered = None if asked is None else remember(asked, effect, always, resolution)
        return _shown(await self._controller.resolve(named, resolution, remembered))

    async def _asked(self, key: WaitKey) -> Wait | None:
        """The request of a key, while it is open."""
        waits = await self._controller.waits.waiting(key.call.session, (key.kind,))
        return next((wait for wait in waits if wait.key == key), None)

    async def _settle(self, key: WaitKey, resolution: Resolution) -> Resolved:
        return _shown(await self._controller.resolve(key, resolution))

    def _read(self, key: str, *kinds: WaitKind) -> WaitKey:
        named = self._controller.read_key(key)
        if named.kind not in kinds:
            verbs = {"signal": "runtime.signal", "approval": "runtime.approve", "crash": "runtime.approve"}
            verb = verbs.get(named.kind, "runtime.resolve")
            raise KeyRefused(f"The key is for another kind of wait ({named.kind}); use {verb}", "kind")
        return named


def _shown(standing: Standing) -> Resolved:
    resolution = standing.resolution
    value = jsonx.decode(resolution.payload) if resolution.status == "ok" else None
    return Resolved(standing.first, resolution.status, value, resolution.failure, resolution.reason, resolution.at)


def _json(value: object) -> bytes:
    try:
        return jsonx.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolwrightError(f"The value has no JSON form: {error}") from error
