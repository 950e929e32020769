"""Stage 5: finalise. Owns the way from a tool's result to its outcome: encoded, redacted, checked, bounded, projected.

Most outcomes need none of that but their JSON form, and are settled at once. The others are finished, which may take
time: a hook may wait, and a long text goes to a file.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, identity
from toolwright.calls.execute.returned_json import Encoded, unserialisable
from toolwright.calls.finalise.after_hooks import project, project_now, run_after_hooks
from toolwright.calls.finalise.media import MARK, SHORTEST
from toolwright.calls.finalise.output_check import (
    QUOTE,
    check_output,
    is_plain,
    output_too_long,
    size_beside,
    too_many_parts,
    too_much_beside,
)
from toolwright.calls.finalise.spill import bounded, persisted
from toolwright.calls.finalise.to_outcome import SPECIAL, to_outcome
from toolwright.calls.finalise.truncate import within
from toolwright.calls.hooks import Answer, ProjectedCall
from toolwright.calls.policy import Policy
from toolwright.calls.prepare.before_hooks import show
from toolwright.calls.redact import AT_ONCE, off_loop, redact_outcome, weight
from toolwright.calls.redactor import Redactor
from toolwright.large_json import (
    SCALARS,
    SMALL,
    TooLong,
    TooManyParts,
    encode_in_pieces,
    encode_small,
    has_few_parts,
    is_flat,
    is_small,
)
from toolwright.tools.outcome import Failure, Pending, Success, ToolOutcome, encodable


def settle(run: ActiveCall, result: Any) -> ToolOutcome | None:
    """The outcome of what a tool gave where that needs no check, no cut and no hook; else None."""
    redactor, kind, policy, payload = run.env.redactor, type(result), run.owner.policy, None
    if kind is str:
        if len(result) > policy.plain_bytes:
            return None  # to be encoded off the loop
    elif kind is dict or kind is list:
        if kind is list or not is_flat(result):
            payload = encode_small(result)
            if payload is None and not is_small(result):
                return None
    elif kind not in SCALARS and not (_is_short(result) if kind in SPECIAL else is_small(result)):
        return None
    if redactor is not None:
        return _settle_redacted(run, result, redactor)
    tool = run.tool
    if (
        not run.owner.context.hooked
        and kind not in SPECIAL
        and tool is not None
        and (kind is tool.output_type or tool.check_output is None)
    ):
        # What most tools give, by the shortest way: the same as below, for a value that needs nothing but encoding.
        try:
            if payload is None:
                payload = jsonx.encode_unchecked(result)
                if len(payload) > jsonx.SHALLOW:
                    jsonx.require_shallow(payload)
        except BaseException as error:  # a value may have code of its own for its JSON form
            result = unserialisable(result, error)
        else:
            if len(payload) > policy.plain_bytes or (payload[0] == QUOTE and payload.count(b"\\n") >= policy.max_lines):
                return None
            # A decision is part of the outcome, and an image, perhaps, goes beside the value.
            if run.decision is not None or (len(payload) >= SHORTEST and MARK in payload):
                return _settle_outcome(run, result, _outcome(run, result))
            return ToolOutcome(run.call_id, run.name, "success", payload, run.attempt, run.decided_by)
    return _settle_outcome(run, result, _outcome(run, result))


def _settle_redacted(run: ActiveCall, result: object, redactor: Redactor) -> ToolOutcome | None:
    """The same in a session that has secrets: nothing leaves without being looked through for them."""
    outcome = _outcome(run, result)
    # Against its schema the value is held as the tool gave it: a handle might not fit.
    tool = run.tool
    checked = tool is not None and tool.check_output is not None and type(result) is not tool.output_type
    if outcome.status == "success" and (checked or weight(outcome) > AT_ONCE):
        return None
    if outcome.status == "failure" and weight(outcome) > AT_ONCE:
        return None
    settled = _settle_outcome(run, result, redact_outcome(redactor, outcome))
    return settled if settled is None else _redact_projected(run, settled, redactor)


def _settle_outcome(run: ActiveCall, result: object, outcome: ToolOutcome) -> ToolOutcome | None:
    if type(result) is Pending and run.key_taken:
        return None
    if run.owner.context.hooked and (run.attempt or run.owner.context.hooks.project is not None):
        if outcome.status == "cancelled":  # no hook may hold up a call that was stopped
            return project_now(
                outcome, run.owner.policy, run.owner.context.hooks, functools.partial(_projected_call, run)
            )
        return None
    return outcome if is_plain(outcome, run.tool, run.owner.policy) else None


async def finish(run: ActiveCall, result: object) -> ToolOutcome:
    """The outcome of what a tool gave, by the whole way: after-hooks, output check, bounds, projection."""
    outcome = await _whole_outcome(run, result)
    payload = outcome.payload
    hooks, policy, redactor, tool = run.owner.context.hooks, run.owner.policy, run.env.redactor, run.tool
    if redactor is not None:
        # Against its schema the value is held as the tool gave it: a handle might not fit.
        outcome = await _redacted(redactor, await off_loop(weight(outcome), check_output, outcome, tool, policy))
        tool = None
    if hooks.after and run.attempt:
        before = outcome
        call = show(run, run.env.session_id, run.owner.id)
        outcome = await run_after_hooks(hooks.after, call, outcome, policy.timeout)
        if redactor is not None and outcome is not before:
            outcome, tool = await _redacted(redactor, outcome), run.tool
    outcome = await off_loop(len(outcome.payload), check_output, outcome, tool, policy)
    if outcome.payload is payload and type(result) is str and outcome.status == "success":
        text = encodable(result)  # Of a long text, its JSON form takes long to read.
    else:
        text = await off_loop(len(outcome.payload), outcome.full_text)
    if not within(text, policy.max_lines, policy.max_bytes):
        outcome = await bounded(outcome, text, policy, functools.partial(_save_output, run))
    elif outcome.ok and run.tool is not None and run.tool.definition.hints.persist_output:
        outcome = await persisted(outcome, text, policy, functools.partial(_save_output, run))
    outcome = await project(outcome, policy, hooks, functools.partial(_projected_call, run))
    return outcome if redactor is None else _redact_projected(run, outcome, redactor)


async def _whole_outcome(run: ActiveCall, result: Any) -> ToolOutcome:
    """The outcome of what a tool gave, before anything is checked. A large value is encoded in a thread."""
    kind, policy = type(result), run.owner.policy
    if kind is Failure:
        return _outcome(run, _cut(result, policy))
    if kind in (Success, Encoded) and (failure := too_much_beside(result, policy)) is not None:
        return _outcome(run, failure)
    if kind is str:
        if len(result) > policy.max_output_bytes:
            return _outcome(run, output_too_long(len(result) + 2, policy, at_least=True))
        large = len(result) > AT_ONCE
    elif kind in SPECIAL:
        large = kind is not ToolOutcome and not _is_short(result)
    else:
        large = not is_small(result)
    if not large:
        return _outcome(run, result)
    encode = functools.partial(encode_in_pieces, most=policy.max_output_bytes)
    try:
        outcome = await asyncio.to_thread(_outcome, run, result, encode)
    except TooManyParts:
        return _outcome(run, too_many_parts())
    except TooLong as error:
        return _outcome(run, output_too_long(error.size, policy, at_least=True))
    if await asyncio.to_thread(has_few_parts, outcome.payload):
        return outcome
    return _outcome(run, too_many_parts())


def _projected_call(run: ActiveCall) -> ProjectedCall:
    """The call of an outcome, for the projector."""
    record, owner = run.record, run.owner
    return ProjectedCall(
        session=record.session,
        scope=owner.scope,
        batch=record.batch,
        call_id=run.call_id,
        name=run.name,
        tool=None if run.tool is None else run.tool.definition,
        arguments=record.arguments,
        source=record.source,
        parent=record.parent,
        duration=0.0 if run.started is None else max(0.0, run.env.monotonic() - run.started),
    )


def _save_output(run: ActiveCall, text: str) -> Awaitable[str]:
    # A refused call is in the journal only with its outcome, which comes later: its file has no mark there.
    return run.env.save_output(identity(run), text, run.key is not None and run.refused is None)


def _redact_projected(run: ActiveCall, outcome: ToolOutcome, redactor: Redactor) -> ToolOutcome:
    """A projector's text is the host's, but made of what it was shown, or of more."""
    if run.owner.context.hooks.project is None or outcome.model_text is None:
        return outcome
    return replace(outcome, model_text=redactor.text(outcome.model_text))


def _is_short(result: Any) -> bool:
    """True when a result other than a value is made into an outcome in a short time."""
    kind = type(result)
    if kind is Answer:
        return type(result.value) in SPECIAL or is_small(result.value)
    if kind is Success:
        return is_small(result.value) and size_beside(result) <= SMALL
    if kind is Encoded:
        return len(result.payload) + size_beside(result) <= SMALL
    return kind is not Failure or not isinstance(result.message, str) or len(result.message) <= SMALL


def _outcome(run: ActiveCall, result: object, encode: Callable[[Any], bytes] = jsonx.encode) -> ToolOutcome:
    outcome = to_outcome(run.call_id, run.name, result, run.attempt, run.decided_by, encode)
    if run.decision is not None and outcome.decision is None:
        outcome = replace(outcome, decision=run.decision)
    return replace(outcome, may_have_run=True) if run.ran and outcome.failure is not None else outcome


def _cut(failure: Failure, policy: Policy) -> Failure:
    """A failure whose message is no longer than an output may be."""
    over = len(failure.message) - policy.max_output_bytes
    if over <= 0:
        return failure
    kept = failure.message[: policy.max_output_bytes]
    return replace(failure, message=f"{kept} [{over} characters omitted]")


async def _redacted(redactor: Redactor, outcome: ToolOutcome) -> ToolOutcome:
    if weight(outcome) <= AT_ONCE:
        return redact_outcome(redactor, outcome)
    return await asyncio.to_thread(redact_outcome, redactor, outcome)
