"""A person's approval. Owns the request and the meaning of an answer for the call; does not own when a call must ask.

A request is bound to the exact arguments of one call: its key names the call and its arguments. It is stored like any
wait, so that it survives a restart, and the first answer decides.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, call_fields
from toolwright.calls.authorise.argument_patterns import decides
from toolwright.calls.execute.exception_failures import invalid
from toolwright.calls.hooks import invoke
from toolwright.calls.prepare.prepare import PreparedCall, read_arguments, rejected, validate
from toolwright.calls.redact import shown_arguments
from toolwright.calls.suspend.suspend import enter, say_waiting
from toolwright.effects.controller import EffectController, Opened
from toolwright.errors import InvalidArguments, StoreError, ToolwrightError
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.waits import Remembered, Resolution, Wait, WaitKey, WaitKind
from toolwright.tools.arguments import HIDDEN, is_hidden
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Decision, Failure, Verdict, encodable
from toolwright.tools.subject import Subject, bounded, subject_of
from toolwright.tools.tool import Tool
from toolwright.tools.validation_messages import json_path

log = logging.getLogger("toolwright.calls")

_VERDICTS: dict[str, Verdict] = {
    "ok": "approved",
    "error": "denied",
    "expired": "expired",
    "cancelled": "cancelled",
}


class Approval(Struct, frozen=True, kw_only=True):
    """A call that waits for a person. `key` is used to approve or deny it; instants are seconds since the epoch.

    `cause` is "policy" for a call that may not run without approval, "crash" for one that was cut off and may have run.
    """

    key: str
    session: str
    scope: str
    call_id: str
    tool: str
    arguments: Any
    cause: Literal["policy", "crash"]
    rule: str
    reason: str | None
    requested_at: float
    deadline: float | None
    decision: Decision | None = None
    """The decision; None while it waits."""
    subject: Subject | None = None
    """The command, file or tool of the call, such as its script and directory, to be shown to the person who
    decides."""
    number: int | None = None
    """Its place among the decisions of the store: `runtime.decisions(before=number)` gives older ones."""

    def to_json(self) -> dict[str, Any]:
        """The request as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class Question(Struct, frozen=True):
    """A request about a call: by which rule, why, and for how long."""

    kind: WaitKind
    name: str
    rule: str
    reason: str | None
    seconds: float | None


def about_arguments(raw: bytes) -> str:
    """A name for exactly these arguments: another question has another one."""
    return jsonx.digest(raw)[:32]


def asked_about(wait: Wait) -> tuple[str, str]:
    """The name and the id of the tool that a request is about."""
    asked = jsonx.decode(wait.detail, type=_Asked)
    return asked.tool, asked.tool_id


def asked_by(wait: Wait) -> tuple[str, str | None]:
    """The rule that a request was made by, and its reason."""
    asked = jsonx.decode(wait.detail, type=_Asked)
    return asked.rule, asked.reason


async def ask_approval(call: ActiveCall, question: Question) -> Failure | None:
    """Ask for approval of a call, and wait for the answer: None to continue, perhaps with other arguments."""
    assert call.tool is not None
    env, key = call.env, enter(call).key
    if question.kind == "approval":
        remembered = _matching(await env.effects.waits.remembered(key.session), call.tool.definition, call.raw)
        if remembered is not None:
            call.decided_by = f"{remembered.effect} always"
            verdict: Verdict = "approved" if remembered.effect == "allow" else "denied"
            call.decision = Decision(verdict, remembered.at, remembered.by, remembered.reason, always=True)
            return None if remembered.effect == "allow" else _denied(call, question, remembered.reason)
    opened = functools.partial(say_waiting, call, question.kind, question.rule)
    try:
        resolution = await put_question(call, question, opened)
    finally:
        call.owner.call_waits(call, False)
    return _answer(call, question, resolution)


