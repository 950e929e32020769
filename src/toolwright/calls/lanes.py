"""Tasks for calls. Owns which call runs in which task; does not own what a call does.

A task costs more than a call that never waits. So a task takes call after call as long as they end without having
waited for anything; when one waits, it keeps the task, and another task goes on with the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from toolwright.calls.host import CallHost

if TYPE_CHECKING:
    from toolwright.calls.execute import CallRun

CURRENT: ContextVar[CallRun | None] = ContextVar("toolwright_call", default=None)
"""The call whose code is running; child tasks inherit it."""

LONGEST_SHIFT = 100
"""How many calls one task runs before the event loop gets a turn; with a task for each, all would run in one turn."""


class Shift:
    """One task of a lane, and the call that it must await, if any."""

    __slots__ = ("begun", "rest", "run", "stopped", "task")

    run: CallRun

    def __init__(self) -> None:
        self.begun = self.stopped = False
        self.rest: Coroutine[Any, Any, None] | None = None
        self.task: asyncio.Task[None] | None = None


class Lane:
    """The calls of one batch that may start now, in the context their batch was started in."""

    __slots__ = ("_busy", "_context", "_host", "_ready")

    def __init__(self, host: CallHost) -> None:
        self._host = host
        self._context = copy_context()
        self._ready: deque[CallRun] = deque()
        self._busy = True  # until it is opened

    def open(self, *, at_once: bool) -> None:
        """Begin with the calls that were added. `at_once`: take their first steps now, not in the loop's next turn."""
        if self._ready:
            self._new_shift(at_once)
        else:
            self._busy = False

    def add(self, run: CallRun) -> None:
        """Start a call as soon as a task is free for it."""
        self._ready.append(run)
        if not self._busy:
            self._busy = True
            self._new_shift()

    def _new_shift(self, at_once: bool = False) -> None:
        shift, context = Shift(), self._context.copy()
        shift.task = self._host.spawn(self._work(shift), context=context)
        if at_once:
            self._begin_now(shift, context)

    def _begin_now(self, shift: Shift, context: Context) -> None:
        """Take the first steps before the shift's own task does: they find it as the current one, and go on in it."""
        loop, task = self._host.loop, shift.task
        assert task is not None
        caller = asyncio.current_task(loop)
        if caller is not None:
            asyncio._leave_task(loop, caller)
        asyncio._enter_task(loop, task)
        try:
            context.run(self._begin, shift, None)
        finally:
            asyncio._leave_task(loop, task)
            if caller is not None:
                asyncio._enter_task(loop, caller)
        if shift.rest is None:
            return
        if task.cancelling():
            # A task that is cancelled before its first step never takes it: another must go on in its place.
            rest, shift.rest = shift.rest, None
            shift, run = Shift(), shift.run
            shift.begun, shift.rest, shift.run, shift.stopped = True, rest, run, True
            shift.task = self._host.spawn(self._work(shift), context=context)

    async def _work(self, shift: Shift) -> None:
        if not shift.begun:
            self._begin(shift, shift.task)
        if shift.rest is not None:
            # Only from here on can the task be cancelled; what came before that is made up for.
            run = shift.run
            run.task = task = shift.task
            if task is not None and (shift.stopped or run.stopping):
                task.cancel()
            try:
                await shift.rest
            except Exception as error:
                shift.run.broke(error)

    def _begin(self, shift: Shift, task: asyncio.Task[None] | None) -> None:
        """Take the first steps of calls until one of them waits. `task` is what a cancellation would cancel."""
        shift.begun = True
        ready, current = self._ready, shift.task
        assert current is not None
        for _ in range(LONGEST_SHIFT):
            if not ready:
                self._busy = False
                return
            run = ready.popleft()
            run.task = task
            CURRENT.set(run)
            context = copy_context()
            try:
                rest = run.begin()
            except Exception as error:
                rest = None
                run.broke(error)
            if rest is not None:
                shift.run, shift.rest = run, rest
                break
            # What a call leaves behind, in its context or as a cancellation, must not reach the next.
            if copy_context() != context or current.cancelling():
                break
        if ready:
            self._new_shift()
        else:
            self._busy = False
