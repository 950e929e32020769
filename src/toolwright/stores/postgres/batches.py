"""Whole batches in PostgreSQL. Owns the statements that write all calls of a batch at once, as arrays of columns.

Calls that the store knows already, or that are not this owner's, are rare: the shared queries of the journal write
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from toolwright.stores.contracts.journal import NO_CLAIMS, CallKey, Ended, Intent
from toolwright.stores.postgres.connection import NeedsAlone, PostgresConnection
from toolwright.stores.postgres.values import Bytes, Floats, Integers, Texts
from toolwright.stores.sql.calls.journal import Attempt, BeginAttempt, Written
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import NOTE, batch_row, call_rows

Row = tuple[Any, ...]
_KEYS = "unnest($1::text[], $2::text[], $3::text[]"
# The calls that others have in the session. Those with the claims of a parallel call are left out ($16) where all calls
# that begin are parallel.
_OTHERS = " OR ".join(
    f"EXISTS (SELECT 1 FROM calls WHERE session = $15 AND owner {other} $4 AND outcome IS NULL"
    f" AND coalesce(claims, $16) <> '{NO_CLAIMS}')"
    for other in "<>"
)
_BEGIN = (
    f"WITH others AS MATERIALIZED (SELECT {_OTHERS} AS there),"
    " begun AS (INSERT INTO calls (session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent,"
    " queued_at, owner, started_at, authority, claims)"
    " SELECT session, scope, call_id, $5, position, tool, tool_id, arguments, source, parent, queued_at, $4,"
    " CASE WHEN others.there THEN NULL ELSE started_at END, $6, claims"
    f" FROM others, {_KEYS}, $7::int8[], $8::text[], $9::text[], $10::bytea[], $11::text[], $12::text[],"
    " $13::float8[], $14::float8[], $17::text[]) AS each (session, scope, call_id, position, tool, tool_id, arguments,"
    " source, parent, queued_at, started_at, claims) ON CONFLICT DO NOTHING RETURNING 1)"
    " SELECT (SELECT count(*) FROM begun), there FROM others"
)
# Each call is looked up by its key, whatever the planner believes about the table: joined as usual, it would read all
# unfinished calls, or all calls, to find these.
_OWN = (
    " CROSS JOIN LATERAL (SELECT ctid AS place FROM calls AS one WHERE one.session = each.session"
    " AND one.scope = each.scope AND one.call_id = each.call_id LIMIT 1) AS found"
    " WHERE calls.ctid = found.place AND calls.owner = $4 AND (calls.outcome IS NULL)::int = 1"
)


def _all(update: str, values: int) -> str:
    """A change of calls that is refused unless it changes as many as the value of this number says.

    A cast refuses, so that nothing must come back from the server before the transaction can be committed.
    """
    return (
        f"WITH changed AS ({update} RETURNING 1) SELECT CAST(CASE WHEN count(*) = ${values} THEN '1'"
        " ELSE 'a call is not an unfinished one of this process any more' END AS int8) FROM changed"
    )


_START = _all(
    f"UPDATE calls SET started_at = each.at FROM {_KEYS}, $5::float8[]) AS each (session, scope, call_id, at){_OWN}", 6
)
_FINISH = _all(
    "UPDATE calls SET started_at = coalesce(each.started_at, calls.started_at), finished_at = each.finished_at,"
    " status = each.status, outcome = each.outcome,"
    " authority = CASE each.status WHEN 'connection_required' THEN calls.authority END"
    f" FROM {_KEYS}, $5::float8[], $6::float8[], $7::text[], $8::bytea[])"
    f" AS each (session, scope, call_id, started_at, finished_at, status, outcome){_OWN}",
    9,
)


class PostgresBatches:
    """`WholeBatches` in PostgreSQL, for the calls of one owner."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def begin(self, intents: Sequence[Intent]) -> BeginAttempt | None:
        """Writes the intents of a batch, if none of its calls is known. None where they have not the same batch."""
        first = intents[0] if intents else None
        if first is None or any(
            (intent.key.session, intent.batch, intent.authority) != (first.key.session, first.batch, first.authority)
            for intent in intents
        ):
            return None
        are_parallel = all(intent.claims is None for intent in intents)
        values = (
            *_keys([intent.key for intent in intents]),
            self._owner,
            first.batch,
            first.authority,
            Integers.of([intent.position for intent in intents]),
            Texts.of([intent.tool for intent in intents]),
            Texts.of([intent.tool_id for intent in intents]),
            Bytes.of([intent.arguments for intent in intents]),
            Texts.of([intent.source for intent in intents]),
            Texts.of([intent.parent for intent in intents]),
            Floats.of([intent.queued_at for intent in intents]),
            Floats.of([intent.starts_at for intent in intents]),
            first.key.session,
            NO_CLAIMS if are_parallel else "",
            Texts.of([intent.claims for intent in intents]),
        )
        begun = batch_row(intents)
        starts = [intent for intent in intents if intent.starts_at is not None]
        started = call_rows("call.started", [one.key for one in starts], starts[0].starts_at or 0.0) if starts else []

        def attempt(connection: Connection) -> Written:
            assert isinstance(connection, PostgresConnection)
            if connection.alone:
                try:
                    with connection:  # a savepoint
                        beside_others = write(connection)
                except NeedsAlone:
                    return "known"
            else:
                beside_others = write(connection)
            _note(connection, [begun] if beside_others else [begun, *started])
            return "beside others" if beside_others else "alone"

        # Not refused by the server, as in `_all`: that a batch is known is usual, and nothing for its log of errors.
        def write(connection: PostgresConnection) -> bool:
            written, there = connection.run(_BEGIN, values).fetchone()
            if written != len(intents):
                raise NeedsAlone
            return bool(there)

        return attempt

    def start(self, starts: Sequence[tuple[CallKey, float]]) -> Attempt | None:
        """Writes that the tools of calls begin, if all are unfinished calls of this owner."""
        if not starts:
            return None
        keys = [key for key, _ in starts]
        values = (*_keys(keys), self._owner, Floats.of([at for _, at in starts]), len(starts))
        return _attempt(_START, values, call_rows("call.started", keys, starts[0][1]))

    def finish(self, ended: Sequence[Ended], blobs: Sequence[bytes]) -> Attempt | None:
        """Writes the outcomes of calls, if all are unfinished calls of this owner. None where some were refused."""
        if not ended or any(end.intent is not None for end in ended):
            return None
        keys = [end.key for end in ended]
        values = (
            *_keys(keys),
            self._owner,
            Floats.of([end.started_at for end in ended]),
            Floats.of([end.finished_at for end in ended]),
            Texts.of([end.outcome.status for end in ended]),
            Bytes.of(blobs),
            len(ended),
        )
        return _attempt(_FINISH, values, call_rows("call.finished", keys, ended[0].finished_at))