async def put_question(call: ActiveCall, question: Question, opened: Opened) -> Resolution:
    """Put a question about a call into the inbox, and wait for its answer. `opened` is called once it is there."""
    assert call.tool is not None
    env, key, now = call.env, enter(call).key, call.env.clock.now()
    deadline = None if question.seconds is None else now + question.seconds
    shown = jsonx.decode(shown_arguments(call))
    asked = {
        "tool": call.name,
        "tool_id": call.tool.definition.id,
        "arguments": shown,
        "subject": await _subject(call, call.tool, shown),
        "rule": question.rule,
        "reason": question.reason,
        "secret": call.tool.definition.secret,
    }
    wait = Wait(WaitKey(key, question.kind, question.name), now, deadline, jsonx.encode(asked))
    return await env.effects.enter(key, fresh=True).wait(wait, opened)


async def _subject(call: ActiveCall, tool: Tool, shown: object) -> object:
    """The subject of a call, as plain data: from its tool, or from its definition where that fails."""
    found = subject_of(tool.definition, shown)
    if tool.subject is not None and isinstance(shown, dict):
        try:
            async with asyncio.timeout(call.owner.policy.timeout):
                said = await invoke(tool.subject, dict(shown), call.env.view)
            found = Subject("tool", bounded(said)) if isinstance(said, str) else _checked(said)
        except StoreError:
            raise
        except Exception as error:  # the tool's code: a person is asked nevertheless
            log.error(
                "The subject of call %r could not be told by its tool",
                call.call_id,
                exc_info=error,
                extra=call_fields(call, "call.subject_failed"),
            )
    told = structs.asdict(found)
    return told if call.env.redactor is None else call.env.redactor.value(told)


def _checked(said: object) -> Subject:
    if not isinstance(said, Subject) or not all(isinstance(text, str) for text in (said.kind, said.text)):
        raise TypeError(f"a subject is {said!r:.200}; use a text, or Subject(kind, text, directory)")
    directory = None if said.directory is None else bounded(str(said.directory))
    return Subject(bounded(said.kind), bounded(said.text), directory)


def _answer(call: ActiveCall, question: Question, resolution: Resolution) -> Failure | None:
    call.decision, said = _told(resolution)
    if resolution.status == "ok":
        return None if said.arguments is None else _edit(call, said.arguments)
    if question.kind == "crash":
        return interrupted(call.name, why_not(resolution))
    if resolution.status == "expired":
        return Failure(
            category="permission_denied",
            code="approval_expired",
            message=f"Tool {call.name!r} may not run: nobody approved it in time",
            source="policy",
        )
    return _denied(call, question, why_not(resolution))


def why_not(resolution: Resolution) -> str | None:
    """The reason of an answer that is no approval."""
    if resolution.failure is not None:
        return resolution.failure.message
    return resolution.reason or (None if resolution.status != "expired" else "nobody decided in time")


def _edit(call: ActiveCall, arguments: dict[str, Any]) -> Failure | None:
    """Continue with the arguments that a person gave, which must fit the tool like any."""
    assert call.tool is not None
    secret = call.tool.definition.secret
    if secret is not None and is_hidden(arguments.get(secret)):
        # The person did not see it, and gives back its placeholder.
        arguments = {**arguments, secret: jsonx.decode(call.raw).get(secret)}
    before = call.raw
    failure = read_arguments(call, arguments, call.owner.policy.max_argument_bytes) or validate(call, call.tool)
    call.record.raw_arguments = shown = shown_arguments(call)
    if call.raw != before and call.decision is not None:
        call.decision = replace(call.decision, edited=True, arguments=jsonx.decode(shown))
    return failure


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


def _told(resolution: Resolution) -> tuple[Decision, _Said]:
    """The decision, with the person's text about the arguments."""
    said = jsonx.decode(resolution.payload, type=_Said | None) or _Said()
    decision = Decision(
        _VERDICTS[resolution.status], resolution.at, resolution.by, resolution.reason, always=said.always is not None
    )
    return decision, said


def _denied(call: ActiveCall, question: Question, reason: str | None) -> Failure:
    return Failure(
        category="permission_denied",
        code="denied",
        message=f"Tool {call.name!r} may not run: a person denied it{f': {reason}' if reason else ''}",
        source="policy",
    )


