"""Contexts and tasks for calls. Owns that each call has its own of both; does not own the work of a call.

A task costs more than a call that never waits. So the first step of a call's code is taken by hand, in a context of
its own, while the event loop names a task that is lent to it. A call that ends with that step and leaves no trace on
the task leaves it to the next call. A call that waits gets a task of its own, or keeps the lent one if its code has
seen that one.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any
from weakref import getweakrefcount

from msgspec import Struct, field

from toolwright.calls.active_call import OVER, ActiveCall
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.execute.execute import begin, broke

MOST_FIRST_STEPS = 100
"""How many calls take their first step before other tasks of the loop run."""

getrefcount = sys.getrefcount


class LentTask(asyncio.Task[None]):
    """The task that the event loop names during the first steps of calls.

    Code cannot distinguish whether two calls were lent the same task, unless one of them keeps a reference to it or
    changes it. References are counted by the interpreter, and changes are noticed here.
    """

    __slots__ = ("touched",)

    touched: bool

    def cancel(self, msg: Any | None = None) -> bool:
        object.__setattr__(self, "touched", True)
        return super().cancel(msg)

    def uncancel(self) -> int:
        object.__setattr__(self, "touched", True)
        return super().uncancel()

    def add_done_callback(self, *args: Any, **options: Any) -> None:
        object.__setattr__(self, "touched", True)
        super().add_done_callback(*args, **options)

    def set_name(self, value: object) -> None:
        object.__setattr__(self, "touched", True)
        super().set_name(value)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, "touched", True)
        super().__setattr__(name, value)


class Loan:
    """One lent task, and the call that keeps it, if any. `context` is that of the first call it is lent to.

    `references` and `weak_references` count the references to the task while no code has seen it.
    """

    __slots__ = ("_call", "_env", "_rest", "context", "references", "task", "weak_references")

    _call: ActiveCall

    def __init__(self, env: CallEnvironment[ActiveCall], context: Context) -> None:
        self._env = env
        self._rest: Any = None
        self.context = context
        self.references = self.weak_references = 0
        life = self._live()
        # It stands in the middle of its code before it becomes a task, so that a cancellation is thrown at a place
        # where it is caught: a task that is cancelled before its first step would never take that step.
        life.send(None)
        self.task = LentTask(life, loop=env.loop, name="toolwright-call", context=context)
        object.__setattr__(self.task, "touched", False)

    def use_for(self, call: ActiveCall, rest: Coroutine[Any, Any, None], context: Context) -> None:
        """Run the rest of the call in this task."""
        self._call, self._rest = call, rest if context is self.context else _inside(context, rest)

    async def _live(self) -> None:
        stopped = False
        try:
            await _one_pass()
        except asyncio.CancelledError:
            stopped = True
            self.task.uncancel()  # it is cancelled again below
        if self._env.loan is self:
            self._env.loan = None
        if self._rest is not None:
            await _run_rest(self._call, self._rest, self.task, stopped)


class Lane(Struct):
    """The calls of one batch that may start now, in copies of the context their batch was started in.

    A call is added to `ready`; where the lane is not busy, `open_again` follows.
    """

    env: CallEnvironment[ActiveCall]
    context: Context
    ready: deque[ActiveCall] = field(default_factory=deque)
    busy: bool = True
    """True until it is opened, and while first steps are taken."""

    def open(self, *, at_once: bool) -> None:
        """Begin with the calls that were added. `at_once`: take their first steps now, not in the loop's next turn."""
        if not self.ready:
            self.busy = False
        elif at_once:
            self._take_first_steps()
        else:
            self.env.loop.call_soon(self._take_first_steps)

    def open_again(self) -> None:
        """Take the first steps of calls that were added after the others were taken, soon."""
        self.busy = True
        self.env.loop.call_soon(self._take_first_steps)

    def _take_first_steps(self) -> None:
        """Take the first steps of the calls that are ready, each in a context of its own."""
        env, ready, copy = self.env, self.ready, self.context.copy
        loop = env.loop
        caller = asyncio.current_task(loop)
        if caller is not None:
            asyncio._leave_task(loop, caller)
        # Batches that follow each other within one tick of the loop are lent the same task.
        loan: Loan | None = env.loan
        task: LentTask | None = None
        references = weak_references = 0
        env.loan = None
        if loan is not None:
            task = loan.task
            asyncio._enter_task(loop, task)
            references, weak_references = loan.references, loan.weak_references
            if task.touched or getrefcount(task) != references or getweakrefcount(task) != weak_references:
                asyncio._leave_task(loop, task)
                loan = task = None
        try:
            for _ in range(MOST_FIRST_STEPS):
                if not ready:
                    break
                call, context = ready.popleft(), copy()
                if task is None:
                    loan = Loan(env, context)
                    task = loan.task
                    asyncio._enter_task(loop, task)
                    references = loan.references = getrefcount(task)
                    weak_references = loan.weak_references = getweakrefcount(task)
                try:
                    rest = context.run(begin, call)
                except Exception as error:
                    rest = None
                    broke(call, error)
                if not task.touched and getrefcount(task) == references and getweakrefcount(task) == weak_references:
                    if rest is None:
                        continue
                    assert loan is not None
                    if ready or context is not loan.context:
                        env.spawn(_run_rest(call, rest), context=context)
                        continue
                if rest is not None:
                    assert loan is not None
                    loan.use_for(call, rest, context)
                asyncio._leave_task(loop, task)
                loan = task = None
        finally:
            if task is not None:
                asyncio._leave_task(loop, task)
                env.loan = loan
            if caller is not None:
                asyncio._enter_task(loop, caller)
            if ready:
                loop.call_soon(self._take_first_steps)
            else:
                self.busy = False


async def _run_rest(
    call: ActiveCall, rest: Coroutine[Any, Any, None], task: asyncio.Task[Any] | None = None, stopped: bool = False
) -> None:
    """Run the rest of a call, in this task."""
    # Only from here on can the call's task be cancelled; a cancellation that came before is made up for.
    call.task = task = task or asyncio.current_task()
    if task is not None and (stopped or call.expired or call.cancel_reason is not None or call.phase in OVER):
        task.cancel()
    try:
        await rest
    except Exception as error:
        broke(call, error)


@coroutine
def _one_pass() -> Generator[None, None, None]:
    yield


@coroutine
def _inside(context: Context, rest: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await `rest`, each of its steps in `context`: the context of a task cannot be exchanged."""
    thrown: BaseException | None = None
    while True:
        try:
            waiting = context.run(rest.send, None) if thrown is None else context.run(rest.throw, thrown)
        except StopIteration:
            return
        try:
            yield waiting
        except BaseException as error:
            thrown = error
        else:
            thrown = None
