"""What the outside world says to waiting calls. Owns how the owner of a runtime says it; the inbox checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolwright.argument_checks import require_count
from toolwright.calls.authorise.approvals import Approval
from toolwright.clock import Clock
from toolwright.session.inbox import Inbox, Resolved
from toolwright.session.parts import Shared
from toolwright.session.session import require_session_id


class Listening:
    """The part of a runtime that listens to the outside world."""

    clock: Clock
    _shared: Shared

    async def resolve(self, key: str, value: Any = None) -> Resolved:
        """Complete the call or event that a key was taken for. The first to resolve it wins.

        Raises:
            KeyRefused: the key is forged, its call is not known or over, or its session was revoked.
        """
        return await self._inbox.resolve(key, value)

    async def reject(
        self,
        key: str,
        *,
        code: str = "rejected",
        message: str = "It was rejected from outside",
        category: str = "external",
    ) -> Resolved:
        """Complete the call or event that a key was taken for with an error, which the model reads.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.reject(key, code, message, category)

    async def cancel(self, key: str, *, reason: str = "it was cancelled from outside") -> Resolved:
        """Cancel the call or event that a key was taken for.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.cancel(key, reason)

    async def expire(self, key: str) -> Resolved:
        """Let the wait of the call or event that a key was taken for come to its deadline now: it fails as "expired".

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.expire(key)

    async def signal(self, key: str, payload: Any = None) -> int:
        """Send a signal to a call, and return how many of this name it was sent so far.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.signal(key, payload)

    async def approvals(self, session: str | None = None) -> list[Approval]:
        """The calls that wait for a person, oldest first: to be approved or denied by their keys."""
        if session is not None:
            require_session_id(session)
        return await self._inbox.approvals(session)

    async def decisions(
        self, session: str | None = None, *, limit: int = 100, before: int | None = None
    ) -> list[Approval]:
        """Approvals that were decided, expired or cancelled, the newest first, each with its `decision`.

        For the next page, give the `number` of the last one as `before`. They are kept as long as their calls.
        """
        if session is not None:
            require_session_id(session)
        require_count("limit", limit)
        if before is not None:
            require_count("before", before, 0)
        return await self._inbox.decisions(session, limit, before)

    async def approve(
        self,
        key: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Resolved:
        """Let exactly the call that asked run, once; with other arguments if they are given. The first to decide wins.

        `always` remembers the decision for later calls of the tool in the same session: `{}` for all of them, or
        `{"path": "/tmp/*"}` for those whose arguments match, text by a shell-style pattern. A parameter that is a path,
        as the tool's `reads=`, `writes=` or type says, is matched by its resolved path: `/tmp/../etc` is not in `/tmp`.

        `by` says who decides. It is kept, and is in `decisions` and in the `decision` of the outcome.

        Raises:
            KeyRefused: as for `resolve`.
            ToolwrightError: the other arguments do not fit the tool, where this runtime has it. The request stays open.
        """
        return await self._inbox.approve(key, arguments, always, by)

    async def deny(
        self,
        key: str,
        *,
        reason: str | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Resolved:
        """Keep the call that asked from running; the model reads the reason. `always` as in `approve`.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.deny(key, reason, always, by)

    @property
    def _inbox(self) -> Inbox:
        self._shared.require_open()
        return Inbox(self._shared.effects, self.clock, self._shared.redacted, self._shared.tool_of)
