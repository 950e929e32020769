"""Stage 4: execute. Owns running one call: attempts, timeouts, cancellation; hands on what the tool gave."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolwright.calls.host import CallHost
from toolwright.calls.isolate import Child, ChildDied
from toolwright.calls.policy import Policy
from toolwright.calls.prepare import PreparedCall, invalid
from toolwright.calls.schedule import Ticket
from toolwright.calls.services import RunServices, about, describe, make_context
from toolwright.clock import DeadlineBucket
from toolwright.errors import InvalidArguments, ToolError
from toolwright.events import CallRetrying
from toolwright.tools.outcome import INTERNAL_MESSAGE, Failure, ToolOutcome
from toolwright.tools.tool import Tool

log = logging.getLogger("toolwright.calls")

CURRENT: ContextVar[CallRun | None] = ContextVar("toolwright_call", default=None)
"""The call whose code is running; child tasks inherit it."""


class Cancelled(Struct, frozen=True):
    """What a call that was stopped ends with."""

    reason: str
    may_have_run: bool


class RunOwner(Protocol):
    """The batch, as one of its running calls sees it.

    `settle` makes the outcome of what a tool gave when that needs no waiting, else None, and `finish` does.
    """

    id: str
    scope: str
    policy: Policy

    def call_started(self, run: CallRun) -> None: ...

    def settle(self, run: CallRun, result: Any) -> ToolOutcome | None: ...

    async def finish(self, run: CallRun, result: Any) -> ToolOutcome: ...

    def call_concluded(self, run: CallRun, outcome: ToolOutcome, finished: float) -> None: ...


class CallRun:
    """One call from its submission to its outcome. It has exactly one outcome, whatever happens.

    The tool's code runs in a task of its own. A timeout or a cancellation asks it to stop and waits for the grace;
    then the call is given up: it gets its outcome, its slots are freed, and its claims stay until the code ends.
    """

    __slots__ = (
        "arguments",
        "attempt",
        "cancel_reason",
        "child",
        "concluded",
        "expired",
        "host",
        "in_tool",
        "owner",
        "pausing",
        "position",
        "prepared",
        "queued",
        "started",
        "task",
        "ticket",
        "tool",
    )

    def __init__(self, host: CallHost, owner: RunOwner, prepared: PreparedCall, position: int, queued: float) -> None:
        self.host = host
        self.owner = owner
        self.prepared = prepared
        self.position = position
        self.tool: Tool = prepared.tool  # type: ignore[assignment]
        self.arguments: dict[str, Any] = prepared.arguments  # type: ignore[assignment]
        self.queued = queued
        self.started: float | None = None
        self.attempt = 0
        self.task: asyncio.Task[None] | None = None
        self.child: Child | None = None
        self.ticket: Ticket | None = None
        self.in_tool = False
        self.pausing = False
        self.expired = False
        self.concluded = False
        self.cancel_reason: str | None = None

    # --- what the schedule asks for

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.prepared.call_id

    def start(self) -> None:
        """Run the call now; its turn has come."""
        self.started = self.host.clock.monotonic()
        self.owner.call_started(self)
        self.task = self.host.loop.create_task(self._drive())

    def refuse_deadlock(self, others: list[str]) -> None:
        """End a nested call that could only wait for a call that waits for it."""
        names = ", ".join(map(repr, others))
        failure = Failure(
            category="unavailable",
            code="deadlock",
            message=f"The call conflicts with {names}, which waits for a call that this one is part of; "
            "it could never start",
            source="runtime",
        )
        self.end_now(failure)

    # --- the run

    async def _drive(self) -> None:
        CURRENT.set(self)
        tool = self.tool
        definition = tool.definition
        timeout = definition.timeout
        bucket = self.host.deadlines.bucket(self.owner.policy.timeout if timeout is None else timeout)
        retry = definition.retry
        while True:
            self.attempt += 1
            if self.cancel_reason is not None:
                self.end_now(self._cancelled())
                return
            self.in_tool = True
            try:
                if tool.mode == "async":
                    bucket.add(self)
                    result = await tool.invoke(self.arguments, make_context(self) if tool.needs_context else None)
                elif tool.mode == "thread":
                    bucket.add(self)
                    result = await self._in_thread(tool)
                else:
                    result = await self._in_process(tool, bucket)
            except BaseException as error:  # the tool's code: whatever it raises ends only this call
                result = self._failed(error)
                if isinstance(error, KeyboardInterrupt):
                    self.end_now(result)
                    raise
            self.in_tool = False
            bucket.discard(self)
            if type(result) is Failure and result.retry and self.attempt < retry.attempts and self.cancel_reason is None:
                result = await self._pause(result)
                if result is None:
                    continue
            break
        if self.concluded:
            self._released()
            return
        outcome = self.owner.settle(self, result)
        if outcome is None:
            outcome = await self.owner.finish(self, result)
        self._conclude(outcome)

    async def _pause(self, failure: Failure) -> Any:
        """Wait before the next attempt; None to go on, else what ends the call."""
        delay = failure.retry_after
        if delay is None:
            delay = self.tool.definition.retry.delay(self.attempt)
        self.host.hub.publish(CallRetrying(**about(self), attempt=self.attempt, delay=delay, code=failure.code))
        self.expired = False
        self.pausing = True
        try:
            await self.host.clock.sleep(delay)
        except asyncio.CancelledError as error:
            return self._failed(error)
        finally:
            self.pausing = False
        return None

    async def _in_thread(self, tool: Tool) -> Any:
        context = make_context(self) if tool.needs_context else None
        arguments = self.arguments
        return await self.host.threads.run(lambda: tool.invoke(arguments, context))

    async def _in_process(self, tool: Tool, bucket: DeadlineBucket) -> Any:
        def hold(child: Child) -> None:
            self.child = child
            bucket.add(self)

        services = RunServices(self)

        def hear(kind: str, content: tuple[Any, ...]) -> None:
            (services.report_progress if kind == "progress" else services.report_output)(*content)

        try:
            described = describe(self) if tool.needs_context else None
            return await self.host.processes.run(tool.invoke, self.arguments, described, hear, hold)
        finally:
            self.child = None

    # --- how it may end

    def expire(self) -> None:
        """The time of this attempt is up."""
        if not self.concluded and self.in_tool:
            self.expired = True
            self._interrupt()

    def cancel(self, reason: str) -> None:
        """Stop the call: at once when it has not started, else after its grace."""
        if self.concluded or self.cancel_reason is not None:
            return
        self.cancel_reason = reason
        if self.task is None:
            if self.ticket is not None:
                self.host.schedule.withdraw(self.ticket)
            self.end_now(self._cancelled())
        else:
            self.task.add_done_callback(self._ended)
            if self.pausing:
                self.task.cancel()
            elif self.in_tool and not self.expired:
                self._interrupt()

    def limit_queue(self, seconds: float | None) -> None:
        """Fail the call unless it starts within this time."""
        if seconds is not None and self.started is None and not self.concluded:
            self.host.deadlines.bucket(seconds).add(_QueueDeadline(self, seconds))

    def leave_queue(self, seconds: float) -> None:
        """The time to wait for a turn is over."""
        if self.started is None and not self.concluded:
            assert self.ticket is not None
            self.host.schedule.withdraw(self.ticket)
            self.end_now(
                Failure(
                    category="timeout",
                    code="queue_timeout",
                    message=f"Tool {self.prepared.name!r} waited {seconds:g} s for its turn and never ran",
                    source="runtime",
                )
            )

    def _interrupt(self) -> None:
        if self.tool.mode == "async" or (self.tool.mode == "process" and self.child is None):
            assert self.task is not None
            self.task.cancel()
        elif self.child is not None:
            self.child.terminate()
        self.host.deadlines.bucket(self.owner.policy.grace).add(_Grace(self))

    def give_up(self) -> None:
        """The grace is over: end the call without waiting for its code."""
        if self.concluded or not self.in_tool:
            return
        if self.child is not None:
            self.child.kill()
            return
        assert self.ticket is not None and self.task is not None
        self.host.lingering.add(self)
        if self.tool.mode == "thread":
            self.host.threads.give_up()
        log.warning("Call %r of tool %r does not stop; it is given up", self.call_id, self.prepared.name)
        self.end_now(self._timed_out() if self.expired else self._cancelled())
        self.host.schedule.free_slots(self.ticket)

    def _released(self) -> None:
        """The code of a call that was given up has ended at last."""
        self.host.lingering.discard(self)
        if self.tool.mode == "thread":
            self.host.threads.take_back()
        if self.ticket is not None:
            self.host.schedule.finish(self.ticket)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task is over; a call that was cancelled before its first step has no outcome yet."""
        if not self.concluded:
            self.end_now(self._cancelled())

    def end_now(self, result: Any) -> None:
        """End the call from outside its task."""
        if self.concluded:
            return
        self.concluded = True
        outcome = self.owner.settle(self, result)
        if outcome is not None:
            self._give(outcome)
        else:
            self.host.keep(self.host.loop.create_task(self._finish_late(result)))

    async def _finish_late(self, result: Any) -> None:
        self._give(await self.owner.finish(self, result))

    def _conclude(self, outcome: ToolOutcome) -> None:
        """Give the call its outcome and free what it held."""
        if not self.concluded:
            self.concluded = True
            self._give(outcome)

    def _give(self, outcome: ToolOutcome) -> None:
        self.owner.call_concluded(self, outcome, self.host.clock.monotonic())
        ticket = self.ticket
        if ticket is not None and self not in self.host.lingering:
            self.host.schedule.finish(ticket)

    # --- what came out

    @property
    def stopping(self) -> bool:
        """True once the call should stop."""
        return self.expired or self.cancel_reason is not None or self.concluded

    def _cancelled(self) -> Cancelled:
        return Cancelled(self.cancel_reason or "the program is stopping", self.in_tool or self.attempt > 1)

    def _timed_out(self) -> Failure:
        seconds = self.tool.definition.timeout or self.owner.policy.timeout
        return Failure(
            category="timeout",
            code="timeout",
            message=f"Tool {self.prepared.name!r} did not finish within {seconds:g} s and was stopped; "
            "it may have had an effect",
            source="runtime",
            retry=_is_retried(TimeoutError(), self.tool),
        )

    def _failed(self, error: BaseException) -> Failure | Cancelled:
        """Say what an exception of the tool's code means."""
        task = self.task
        asked = task is not None and task.cancelling() > 0
        while task is not None and task.cancelling() > 0:
            task.uncancel()
        if self.expired:
            return self._timed_out()
        if self.cancel_reason is not None or (asked and isinstance(error, asyncio.CancelledError)):
            return self._cancelled()
        if isinstance(error, ToolError):
            return error.failure
        if isinstance(error, ChildDied):
            return Failure(
                category="execution",
                code="process_died",
                message=f"Tool {self.prepared.name!r} failed: {error}",
                source="tool",
            )
        if isinstance(error, InvalidArguments):
            return invalid(self.prepared.name, error)
        log.error("Tool %r failed in call %r", self.prepared.name, self.call_id, exc_info=error)
        failure = internal(error)
        if _is_retried(error, self.tool):
            failure = replace(failure, category="external", code="transient_error", retry=True)
        return failure


class _Grace:
    """The end of a call's grace."""

    __slots__ = ("_run",)

    def __init__(self, run: CallRun) -> None:
        self._run = run

    def expire(self) -> None:
        self._run.give_up()


class _QueueDeadline:
    """The end of a call's time to wait."""

    __slots__ = ("_run", "_seconds")

    def __init__(self, run: CallRun, seconds: float) -> None:
        self._run = run
        self._seconds = seconds

    def expire(self) -> None:
        self._run.leave_queue(self._seconds)


def _is_retried(error: BaseException, tool: Tool) -> bool:
    return isinstance(error, tool.definition.retry.on)


def internal(error: BaseException) -> Failure:
    """The failure for an exception nobody expected: the model reads one sentence, the record has the rest."""
    return Failure(
        category="internal",
        code="internal_error",
        message=INTERNAL_MESSAGE,
        source="tool",
        detail=cause_chain(error),
    )


def cause_chain(error: BaseException) -> str:
    """An exception and its causes, one line each."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        lines.append(f"{type(current).__name__}: {current}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\ncaused by ".join(lines)
