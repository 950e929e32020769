"""A person's approval. Owns the wait of a call for it before it runs, the request, and the meaning of an answer for the
call; does not own when a call must ask, nor taking the answer (`session/inbox.py`).

A request is bound to the exact arguments of one call: its key names the call and its arguments. It is stored like any
wait, so that it survives a restart, and the first answer decides.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import ASKING, NEW, UNRECORDED, ActiveCall, Past, call_fields
from toolwright.calls.authorise.argument_patterns import decides
from toolwright.calls.conclude import cancelled, end_now, give_up, lose
from toolwright.calls.failures import interrupted
from toolwright.calls.hooks import invoke
from toolwright.calls.prepare.prepare import read_arguments, validate
from toolwright.calls.redact import shown_arguments, written_arguments
from toolwright.calls.suspend.connection_wait import wait_for_connection
from toolwright.calls.suspend.suspend import enter, say_waiting, suspend_until_completed
from toolwright.effects.controller import Opened
from toolwright.errors import StoreError
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.waits import Remembered, Resolution, Wait, WaitKey, WaitKind
from toolwright.tools.arguments import is_hidden
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Decision, Failure, Verdict
from toolwright.tools.subject import Subject, bounded, subject_of

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


class ApprovalRequest(Struct, frozen=True):
    """A request about a call: by which rule, why, and for how long."""

    kind: WaitKind
    name: str | None
    rule: str
    reason: str | None
    seconds: float | None


class Said(Struct, omit_defaults=True):
    """The parts of a decision: other arguments, and the pattern of later calls that it applies to."""

    arguments: dict[str, Any] | None = None
    always: dict[str, Any] | None = None


class Asked(Struct):
    """The parts of a request, as it is stored."""

    tool: str
    tool_id: str
    arguments: Any
    rule: str
    reason: str | None
    secret: str | None = None
    subject: Subject | None = None


# --- a call that waits before it runs


Resume = Callable[[ActiveCall], None]
"""Sets a call on its way, once it waits no longer."""


def wait_for_approval(call: ActiveCall, rule: str, reason: str | None, resume: Resume) -> None:
    """Ask a person whether a call may run; if so, it continues."""
    _wait(call, _asked(call, "approval", None, rule, reason, resume))


def wait_again(call: ActiveCall, past: Past, resume: Resume) -> bool:
    """True for a call that a crash cut off where it waits again: for its completion, a connection, or a person."""
    if not past.waited:
        return False
    waited = past.waited.pop(0)
    if waited.kind == "completion":
        call.attempt = 1
        suspend_until_completed(call, None)
    elif waited.kind == "connection":
        call.attempt, call.ran = 1, True
        _wait(call, _connected(call, waited.name, resume))
    elif waited.kind == "crash":
        reason = "it was cut off by a crash and may have run; approve to run it again"
        _wait(call, _asked(call, "crash", waited.name, "on_crash", reason, resume))
    else:
        assert waited.request is not None
        # By which rule it was asked, perhaps only its batch knew: it does not run without the answer.
        asked = jsonx.decode(waited.request.detail, type=Asked)
        call.decided_by = asked.rule
        wait_for_approval(call, asked.rule, asked.reason, resume)
    return True


def _wait(call: ActiveCall, until: Coroutine[Any, Any, None]) -> None:
    call.phase = ASKING
    call.asking = call.env.loop.create_task(until)
    call.env.hold_task(call.asking)


async def _asked(
    call: ActiveCall, kind: WaitKind, name: str | None, rule: str, reason: str | None, resume: Resume
) -> None:
    try:
        failure = await ask_approval(
            call, ApprovalRequest(kind, name, rule, reason, call.owner.policy.approval_timeout)
        )
    except Exception as fault:  # the journal's: a call that could not be asked about must not run
        _stop_for(call, fault)
        return
    _stop_asking(call)
    if kind == "approval":
        call.asked = True
    if failure is not None and kind == "crash":
        give_up(call, failure)
    elif failure is not None:
        call.fail(failure)
    resume(call)


async def _connected(call: ActiveCall, provider: str, resume: Resume) -> None:
    """Continue the wait for a connection of a call that was cut off, then let it run."""
    try:
        ended = await wait_for_connection(call, provider, functools.partial(say_waiting, call, "connection", provider))
    except Exception as fault:  # the journal's: a call that could not be recorded must not run
        _stop_for(call, fault)
        return
    _stop_asking(call)
    call.answer = ended
    resume(call)


def _stop_for(call: ActiveCall, fault: Exception) -> None:
    _stop_asking(call)
    lose(call, fault)
    call.cancel_reason = call.cancel_reason or UNRECORDED
    end_now(call, cancelled(call))


def _stop_asking(call: ActiveCall) -> None:
    """The call waits no longer for a person, or for a connection before it runs."""
    call.owner.call_waits(call, False)
    call.asking = None
    if call.phase is ASKING:  # else it was stopped meanwhile
        call.phase = NEW


# --- the request, and its answer


async def ask_approval(call: ActiveCall, request: ApprovalRequest) -> Failure | None:
    """Ask for approval of a call, and wait for the answer: None to continue, perhaps with other arguments."""
    assert call.tool is not None
    if request.kind == "approval":
        remembered = await remembered_for(call)
        if remembered is not None:
            call.decided_by = remembered_rule(remembered)
            verdict: Verdict = "approved" if remembered.effect == "allow" else "denied"
            call.decision = Decision(
                verdict, remembered.at, remembered.by, remembered.reason, always=True, via=remembered.via
            )
            return None if remembered.effect == "allow" else _denied(call, request, remembered.reason)
    opened = functools.partial(say_waiting, call, request.kind, request.rule)
    try:
        resolution = await put_request(call, request, opened)
    finally:
        enter(call).request = None
    return _answer(call, request, resolution)


async def put_request(call: ActiveCall, request: ApprovalRequest, opened: Opened) -> Resolution:
    """Put a request about a call into the inbox, and wait for its answer. `opened` is called once it is there."""
    assert call.tool is not None
    env, key, now = call.env, enter(call).key, call.env.clock.now()
    deadline = None if request.seconds is None else now + request.seconds
    written, given = written_arguments(call), shown_arguments(call)
    # A request for approval is named by exactly these arguments: for others there is another one.
    name = request.name or jsonx.digest(written)[:32]
    shown = jsonx.decode(given)
    subject = subject_of(call.tool.definition, shown)
    if call.tool.subject is not None and isinstance(shown, dict):
        subject = await _subject_by_tool(call, call.tool.subject, shown, subject)
    told = structs.asdict(subject)
    asked = {
        "tool": call.name,
        "tool_id": call.tool.definition.id,
        "arguments": shown,
        "subject": told if env.redactor is None else env.redactor.value(told),
        "rule": request.rule,
        "reason": request.reason,
        "secret": call.tool.definition.secret,
    }
    wait = Wait(WaitKey(key, request.kind, name), now, deadline, jsonx.encode(asked))
    enter(call).request = wait.key
    return await env.effects.wait(wait, opened)


async def _subject_by_tool(
    call: ActiveCall, tell: Callable[..., Any], shown: dict[str, Any], otherwise: Subject
) -> Subject:
    """The subject of a call as its tool tells it, or `otherwise` where that fails."""
    try:
        async with asyncio.timeout(call.owner.policy.timeout):
            said = await invoke(tell, dict(shown), call.env.view)
        return Subject("tool", bounded(said)) if isinstance(said, str) else _checked(said)
    except StoreError:
        raise
    except Exception as error:  # the tool's code: a person is asked nevertheless
        log.error(
            "The subject of call %r could not be told by its tool",
            call.call_id,
            exc_info=error,
            extra=call_fields(call, "call.subject_failed"),
        )
        return otherwise


def _checked(said: object) -> Subject:
    if not isinstance(said, Subject) or not all(isinstance(text, str) for text in (said.kind, said.text)):
        raise TypeError(f"a subject is {said!r:.200}; use a text, or Subject(kind, text, directory)")
    directory = None if said.directory is None else bounded(str(said.directory))
    return Subject(bounded(said.kind), bounded(said.text), directory)


def _answer(call: ActiveCall, request: ApprovalRequest, resolution: Resolution) -> Failure | None:
    call.decision, said = decision_of(resolution)
    if resolution.status == "ok":
        return None if said.arguments is None else _edit(call, said.arguments)
    if request.kind == "crash":
        return interrupted(call.name, why_not(resolution))
    if resolution.status == "expired":
        return Failure(
            category="permission_denied",
            code="approval_expired",
            message=f"Tool {call.name!r} may not run: nobody approved it in time",
            source="policy",
        )
    return _denied(call, request, why_not(resolution))


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


def decision_of(resolution: Resolution) -> tuple[Decision, Said]:
    """The decision, with the person's text about the arguments."""
    said = jsonx.decode(resolution.payload, type=Said | None) or Said()
    decision = Decision(
        _VERDICTS[resolution.status],
        resolution.at,
        resolution.by,
        resolution.reason,
        always=said.always is not None,
        via=resolution.via,
    )
    return decision, said


def _denied(call: ActiveCall, request: ApprovalRequest, reason: str | None) -> Failure:
    return Failure(
        category="permission_denied",
        code="denied",
        message=f"Tool {call.name!r} may not run: a person denied it{f': {reason}' if reason else ''}",
        source="policy",
    )


async def remembered_for(call: ActiveCall) -> Remembered | None:
    """The decision of a person about earlier calls that applies to this one, too, if there is one."""
    assert call.tool is not None
    env = call.env
    return _matching(await env.effects.waits.remembered(env.session_id), call.tool.definition, call.raw)


def remembered_rule(decision: Remembered) -> str:
    """The name of the rule that a remembered decision is: "allow always" or "deny always"."""
    return f"{decision.effect} always"


def _matching(decisions: list[Remembered], tool: ToolDefinition, raw: bytes) -> Remembered | None:
    if not decisions:
        return None
    arguments = jsonx.decode(raw)
    found = [
        decision
        for decision in decisions
        if decision.tool_id == tool.id
        and decides(decision.effect, msgspec.json.decode(decision.pattern), arguments, tool)
    ]
    # Deny beats allow, as it does among rules.
    return next((decision for decision in found if decision.effect == "deny"), found[0] if found else None)
