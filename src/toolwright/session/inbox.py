"""Input from outside for waiting calls: resolutions, signals, and a person's decisions. Owns checking them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.argument_checks import require_count
from toolwright.calls.exception_failures import invalid
from toolwright.calls.prepare.prepare import PreparedCall, read_arguments, rejected
from toolwright.calls.suspend.approvals import (
    Approval,
    Asked,
    Said,
    decision_of,
)
from toolwright.calls.suspend.questions import MOST_MESSAGE, Posed, Question, answer_check, to_question
from toolwright.effects.controller import EffectController
from toolwright.errors import InvalidArguments, KeyRefused, ToolwrightError
from toolwright.session.open_sessions import OpenSessions, require_session_id
from toolwright.session.open_waits import OpenWait, Resolved
from toolwright.session.parts import SharedParts
from toolwright.stores.contracts.waits import APPROVALS, Remembered, Resolution, Standing, Wait, WaitKey, WaitKind
from toolwright.tools.arguments import HIDDEN, is_hidden
from toolwright.tools.outcome import Failure, encodable
from toolwright.tools.subject import Subject
from toolwright.tools.tool import Tool
from toolwright.tools.validation_messages import json_path

MOST_NAME = 256
"""Characters of the name of a person who decides, and of the text that tells from where."""
_QUESTIONS: tuple[WaitKind, ...] = ("question",)


class _Who(NamedTuple):
    by: str | None
    via: str | None


class Inbox:
    """Takes input for the calls of a store."""

    def __init__(self, shared: SharedParts, sessions: OpenSessions) -> None:
        self._sessions = sessions
        self._controller = shared.effects
        self._clock = shared.clock

    async def resolve(self, key: str, value: object, session: str | None = None) -> Resolved:
        """Complete the wait of a key with a value; with a session, only of one of its calls."""
        named = self._read(key, "completion", "event", of=session)
        return _shown(await self._controller.resolve(named, Resolution("ok", self._clock.now(), _json(value))))

    async def reject(self, key: str, code: str, message: str, category: str, session: str | None = None) -> Resolved:
        """Complete the wait of a key with an error; with a session, only of one of its calls."""
        named = self._read(key, "completion", "event", of=session)
        said = await self._sessions.redacted(named.call.session, message)
        failure = Failure(message=said, code=code, category=category, source="tool")
        return _shown(await self._controller.resolve(named, Resolution("error", self._clock.now(), failure=failure)))

    async def cancel(self, key: str, reason: str) -> Resolved:
        """Cancel the wait of a key."""
        named = self._read(key, "completion", "event")
        said = await self._sessions.redacted(named.call.session, reason)
        return _shown(await self._controller.resolve(named, Resolution("cancelled", self._clock.now(), reason=said)))

    async def expire(self, key: str) -> Resolved:
        """Let the wait of a key reach its deadline now."""
        named = self._read(key, "completion", "event")
        return _shown(await self._controller.resolve(named, Resolution("expired", self._clock.now())))

    async def signal(self, key: str, payload: object) -> int:
        """Send a signal, and return how many of its name were sent."""
        return await self._controller.signal(self._read(key, "signal"), _json(payload))

    async def approvals(self, session: str | None) -> list[Approval]:
        """The requests that wait for a person, oldest first."""
        if session is not None:
            require_session_id(session)
        waits = await self._controller.waits.waiting(session, APPROVALS)
        return [_to_approval(self._controller, wait) for wait in waits]

    async def waits(self, session: str) -> list[OpenWait]:
        """What the calls of a session wait for, oldest first."""
        require_session_id(session)
        return [
            OpenWait(
                key=self._controller.write_key(wait.key),
                kind=wait.key.kind,
                scope=wait.key.call.scope,
                call_id=wait.key.call.call_id,
                name="" if wait.key.kind in ("approval", "crash", "completion") else wait.key.name,
                opened_at=wait.opened_at or 0.0,
                deadline=wait.deadline,
            )
            for wait in await self._controller.waits.waiting(session)
        ]

    async def decisions(self, session: str | None, limit: int, before: int | None) -> list[Approval]:
        """The decisions, the newest first."""
        if session is not None:
            require_session_id(session)
        require_count("limit", limit)
        if before is not None:
            require_count("before", before, 0)
        decided = await self._controller.waits.decided(session, before, limit)
        return [await self._shown(_to_approval(self._controller, each.wait, each.number)) for each in decided]

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

    async def questions(
        self, session: str | None, decided: bool = False, limit: int = 100, before: int | None = None
    ) -> list[Question]:
        """The questions that wait for a person, oldest first, or those that were decided, the newest first."""
        if session is not None:
            require_session_id(session)
        require_count("limit", limit)
        if before is not None:
            require_count("before", before, 0)
        controller = self._controller
        if decided:
            found = await controller.waits.decided(session, before, limit, _QUESTIONS)
            listed = [to_question(each.wait, controller.write_key(each.wait.key), each.number) for each in found]
            return [replace(one, answer=await self._redacted(one.session, one.answer)) for one in listed]
        waits = await controller.waits.waiting(session, _QUESTIONS)
        return [to_question(wait, controller.write_key(wait.key)) for wait in waits]

    async def answer(
        self, key: str, value: object, by: str | None, via: str | None, session: str | None = None
    ) -> Resolved:
        """Answer a question, with a value that fits its schema."""
        named, who, payload = self._read(key, "question", of=session), _who(by, via), _json(value)
        asked = await self._question(named)
        if asked.resolution is None:
            posed = jsonx.decode(asked.detail, type=Posed)
            problem = answer_check(named.name, posed.schema)(payload)
            if problem is not None:
                said = await self._sessions.redacted(named.call.session, problem)
                raise ToolwrightError(
                    f"Nothing was answered, and the question {named.name!r} stays open. This answer cannot be taken: "
                    f"{said}"
                )
        resolution = Resolution("ok", self._clock.now(), payload, by=who.by, via=who.via)
        stands = _shown(await self._controller.resolve(named, resolution))
        return replace(stands, value=await self._redacted(named.call.session, stands.value))

    async def decline(
        self, key: str, reason: str | None, by: str | None, via: str | None, session: str | None = None
    ) -> Resolved:
        """Decline a question."""
        named, who, said = self._read(key, "question", of=session), _who(by, via), reason
        if reason is not None:
            if isinstance(reason, str) and len(reason) > MOST_MESSAGE:
                raise ToolwrightError(f"The reason has {len(reason)} characters and may have {MOST_MESSAGE}")
            said = await self._sessions.redacted(named.call.session, reason)
        await self._question(named)
        resolution = Resolution("error", self._clock.now(), reason=said, by=who.by, via=who.via)
        stands = _shown(await self._controller.resolve(named, resolution))
        return replace(stands, value=await self._redacted(named.call.session, stands.value))

    async def _question(self, key: WaitKey) -> Wait:
        """The question of a key, open or decided.

        Raises:
            KeyRefused: it was not asked. Nothing is written then: a call that asks it later would never ask a person.
        """
        waits = await self._controller.waits.waits_of(key.call, "question")
        asked = next((wait for wait in waits if wait.key == key), None)
        if asked is None:
            raise KeyRefused(
                f"The question {key.name!r} of call {key.call.call_id!r} is not open here; list those that are with "
                "runtime.questions()",
                "unknown",
            )
        return asked

    async def _redacted(self, session: str, value: object) -> object:
        """An answer without the secrets of its session."""
        redactor = None if value is None else await self._sessions.redactor(session)
        return value if redactor is None else jsonx.decode(redactor.json(jsonx.encode(value)))

    async def approve(
        self,
        key: str,
        arguments: Mapping[str, Any] | None,
        always: Mapping[str, Any] | None,
        by: str | None,
        via: str | None,
        session: str | None = None,
    ) -> Resolved:
        """Let a call run. Other arguments are checked first where the tool is known here."""
        named = self._read(key, *APPROVALS, of=session)
        resolution = _approved(self._clock.now(), arguments, _who(by, via), always)
        if arguments is not None and (asked := await self._asked(named)) is not None:
            about = jsonx.decode(asked.detail, type=Asked)
            tool = self._sessions.tool(asked.key.call.session, about.tool)
            if tool is not None and tool.definition.id == about.tool_id:
                require_fitting(tool, arguments)
        remembered = None if always is None else await self._remembered(named, "allow", always, resolution)
        return _shown(await self._controller.resolve(named, resolution, remembered))

    async def deny(
        self,
        key: str,
        reason: str | None,
        always: Mapping[str, Any] | None,
        by: str | None,
        via: str | None,
        session: str | None = None,
    ) -> Resolved:
        """Deny a call."""
        named, said = self._read(key, *APPROVALS, of=session), reason
        if reason is not None:
            said = await self._sessions.redacted(named.call.session, reason)
        resolution = _denied(self._clock.now(), said, _who(by, via), always)
        remembered = None if always is None else await self._remembered(named, "deny", always, resolution)
        return _shown(await self._controller.resolve(named, resolution, remembered))

    async def _remembered(
        self, key: WaitKey, effect: Literal["allow", "deny"], always: Mapping[str, Any], resolution: Resolution
    ) -> Remembered | None:
        """The decision for later calls, if the request is still open."""
        if key.kind != "approval":
            raise ToolwrightError("A call that a crash cut off is decided each time; leave out always=")
        asked = await self._asked(key)
        return None if asked is None else _remember(asked, effect, always, resolution)

    async def _asked(self, key: WaitKey) -> Wait | None:
        """The request of a key, while it is open."""
        waits = await self._controller.waits.waiting(key.call.session, (key.kind,))
        return next((wait for wait in waits if wait.key == key), None)

    def _read(self, key: str, *kinds: WaitKind, of: str | None = None) -> WaitKey:
        named = self._controller.read_key(key)
        if of is not None and named.call.session != of:
            raise KeyRefused(f"The key is not one of session {of!r}; use the key of one of its calls", "session")
        if named.kind not in kinds:
            verbs = {
                "signal": "runtime.signal",
                "approval": "runtime.approve",
                "crash": "runtime.approve",
                "question": "runtime.answer",
            }
            verb = verbs.get(named.kind, "runtime.resolve")
            raise KeyRefused(f"The key is for another kind of wait ({named.kind}); use {verb}", "kind")
        return named


def _to_approval(controller: EffectController, wait: Wait, number: int | None = None) -> Approval:
    """A wait as the inbox shows it; with its decision and number, where it is decided."""
    asked = jsonx.decode(wait.detail, type=Asked)
    call, decision = wait.key.call, None
    if wait.resolution is not None:
        decision, said = decision_of(wait.resolution)
        if said.arguments is not None and said.arguments != asked.arguments:
            hidden = {asked.secret: HIDDEN} if asked.secret is not None and asked.secret in said.arguments else {}
            decision = replace(decision, edited=True, arguments={**said.arguments, **hidden})
    return Approval(
        key=controller.write_key(wait.key),
        session=call.session,
        scope=call.scope,
        call_id=call.call_id,
        tool=asked.tool,
        arguments=asked.arguments,
        cause="crash" if wait.key.kind == "crash" else "policy",
        rule=asked.rule,
        reason=asked.reason,
        requested_at=wait.opened_at or 0.0,
        deadline=wait.deadline,
        decision=decision,
        subject=asked.subject or Subject("tool", asked.tool),
        number=number,
    )


def require_fitting(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that a person gives in the place of others and that the tool would refuse.

    Raises:
        ToolwrightError: they do not fit, with every problem.
    """
    secret, given = tool.definition.secret, PreparedCall()
    hidden = secret is not None and is_hidden(arguments.get(secret))
    failure = read_arguments(given, dict(arguments), sys.maxsize)
    if failure is None:
        try:
            if tool.screen is not None and not hidden and (screened := tool.screen(given.raw)) is not None:
                failure = screened.failure
            else:
                tool.validate(given.raw)
        except InvalidArguments as error:
            # A value that was hidden from the person is put back by the call, and a new value is not shown.
            about_secret = () if secret is None else ("$", json_path((secret,)))
            problems = [
                replace(problem, message="the value does not fit", given=HIDDEN)
                if problem.path in about_secret
                else problem
                for problem in error.problems
                if not (hidden and problem.path in about_secret)
            ]
            failure = invalid(tool.name, InvalidArguments(problems)) if problems else None
        except Exception as error:  # a validator may be a tool's code
            failure = rejected(tool.name, error)
    if failure is not None:
        raise ToolwrightError(
            f"Nothing was decided, and the request stays open. {failure.message}\nGive arguments that fit the tool."
        )


