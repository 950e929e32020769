"""One call of a model. Owns asking it, its retries, and checking its answer, which is not trusted: a model may give
anything at any time. Knows nothing of the turn that asks.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Set
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.clock import Clock
from toolwright.errors import ToolwrightError
from toolwright.log_fields import log_fields
from toolwright.tools.call import ToolCall
from toolwright.tools.model import (
    Delta,
    ModelAnswer,
    ModelClient,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    to_answer,
)
from toolwright.tools.outcome import encodable

log = logging.getLogger("toolwright.turns")

ATTEMPTS = 5
"""How often a model is asked before its failure is that of the turn."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before the second attempt, which double with each further one, and their limit. A provider may ask for
more, up to `LONGEST_WAIT`."""
LONGEST_WAIT = 300.0
MOST_CALLS = 128
"""Calls in one answer."""
LONGEST_TEXT = 4 * 1024 * 1024
"""Characters of the text of an answer."""
MOST_PIECES = 500_000
"""Pieces of a streamed answer."""
PIECES_AT_ONCE = 200
"""Pieces after which others get the event loop, also where the stream itself never waits."""
LARGEST = 16 * 1024 * 1024
"""Bytes of an answer as it is stored."""

Tell = Callable[[str, dict[str, Any]], None]
"""Takes the events of a model call: a kind and its data."""


def model_spec(model: object) -> str:
    """The name of a model as "provider:name"; for a model that does not say, its class."""
    provider, name = getattr(model, "provider", None), getattr(model, "name", None)
    return f"{provider}:{name}" if provider and name else type(model).__name__


def server_of(model: object) -> str | None:
    """The server that a model asks; None for a model that does not say."""
    server = getattr(model, "server", None)
    return server if isinstance(server, str) else None


def is_opened_by_name(model: object) -> bool:
    """True for a model that any process can open again by its name."""
    return getattr(model, "opened_by_name", False) is True


class AbsentModel:
    """The model of a turn that is to be cancelled: it is not opened, and never asked."""

    def __init__(self, spec: str) -> None:
        self.provider, _, self.name = spec.partition(":")

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Refuse: the turn is to end."""
        raise ModelError(f"The model {self.name!r:.200} is not opened for a turn that is to be cancelled")


async def ask(
    model: ModelClient, request: ModelRequest, used: Set[str], tell: Tell, clock: Clock
) -> tuple[ModelAnswer, bytes]:
    """The checked answer of a model, and its stored form. An attempt that fails for a while is repeated.

    `used` are the ids of the calls that the conversation has already.

    Raises:
        ModelError: it failed for good, or too often, or its answer is not usable.
    """
    attempt = 1
    while True:
        try:
            return checked(await _attempt(model, request, tell), model_spec(model), used)
        except ModelError as error:
            if not error.retry or attempt >= ATTEMPTS:
                raise
            delay = _delay(attempt, error.after)
            log.warning(
                "The model %s is asked again in %.1f s: %s",
                model_spec(model),
                delay,
                error,
                extra=log_fields("model.retrying", session=request.session),
            )
            tell("model.retrying", {"attempt": attempt, "code": error.code, "delay": delay, "reason": str(error)})
        except ToolwrightError as error:
            raise ModelError(str(error), "model_failed") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ModelError("The model cancelled itself", "model_failed") from error
        except Exception as error:
            # What it says may hold anything, a key for instance: it goes to the log, which the owner reads.
            log.exception(
                "The model %s failed", model_spec(model), extra=log_fields("model.failed", session=request.session)
            )
            raise ModelError(f"The model failed with {type(error).__name__}; see the log", "model_failed") from error
        await clock.sleep(delay)
        attempt += 1


def _delay(attempt: int, after: float | None) -> float:
    backoff: float = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (attempt - 1)) * random.uniform(0.75, 1.0)
    return backoff if after is None else min(max(backoff, after), LONGEST_WAIT)


