"""One process that runs here. Owns its way from the claim to its end, and stopping it; the call itself is a batch's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from toolwright.background.ending import abandoned, end, failed, make_ending, status_of, stopped, timed_out
from toolwright.background.event_collector import Sink
from toolwright.calls.batch import Batch
from toolwright.clock import Clock
from toolwright.effects.alarms import Alarms
from toolwright.errors import (
    MachineError,
    PolicyError,
    RuleUnknown,
    RuntimeClosed,
    StoreError,
    ToolwrightError,
)
from toolwright.stores.contracts.background_run import BackgroundRun, Status
from toolwright.stores.contracts.run_store import Claimed, RunStore
from toolwright.stores.contracts.sessions import Quotas
from toolwright.tools.outcome import Failure, ToolOutcome

log = logging.getLogger("toolwright.background")

LOST = "the worker no longer runs this process"


class Running:
    """A claimed process, from now until it is over or let go of.

    `start` makes the batch of its call; `flush` writes what was reported before its end is. After `max_crashes`
    workers in a row that were gone with it, it is given up: one that ends its worker must not end them for ever.
    """

    def __init__(
        self,
        claimed: Claimed,
        store: RunStore,
        clock: Clock,
        alarms: Alarms,
        quotas: Quotas,
        sink: Sink,
        start: Callable[[BackgroundRun, Sink], Batch],
        flush: Callable[[Sink], Awaitable[None]],
        max_crashes: int,
    ) -> None:
        self._process = claimed.process
        self._gone = claimed.before
        self._done = claimed.done
        self._store = store
        self._clock = clock
        self._alarms = alarms
        self._quotas = quotas
        self._sink = sink
        self._start = start
        self._flush = flush
        self._max_crashes = max_crashes
        self._batch: Batch | None = None
        self._late = False
        self._reason: str | None = claimed.process.cancel_reason
        self.let_gone = False
        self.ending = False
        self.faulty = False
        self.ended_as: Status | None = None
        """The status that it ended with here, once that is in the store."""
        self.task = asyncio.ensure_future(self._go())

    @property
    def id(self) -> str:
        """The id of the process."""
        return self._process.id

    @property
    def process(self) -> BackgroundRun:
        """The process, as it was when it was claimed."""
        return self._process

    @property
    def hold(self) -> tuple[str, int]:
        """What its worker holds on to: the id, and the token of its claim."""
        return self._process.id, self._process.token

    def cancel(self, reason: str) -> None:
        """Stop it; its outcome is "cancelled"."""
        if self._reason is None:
            self._reason = reason
            if self._batch is not None:
                self._batch.cancel(reason)

    def let_go(self) -> None:
        """Stop it as a crash would: it is left to another worker. One that is about to end still does."""
        if self.ending:
            return
        self.let_gone = True
        if self._batch is None:
            self.task.cancel()
        else:
            self._batch.store_failed(StoreError(LOST))
            self._batch.cancel(LOST)

    async def ended(self) -> None:
        """Wait until nothing of it runs here any more."""
        await asyncio.wait({self.task})

    async def _go(self) -> None:
        try:
            outcome = await self._outcome()
            if not self.let_gone:
                self.ending = True
                await self._end(outcome)
        except (StoreError, MachineError, RuntimeClosed) as fault:
            # Its worker hands it back, and another goes on with it, or the same.
            self.faulty = True
            if not self.let_gone:
                log.warning("The process %r cannot go on here: %s", self.id, fault)
        except Exception:  # the edge of a process: whatever it is, the run must be seen to end
            log.exception("The process %r could not be ended as it should", self.id)
            await self._end_badly()

    async def _outcome(self) -> ToolOutcome:
        process = self._process
        if self._done:
            return await self._known()
        if self._reason is not None:
            return stopped(process, begun=process.attempts > 1)  # this is one of them
        if self._gone is not None and (
            process.options.disposition == "abandon" or process.crashes >= self._max_crashes
        ):
            return abandoned(process)
        if process.deadline is not None and process.deadline <= self._clock.now():
            return timed_out(process)
        self._sink.say("Running")
        alarm = None if process.deadline is None else self._alarms.set(process.deadline, self._time_is_up)
        try:
            batch = self._batch = self._start(process, self._sink)
            watching = asyncio.ensure_future(self._watch(batch))
            try:
                (outcome,) = await batch.wait()
            finally:
                watching.cancel()
        except (StoreError, MachineError, RuntimeClosed):
            raise
        except PolicyError as error:  # such as a rule of its starter's that is not known here
            failure = Failure(
                category="permission_denied",
                code="rule_unknown" if isinstance(error, RuleUnknown) else "policy_error",
                message=f"Tool {process.tool!r} may not run: {error}",
                source="policy",
            )
            return replace(failed(process, failure), may_have_run=process.attempts > 1)
        except ToolwrightError as error:  # such as an id that was used for something else
            failure = Failure(category="internal", code="not_started", message=str(error), source="runtime")
            return replace(failed(process, failure), may_have_run=process.attempts > 1)  # this is one of them
        finally:
            if alarm is not None:
                alarm.cancel()
        return timed_out(process) if self._late and outcome.status == "cancelled" else outcome

    async def _known(self) -> ToolOutcome:
        """The outcome that its call has already: no time that is up and nobody who cancels it may change that."""
        (outcome,) = await self._start(self._process, self._sink).wait()
        return outcome

    def _time_is_up(self) -> None:
        self._late = True
        if self._batch is not None:
            self._batch.cancel("the run took longer than it may")

    async def _watch(self, batch: Batch) -> None:
        """Say when the process waits for something outside, and when it goes on."""
        waiting = False
        while True:
            change = batch.next_change()
            runs = batch.unfinished
            now = bool(runs) and all(run.waiting for run in runs)
            if now != waiting:
                waiting = now
                self._sink.waits(waiting)
            try:
                await change
            finally:
                change.cancel()

    async def _end(self, outcome: ToolOutcome) -> None:
        await self._flush(self._sink)
        if await end(self._store, self._quotas, self._process, outcome, self._clock.now(), self._gone):
            self.ended_as = status_of(outcome, self._gone)

    async def _end_badly(self) -> None:
        failure = Failure(
            category="internal",
            code="internal_error",
            message="The run ended in a way that can't be told",
            source="runtime",
        )
        try:
            bare = make_ending(
                self._process, failed(self._process, failure), self._clock.now(), files=False, tell=False
            )
            if await self._store.finish(bare, self._quotas):
                self.ended_as = bare.status
        except ToolwrightError as error:
            self.faulty = True
            log.warning("The process %r cannot be ended here: %s", self.id, error)
