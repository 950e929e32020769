"""Durable parts of a tool: steps, sleeps, waits. Owns their meaning for a running call; not how they are stored."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.argument_checks import is_number
from toolwright.calls.active_call import ActiveCall, call_fields, identity
from toolwright.calls.conclude import lose
from toolwright.calls.failures import raised
from toolwright.calls.hooks import invoke, loop_is_ending
from toolwright.calls.redact import off_loop, redact_failure, sealed, unsealed
from toolwright.calls.suspend.approvals import ApprovalRequest, put_request, why_not
from toolwright.calls.suspend.suspend import enter, step_in, step_out
from toolwright.effects.controller import AskPerson, CallEffects, EffectFailed, Opened, StepPolicy
from toolwright.effects.effect import Effect
from toolwright.effects.step_replay import interrupted
from toolwright.effects.wait_keys import expired, failure_of
from toolwright.errors import MachineError, SecretsError, StoreError, ToolwrightError
from toolwright.large_json import (
    PIECE,
    TooLong,
    TooManyParts,
    decode_text,
    encode_in_pieces,
    has_few_parts,
    is_small,
    is_within,
)
from toolwright.stores.contracts.waits import Wait, WaitKey
from toolwright.tools.outcome import Failure, ToolError, encodable
from toolwright.tools.tool import is_async

MOST_BYTES = 24 * 1024 * 1024
"""How long the JSON of a step's result may be. The files that one script of `bash` may change fit into it."""
MOST_CONTAINERS = 20_000
"""How many lists and objects the inputs or the result of a step may have: these are decoded on the event loop."""
MOST_ITEMS = 200_000
"""How many items and fields these may have in all."""
MOST_ESCAPES = 4_000_000
"""How many escaped characters, such as line ends, a result may have: these take the decoder longest."""
_LIMITS = (
    f"{MOST_BYTES} bytes, {MOST_CONTAINERS} lists and objects, {MOST_ITEMS} items, {MOST_ESCAPES} escaped characters"
)
KeyKind = Literal["completion", "event", "signal"]
Stops = list[asyncio.CancelledError]
"""The cancellations that came while the function of a step ran on a thread."""


class Unrecorded(BaseException):
    """The journal could not be written: the call must stop, and no code of the tool's may carry on as if it could."""

    def __init__(self) -> None:
        # A task that outlives its call is shown with this text, by asyncio.
        super().__init__("nothing can be recorded for this call any more: it has ended, or its store failed")


def wait_key(call: ActiveCall, kind: KeyKind, name: str) -> str:
    """The key of a wait of this call."""
    if kind != "completion":
        require_name(kind, name)
    else:
        enter(call).key_taken = True
    return call.env.effects.write_key(WaitKey(enter(call).key, kind, name))


async def step(
    call: ActiveCall, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], on_crash: object
) -> Any:
    """Run a step once, across crashes and attempts."""
    require_name("step", name)
    if not callable(function):
        raise ToolwrightError(f"The step {name!r} has no function but {function!r:.200}; give it one to call")
    effects = effects_of(call)
    given = _input(name, inputs, call.owner.policy.max_output_bytes)
    redactor = call.env.redactor
    shown = given if redactor is None else await off_loop(len(given), redactor.json, given)
    effect = Effect(identity(call), "step", name, shown, given)
    stops: Stops = []
    do = functools.partial(_done, call, name, function, inputs, stops)
    policy = _policy(call, name, inputs, on_crash, do, stops)
    try:
        payload = await effects.run(effect, do, policy)
        if stops:
            raise stops[0]
        payload = unsealed(call.env, name, payload)
        return jsonx.decode(payload) if len(payload) <= PIECE else await _decoded(payload)
    except EffectFailed as failed:
        if stops:
            raise stops[0] from failed
        if isinstance(failed.__cause__, MachineError):
            raise _unrecorded(call, failed.__cause__) from failed.__cause__
        raise tool_error(failed.failure) from failed.__cause__
    except (StoreError, MachineError) as fault:
        raise _unrecorded(call, fault) from fault


async def _done(
    call: ActiveCall, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], stops: Stops
) -> bytes:
    """Run the function of a step. Its end is recorded unless the call has ended meanwhile: another execution of the
    call may have begun, and what it found of this step stands."""
    try:
        done = await _attempted(call, name, function, inputs, stops)
    except EffectFailed:
        if call.concluded:
            raise Unrecorded from None
        raise
    if call.concluded:
        raise Unrecorded
    return done


