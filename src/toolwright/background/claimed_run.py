"""One background run that a worker of this process has. Owns its way from the claim to its end, and stopping it; the
call itself is run by a batch of its session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

from msgspec.structs import replace

from toolwright.background.checks import LONGEST, require_background
from toolwright.background.ending import abandoned, end, failed, make_ending, stopped, timed_out
from toolwright.background.run_reports import EventCollector, ReportWriter
from toolwright.calls.batch import Batch
from toolwright.calls.policy import Policy
from toolwright.errors import (
    MachineError,
    PolicyError,
    RuleUnknown,
    RuntimeClosed,
    StoreError,
    ToolwrightError,
)
from toolwright.log_fields import log_fields
from toolwright.session.core import RunBatch
from toolwright.session.open_sessions import OpenSessions
from toolwright.session.parts import SharedParts
from toolwright.stores.contracts.background_run import Status, scope_of
from toolwright.stores.contracts.run_store import Claimed, RunStore
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import Failure, ToolOutcome
from toolwright.tools.registry import find

log = logging.getLogger("toolwright.background")

LOST = "the worker no longer has this run"


class ClaimedRun:
    """A claimed run, from now until it is finished or released.

    It is given up when `max_crashes` of the policy workers in a row died with it: a run that kills its worker must not
    kill workers for ever.
    """

    def __init__(
        self,
        claimed: Claimed,
        store: RunStore,
        shared: SharedParts,
        sessions: OpenSessions,
        reports: ReportWriter,
    ) -> None:
        self.run = claimed.run
        """The run, as it was when it was claimed."""
        self.id = claimed.run.id
        self._gone = claimed.before
        self._done = claimed.done
        self._store = store
        self._shared = shared
        self._sessions = sessions
        self._reports = reports
        self._clock = shared.clock
        self._events = EventCollector(claimed.run, shared.clock, reports.dirty, self._call_waits)
        self._batch: Batch | None = None
        self._waits = False
        self._watching: asyncio.Task[None] | None = None
        self._late = False
        self._reason: str | None = claimed.run.cancel_reason
        self.released = False
        self.ending = False
        self.faulty = False
        self.ended_as: Status | None = None
        """The status that it ended with here, once that is in the store."""
        self.task = asyncio.ensure_future(self._go())

    @property
    def hold(self) -> tuple[str, int]:
        """The claim of its worker: the id, and the token."""
        return self.run.id, self.run.token

    def cancel(self, reason: str) -> None:
        """Stop it; its outcome is "cancelled"."""
        if self._reason is None:
            self._reason = reason
            if self._batch is not None:
                self._batch.cancel(reason)

    def release(self) -> None:
        """Stop it as a crash would, and leave it to another worker. A run that is about to end still ends."""
        if self.ending:
            return
        self.released = True
        if self._batch is None:
            self.task.cancel()
        else:
            self._batch.store_failed(StoreError(LOST))
            self._batch.cancel(LOST)

    async def ended(self) -> None:
        """Wait until its code no longer runs here."""
        await asyncio.wait({self.task})

    async def _go(self) -> None:
        try:
            outcome = await self._outcome()
            if not self.released:
                self.ending = True
                await self._end(outcome)
        except (StoreError, MachineError, RuntimeClosed) as fault:
            # Its worker hands it back, and the same or another one continues it.
            self.faulty = True
            if not self.released:
                log.warning(
                    "The run %r cannot continue here: %s",
                    self.id,
                    fault,
                    extra=log_fields("run.not_continued", run_id=self.id),
                )
        except Exception:  # the edge of the runtime: whatever it is, the run must be seen to end
            log.exception(
                "The run %r could not be ended as it should", self.id, extra=log_fields("run.failed", run_id=self.id)
            )
            await self._end_badly()

    async def _outcome(self) -> ToolOutcome:
        run = self.run
        if self._done:
            return await self._known()
        if self._reason is not None:
            await self._end_agents(self._reason)
            return stopped(run, begun=run.attempts > 1)  # this is one of these attempts
        if self._gone is not None and (
            run.options.disposition == "abandon" or run.crashes >= self._shared.policy.max_crashes
        ):
            return abandoned(run)
        if run.deadline is not None and run.deadline <= self._clock.now():
            await self._end_agents("the run took longer than it may")
            return timed_out(run)
        self._events.say("Running")
        alarms = self._shared.effects.room.alarms
        alarm = None if run.deadline is None else alarms.call_at(run.deadline, self._time_is_up)
        try:
            self._batch = batch = self._start_batch()
            if self._waits:
                self._call_waits()
            try:
                (outcome,) = await batch.wait()
            finally:
                if self._watching is not None:
                    self._watching.cancel()
        except (StoreError, MachineError, RuntimeClosed):
            raise
        except PolicyError as error:  # such as a rule of its starter's that is not known here
            failure = Failure(
                category="permission_denied",
                code="rule_unknown" if isinstance(error, RuleUnknown) else "policy_error",
                message=f"Tool {run.tool!r} may not run: {error}",
                source="policy",
            )
            return replace(failed(run, failure), may_have_run=run.attempts > 1)
        except ToolwrightError as error:  # such as an id that was used for something else
            failure = Failure(category="internal", code="not_started", message=str(error), source="runtime")
            return replace(failed(run, failure), may_have_run=run.attempts > 1)  # this is one of these attempts
        finally:
            if alarm is not None:
                alarm.cancel()
        return timed_out(run) if self._late and outcome.status == "cancelled" else outcome

    async def _end_agents(self, reason: str) -> None:
        """End the turns of the sub-agents that an earlier worker left unfinished: the run ends without them."""
        if self.run.attempts > 1:  # this is one of these attempts
            await self._sessions.core(self.run.session).background.end_agents(self.run.call, reason)

    async def _known(self) -> ToolOutcome:
        """The outcome that its call has already: neither a timeout nor a cancellation may change that."""
        (outcome,) = await self._start_batch().wait()
        return outcome

    def _start_batch(self) -> Batch:
        run = self.run
        call = ToolCall(id=run.id, name=run.tool, arguments=run.arguments, source=run.source)
        scope, started_by = scope_of(run.id), run.started_by
        session = self._sessions.core(run.session)
        tools = session.tools_of_runs()
        tool = tools.get(run.tool) or find(tools, run.tool)
        restrictions: tuple[Policy, ...] = ()
        if not self._done:  # else its outcome is only looked up, and nothing of it can be refused any more
            if tool is not None and not tool.definition.hints.supports_background:
                require_background(tool, run.tool, session.policy)
            restrictions = session.read_authority(run.authority)
        # The timeout of a run covers all of it, and its worker enforces it. A run without one has the timeout of its
        # tool, and never the default of the policy.
        said = None if tool is None or run.options.timeout is not None else tool.definition.timeout
        tracing = self._shared.tracing
        with contextlib.nullcontext() if tracing is None else tracing.inside(run.trace):
            return session.start_run(
                call,
                RunBatch(
                    scope=scope,
                    push=self._events.push,
                    save_event=partial(self._reports.append, run, self._events),
                    tools=tools,
                    tool=tool,
                    timeout=LONGEST if said is None else said,
                    restrictions=restrictions,
                    started_by=started_by,
                ),
            )

    def _time_is_up(self) -> None:
        self._late = True
        if self._batch is not None:
            self._batch.cancel("the run took longer than it may")

    def _call_waits(self) -> None:
        """Its call begins to wait for something outside: from now on, look whether it does."""
        self._waits = True
        if self._watching is None and self._batch is not None:
            self._watching = asyncio.ensure_future(self._watch(self._batch))

    async def _watch(self, batch: Batch) -> None:
        """Report when the run waits for something outside, and when it continues."""
        waiting = False
        while not batch.done:
            change = batch.next_change()
            runs = batch.unfinished
            now = bool(runs) and all(run.waiting for run in runs)
            if now != waiting:
                waiting = now
                self._events.waits(waiting)
            try:
                await change
            finally:
                change.cancel()

    async def _end(self, outcome: ToolOutcome) -> None:
        reports, events = self._reports, self._events
        last = await reports.take_last(events)
        try:
            self.ended_as = await end(
                self._store,
                self._shared.quotas,
                self.run,
                outcome,
                self._clock.now(),
                self._gone,
                has_output=events.printed,
                report=last,
            )
        except StoreError:
            reports.put_back(last)
            raise

    async def _end_badly(self) -> None:
        failure = Failure(
            category="internal",
            code="internal_error",
            message="The run failed with an internal error; see the log of its worker",
            source="runtime",
        )
        try:
            bare = make_ending(self.run, failed(self.run, failure), self._clock.now(), files=False, tell=False)
            if await self._store.finish(bare, self._shared.quotas):
                self.ended_as = bare.status
        except ToolwrightError as error:
            self.faulty = True
            log.warning(
                "The run %r cannot be ended here: %s", self.id, error, extra=log_fields("run.not_ended", run_id=self.id)
            )
