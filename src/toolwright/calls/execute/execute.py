"""Stage 4: execute. Owns running one call, from its admission to the end of its code; hands on the tool's result.

A call that may start is put into the lane of its batch, where its first step is taken. A task costs more than a call
that never waits. So the first step of a call's code is taken by hand, in a context of its own, while the event loop
names a task that is lent to it. A call that ends with that step and leaves no trace on the task leaves it to the next
call. A call that waits gets a task of its own, or keeps the lent one if its code has seen that one. It keeps the runner
too: the generator that runs one call after the other.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio import _enter_task, _leave_task
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from types import CoroutineType, coroutine
from typing import Any, Self
from weakref import getweakrefcount

from msgspec import Struct, field
from msgspec.structs import replace

from toolwright.calls.active_call import (
    CONCLUDED,
    CURRENT,
    FINISHING,
    OVER,
    QUEUED,
    RUNNING,
    STARTED,
    ActiveCall,
    call_fields,
)
from toolwright.calls.conclude import cancelled, end_now, give
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.execute.cancel import meaning, released, start_time
from toolwright.calls.execute.executors import ChildProcessExecutor, ThreadExecutor
from toolwright.calls.execute.retry import before_another
from toolwright.calls.execute.timeout import end_queue_time, limit_queue
from toolwright.calls.failures import deadlocked, internal
from toolwright.calls.finalise.finalise import finish, settle
from toolwright.calls.prepare.prepare import own_arguments
from toolwright.calls.quick_fields import quick_fields
from toolwright.calls.schedule.admission import Admission, Limit, Ticket
from toolwright.calls.schedule.claim_index import ClaimIndex
from toolwright.calls.suspend.context_services import make_context
from toolwright.calls.suspend.suspend import rejoined, suspend_until_completed
from toolwright.event_bus import Channel
from toolwright.events import CallStarted
from toolwright.tools.claims import Claim
from toolwright.tools.outcome import ConnectionRequired, Failure, Pending

log = logging.getLogger("toolwright.calls")

MOST_FIRST_STEPS = 100
"""How many calls take their first step before other tasks of the loop run."""
NOT_THE_LAST = (Failure, ConnectionRequired)
"""The result of an attempt that may be followed by another."""

getrefcount = sys.getrefcount
_LATER: Any = None
"""In the place of a part that admission gives to a ticket, before anybody asks for it."""


# --- a call may start


@quick_fields
class CallTicket(Ticket, Struct, eq=False):
    """The ticket of a call: starts it when admission says so. `lane` takes its first step."""

    call: ActiveCall
    lane: Lane
    claims: tuple[Claim, ...]
    limits: tuple[Limit, ...]
    parent: Ticket | None
    # What admission writes for every ticket, or reads of it; the rest is written for few.
    order: int = 0
    admission: Admission = _LATER
    index: ClaimIndex = _LATER
    state: str = "new"
    waiting_in: Limit | None = None
    waited_for: tuple[str, ...] = ()
    reserved: tuple[Limit, ...] = ()
    done: bool = False
    rejoins: bool = False

    @property
    def call_id(self) -> str:
        """The id of its call, for the record of a call that waits for this one."""
        return self.call.call_id

    def start(self) -> None:
        """Run the call now; it has its claims and its slots."""
        call = self.call
        call.phase = STARTED
        if call.elsewhere is not None and call.cancel_reason is None:
            if call.elsewhere:
                self._wait_elsewhere()
            return  # or it is not known yet, and `entered` continues
        if call.queue_deadline is not None:
            end_queue_time(call)
        if self.lane.waits_for_journal:
            return
        if call.key is None:  # The journal wrote no intent of it, and has no start to write either.
            self._take_first_step()
        else:
            self.write_start()

    def entered(self, fault: Exception | None) -> None:
        """It is known for which calls of other processes it must wait: go on if its turn has come."""
        call = self.call
        if fault is not None:
            call.elsewhere = None
            call.owner.store_failed(fault)
        if call.phase is STARTED and not call.concluded:
            self.start()

    def _wait_elsewhere(self) -> None:
        """Wait for calls of other processes, as a call that is queued."""
        call, policy = self.call, self.call.owner.policy
        ids = sorted({other.key.call_id for other in call.elsewhere or ()})
        self.waited_for = (*self.waited_for, *ids)[:3]
        call.phase = QUEUED
        if policy.queue_timeout is not None and not self.lane.waits_for_journal:
            limit_queue((call,), policy.queue_timeout)
        self.admission.step_back(self)
        call.env.journal.wait_elsewhere(call, self._is_free)

    def _is_free(self) -> None:
        if not self.done:
            self.admission.admit(self)

    def write_start(self) -> None:
        """Let the journal write that the call starts, and take its first step then."""
        call = self.call
        call.started = call.env.monotonic()
        if call.key is None or call.env.journal.started(call, self._start_written):
            self._take_first_step()

    def _start_written(self, call: ActiveCall, fault: Exception | None) -> None:
        if fault is not None:
            call.owner.store_failed(fault)
        self._take_first_step()

    def _take_first_step(self) -> None:
        call, lane = self.call, self.lane
        record = call.record
        call.started = record.started = lane.env.monotonic()
        if lane.channel.push is not None:
            lane.channel.push(CallStarted(record))
        lane.ready.append(call)
        if not lane.busy:
            lane.take_soon()

    def rejoined(self) -> None:
        """The call has its slots again: its timeout starts from zero."""
        call = self.call
        rejoined(call)
        start_time(call)

    def refuse_deadlock(self, others: list[str]) -> None:
        """End a nested call that could only wait for a call that waits for it."""
        end_now(self.call, deadlocked(others))


@quick_fields
class Lane(Struct):
    """The calls of one batch that may start now, in copies of the context their batch was started in.

    A call is added to `ready`; where the lane is not busy, `take_soon` follows.
    """

    env: CallEnvironment[ActiveCall]
    context: Context
    channel: Channel
    """Gets the starts of the calls."""
    ready: deque[ActiveCall] = field(default_factory=deque)
    busy: bool = False
    """True while calls are only gathered, and while first steps are taken."""
    waits_for_journal: bool = False
    """True while the intents of the calls are being written: calls that may start wait for that."""

    def take_soon(self) -> None:
        """Take the first steps of the calls that were added, in the loop's next turn."""
        self.busy = True
        self.env.loop.call_soon(self.take_first_steps)

    def take_first_steps(self) -> None:
        """Take the first steps of the calls that are ready, each in a context of its own."""
        env, ready, copy = self.env, self.ready, self.context.copy
        loop = env.loop
        caller = asyncio.current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        # Batches that follow each other within one tick of the loop are lent the same task.
        loan: Loan | None = env.loan
        task: LentTask | None = None
        runner: Runner | None = None
        references = weak_references = 0
        env.loan = None
        if loan is not None:
            task, runner = loan.task, loan.runner
            _enter_task(loop, task)
            references, weak_references = loan.references, loan.weak_references
            if task.touched or getrefcount(task) != references or getweakrefcount(task) != weak_references:
                _leave_task(loop, task)
                loan = task = None
        try:
            for _ in range(MOST_FIRST_STEPS):
                if not ready:
                    break
                call, context = ready.popleft(), copy()
                if task is None:
                    loan = Loan(env, context)
                    task = loan.task
                    _enter_task(loop, task)
                    references = loan.references = getrefcount(task)
                    weak_references = loan.weak_references = getweakrefcount(task)
                if runner is None:
                    runner = run_calls()
                    runner.send(None)
                rest: Rest | None = None
                try:
                    waiting = context.run(runner.send, call)
                    if waiting is not ENDED:
                        rest, runner = _keep(call, runner, waiting), None
                except BaseException as error:
                    runner = None  # an exception has ended it
                    if not isinstance(error, Exception):
                        raise
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
                _leave_task(loop, task)
                loan = task = None
        finally:
            if task is not None:
                _leave_task(loop, task)
                assert loan is not None
                loan.runner = runner
                env.loan = loan
            if caller is not None:
                _enter_task(loop, caller)
            if ready:
                loop.call_soon(self.take_first_steps)
            else:
                self.busy = False