async def _attempted(
    call: ActiveCall, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], stops: Stops
) -> bytes:
    try:
        if is_async(function):
            result = await invoke(function, *inputs)
        else:
            result = await _on_thread(call, functools.partial(function, *inputs), stops)
            if asyncio.iscoroutine(result):
                if stops:
                    result.close()
                    raise stops[0]
                result = await result
    except MachineError as fault:
        # Another attempt may do better, and finds the step neither failed nor in doubt.
        failure = Failure(message=str(fault), category="unavailable", code="no_thread", source="runtime", retry=True)
        raise EffectFailed(failure) from fault
    except Exception as error:  # the tool's code
        failure = raised(call.plan.tool, call.name, call.call_id, error, call_fields(call, "call.raised"))
        raise EffectFailed(_shown(call, failure)) from error
    if isinstance(result, Failure):
        raise EffectFailed(_shown(call, result))
    try:
        payload = jsonx.encode(result) if is_small(result) else await _encoded(result)
        return payload if call.env.redactor is None else await sealed(call.env, name, payload)
    except SecretsError:
        raise
    except TooLong as error:
        failure = Failure(
            category="resource_limit",
            code="output_too_long",
            message=f"The step {name!r} returned more than a step may return ({_LIMITS}); return less, or write "
            "it to a file and return its path",
            source="runtime",
        )
        raise EffectFailed(failure) from error
    except Exception as error:  # a value may have code of its own for its JSON form
        failure = Failure(
            code="unserialisable_result",
            message=f"The step {name!r} returned a {type(result).__name__} that {jsonx.has_no_form(error)}",
        )
        raise EffectFailed(failure) from error


async def _on_thread(call: ActiveCall, function: Callable[[], Any], stops: Stops) -> object:
    """Run a function on a thread, to its end: a thread cannot be stopped, and its call has not ended before it has.

    A cancellation that comes meanwhile is added to `stops`, and raised when the end of the step is recorded.
    """
    threads = call.env.threads
    # The thread is this call's own: its slot is held, and its caller waits.
    future = threads.run(function, beyond=True)
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as stop:
            # A call that was given up is only cancelled again where its runtime closes.
            leaves = call in call.env.lingering or loop_is_ending(asyncio.current_task())
            if leaves or threads.withdraw(future):
                raise
            stops.append(stop)
    return future.result()


async def _encoded(result: object) -> bytes:
    """The JSON of a large return value of a step, made in a thread, piece by piece.

    Raises:
        TooLong: it is too large to be stored, or to be decoded on the event loop.
    """
    payload = await asyncio.to_thread(encode_in_pieces, result, MOST_BYTES)
    if not await asyncio.to_thread(has_few_parts, payload, MOST_CONTAINERS, MOST_ITEMS):
        raise TooManyParts
    if await asyncio.to_thread(payload.count, b"\\") > MOST_ESCAPES:
        raise TooLong(len(payload))
    return payload


async def _decoded(payload: bytes) -> object:
    if len(payload) > PIECE and payload.startswith(b'"'):
        return await asyncio.to_thread(decode_text, payload)
    return jsonx.decode(payload)


def _shown(call: ActiveCall, failure: Failure) -> Failure:
    redactor = call.env.redactor
    return failure if redactor is None else redact_failure(redactor, failure)


def _policy(
    call: ActiveCall,
    name: str,
    inputs: tuple[Any, ...],
    on_crash: object,
    do: Callable[[], Awaitable[bytes]],
    stops: Stops,
) -> StepPolicy:
    if on_crash is None:
        return "rerun" if call.plan.tool.definition.hints.repeatable else "fail"
    if on_crash == "rerun":
        return "rerun"
    if on_crash == "fail":
        return "fail"
    if on_crash == "ask":
        # Where the policy asks nobody, it ends as it would without a crash policy of its own.
        return AskPerson(functools.partial(_ask, call, name)) if call.owner.policy.on_ask == "wait" else "fail"
    if not callable(on_crash):
        raise ToolwrightError(
            f"The step {name!r} has on_crash {on_crash!r:.200}; use 'rerun', 'fail', 'ask' or a probe function"
        )
    return functools.partial(_probe, call, name, on_crash, inputs, do, stops)


async def _probe(
    call: ActiveCall,
    name: str,
    probe: Callable[..., Any],
    inputs: tuple[Any, ...],
    do: Callable[[], Awaitable[bytes]],
    stops: Stops,
) -> bytes:
    """Ask a function of the tool what a step that a crash cut off did; run the step if that is nothing."""
    found = await _done(call, name, probe, inputs, stops)
    return found if found != b"null" else await do()


async def _ask(call: ActiveCall, name: str, began: float) -> Failure | None:
    """Ask a person about a step that a crash cut off: None if it may run again."""
    about = jsonx.digest(jsonx.encode([name, began]))[:32]
    reason = f"its step {name!r} was cut off by a crash and may have happened; approve to run the step again"
    request = ApprovalRequest("crash", about, "on_crash", reason, call.owner.policy.approval_timeout)
    async with outside(call, "crash", "on_crash") as opened:
        resolution = await put_request(call, request, opened)
    return None if resolution.status == "ok" else interrupted("step", name, why_not(resolution), asked=True)


