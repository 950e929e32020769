"""Stage 6: record. Owns the record of each call, and the queries on it."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.argument_checks import require_count
from toolwright.calls.quick_fields import quick_fields
from toolwright.clock import Clock, rfc3339
from toolwright.event_bus import Channel
from toolwright.events import BatchFinished, BatchStarted, CallFinished, CallStarted
from toolwright.log_fields import log_fields
from toolwright.plain_data import plain_data
from toolwright.tools.outcome import ToolOutcome

log = logging.getLogger("toolwright.calls")


@quick_fields
class CallRecord(Struct, gc=False):
    """The record of one call: opened before the tool runs, closed after it.

    Instants (`queued_at`, `started_at`, `finished_at`) are seconds since the epoch. They are derived from marks of a
    clock that never goes back, so that durations are real even where the wall clock jumps. `scope` is that of the
    batch.

    `redacted` are the fields whose secrets were removed before they came here, `unsearched` those that hold nothing a
    tool wrote. `untold` are the fields that its JSON form has in another way: it has all others.
    """

    redacted: ClassVar[frozenset[str]] = frozenset({"raw_arguments", "outcome"})
    unsearched: ClassVar[frozenset[str]] = frozenset(
        {"session", "batch", "call_id", "tool", "tool_id", "source", "parent", "scope", "waited_for"}
        | {"offset", "queued", "started", "finished", "attempts"}
    )
    untold: ClassVar[frozenset[str]] = frozenset({"raw_arguments", "offset", "queued", "started", "finished"})

    session: str
    batch: str
    call_id: str
    tool: str
    tool_id: str | None
    source: str
    parent: str | None
    raw_arguments: bytes
    offset: float
    queued: float
    started: float | None = None
    finished: float | None = None
    attempts: int = 0
    outcome: ToolOutcome | None = None
    waited_for: tuple[str, ...] = ()
    scope: str = ""

    @property
    def queued_at(self) -> float:
        """When the call came."""
        return self.queued + self.offset

    @property
    def started_at(self) -> float | None:
        """When the tool began to run; None if it never did."""
        return None if self.started is None else self.started + self.offset

    @property
    def finished_at(self) -> float | None:
        """When the call had its outcome; None while it has none."""
        return None if self.finished is None else self.finished + self.offset

    @property
    def queue_time(self) -> float:
        """Seconds from the call's coming to its start, or to its end if it never ran."""
        until = self.finished if self.started is None else self.started
        return 0.0 if until is None else until - self.queued

    @property
    def run_time(self) -> float:
        """Seconds from its start to its end."""
        return 0.0 if self.started is None or self.finished is None else self.finished - self.started

    @property
    def arguments(self) -> Any:
        """The arguments as given, after any hook; text that was no JSON object stands as it was written."""
        return jsonx.decode(self.raw_arguments)

    @property
    def status(self) -> str:
        """The outcome's status, or "running"."""
        return "running" if self.outcome is None else self.outcome.status

    @property
    def category(self) -> str | None:
        """The failure's category, if it failed."""
        failure = None if self.outcome is None else self.outcome.failure
        return None if failure is None else failure.category

    @property
    def code(self) -> str | None:
        """The failure's code, if it failed."""
        failure = None if self.outcome is None else self.outcome.failure
        return None if failure is None else failure.code

    @property
    def replayed(self) -> bool:
        """True when the outcome was a recorded one."""
        return self.outcome is not None and self.outcome.replayed

    def to_json(self) -> dict[str, Any]:
        """The record as plain data; instants are RFC 3339 text."""
        told = plain_data(self, without=_UNTOLD)
        told |= {"arguments": self.arguments, "status": self.status}
        told |= {"queued_at": rfc3339(self.queued_at), "started_at": rfc3339(self.started_at)}
        told |= {"finished_at": rfc3339(self.finished_at), "queue_time": self.queue_time, "run_time": self.run_time}
        return told


_UNTOLD = tuple(CallRecord.untold)


class CallLog(Protocol):
    """Where records go. A log that raises is reported and changes no outcome."""

    def open(self, record: CallRecord) -> None: ...

    def close(self, record: CallRecord) -> None: ...