# --- its code


ENDED: Any = object()
"""Yielded by a runner when the call that was sent to it has ended."""
IN_TASK: Any = object()
"""Yielded by a runner that is to be continued in the task of its call."""
Runner = Generator[Any, ActiveCall | None, None]
"""The generator of `run_calls`."""
Rest = Generator[Any, Any, None]
"""What is left of a call after its first step."""


@coroutine
def run_calls() -> Runner:
    """Run the calls that are sent to it one after the other, each in a context of its own.

    It yields `ENDED` when a call has ended. A call that waits keeps it: from then on it yields what the code of the
    call waits for, in the task of the call, and ends with it. So the code of a tool is always awaited here: by `send`,
    each call would raise a StopIteration, which takes a tenth of the time of a call that never waits.
    """
    result: Any
    call = yield ENDED
    while call is not None:
        CURRENT.set(call)
        if call.span is not None:
            call.span.enter()
        plan = call.plan
        if call.cancel_reason is not None:
            end_now(call, cancelled(call))
        elif plan.mode != "async":
            call.attempt = 1
            yield IN_TASK
            yield from _run_elsewhere(call)
        else:
            call.attempt = 1
            call.phase = RUNNING
            call.ran = True
            try:
                arguments = own_arguments(call, plan.tool) if plan.repeats else call.arguments
                if plan.direct is not None:
                    made = plan.direct(**arguments)  # type: ignore[arg-type]
                else:
                    made = plan.invoke(arguments, make_context(call) if plan.needs_context else None)  # type: ignore[arg-type]
                result = yield from made if type(made) is CoroutineType else _awaited(made)
            except BaseException as error:  # the tool's code: whatever it raises ends only this call
                result = meaning(call, error)
                if isinstance(error, KeyboardInterrupt):
                    end_now(call, result)
                    raise
            if call.in_task:
                _attempt_ended(call)
                yield from _finish(call, result)
            elif (type(result) in NOT_THE_LAST and (type(result) is ConnectionRequired or result.retry)) or (
                outcome := settle(call, result)
            ) is None:
                call.phase = STARTED
                yield IN_TASK
                yield from _finish(call, result)
            else:
                call.phase = CONCLUDED
                give(call, outcome)
        if call.in_task:
            return
        call = made = result = outcome = arguments = None  # Nothing is kept until the next one comes.
        call = yield ENDED


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made


