"""The history of calls in a SQL store. Owns its queries, which change nothing."""

from __future__ import annotations

from typing import Any

from toolwright.stores.contracts.call_history import (
    MOST_SEARCHED,
    MOST_WALKED,
    CallDetail,
    CallFilters,
    CallPage,
    PastStep,
    PastWait,
    Place,
    PlacedCall,
)
from toolwright.stores.contracts.inspection import PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import BY_CALL, Resolution
from toolwright.stores.sql.calls.journal import CallRow
from toolwright.stores.sql.calls.past_calls import PAST_BATCHES, past_batch, past_call
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import KEY, columns_of, unpacker
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.liveness import Liveness

_COLUMNS = columns_of(CallRow)
_BUNDLED = float(2**62)
"""The place of calls that have no row of their own yet: before all others."""
_OF_BATCH = "substr(batch, 7, 8) = substr(?, 7, 8) AND batch || '' = ?"
"""The term for the calls of a batch. The index `calls_of_batch` is for the first part; the second is written so that
SQLite does not put its value into the first one, which then would be no expression of a column any more."""
_HAS_TEXT = (
    "(" + " OR ".join(f"lower({n}) LIKE lower(?) ESCAPE '!'" for n in ("call_id", "batch", "tool", "session")) + ")"
)
"""The term for calls that have a text in one of their names."""
_UNFINISHED = ("waiting", "running", "cut off")
_resolution = unpacker(Resolution)


class SqlCallHistory:
    """`CallHistory` in a SQL store."""

    def __init__(self, changes: Changes, liveness: Liveness | None) -> None:
        self._changes = changes
        self._liveness = liveness

    async def list_calls(self, filters: CallFilters, before: Place | None, limit: int) -> CallPage:
        unfinished = filters.status in _UNFINISHED
        terms, values = [], []
        for name in ("session", "tool", "batch"):
            if (value := getattr(filters, name)) is not None:
                terms.append(f"{name} = ?" if name != "batch" else _OF_BATCH)
                values += [value] if name != "batch" else [value, value]
        if filters.status is not None:
            terms.append("outcome IS NULL" if unfinished else "status = ?")
            values += [] if unfinished else [filters.status]
        if filters.text is not None:
            terms.append(_HAS_TEXT)
            values += [_like(filters.text)] * 4
        only = "".join(f" AND {term}" for term in terms)
        # The order of the rows is that in which calls came, and needs no index that every call would have to fill.
        # Those that are unfinished have one, which SQLite uses if the order cannot come from the rows.
        number = "+rowid" if unfinished else "rowid"
        written = f"SELECT rowid, {_COLUMNS} FROM calls WHERE {number} < ?{only} ORDER BY {number} DESC LIMIT ?"
        # So all others must be walked through.
        walks = not unfinished and filters.session is None and filters.batch is None and filters.text is None and only
        bundled = f"SELECT {_COLUMNS} FROM every_call WHERE status IS NULL AND queued_at > 0{only}"

        def work(connection: Connection) -> CallPage:
            with connection:  # one moment for calls and their waits
                found: list[tuple[Place, CallRow]] = []
                place = before or (_BUNDLED, "~")
                if place[0] == _BUNDLED and filters.status in (None, *_UNFINISHED):
                    found += [each for each in self._bundled(connection, bundled, values) if each[0] < place][:limit]
                last, rest = place[0], limit - len(found)
                if unfinished:
                    rest = 2**62  # all of them: which of the three states each has is not in its row
                query, first, end = written, 0, int(min(last, _BUNDLED))
                if filters.text is not None:
                    first = _newest(connection) - MOST_SEARCHED + 1
                elif walks:
                    first = min(end, _newest(connection) + 1) - MOST_WALKED
                if first > 0:
                    query = written.replace("WHERE", f"WHERE rowid >= {first} AND", 1)
                rows: Any = connection.execute(query, (end, *values, rest)).fetchall()
                found += [((float(number), ""), CallRow._make(row)) for number, *row in rows]
                calls = self._calls([row for _, row in found], connection)
                is_rest = walks and len(rows) < rest and first > 0 and _has_before(connection, first)
            placed = map(PlacedCall, [place for place, _ in found], calls)
            return CallPage(placed, (float(first), "") if is_rest else None)

        page = await self._changes.read(work)
        if not unfinished:
            return page
        return CallPage([one for one in page if one.call.status == filters.status][:limit])

    def _bundled(self, connection: Connection, query: str, values: list[Any]) -> list[tuple[Place, CallRow]]:
        """Calls that are unfinished, and have no row of their own, the newest first."""
        have = connection.execute("SELECT count(*) FROM bundles").fetchone()
        if have is None or have[0] == 0:
            return []
        rows = [CallRow._make(row) for row in connection.execute(query.replace("every_call", "bundled_calls"), values)]
        return sorted((((_BUNDLED, _order(row)), row) for row in rows), key=lambda each: each[0], reverse=True)

    async def find_call(self, key: CallKey) -> CallDetail | None:
        def work(connection: Connection) -> CallDetail | None:
            with connection:
                row = connection.execute(f"SELECT {_COLUMNS} FROM every_call WHERE {KEY}", key).fetchone()
                calls = [] if row is None else self._calls([CallRow._make(row)], connection)
                steps: Any = connection.execute(
                    f"SELECT label, at, done, failure IS NOT NULL FROM effects WHERE {KEY} ORDER BY at, label", key
                ).fetchall()
                waits: Any = connection.execute(
                    f"SELECT kind, name, opened_at, deadline, open, resolution FROM waits WHERE {KEY}"
                    " ORDER BY coalesce(opened_at, 0), kind, name",
                    key,
                ).fetchall()
            return CallDetail(calls[0], tuple(map(_step, steps)), tuple(map(_wait, waits))) if calls else None

        return await self._changes.read(work)

    async def list_batches(self, session: str, before: Place | None, limit: int) -> list[PastBatch]:
        query = PAST_BATCHES.format(only="WHERE session = ?", beyond="HAVING (min(first_at), batch) < (?, ?)")
        place = before or (float("inf"), "")

        def work(connection: Connection) -> list[PastBatch]:
            return [past_batch(row) for row in connection.execute(query, (session, *place, limit))]

        return await self._changes.read(work)

    async def batch_calls(self, batch: str, session: str | None = None) -> list[PastCall]:
        query = batch_query(session is not None)
        values = (batch, batch) if session is None else (batch, batch, session)

        def work(connection: Connection) -> list[PastCall]:
            with connection:
                rows = [CallRow._make(row) for row in connection.execute(query, values)]
                calls = self._calls(rows, connection)
            return calls

        return await self._changes.read(work)

    async def find_sessions(self, text: str) -> list[str]:
        query = (
            "SELECT session FROM calls WHERE rowid > ? AND lower(session) LIKE lower(?) ESCAPE '!'"
            " UNION SELECT session FROM bundles WHERE lower(session) LIKE lower(?) ESCAPE '!'"
        )

        def work(connection: Connection) -> list[str]:
            values = (_newest(connection) - MOST_SEARCHED, _like(text), _like(text))
            return sorted(session for (session,) in connection.execute(query, values))

        return await self._changes.read(work)

    def _calls(self, rows: list[CallRow], connection: Connection) -> list[PastCall]:
        owners = {row.owner for row in rows if row.outcome is None}
        dead = self._liveness.dead_among(owners, connection) if owners and self._liveness is not None else set()
        return [past_call(row, dead, connection) for row in rows]