class Percentiles(Struct, frozen=True):
    """How times are spread, in seconds."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Percentiles:
        """By the nearest-rank method; zeros where there are no values."""
        ordered = sorted(values)
        if not ordered:
            return cls(0.0, 0.0, 0.0)
        return cls(*(ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.50, 0.95, 0.99)))

    def to_json(self) -> dict[str, Any]:
        """The seconds as plain data."""
        return plain_data(self)


class CallStatistics(Struct, frozen=True, kw_only=True):
    """Counts and times of a set of calls."""

    calls: int
    by_status: dict[str, int]
    failures: dict[str, int]
    by_tool: dict[str, int]
    attempts: int
    queue_time: Percentiles
    run_time: Percentiles

    def to_json(self) -> dict[str, Any]:
        """The counts and times as plain data."""
        return plain_data(self)


class RecordFilters(TypedDict, total=False):
    """The filters of `MemoryCallLog.query`; a record must match all that are given."""

    session: str | None
    batch: str | None
    call_id: str | None
    tool: str | None
    scope: str | None
    status: str | None
    category: str | None
    source: str | None
    since: float | None
    until: float | None
    limit: int | None


class MemoryCallLog:
    """The last `limit` records, in memory."""

    def __init__(self, limit: int = 100_000) -> None:
        require_count("limit of a call log", limit)
        self.records: deque[CallRecord] = deque(maxlen=limit)

    def open(self, record: CallRecord) -> None:
        self.records.append(record)

    def close(self, record: CallRecord) -> None:
        pass  # The record itself was filled in.

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[CallRecord]:
        return iter(list(self.records))

    def __repr__(self) -> str:
        return f"<MemoryCallLog: {len(self.records)} records of at most {self.records.maxlen}>"

    def query(
        self,
        *,
        session: str | None = None,
        batch: str | None = None,
        call_id: str | None = None,
        tool: str | None = None,
        scope: str | None = None,
        status: str | None = None,
        category: str | None = None,
        source: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int | None = None,
    ) -> list[CallRecord]:
        """The newest records that match everything said, oldest first. `tool` may be a name or an id."""
        found: list[CallRecord] = []
        for record in reversed(self.records):
            if limit is not None and len(found) >= limit:
                break
            if (
                (session is None or record.session == session)
                and (batch is None or record.batch == batch)
                and (call_id is None or record.call_id == call_id)
                and (tool is None or tool in (record.tool, record.tool_id))
                and (scope is None or record.scope == scope)
                and (status is None or record.status == status)
                and (category is None or record.category == category)
                and (source is None or record.source == source)
                and (since is None or record.queued_at >= since)
                and (until is None or record.queued_at < until)
            ):
                found.append(record)
        found.reverse()
        return found

    def statistics(self, **filters: Unpack[RecordFilters]) -> CallStatistics:
        """Counts, failures by category, and percentiles of queue and run time; filters as in `query`."""
        records = self.query(**filters)
        by_status: dict[str, int] = {}
        failures: dict[str, int] = {}
        by_tool: dict[str, int] = {}
        for record in records:
            by_status[record.status] = by_status.get(record.status, 0) + 1
            by_tool[record.tool] = by_tool.get(record.tool, 0) + 1
            if record.category is not None:
                failures[record.category] = failures.get(record.category, 0) + 1
        started = [record for record in records if record.started_at is not None]
        return CallStatistics(
            calls=len(records),
            by_status=by_status,
            failures=failures,
            by_tool=by_tool,
            attempts=sum(record.attempts for record in records),
            queue_time=Percentiles.of(record.queue_time for record in started),
            run_time=Percentiles.of(record.run_time for record in started),
        )


# --- writing the records, and telling about them


class Recorder:
    """Writes the records of a session's calls under one policy, and tells about them by events."""

    __slots__ = ("_clock", "_close", "_log", "_record_bytes", "channel", "open_record")

    def __init__(self, channel: Channel, clock: Clock, call_log: CallLog, record_bytes: int) -> None:
        self.channel = channel
        self._clock = clock
        self._log = call_log
        self.open_record: Callable[[CallRecord], None] = self._open
        self._close: Callable[[CallRecord], None] | None = call_log.close
        if type(call_log) is MemoryCallLog:
            # It keeps the record itself, which is filled in here; no call of a method for that.
            self.open_record, self._close = call_log.records.append, None
        self._record_bytes = record_bytes

    def _open(self, record: CallRecord) -> None:
        try:
            self._log.open(record)
        except Exception:  # a user's log at the edge of the pipeline: the call continues
            _log_failed(record)

    def batch_started(self, batch: str, scope: str, calls: Iterable[tuple[str, str]], parent: str | None) -> None:
        """Tell that the calls of a batch, by their ids and names, are on their way. Their records are open."""
        session, now = self.channel.session, self._clock.now()
        self.channel.publish(BatchStarted(session, batch, now, tuple(calls), parent, scope))

    def call_concluded(self, record: CallRecord, outcome: ToolOutcome, finished: float, attempts: int) -> None:
        """A call has its outcome: close its record and tell about it."""
        push = self.channel.push
        if push is not None and record.started is None:
            push(CallStarted(record))  # A call that never runs starts when it ends.
        record.finished = finished
        record.attempts = attempts
        record.outcome = outcome if len(outcome.payload) <= self._record_bytes else _trimmed(outcome)
        if self._close is not None:
            try:
                self._close(record)
            except Exception:  # a user's log at the edge of the pipeline: the outcome stands
                _log_failed(record)
        if push is not None:
            push(CallFinished(record))

    def batch_finished(self, batch: str, scope: str, outcomes: Sequence[ToolOutcome | None], all_well: bool) -> None:
        """Every call has its outcome; `all_well` when each is a success."""
        channel = self.channel
        if channel.push is None:
            return
        statuses: dict[str, int] = {"success": len(outcomes)} if all_well else {}
        if not all_well:
            for outcome in outcomes:
                if outcome is not None:
                    statuses[outcome.status] = statuses.get(outcome.status, 0) + 1
        channel.push(BatchFinished(channel.session, batch, self._clock.now(), statuses, scope))


def _log_failed(record: CallRecord) -> None:
    log.exception(
        "The call log failed for the record of call %r",
        record.call_id,
        extra=log_fields(
            "call.not_logged", session=record.session, batch=record.batch, call_id=record.call_id, tool=record.tool
        ),
    )


def _trimmed(outcome: ToolOutcome) -> ToolOutcome:
    """The outcome without its value, which is longer than a record may be."""
    return replace(outcome, payload=b"null", cached_value=None, model_text=outcome.text, given_text=None)