async def _attempt(model: ModelClient, request: ModelRequest, tell: Tell) -> object:
    stream: Callable[[ModelRequest], AsyncIterator[Delta | ModelAnswer]] | None = getattr(model, "stream", None)
    if stream is None:
        return await model.complete(request)
    answer: ModelAnswer | None = None
    written = count = 0
    async with aclosing(stream(request)) as pieces:  # type: ignore[type-var]
        async for piece in pieces:
            count += 1
            if count > MOST_PIECES:
                raise ModelError(f"The answer has more than {MOST_PIECES} pieces", "bad_answer")
            if count % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if isinstance(piece, TextDelta | ReasoningDelta):
                written += len(piece.text)
                if written > LONGEST_TEXT:
                    raise ModelError(f"The answer has more than {LONGEST_TEXT} characters", "bad_answer")
                tell("text" if isinstance(piece, TextDelta) else "reasoning", {"text": encodable(piece.text)})
            elif isinstance(piece, ModelAnswer):
                answer = piece
                break
    if answer is None:
        raise ModelError("The stream of the model ended without an answer", "bad_answer", retry=True)
    return answer


# --- checking an answer


def checked(given: object, spec: str, used: Set[str]) -> tuple[ModelAnswer, bytes]:
    """An answer that can be stored and run, and its stored form.

    A call without an id, or with the id of another call of the conversation, gets one of its own. The provider's own
    form of the answer would contradict that, and is left out then.

    Raises:
        ModelError: it is too large, or not usable.
    """
    answer = to_answer(given, spec)
    if not answer.model:
        answer = replace(answer, model=spec)
    if len(answer.calls) > MOST_CALLS:
        raise ModelError(f"The answer has {len(answer.calls)} calls; {MOST_CALLS} are possible", "bad_answer")
    if len(answer.text) > LONGEST_TEXT:
        raise ModelError(f"The answer has more than {LONGEST_TEXT} characters", "bad_answer")
    if answer.calls:
        answer = _with_own_ids(answer, used)
    try:
        stored = jsonx.encode(answer)
    except (TypeError, ValueError, OverflowError, RecursionError):
        try:
            plain = msgspec.to_builtins(answer, enc_hook=jsonx.known_form)
            stored = jsonx.encode(_encodable(plain))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ModelError(f"The answer has no JSON form: {error}", "bad_answer") from error
    if len(stored) > LARGEST:
        raise ModelError(f"The answer has {len(stored)} bytes; {LARGEST} are possible", "bad_answer")
    try:
        # The answer that is run is the one that a process which continues the turn would read.
        return read_answer(stored), stored
    except msgspec.DecodeError as error:
        raise ModelError(f"The answer is not well formed: {error}", "bad_answer") from error


def _encodable(value: object) -> object:
    """Plain data in which every text has a form in UTF-8."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def _with_own_ids(answer: ModelAnswer, used: Set[str]) -> ModelAnswer:
    ids = {call.id for call in answer.calls if call.id and type(call.id) is str and call.source == "model"}
    if len(ids) == len(answer.calls) and ids.isdisjoint(used):
        return answer
    seen: set[str] = set()
    calls: list[ToolCall] = []
    changed = False
    for position, call in enumerate(answer.calls):
        given = call.id if isinstance(call.id, str) and call.id else f"call_{position + 1}"
        id, number = given, 2
        while id in seen or id in used:
            id, number = f"{given}_{number}", number + 1
        seen.add(id)
        if isinstance(call.arguments, bytes):
            call = replace(call, arguments=call.arguments.decode("utf-8", "replace"))
        if id != call.id or call.source != "model":
            changed = changed or id != call.id
            call = replace(call, id=id, source="model")
        calls.append(call)
    return replace(answer, calls=tuple(calls), native=None if changed else answer.native)


def read_answer(stored: bytes) -> ModelAnswer:
    """The answer that `checked` stored."""
    return msgspec.json.decode(stored, type=ModelAnswer)
