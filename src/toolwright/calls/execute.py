"""Stage 4: execute. Owns running one call: attempts, timeouts, cancellation; hands on what the tool gave."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Coroutine
from types import CoroutineType
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.connecting import wait_for_connection
from toolwright.calls.durable import Unrecorded, outside, recording
from toolwright.calls.mishaps import Cancelled, deadlocked, internal, queued_too_long, raised, timed_out
from toolwright.calls.outside import complete, park
from toolwright.calls.places import ProcessPlace, ThreadPlace
from toolwright.calls.plan import Plan
from toolwright.calls.redact import publish
from toolwright.calls.services import make_context
from toolwright.calls.state import RunState, about, identity
from toolwright.calls.timing import Grace, QueueDeadline, resume
from toolwright.effects.waits import Resolution
from toolwright.events import CallRetrying
from toolwright.tools.claims import PARALLEL
from toolwright.tools.outcome import ConnectionRequired, Failure, Pending, ToolOutcome

log = logging.getLogger("toolwright.calls")


class CallRun(RunState):
    """One call from its submission to its outcome. It has exactly one outcome, whatever happens.

    The tool's code runs in a task of its own. A timeout or a cancellation asks it to stop and waits for the grace;
    then the call is given up: it gets its outcome, its slots are freed, and its claims stay until the code ends.
    """

    # --- what the schedule asks for

    def start(self) -> None:
        """Run the call now; its turn has come."""
        host = self.host
        self.started = started = host.monotonic()
        if self.turn is not None:
            host.deadlines.bucket(self.turn.seconds).discard(self.turn)
            self.turn = None
        self.owner.report.call_started(self, started)
        if self.key is not None and host.journal.marks_start(self):
            host.journal.mark_started(self, self._marked)
        else:
            self.owner.lane.add(self)

    def _marked(self, fault: Exception | None) -> None:
        if fault is not None:
            self.owner.store_failed(fault)
        self.owner.lane.add(self)

    def child_id(self, name: str, raw: bytes) -> str:
        """An id for a nested call that was given none: the same when this call is run again after a crash."""
        stem = f"{self.call_id}.{self.attempt}.{name}.{jsonx.digest(raw)[:12]}"
        if self.made is None:
            self.made = {}
        self.made[stem] = count = self.made.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}.{count}"

    def refuse_deadlock(self, others: list[str]) -> None:
        """End a nested call that could only wait for a call that waits for it."""
        self.end_now(deadlocked(others))

    # --- the run

    def begin(self) -> Coroutine[Any, Any, None] | None:
        """Take the tool's first step. None when that ended the call, else what must be awaited for it to end."""
        if self.cancel_reason is not None:
            self.end_now(self.cancelled())
            return None
        plan = self.plan
        if plan.mode != "async":
            self.attempt = 1
            return self._rest(self._elsewhere(plan))
        self.attempt = 1
        self.in_tool = self.ran = True
        try:
            if plan.direct is not None:
                made = plan.direct(**self.arguments)  # type: ignore[arg-type]
            else:
                made = plan.invoke(self.arguments, make_context(self) if plan.needs_context else None)  # type: ignore[arg-type]
            waiting = made.send(None) if type(made) is CoroutineType else None
        except StopIteration as ended:
            result = ended.value
        except BaseException as error:  # the tool's code: whatever it raises ends only this call
            result = self._failed(error)
            if isinstance(error, KeyboardInterrupt):
                self.end_now(result)
                raise
        else:
            if not self.waits:  # else it is outside already, where its time does not run
                plan.bucket.add(self, self.started)
            return self._rest(resume(made, waiting) if type(made) is CoroutineType else made)
        self.in_tool = False
        if (type(result) is Failure and result.retry) or type(result) is ConnectionRequired:
            return self._finish(result)
        outcome = self.owner.settle(self, result)
        if outcome is None:
            return self._finish(result)
        self.task = None  # The task's context holds this run.
        self.concluded = True
        self._give(outcome)
        return None

    async def _rest(self, attempt: Any) -> None:
        """Wait for the first attempt to end, and finish the call."""
        if self.cancel_reason is not None and not self.ran:
            attempt.close()
            await self._finish(self.cancelled())
        else:
            await self._finish(await self._attempt(attempt))

    async def _attempt(self, attempt: Awaitable[Any]) -> Any:
        self.in_tool = True
        try:
            result = await attempt
        except BaseException as error:  # the tool's code: whatever it raises ends only this call
            result = self._failed(error)
            if isinstance(error, KeyboardInterrupt):
                self.end_now(result)
                raise
        self.in_tool = False
        self.plan.bucket.discard(self)
        return result

    async def _finish(self, result: Any) -> None:
        """Try again where that helps, then give the call its outcome, unless that comes later."""
        while True:
            if type(result) is Failure and result.retry and self._may_retry:
                ended = await self._pause(result)
            elif type(result) is ConnectionRequired and self._may_wait_for(result):
                ended = await self._connect(result.provider)
            else:
                break
            if ended is not None:
                result = ended
                break
            self.attempt += 1
            result = await self._attempt(self._again())
        if self.concluded:
            self._released()
            return
        if type(result) is Pending and self.key_taken:
            if self.cancel_reason is None:
                self.task = None
                self.schedule.finish(self)  # Its code has ended: nobody needs to wait for what is to come.
                park(self, result.deadline)
                return
            result = self.cancelled()
        outcome = self.owner.settle(self, result)
        if outcome is None:
            self.finishing = True
            try:
                outcome = await self.owner.finish(self, result)
            except asyncio.CancelledError:
                self.end_now(self.cancelled())
                return
        self.task = None
        if not self.concluded:
            self.concluded = True
            self._give(outcome)

    async def _again(self) -> Any:
        plan = self.plan
        if plan.mode != "async":
            return await self._elsewhere(plan)
        plan.bucket.add(self)
        return await plan.invoke(self.arguments, make_context(self) if plan.needs_context else None)  # type: ignore[arg-type]

    @property
    def _may_retry(self) -> bool:
        return self.attempt - self.reruns < self.plan.attempts and self.cancel_reason is None and not self.concluded

    async def _pause(self, failure: Failure) -> Any:
        """Wait before the next attempt; None to go on, else what ends the call."""
        delay = failure.retry_after
        if delay is None:
            delay = self.plan.tool.definition.retry.delay(self.attempt)
        publish(self.host, self, CallRetrying(*about(self), self.attempt, delay, failure.code))
        self.expired = False
        self.pausing = True
        try:
            await self.host.clock.sleep(delay)
        except asyncio.CancelledError as error:
            return self._failed(error)
        finally:
            self.pausing = False
        return None

    def _may_wait_for(self, needed: ConnectionRequired) -> bool:
        waits = self.owner.policy.on_connection == "wait" and isinstance(needed.provider, str)
        return waits and self.cancel_reason is None and not self.concluded

    async def _connect(self, provider: str) -> Any:
        """Wait for a connection without a slot; None to go on, else what ends the call."""
        self.expired = False
        self.pausing = True
        try:
            async with recording(self), outside(self, "connection", provider) as opened:
                ended = await wait_for_connection(self, provider, opened)
        except (asyncio.CancelledError, Unrecorded) as error:
            return self._failed(error)
        finally:
            self.pausing = False
            self.plan.bucket.discard(self)  # Its time begins with its code.
        self.reruns += 1
        return ended

    def _elsewhere(self, plan: Plan) -> Coroutine[Any, Any, Any]:
        """Run a tool that is not async: on a thread, or in a process."""
        self.place = ThreadPlace(self) if plan.mode == "thread" else ProcessPlace(self)
        return self.place.run()

    def code_begins(self) -> None:
        """The tool's code has its thread or process, and begins now: so does its time."""
        self.ran = True
        self.plan.bucket.add(self)

    # --- what it waits for outside

    def completed(self, news: Resolution | Exception) -> None:
        """What the call waited for after its code has come."""
        complete(self, news)

    def rejoined(self) -> None:
        """The call has its slots again, and its time begins anew."""
        slot, self.slot = self.slot, None
        if slot is not None and not slot.done():
            slot.set_result(None)
        self.plan.bucket.add(self)

    def lose(self, fault: Exception) -> None:
        """What the call does can not be recorded: it must not have an outcome that says more than is known."""
        if self.fault is None and not self.concluded:  # One that was given up has its outcome: nobody loses anything.
            self.fault = fault
            self.owner.store_failed(fault)

    # --- how it may end

    def expire(self) -> None:
        """The time of this attempt is up."""
        if self.in_tool and not self.concluded and self.cancel_reason is None:
            self.expired = True
            self._interrupt()

    def cancel(self, reason: str) -> None:
        """Stop the call: at once when it has not started, else after its grace."""
        if self.cancel_reason is not None or (self.concluded and self.late is None):
            return
        self.cancel_reason = reason
        if self.late is not None:
            self._start_grace()
            return
        if self.watch is not None:
            self.watch.leave()
            self.watch = None
            self.end_now(self.cancelled())
            return
        if self.asking is not None:
            self.asking.cancel()
        if self.started is None:
            if self.order:
                self.schedule.withdraw(self)
            self.end_now(self.cancelled())
        else:
            if self.task is not None:
                self.task.add_done_callback(self._ended)
            if self.pausing and self.task is not None:
                self.task.cancel()
            elif self.in_tool and not self.expired:
                self._interrupt()
            elif self.finishing:
                self._start_grace()

    def limit_queue(self, seconds: float) -> None:
        """Fail the call unless it starts within this time."""
        if self.started is None and not self.concluded:
            self.turn = QueueDeadline(self, seconds)
            self.host.deadlines.bucket(seconds).add(self.turn)

    def leave_queue(self, seconds: float) -> None:
        """The time to wait for a turn is over."""
        if self.started is None and not self.concluded:
            self.schedule.withdraw(self)
            self.end_now(queued_too_long(self.name, seconds))

    def _interrupt(self) -> None:
        if self.place is not None:
            self.place.stop()
        elif self.task is not None:
            self.task.cancel()
        self._start_grace()

    def _start_grace(self) -> None:
        self.host.deadlines.bucket(self.owner.policy.grace).add(Grace(self, self.attempt))

    def give_up(self) -> None:
        """The grace is over: end the call without waiting for its code."""
        if self.late is not None:
            # A hook hangs, after the call was given up.
            late, self.late = self.late, None
            late.cancel()
            outcome = self.owner.settle(self, self.cancelled())
            assert outcome is not None
            self._give(outcome)
            return
        if self.finishing and not self.concluded:
            # A hook hangs. The tool's code has ended, so its claims are free.
            self.end_now(self.cancelled())
            if self.task is not None:
                self.task.cancel()
            return
        if self.concluded or not self.in_tool:
            return
        if self.place is not None and self.place.abandon():
            return
        self.host.lingering.add(self)
        log.warning("Call %r of tool %r does not stop; it is given up", self.call_id, self.name)
        self.end_now(self._timed_out() if self.expired else self.cancelled())
        self.schedule.free_slots(self)

    def _released(self) -> None:
        """The code of a call that was given up has ended at last."""
        self.host.lingering.discard(self)
        if self.place is not None:
            self.place.released()
        self.schedule.finish(self)

    def broke(self, error: Exception) -> None:
        """The runtime itself failed: say so, and end the call, for whoever waits for it."""
        log.critical("Call %r met a fault of the runtime", self.call_id, exc_info=error)
        self.end_now(replace(internal(error), source="runtime", code="runtime_fault"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task is over; a call that was cancelled before its first step has no outcome yet."""
        if not self.concluded:
            self.end_now(self.cancelled())

    def end_now(self, result: Any) -> None:
        """End the call from outside its task."""
        if self.concluded:
            return
        self.concluded = True
        outcome = self.owner.settle(self, result)
        if outcome is not None:
            self._give(outcome)
        else:
            self.late = self.host.loop.create_task(self._finish_late(result))
            self.host.keep(self.late)

    async def _finish_late(self, result: Any) -> None:
        outcome = await self.owner.finish(self, result)
        if self.late is not None:
            self.late = None
            self._give(outcome)

    def _give(self, outcome: ToolOutcome) -> None:
        """Give the call its outcome and free what it held, once the journal has it."""
        if self.key is None:
            self._given(outcome)
            return
        journal = self.host.journal
        if not journal.takes_time:
            journal.keep(self, outcome)
            if self.sharers:
                self._recorded(outcome, None)
            else:
                self._given(outcome)
            return
        if self.order and not self.done and self not in self.host.lingering:
            # Others may run meanwhile, but none that conflicts: after a crash, what came first must have come first.
            (self.schedule.finish if self.claims is PARALLEL else self.schedule.free_slots)(self)
        journal.finish(self, outcome, functools.partial(self._recorded, outcome))

    def _recorded(self, outcome: ToolOutcome, fault: Exception | None) -> None:
        fault = fault or self.fault
        if outcome.status == "cancelled" and outcome.may_have_run:
            fault = fault or self.owner.fault  # It was let go of: this outcome is not kept.
        if fault is not None:
            self.owner.store_failed(fault)
        self._given(outcome)
        for sharer in self.sharers:
            if fault is not None:
                sharer.owner.store_failed(fault)
            elif outcome.status == "cancelled" and not outcome.may_have_run and not sharer.concluded:
                sharer.owner.start_over(sharer)
                continue
            sharer.end_now(replace(outcome, replayed=True))

    def _given(self, outcome: ToolOutcome) -> None:
        if self.entered and (self.key is None or outcome.status != "connection_required"):  # else it may come again
            self.host.journal.leave(identity(self))
        self.owner.call_concluded(self, outcome, self.host.monotonic())
        if self.order and not self.done and self not in self.host.lingering:
            self.schedule.finish(self)

    # --- what came out

    @property
    def stopping(self) -> bool:
        """True once the call should stop."""
        return self.expired or self.cancel_reason is not None or self.concluded

    def cancelled(self) -> Cancelled:
        return Cancelled(self.cancel_reason or "the program is stopping", may_have_run=self.ran)

    def _timed_out(self) -> Failure:
        tool = self.plan.tool
        return timed_out(tool, self.name, tool.definition.timeout or self.owner.policy.timeout)

    def _failed(self, error: BaseException) -> Failure | Cancelled:
        """Say what an exception of the tool's code means."""
        task = self.task
        asked = task is not None and task.cancelling() > 0
        while task is not None and task.cancelling() > 0:
            task.uncancel()
        if self.fault is not None:
            return Cancelled("what it did could not be recorded", may_have_run=True)
        if self.expired:
            return self._timed_out()
        if self.cancel_reason is not None or (asked and isinstance(error, asyncio.CancelledError)):
            return self.cancelled()
        return raised(self.plan.tool, self.name, self.call_id, error)
