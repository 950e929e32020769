"""The history of calls of a runtime in memory: the records that its log still has. Owns reading them as a store's."""

from __future__ import annotations

from collections.abc import Iterable

from toolwright.calls.record import CallRecord, MemoryCallLog
from toolwright.stores.contracts.call_history import CallDetail, CallFilters, CallPage, Place, PlacedCall
from toolwright.stores.contracts.inspection import PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey


class MemoryCallHistory:
    """`CallHistory` of a runtime without a store. Steps and waits of finished calls are not remembered."""

    def __init__(self, log: object) -> None:
        self._log = log if isinstance(log, MemoryCallLog) else MemoryCallLog(1)

    async def list_calls(self, filters: CallFilters, before: Place | None, limit: int) -> CallPage:
        found = self._log.query(session=filters.session, tool=filters.tool, batch=filters.batch, status=filters.status)
        if filters.text is not None:
            words = filters.text.casefold()
            found = [
                record
                for record in found
                if any(words in name.casefold() for name in (record.call_id, record.batch, record.tool, record.session))
            ]
        placed = [PlacedCall(_place(record), _call(record)) for record in found]
        placed.sort(key=lambda one: one.place, reverse=True)
        return CallPage([one for one in placed if before is None or one.place < before][:limit])

    async def find_call(self, key: CallKey) -> CallDetail | None:
        found = self._log.query(session=key.session, scope=key.scope, call_id=key.call_id)
        return CallDetail(_call(found[-1])) if found else None

    async def list_batches(self, session: str, before: Place | None, limit: int) -> list[PastBatch]:
        by_batch: dict[tuple[str, str], list[CallRecord]] = {}
        for record in self._log.query(session=session):
            by_batch.setdefault((record.scope, record.batch), []).append(record)
        batches = [_batch(records) for records in by_batch.values()]
        batches.sort(key=lambda one: (one.first_at, one.batch), reverse=True)
        return [one for one in batches if before is None or (one.first_at, one.batch) < before][:limit]

    def sessions(self, only: str | None = None) -> dict[str, tuple[int, int]]:
        """How many calls each session has, or only one, and how many of them are unfinished."""
        counted: dict[str, tuple[int, int]] = {}
        for record in self._log if only is None else self._log.query(session=only):
            calls, unfinished = counted.get(record.session, (0, 0))
            counted[record.session] = (calls + 1, unfinished + (record.outcome is None))
        return counted

    async def find_sessions(self, text: str) -> list[str]:
        words = text.casefold()
        return sorted(id for id in {record.session for record in self._log} if words in id.casefold())

    async def batch_calls(self, batch: str, session: str | None = None) -> list[PastCall]:
        found = self._log.query(session=session, batch=batch)
        # A call that was replayed has a record for each time; the last one counts.
        newest = {(record.session, record.scope, record.call_id): record for record in found}
        return [_call(record) for record in newest.values()]


def _place(record: CallRecord) -> Place:
    return record.queued_at, record.call_id


def _call(record: CallRecord) -> PastCall:
    return PastCall(
        key=CallKey(record.session, record.scope, record.call_id),
        batch=record.batch,
        position=0,
        tool=record.tool,
        arguments=record.raw_arguments,
        source=record.source,
        parent=record.parent,
        queued_at=record.queued_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        outcome=record.outcome,
        cut_off=False,
    )


def _batch(records: Iterable[CallRecord]) -> PastBatch:
    calls = list(records)
    statuses: dict[str, int] = {}
    for record in calls:
        state = "unfinished" if record.outcome is None else record.status
        statuses[state] = statuses.get(state, 0) + 1
    first, last = min(record.queued_at for record in calls), max(_last(record) for record in calls)
    return PastBatch(calls[0].session, calls[0].scope, calls[0].batch, len(calls), statuses, first, last)


def _last(record: CallRecord) -> float:
    return record.finished_at or record.started_at or record.queued_at