def _keep(call: ActiveCall, runner: Runner, waiting: object) -> Rest:
    """Let a call keep its runner; return what its task must await."""
    call.in_task = True
    if waiting is IN_TASK:
        return runner
    # A call that is outside already has no time that runs.
    if call.suspension is None or not call.suspension.waits:
        start_time(call, call.started)
    return resume(runner, waiting)


async def _run_elsewhere(call: ActiveCall) -> None:
    """Run a call whose tool is not async to its end."""
    if call.cancel_reason is not None:
        await _finish(call, cancelled(call))
    else:
        await _finish(call, await _attempt(call, _run_outside_the_loop(call)))


async def _attempt(call: ActiveCall, attempt: Awaitable[Any]) -> object:
    if call.phase is STARTED:
        call.phase = RUNNING
    try:
        result = await attempt
    except BaseException as error:  # the tool's code: whatever it raises ends only this call
        result = meaning(call, error)
        if isinstance(error, KeyboardInterrupt):
            end_now(call, result)
            raise
    _attempt_ended(call)
    return result


def _attempt_ended(call: ActiveCall) -> None:
    if call.phase is RUNNING:  # else it was given up meanwhile
        call.phase = STARTED
    if call.deadline is not None:
        call.plan.bucket.discard(call.deadline)
        call.deadline = None


