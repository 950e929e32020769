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
from toolwright.calls.finalise.after_hooks import project, project_now, run_after_hooks
from toolwright.calls.finalise.output_check import (
    check_output,
    fits,
    has_many_lines,
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
from toolwright.calls.returned_json import Encoded, unserialisable
from toolwright.calls.returned_media import MARK, SHORTEST
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

_encode_unchecked = jsonx.encode_unchecked


def settle(call: ActiveCall, result: Any) -> ToolOutcome | None:
    """The outcome of what a tool gave where that needs no check, no cut and no hook; else None."""
    kind, payload, special = type(result), None, False
    if kind is dict and is_flat(result):
        pass  # as most results are
    elif kind is dict or kind is list:
        payload = encode_small(result)
        if payload is None and not is_small(result):
            return None  # to be encoded off the loop
    elif kind is str:
        if len(result) > call.owner.policy.plain_bytes:
            return None
    elif kind not in SCALARS:
        special = kind in SPECIAL
        if not (_is_short(result) if special else is_small(result)):
            return None
    if call.env.redactor is not None:
        return _settle_redacted(call, result, call.env.redactor)
    tool, context = call.tool, call.owner.context
    if not special and not context.hooked and tool is not None:
        # What most tools give, by the shortest way: the same as below, for a value that needs nothing but encoding and
        # a look at its schema.
        try:
            if payload is None:
                payload = _encode_unchecked(result)
            size = len(payload)
            if size > context.unchecked_bytes:
                jsonx.require_shallow(payload)
                if size > context.policy.plain_bytes or has_many_lines(payload, context.policy):
                    return None
        except BaseException as error:  # a value may have code of its own for its JSON form
            result = unserialisable(result, error)
        else:
            checked = kind is not tool.output_type and tool.check_output is not None
            # An image, perhaps, goes beside the value; the text of a decision may be longer than the value.
            if (size >= SHORTEST and MARK in payload) or (checked and call.decision is not None):
                return _settle_outcome(call, result, _outcome(call, result))
            if checked and not fits(payload, tool):
                return None
            outcome = ToolOutcome(call.call_id, call.name, "success", payload, call.attempt, call.decided_by)
            return outcome if call.decision is None else replace(outcome, decision=call.decision)
    return _settle_outcome(call, result, _outcome(call, result))


def _settle_redacted(call: ActiveCall, result: object, redactor: Redactor) -> ToolOutcome | None:
    """The same in a session that has secrets: nothing leaves without being looked through for them."""
    outcome = _outcome(call, result)
    # Against its schema the value is held as the tool gave it: a handle might not fit.
    tool = call.tool
    checked = tool is not None and tool.check_output is not None and type(result) is not tool.output_type
    if outcome.status == "success" and (checked or weight(outcome) > AT_ONCE):
        return None
    if outcome.status == "failure" and weight(outcome) > AT_ONCE:
        return None
    settled = _settle_outcome(call, result, redact_outcome(redactor, outcome))
    return settled if settled is None else _redact_projected(call, settled, redactor)


def _settle_outcome(call: ActiveCall, result: object, outcome: ToolOutcome) -> ToolOutcome | None:
    if type(result) is Pending and call.suspension is not None and call.suspension.key_taken:
        return None
    if call.owner.context.hooked and (call.attempt or call.owner.context.hooks.project is not None):
        if outcome.status == "cancelled":  # no hook may hold up a call that was stopped
            return project_now(
                outcome, call.owner.policy, call.owner.context.hooks, functools.partial(_projected_call, call)
            )
        return None
    return outcome if is_plain(outcome, call.tool, call.owner.policy) else None


async def finish(call: ActiveCall, result: object) -> ToolOutcome:
    """The outcome of what a tool gave, by the whole way: after-hooks, output check, bounds, projection."""
    outcome = await _whole_outcome(call, result)
    payload = outcome.payload
    hooks, policy, redactor, tool = call.owner.context.hooks, call.owner.policy, call.env.redactor, call.tool
    if redactor is not None:
        # Against its schema the value is held as the tool gave it: a handle might not fit.
        outcome = await _redacted(redactor, await off_loop(weight(outcome), check_output, outcome, tool, policy))
        tool = None
    if hooks.after and call.attempt:
        before = outcome
        shown = show(call, call.env.session_id, call.owner.id)
        outcome = await run_after_hooks(hooks.after, shown, outcome, policy.timeout)
        if redactor is not None and outcome is not before:
            outcome, tool = await _redacted(redactor, outcome), call.tool
    outcome = await off_loop(len(outcome.payload), check_output, outcome, tool, policy)
    unchanged = outcome.payload is payload and outcome.given_text is None and outcome.status == "success"
    if unchanged and type(result) is str:
        text = encodable(result)  # Of a long text, its JSON form takes long to read.
    else:
        text = await off_loop(len(outcome.payload), outcome.full_text)
    if not within(text, policy.max_lines, policy.max_bytes):
        outcome = await bounded(outcome, text, policy, functools.partial(_save_output, call))
    elif outcome.ok and call.tool is not None and call.tool.definition.hints.persist_output:
        outcome = await persisted(outcome, text, policy, functools.partial(_save_output, call))
    outcome = await project(outcome, policy, hooks, functools.partial(_projected_call, call))
    return outcome if redactor is None else _redact_projected(call, outcome, redactor)


async def _whole_outcome(call: ActiveCall, result: Any) -> ToolOutcome:
    """The outcome of what a tool gave, before anything is checked. A large value is encoded in a thread."""
    kind, policy = type(result), call.owner.policy
    if kind is Failure:
        return _outcome(call, _cut(result, policy))
    if kind in (Success, Encoded) and (failure := too_much_beside(result, policy)) is not None:
        return _outcome(call, failure)
    if kind is str:
        if len(result) > policy.max_output_bytes:
            return _outcome(call, output_too_long(len(result) + 2, policy, at_least=True))
        large = len(result) > AT_ONCE
    elif kind in SPECIAL:
        large = kind is not ToolOutcome and not _is_short(result)
    else:
        large = not is_small(result)
    if not large:
        return _outcome(call, result)
    encode = functools.partial(encode_in_pieces, most=policy.max_output_bytes)
    try:
        outcome = await asyncio.to_thread(_outcome, call, result, encode)
    except TooManyParts:
        return _outcome(call, too_many_parts())
    except TooLong as error:
        return _outcome(call, output_too_long(error.size, policy, at_least=True))
    if await asyncio.to_thread(has_few_parts, outcome.payload):
        return outcome
    return _outcome(call, too_many_parts())


def _projected_call(call: ActiveCall) -> ProjectedCall:
    """The call of an outcome, for the projector."""
    record, owner = call.record, call.owner
    return ProjectedCall(
        session=record.session,
        scope=owner.scope,
        batch=record.batch,
        call_id=call.call_id,
        name=call.name,
        tool=None if call.tool is None else call.tool.definition,
        arguments=record.arguments,
        source=record.source,
        parent=record.parent,
        duration=0.0 if call.started is None else max(0.0, call.env.monotonic() - call.started),
    )


def _save_output(call: ActiveCall, text: str) -> Awaitable[str]:
    # A refused call is in the journal only with its outcome, which comes later: its file has no mark there.
    return call.env.save_output(identity(call), text, call.key is not None and call.refused is None)


def _redact_projected(call: ActiveCall, outcome: ToolOutcome, redactor: Redactor) -> ToolOutcome:
    """A projector's text is the host's, but made of what it was shown, or of more."""
    if call.owner.context.hooks.project is None or outcome.model_text is None:
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


def _outcome(call: ActiveCall, result: object, encode: Callable[[Any], bytes] = jsonx.encode) -> ToolOutcome:
    outcome = to_outcome(call.call_id, call.name, result, call.attempt, call.decided_by, encode)
    if call.decision is not None and outcome.decision is None:
        outcome = replace(outcome, decision=call.decision)
    return replace(outcome, may_have_run=True) if call.ran and outcome.failure is not None else outcome


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
