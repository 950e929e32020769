"""Context managers of the host around an attempt of a call. Owns `Attempt`, and entering and leaving them; does not own
where the attempt runs.

They are there to watch, so that one that breaks never breaks a call: that is logged, and the call continues without
it. A child process imports this module for a tool that runs there, so it imports little.
"""

from __future__ import annotations

import functools
import logging
import pickle
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from msgspec import Struct

from toolwright.log_fields import log_fields
from toolwright.plain_data import plain_data
from toolwright.tools.call import CallSource

log = logging.getLogger("toolwright.calls")


class Attempt(Struct, frozen=True):
    """One attempt of a call, as a context manager around it is told of it."""

    session: str
    """The id of the session."""
    scope: str
    """The scope of the call."""
    call_id: str
    """The id of the call."""
    tool: str
    """The name of the tool."""
    attempt: int
    """The number of the attempt, from 1."""
    source: CallSource
    """Who made the call: "model", "user", "tool", "schedule" or "host"."""
    idempotency_key: str
    """The same for every attempt and every replay of the call."""

    def to_json(self) -> dict[str, Any]:
        """The attempt as plain data."""
        return plain_data(self)


Around = Callable[[Attempt], AbstractContextManager[object]]
"""Makes the context manager that the code of an attempt runs inside of."""


class Inside:
    """Inside of the context managers of an attempt, the first one outermost.

    One that raises is logged and left out, whatever it raises: also the error of a cancelled task, for none is
    cancelled in code that does not wait. What the code returns or raises stands, whatever they do about it. Only an
    error of `stops` ends the attempt; those that were entered are left then, too.
    """

    __slots__ = ("_attempt", "_entered", "_factories", "_stops")

    def __init__(
        self,
        factories: Sequence[Around],
        attempt: Attempt,
        stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,),
    ) -> None:
        self._factories = factories
        self._attempt = attempt
        self._stops = stops
        self._entered: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        for factory in self._factories:
            try:
                manager = factory(self._attempt)
                manager.__enter__()
            except BaseException as raised:  # the host's code
                if isinstance(raised, self._stops):
                    self.__exit__(type(raised), raised, raised.__traceback__)
                    raise
                self._say("could not be entered", factory)
            else:
                self._entered.append(manager)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped: BaseException | None = None
        while self._entered:
            manager = self._entered.pop()
            try:
                manager.__exit__(kind, error, trace)
            except BaseException as raised:  # the host's code
                if raised is error:
                    continue
                if isinstance(raised, self._stops):
                    stopped = raised
                else:
                    self._say("failed at its end", manager)
        if stopped is not None:
            raise stopped

    def _say(self, what: str, culprit: object) -> None:
        attempt = self._attempt
        log.exception(
            "The context manager around call %r, of %s, %s; the call continues without it",
            attempt.call_id,
            described(culprit),
            what,
            extra=log_fields("call.around_failed", session=attempt.session, call_id=attempt.call_id, tool=attempt.tool),
        )


def described(thing: object) -> str:
    """A factory or a manager as a log names it, also one whose own text cannot be read."""
    try:
        return f"{thing!r:.200}"
    except Exception:  # the host's code
        return f"a {type(thing).__name__}"


class SentAround:
    """A factory as it is sent to a child process. It is read there when it is used: one that cannot be read is one
    that raises."""

    __slots__ = ("_data", "_name")

    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._data = data

    def __call__(self, attempt: Attempt) -> AbstractContextManager[object]:
        return _read(self._data)(attempt)

    def __repr__(self) -> str:
        return self._name


@functools.lru_cache(maxsize=64)
def _read(data: bytes) -> Around:
    factory: Around = pickle.loads(data)  # written by the program that started this process
    return factory


class InChild:
    """The code of a tool inside of its context managers, as it is sent to a child process."""

    def __init__(self, factories: tuple[Around, ...], attempt: Attempt, code: Callable[..., Any]) -> None:
        self._factories = factories
        self._attempt = attempt
        self._code = code

    def __call__(self, arguments: object, context: object) -> object:
        # The parent ends a call in its child by a signal, of which the code sees an exit, wherever it is.
        with Inside(self._factories, self._attempt, stops=(KeyboardInterrupt, SystemExit)):
            result = self._code(arguments, context)
            if hasattr(result, "__await__"):
                import asyncio

                result = asyncio.run(_await(result))
        return result


async def _await(awaitable: Awaitable[object]) -> object:
    return await awaitable