async def sleep(call: ActiveCall, name: str, seconds: float) -> None:
    """Wait until an instant that stays the same after a crash."""
    require_name("sleep", name)
    require_seconds(f"The duration of sleep {name!r}", seconds)
    effects = effects_of(call)
    effect = Effect(enter(call).key, "sleep", name, jsonx.encode(seconds))
    async with recording(call), outside(call, "sleep", name) as opened:
        await effects.sleep(effect, seconds, opened)


async def wait(call: ActiveCall, key: str, deadline: float | None) -> object:
    """Wait for an event of this call."""
    named = call.env.effects.read_key(key)
    if named.call != identity(call) or named.kind != "event":
        raise ToolwrightError("A call waits for its own events only; take the key from ctx.event_key(name)")
    if deadline is not None:
        require_seconds(f"The deadline of event {named.name!r}", deadline)
    effects, now = effects_of(call), call.env.clock.now()
    wait = Wait(named, now, None if deadline is None else now + deadline)
    async with recording(call), outside(call, "event", named.name) as opened:
        resolution = await effects.wait(wait, opened)
    if resolution.status == "ok":
        return jsonx.decode(resolution.payload)
    raise tool_error(failure_of(resolution, f"event {named.name!r}"))


async def receive(call: ActiveCall, name: str, deadline: float | None) -> object:
    """The next signal of a name."""
    require_name("signal", name)
    if deadline is not None:
        require_seconds(f"The deadline of signal {name!r}", deadline)
    effects = effects_of(call)
    async with recording(call), outside(call, "signal", name) as opened:
        try:
            came = await effects.receive(name, deadline, opened)
        except EffectFailed as failed:
            raise tool_error(failed.failure) from None
    if came is None:
        raise tool_error(expired(f"signal {name!r}"))
    return jsonx.decode(came)


def tool_error(failure: Failure) -> ToolError:
    """A failure as the error that a tool may catch."""
    error = ToolError(failure.message)
    error.failure = replace(failure, attempts=1)
    return error


def effects_of(call: ActiveCall) -> CallEffects:
    """The effects of a call, for the attempt that runs now."""
    if threading.get_ident() != call.env.thread_id:
        raise ToolwrightError("Steps, sleeps and waits need an async tool; make it `async def`")
    if call.concluded:
        raise Unrecorded  # It was given up, and has its outcome: its later effects could not be recorded any more.
    suspension = enter(call)
    if suspension.effects is None:
        # A call that was not cut off has no past: nothing needs to be read for it.
        suspension.effects = call.env.effects.enter(suspension.key, fresh=call.past is None)
    suspension.effects.begin_attempt(call.attempt)
    return suspension.effects


@contextlib.asynccontextmanager
async def recording(call: ActiveCall) -> AsyncIterator[None]:
    """Stop the call where its journal fails: the tool's reaction must not become its outcome."""
    try:
        yield
    except (StoreError, MachineError) as fault:
        raise _unrecorded(call, fault) from fault


def _unrecorded(call: ActiveCall, fault: Exception) -> Unrecorded:
    lose(call, fault)
    return Unrecorded()


@contextlib.asynccontextmanager
async def outside(call: ActiveCall, what: str, name: str) -> AsyncIterator[Opened]:
    """While something outside is waited for, the call holds no slot, and its time does not run."""
    out = False

    def opened(deadline: float | None) -> None:
        nonlocal out
        out = True
        step_out(call, what, name, deadline)

    try:
        yield opened
    finally:
        if out:
            await step_in(call)


def _input(name: str, inputs: tuple[Any, ...], most: int) -> bytes:
    try:
        if is_small(inputs) or is_within(inputs, most, MOST_ITEMS):
            return jsonx.canonical(inputs)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolwrightError(f"The inputs of step {name!r} have no JSON form: {error}") from error
    raise ToolwrightError(
        f"The inputs of step {name!r} have more than {most} bytes or {MOST_ITEMS} items; give it less, or let "
        "the function take large values from where it is defined"
    )


def require_name(kind: str, name: object) -> None:
    """Refuse a name of a step, a wait or a question that cannot be stored.

    Raises:
        ToolwrightError: it is not text of 1 to 255 characters.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > 255 or encodable(name) != name:
        raise ToolwrightError(f"The {kind} name {name!r:.300} is not usable; use 1 to 255 characters of text")


def require_seconds(what: str, seconds: object) -> None:
    """Refuse a duration that is not a number of seconds.

    Raises:
        ToolwrightError: it is something else, or negative.
    """
    if not is_number(seconds) or not 0 <= seconds < math.inf:
        raise ToolwrightError(f"{what} is {seconds!r:.200}; use a number of seconds, 0 or more")