def _approved(
    at: float, arguments: Mapping[str, Any] | None, who: _Who, always: Mapping[str, Any] | None = None
) -> Resolution:
    """The resolution that lets a call run, with the arguments it asked for or with others.

    Raises:
        ToolwrightError: the arguments or the pattern have no JSON form.
    """
    if arguments is not None and not isinstance(arguments, Mapping):
        raise ToolwrightError(f"The arguments {arguments!r:.200} are not an object; use a mapping")
    try:
        payload = jsonx.encode(Said(None if arguments is None else dict(arguments)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolwrightError(f"The arguments have no JSON form: {error}") from error
    if always is not None:
        payload = jsonx.encode({**jsonx.decode(payload), "always": jsonx.decode(_pattern(always))})
    return Resolution("ok", at, payload, by=who.by, via=who.via)


def _denied(at: float, reason: str | None, who: _Who, always: Mapping[str, Any] | None = None) -> Resolution:
    """The resolution that denies a call.

    Raises:
        ToolwrightError: the pattern has no JSON form.
    """
    payload = b"null" if always is None else jsonx.encode({"always": jsonx.decode(_pattern(always))})
    return Resolution("error", at, payload, reason=reason, by=who.by, via=who.via)


def _who(by: object, via: object) -> _Who:
    """Who decides, and from where: text of one line that people read in a list.

    Raises:
        ToolwrightError: one of them is empty, too long, or has characters that are not shown, by which it could look
            like another one.
    """
    said = {"by": by, "via": via}
    for parameter, text in said.items():
        if text is None:
            continue
        about = {"by": "who decides; use a name", "via": "from where; use an address or a program"}[parameter]
        if not isinstance(text, str) or not text:
            raise ToolwrightError(f"{parameter}={text!r:.200} does not say {about}, or leave it out")
        if len(text) > MOST_NAME or not encodable(text).isprintable():
            raise ToolwrightError(
                f"{parameter}={text!r:.200} is not one line of up to {MOST_NAME} visible characters; shorten it, or "
                "leave it out"
            )
    return _Who(*(None if text is None else encodable(str(text)) for text in said.values()))


def _pattern(pattern: object) -> bytes:
    if not isinstance(pattern, Mapping):
        raise ToolwrightError(f"always={pattern!r:.200} is not a pattern; use a mapping, {{}} for all later calls")
    try:
        return jsonx.canonical(dict(pattern))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolwrightError(f"The pattern {pattern!r:.200} has no JSON form: {error}") from error


def _remember(
    wait: Wait, effect: Literal["allow", "deny"], pattern: Mapping[str, Any], resolution: Resolution
) -> Remembered:
    """The decision for later calls of the same tool whose arguments match.

    Raises:
        ToolwrightError: the pattern has no JSON form.
    """
    asked = jsonx.decode(wait.detail, type=Asked)
    written, at, reason = _pattern(pattern), resolution.at, resolution.reason
    return Remembered(wait.key.call.session, asked.tool_id, effect, written, at, reason, resolution.by, resolution.via)


def _shown(standing: Standing) -> Resolved:
    resolution = standing.resolution
    value = jsonx.decode(resolution.payload) if resolution.status == "ok" else None
    return Resolved(standing.first, resolution.status, value, resolution.failure, resolution.reason, resolution.at)


def _json(value: object) -> bytes:
    try:
        return jsonx.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolwrightError(f"The value has no JSON form: {error}") from error