def batch_query(of_session: bool) -> str:
    """The query of the calls of a batch: its id, twice, and the session are its values."""
    also = " AND session = ?" if of_session else ""
    order = "queued_at, session, scope, position"
    return f"SELECT {_COLUMNS} FROM every_call WHERE {_OF_BATCH}{also} ORDER BY {order}"


def _newest(connection: Connection) -> int:
    row = connection.execute("SELECT max(rowid) FROM calls").fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0


def _has_before(connection: Connection, number: int) -> bool:
    return connection.execute("SELECT 1 FROM calls WHERE rowid < ? LIMIT 1", (number,)).fetchone() is not None


def _like(text: str) -> str:
    """The pattern of texts that have another one in them."""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text}%"


def _order(row: CallRow) -> str:
    """Text that sorts as calls came."""
    return f"{row.queued_at:020.6f} {row.position:08d} {row.session} {row.scope} {row.call_id}"


def _step(row: tuple[str, float, int, int]) -> PastStep:
    label, at, done, failed = row
    kind, _, name = label.partition(":")
    return PastStep(kind, name, at, bool(done), bool(failed))


def _wait(row: tuple[Any, ...]) -> PastWait:
    kind, name, opened_at, deadline, is_open, packed = row
    if packed is None:
        return PastWait(kind, name, opened_at, deadline, bool(is_open))
    ended = _resolution(packed)
    by = None if ended.by == BY_CALL else ended.by
    return PastWait(kind, name, opened_at, deadline, bool(is_open), ended.status, ended.at, by, ended.reason)
