"""What a batch tells the world: one record and one pair of events for each call. Owns saying it exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from toolwright.calls.active_call import about
from toolwright.calls.execute.execute import CallRun
from toolwright.calls.record import CallLog, CallRecord, MemoryCallLog
from toolwright.calls.redact import NOT_SHOWN, publish, rest_of_output, shown_arguments, shown_later
from toolwright.clock import Clock
from toolwright.event_bus import Channel
from toolwright.events import BatchFinished, BatchStarted, CallFinished, CallStarted, CallWarning
from toolwright.tools.outcome import ToolOutcome

log = logging.getLogger("toolwright.calls")


class Report:
    """The records and events of a session's batches."""

    __slots__ = ("_channel", "_clock", "_close", "_open", "_record_bytes", "_session")

    def __init__(self, channel: Channel, clock: Clock, call_log: CallLog, record_bytes: int) -> None:
        self._session = channel.session
        self._channel = channel
        self._clock = clock
        self._open: Callable[[CallRecord], None] = call_log.open
        self._close: Callable[[CallRecord], None] | None = call_log.close
        if type(call_log) is MemoryCallLog:
            # It keeps the record itself, which is filled in here; no call of a method for that.
            self._open, self._close = call_log.records.append, None
        self._record_bytes = record_bytes

    def batch_started(
        self, batch: str, scope: str, runs: Sequence[CallRun], calls: Iterable[tuple[str, str]], parent: str | None
    ) -> None:
        """Open a record for every call. `calls` are their ids and names."""
        session, keep, clock = self._session, self._open, self._clock
        queued = clock.monotonic()
        offset = clock.now() - queued
        redactor = runs[0].host.redactor if runs else None
        for run in runs:
            tool = run.tool
            plain = redactor is None and (tool is None or tool.definition.secret is None)
            run.record = record = CallRecord(
                session,
                batch,
                run.call_id,
                run.name,
                None if tool is None else tool.definition.id,
                run.source,
                run.parent_id,
                run.raw if plain else NOT_SHOWN if shown_later(run) else shown_arguments(run),
                offset,
                queued,
            )
            if scope:
                record.scope = scope
            try:
                keep(record)
            except Exception:  # a user's log at the edge of the pipeline: the call goes on
                _log_failed(record)
        if self._channel.pushes:
            self._channel.publish(BatchStarted(session, batch, queued + offset, tuple(calls), parent, scope))

    def call_started(self, run: CallRun, started: float | None) -> None:
        """A call begins; one that never runs begins when it ends."""
        record = run.record
        record.started = started
        pushes = self._channel.pushes
        if pushes:
            event = CallStarted(record)
            for push in pushes:
                push(event)

    def call_concluded(self, run: CallRun, outcome: ToolOutcome, finished: float) -> None:
        """A call has its outcome: close its record and say so."""
        record = run.record
        if run.started is None:
            self.call_started(run, None)
        record.finished = finished
        record.attempts = run.attempt
        record.outcome = outcome if len(outcome.payload) <= self._record_bytes else _trimmed(outcome)
        if run.waited_for:
            record.waited_for = run.waited_for
        if self._close is not None:
            try:
                self._close(record)
            except Exception:  # a user's log at the edge of the pipeline: the outcome stands
                _log_failed(record)
        pushes = self._channel.pushes
        if run.streams is not None:
            for output in rest_of_output(run, about(run)):
                self._channel.publish(output)
        if pushes:
            event = CallFinished(record)
            for push in pushes:
                push(event)

    def batch_finished(self, batch: str, scope: str, outcomes: Sequence[ToolOutcome | None], all_well: bool) -> None:
        """Every call has its outcome; `all_well` when each is a success."""
        if not self._channel.pushes:
            return
        statuses: dict[str, int] = {"success": len(outcomes)} if all_well else {}
        if not all_well:
            for outcome in outcomes:
                if outcome is not None:
                    statuses[outcome.status] = statuses.get(outcome.status, 0) + 1
        self._channel.publish(BatchFinished(self._session, batch, self._clock.now(), statuses, scope))

    def warn(self, run: CallRun, code: str, message: str) -> None:
        """Say something about a call that its owner should look at."""
        publish(run.host, run, CallWarning(*about(run), code, message))


def _log_failed(record: CallRecord) -> None:
    log.exception("The call log failed for the record of call %r", record.call_id)


def _trimmed(outcome: ToolOutcome) -> ToolOutcome:
    """The outcome without its value, which is longer than a record may be."""
    return replace(outcome, payload=b"null", cached_value=None, model_text=outcome.text)