def _attempt(statement: str, values: Sequence[Any], events: Sequence[Row]) -> Attempt:
    """Tries a statement of `_all`, and leaves nothing of it where that is refused.

    Where other programs may write at the same time, it is sent with the end of the transaction, which is repeated alone
    if it is refused.
    """

    def attempt(connection: Connection) -> bool:
        assert isinstance(connection, PostgresConnection)
        if connection.alone:
            try:
                with connection:  # a savepoint
                    connection.run(statement, values)
            except psycopg.DataError:
                return False
        else:
            connection.later(statement, values, or_alone=True)
        _note(connection, events)
        return True

    return attempt


def _note(connection: PostgresConnection, events: Sequence[Row]) -> None:
    for event in events:
        connection.execute_later(NOTE, event)


def _keys(keys: Sequence[CallKey]) -> tuple[Texts, Texts, Texts]:
    """The columns of the keys of calls, which nearly always have one session and one scope."""
    session, scope = (keys[0].session, keys[0].scope) if keys else ("", "")
    if all(key.session == session and key.scope == scope for key in keys):
        columns = Texts.same(session, len(keys)), Texts.same(scope, len(keys))
    else:
        columns = Texts.of([key.session for key in keys]), Texts.of([key.scope for key in keys])
    return (*columns, Texts.of([key.call_id for key in keys]))
