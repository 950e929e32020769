"""What a batch tells the world: one record and one pair of events for each call. Owns saying it exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw
from msgspec.structs import replace

from toolwright.calls.execute import CallRun
from toolwright.calls.prepare import PreparedCall
from toolwright.calls.record import CallLog, CallRecord, write
from toolwright.clock import Clock
from toolwright.events import BatchFinished, BatchStarted, CallFinished, CallStarted, CallWarning, EventHub
from toolwright.tools.outcome import ToolOutcome


class Report:
    """The records and events of one batch."""

    __slots__ = ("_batch", "_hub", "_log", "_record_bytes", "_records", "_session", "_wall", "queued")

    def __init__(
        self, session: str, batch: str, *, clock: Clock, hub: EventHub, call_log: CallLog, record_bytes: int
    ) -> None:
        self._session = session
        self._batch = batch
        self._hub = hub
        self._log = call_log
        self._record_bytes = record_bytes
        self._records: list[CallRecord] = []
        self.queued = clock.monotonic()
        self._wall = clock.now() - self.queued

    def batch_started(self, entries: Sequence[PreparedCall], parent: str | None) -> None:
        """Open a record for every call."""
        session, batch, at = self._session, self._batch, self.queued + self._wall
        for entry in entries:
            record = CallRecord(
                session=session,
                batch=batch,
                call_id=entry.call_id,
                tool=entry.name,
                tool_id=None if entry.tool is None else entry.tool.definition.id,
                source=entry.source,
                parent=entry.parent,
                raw_arguments=entry.raw,
                queued_at=at,
            )
            self._records.append(record)
            write(self._log, "open", record)
        if self._hub.watched:
            calls = tuple((entry.call_id, entry.name) for entry in entries)
            self._hub.publish(BatchStarted(session=session, batch=batch, at=at, calls=calls, parent=parent))

    def call_started(self, run: CallRun) -> None:
        """A call begins; one that never runs begins when it ends."""
        started = run.started
        if started is not None:
            record = self._records[run.position]
            record.started_at = started + self._wall
            record.queue_time = started - self.queued
        if self._hub.watched:
            entry = run.prepared
            self._hub.publish(
                CallStarted(
                    session=self._session,
                    batch=self._batch,
                    at=(self.queued if started is None else started) + self._wall,
                    call_id=entry.call_id,
                    tool=entry.name,
                    arguments=Raw(entry.raw),
                    source=entry.source,
                    parent=entry.parent,
                )
            )

    def call_concluded(self, run: CallRun, outcome: ToolOutcome, finished: float) -> None:
        """A call has its outcome: close its record and say so."""
        if run.started is None:
            self.call_started(run)
        record = self._records[run.position]
        started = run.started
        record.finished_at = finished + self._wall
        if started is None:
            record.queue_time = finished - self.queued
        else:
            record.run_time = finished - started
        record.attempts = run.attempt
        record.raw_arguments = run.prepared.raw
        ticket = run.ticket
        if ticket is not None:
            record.waited_for = ticket.waited_for
        record.outcome = outcome if len(outcome.payload) <= self._record_bytes else self._trimmed(outcome)
        write(self._log, "close", record)
        if self._hub.watched:
            failure = outcome.failure
            self._hub.publish(
                CallFinished(
                    session=self._session,
                    batch=self._batch,
                    at=finished + self._wall,
                    call_id=outcome.call_id,
                    tool=outcome.tool,
                    status=outcome.status,
                    category=None if failure is None else failure.category,
                    code=None if failure is None else failure.code,
                    attempts=run.attempt,
                    queue_time=record.queue_time,
                    run_time=record.run_time,
                    replayed=outcome.replayed,
                )
            )

    def batch_finished(self, outcomes: Sequence[ToolOutcome | None], finished: float) -> None:
        """Every call has its outcome."""
        if not self._hub.watched:
            return
        statuses: dict[str, int] = {}
        for outcome in outcomes:
            if outcome is not None:
                statuses[outcome.status] = statuses.get(outcome.status, 0) + 1
        self._hub.publish(
            BatchFinished(session=self._session, batch=self._batch, at=finished + self._wall, statuses=statuses)
        )

    def warn(self, entry: PreparedCall, code: str, message: str) -> None:
        """Say something about a call that its owner should look at."""
        self._hub.publish(
            CallWarning(
                session=self._session,
                batch=self._batch,
                at=self.queued + self._wall,
                call_id=entry.call_id,
                tool=entry.name,
                code=code,
                message=message,
            )
        )

    def _trimmed(self, outcome: ToolOutcome) -> ToolOutcome:
        return replace(outcome, payload=b"null", cached_value=None, model_text=outcome.text)
