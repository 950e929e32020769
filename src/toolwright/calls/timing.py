"""The times of one call: its grace, its wait for a turn, and a first step that was taken early."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwright.calls.execute import CallRun


@coroutine
def resume(started: Coroutine[Any, Any, Any], waiting: Any) -> Generator[Any, Any, Any]:
    """Await a coroutine whose first step was taken already and that waits for `waiting`."""
    while True:
        try:
            yield waiting
        except BaseException as error:
            try:
                waiting = started.throw(error)
            except StopIteration as ended:
                return ended.value
        else:
            return (yield from started)


class Grace:
    """The end of a call's grace."""

    __slots__ = ("_attempt", "_run")

    def __init__(self, run: CallRun, attempt: int) -> None:
        self._run = run
        self._attempt = attempt

    def expire(self) -> None:
        if self._run.attempt == self._attempt:
            self._run.give_up()


class QueueDeadline:
    """The end of a call's time to wait."""

    __slots__ = ("_run", "seconds")

    def __init__(self, run: CallRun, seconds: float) -> None:
        self._run = run
        self.seconds = seconds

    def expire(self) -> None:
        self._run.leave_queue(self.seconds)
