"""Tasks for calls. Owns which call runs in which task; does not own what a call does.

A task costs more than a call that never waits. So a task takes call after call as long as they end without having
waited for anything; when one waits, it keeps the task, and another task goes on with the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from toolwright.calls.host import CallHost

if TYPE_CHECKING:
    from toolwright.calls.execute import CallRun

CURRENT: ContextVar[CallRun | None] = ContextVar("toolwright_call", default=None)
"""The call whose code is running; child tasks inherit it."""

LONGEST_SHIFT = 16
"""How many calls one task runs before the event loop gets a turn."""


class Shift:
    """One task of a lane, and the call that it must await, if any."""

    __slots__ = ("begun", "rest", "run", "task")

    run: CallRun

    def __init__(self) -> None:
        self.begun = False
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
        shift, context, loop = Shift(), self._context.copy(), self._host.loop
        shift.task = task = self._host.spawn(self._work(shift), context=context)
        if at_once:
            # The first steps must find the task they will go on in as the current one.
            caller = asyncio.current_task(loop)
            if caller is not None:
                asyncio._leave_task(loop, caller)
            asyncio._enter_task(loop, task)
            try:
                context.run(self._begin, shift)
            finally:
                asyncio._leave_task(loop, task)
                if caller is not None:
                    asyncio._enter_task(loop, caller)

    async def _work(self, shift: Shift) -> None:
        if not shift.begun:
            self._begin(shift)
        if shift.rest is not None:
            try:
                await shift.rest
            except Exception as error:
                shift.run.broke(error)

    def _begin(self, shift: Shift) -> None:
        """Take the first steps of calls until one of them waits."""
        shift.begun = True
        ready, task = self._ready, shift.task
        assert task is not None
        for _ in range(LONGEST_SHIFT):
            if not ready:
                self._busy = False
                return
            run = ready.popleft()
            run.task = task
            CURRENT.set(run)
            context = copy_context()
            shift.run = run
            try:
                shift.rest = run.begin()
            except Exception as error:
                run.broke(error)
            # What a call leaves behind, in its context or as a cancellation, must not reach the next.
            if shift.rest is not None or copy_context() != context or task.cancelling():
                break
        if ready:
            self._new_shift()
        else:
            self._busy = False