def interrupted(name: str, reason: str | None = None) -> Failure:
    """The failure of a call that a crash cut off and that is not run again."""
    return Failure(
        category="interrupted",
        code="interrupted",
        message=f"Tool {name!r} was cut off by a crash: it may have run, and was not run again"
        f"{f' ({reason})' if reason else ''}",
        source="runtime",
    )


# --- for the person or program that decides


class _Said(Struct, omit_defaults=True):
    """The parts of a decision: other arguments, and the pattern of later calls that it applies to."""

    arguments: dict[str, Any] | None = None
    always: dict[str, Any] | None = None


class _Asked(Struct):
    tool: str
    tool_id: str
    arguments: Any
    rule: str
    reason: str | None
    secret: str | None = None
    subject: Subject | None = None


def to_approval(controller: EffectController, wait: Wait, number: int | None = None) -> Approval:
    """A wait as the inbox shows it; with its decision and number, where it is decided."""
    asked = jsonx.decode(wait.detail, type=_Asked)
    call, decision = wait.key.call, None
    if wait.resolution is not None:
        decision, said = _told(wait.resolution)
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


def approved(
    at: float, arguments: Mapping[str, Any] | None, by: str | None, always: Mapping[str, Any] | None = None
) -> Resolution:
    """The resolution that lets a call run, with the arguments it asked for or with others.

    Raises:
        ToolwrightError: the arguments or the pattern have no JSON form.
    """
    if arguments is not None and not isinstance(arguments, Mapping):
        raise ToolwrightError(f"The arguments {arguments!r:.200} are not an object; use a mapping")
    try:
        payload = jsonx.encode(_Said(None if arguments is None else dict(arguments)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolwrightError(f"The arguments have no JSON form: {error}") from error
    if always is not None:
        payload = jsonx.encode({**jsonx.decode(payload), "always": jsonx.decode(_pattern(always))})
    return Resolution("ok", at, payload, by=_who(by))


def denied(at: float, reason: str | None, by: str | None, always: Mapping[str, Any] | None = None) -> Resolution:
    """The resolution that denies a call.

    Raises:
        ToolwrightError: the pattern has no JSON form.
    """
    payload = b"null" if always is None else jsonx.encode({"always": jsonx.decode(_pattern(always))})
    return Resolution("error", at, payload, reason=reason, by=_who(by))


def _who(by: object) -> str | None:
    if by is not None and (not isinstance(by, str) or not by):
        raise ToolwrightError(f"by={by!r:.200} does not say who decides; use a name, or leave it out")
    return None if by is None else encodable(by)


def _pattern(pattern: object) -> bytes:
    if not isinstance(pattern, Mapping):
        raise ToolwrightError(f"always={pattern!r:.200} is not a pattern; use a mapping, {{}} for all later calls")
    try:
        return jsonx.canonical(dict(pattern))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolwrightError(f"The pattern {pattern!r:.200} has no JSON form: {error}") from error


def remember(
    wait: Wait, effect: Literal["allow", "deny"], pattern: Mapping[str, Any], resolution: Resolution
) -> Remembered:
    """The decision for later calls of the same tool whose arguments match.

    Raises:
        ToolwrightError: the pattern has no JSON form.
    """
    asked = jsonx.decode(wait.detail, type=_Asked)
    written, at, reason = _pattern(pattern), resolution.at, resolution.reason
    return Remembered(wait.key.call.session, asked.tool_id, effect, written, at, reason, resolution.by)


def _matching(decisions: list[Remembered], tool: ToolDefinition, raw: bytes) -> Remembered | None:
    arguments = jsonx.decode(raw)
    found = [
        decision
        for decision in decisions
        if decision.tool_id == tool.id
        and decides(decision.effect, msgspec.json.decode(decision.pattern), arguments, tool)
    ]
    # Deny beats allow, as it does among rules.
    return next((decision for decision in found if decision.effect == "deny"), found[0] if found else None)