async def _finish(call: ActiveCall, result: Any) -> None:
    """Try again where that helps, then give the call its outcome, unless that comes later."""
    while type(result) in NOT_THE_LAST and (pause := before_another(call, result)) is not None:
        ended = await pause
        if ended is not None:
            result = ended
            break
        call.attempt += 1
        result = await _attempt(call, _run_again(call))
    if call.phase in OVER:
        released(call)
        return
    if type(result) is Pending and call.suspension is not None and call.suspension.key_taken:
        if call.cancel_reason is None:
            call.task = None
            ticket = call.ticket
            if ticket is not None:
                call.env.admission.leave(ticket)  # Its code has ended: nobody needs to wait for its completion.
                if ticket.parent is None:
                    call.record.waited_for = ticket.waited_for
                    call.ticket = None  # It may wait for long beside many others.
            suspend_until_completed(call, result.deadline)
            return
        result = cancelled(call)
    outcome = settle(call, result)
    if outcome is None:
        call.phase = FINISHING
        try:
            outcome = await finish(call, result)
        except asyncio.CancelledError:
            end_now(call, cancelled(call))
            return
    call.task = None
    if call.phase not in OVER:
        call.phase = CONCLUDED
        give(call, outcome)


async def _run_again(call: ActiveCall) -> object:
    plan = call.plan
    if plan.mode != "async":
        return await _run_outside_the_loop(call)
    start_time(call)
    return await plan.invoke(own_arguments(call, plan.tool), make_context(call) if plan.needs_context else None)


def _run_outside_the_loop(call: ActiveCall) -> Coroutine[Any, Any, Any]:
    """Run a tool that is not async: on a thread, or in a process."""
    call.executor = ThreadExecutor(call) if call.plan.mode == "thread" else ChildProcessExecutor(call)
    return call.executor.run()


def broke(call: ActiveCall, error: Exception) -> None:
    """The runtime itself failed: log it, and end the call, for it is waited for."""
    log.critical(
        "Call %r met a fault of the runtime",
        call.call_id,
        exc_info=error,
        extra=call_fields(call, "call.runtime_fault"),
    )
    end_now(call, replace(internal(error), source="runtime", code="runtime_fault"))


@coroutine
def resume(started: Runner, waiting: object) -> Rest:
    """Await a runner whose call has taken its first step already and waits for `waiting`."""
    while True:
        try:
            yield waiting
        except BaseException as error:
            try:
                waiting = started.throw(error)
            except StopIteration:
                return
        else:
            yield from started
            return


# --- the task that calls are lent


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

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        object.__setattr__(self, "touched", True)
        super().add_done_callback(fn, context=context)

    def set_name(self, value: object) -> None:
        object.__setattr__(self, "touched", True)
        super().set_name(value)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, "touched", True)
        super().__setattr__(name, value)


class Loan:
    """One lent task, and the call that keeps it, if any. `context` is that of the first call it is lent to.

    `references` and `weak_references` count the references to the task while no code has seen it. `runner` is the one
    that the next call may use.
    """

    __slots__ = ("_call", "_env", "_rest", "context", "references", "runner", "task", "weak_references")

    _call: ActiveCall

    def __init__(self, env: CallEnvironment[ActiveCall], context: Context) -> None:
        self._env = env
        self._rest: Any = None
        self.context = context
        self.references = self.weak_references = 0
        self.runner: Runner | None = None
        life = self._live()
        # It stands in the middle of its code before it becomes a task, so that a cancellation is thrown at a place
        # where it is caught: a task that is cancelled before its first step would never take that step.
        life.send(None)
        self.task = LentTask(life, loop=env.loop, name="toolwright-call", context=context)
        object.__setattr__(self.task, "touched", False)

    def use_for(self, call: ActiveCall, rest: Rest, context: Context) -> None:
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


async def _run_rest(call: ActiveCall, rest: Rest, task: asyncio.Task[Any] | None = None, stopped: bool = False) -> None:
    """Run the rest of a call, in this task."""
    # Only from here on can the call's task be cancelled; a cancellation that came before is made up for.
    call.task = task = task or asyncio.current_task()
    if task is not None and (stopped or call.expired or call.cancel_reason is not None or call.phase in OVER):
        task.cancel()
    try:
        await rest  # type: ignore[misc]  # `coroutine` makes it awaitable
    except Exception as error:
        broke(call, error)


@coroutine
def _one_pass() -> Generator[None, None, None]:
    yield


@coroutine
def _inside(context: Context, rest: Rest) -> Rest:
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
