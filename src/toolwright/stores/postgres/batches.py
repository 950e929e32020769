"""Whole batches in PostgreSQL. Owns the statements that write all calls of a batch at once, as arrays of columns.

Calls that the store knows already, or that are not this owner's, are rare: the shared queries of the journal write
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import psycopg

from toolwright.stores.contracts.journal import NO_CLAIMS, CallKey, Ended, Intent
from toolwright.stores.postgres.connection import NeedsAlone, PostgresConnection
from toolwright.stores.postgres.values import Bytes, Floats, Integers, Texts
from toolwright.stores.sql.calls.journal import Attempt, BeginAttempt, Written
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import NOTE, batch_row, call_rows

Row = tuple[Any, ...]
Value = TypeVar("Value")
# The calls of one session ($1) and scope ($2), by their ids ($3).
_IDS = "unnest($3::text[]"
# The calls that others have in the session. Those with the claims of a parallel call are left out ($16) where all calls
# that begin are parallel.
_OTHERS = " OR ".join(
    f"EXISTS (SELECT 1 FROM calls WHERE session = $1 AND owner {other} $4 AND outcome IS NULL"
    f" AND coalesce(claims, $16) <> '{NO_CLAIMS}')"
    for other in "<>"
)
# Nothing is written where one of them is known. That is asked once: ON CONFLICT would ask before each row, and write
# each in two steps, for a race that the locks of the transaction rule out.
_BEGIN = (
    f"WITH others AS MATERIALIZED (SELECT {_OTHERS} AS there),"
    " begun AS (INSERT INTO calls (session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent,"
    " queued_at, owner, started_at, authority, claims)"
    " SELECT $1, $2, call_id, $5, position, tool, tool_id, arguments, source, parent, queued_at, $4,"
    " CASE WHEN others.there THEN NULL ELSE started_at END, $6, claims"
    f" FROM others, {_IDS}, $7::int8[], $8::text[], $9::text[], $10::bytea[], $11::text[], $12::text[],"
    " $13::float8[], $14::float8[], $15::text[]) AS each (call_id, position, tool, tool_id, arguments, source, parent,"
    " queued_at, started_at, claims)"
    " WHERE NOT EXISTS (SELECT 1 FROM calls WHERE session = $1 AND scope = $2 AND call_id = ANY ($3)) RETURNING 1)"
    " SELECT (SELECT count(*) FROM begun), there FROM others"
)
# Each call is looked up by its key, whatever the planner believes about the table: joined as usual, it would read all
# unfinished calls, or all calls, to find these.
_OWN = (
    " CROSS JOIN LATERAL (SELECT ctid AS place FROM calls AS one WHERE one.session = $1 AND one.scope = $2"
    " AND one.call_id = each.call_id LIMIT 1) AS found"
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


_START = _all(f"UPDATE calls SET started_at = each.at FROM {_IDS}, $5::float8[]) AS each (call_id, at){_OWN}", 6)
_FINISH = _all(
    "UPDATE calls SET started_at = coalesce(each.started_at, calls.started_at), finished_at = each.finished_at,"
    " status = each.status, outcome = each.outcome,"
    " authority = CASE each.status WHEN 'connection_required' THEN calls.authority END"
    f" FROM {_IDS}, $5::float8[], $6::float8[], $7::text[], $8::bytea[])"
    f" AS each (call_id, started_at, finished_at, status, outcome){_OWN}",
    9,
)


class PostgresBatches:
    """`WholeBatches` in PostgreSQL, for the calls of one owner."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def begin(self, intents: Sequence[Intent]) -> BeginAttempt | None:
        """Writes the intents of a batch, if none of its calls is known. None where they have not the same batch."""
        if len({_batch_of(intent) for intent in intents}) != 1:
            return None
        first = intents[0]
        are_parallel = all(intent.claims is None for intent in intents)
        values = (
            first.key.session,
            first.key.scope,
            Texts.of([intent.key.call_id for intent in intents]),
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
            Texts.of([intent.claims for intent in intents]),
            NO_CLAIMS if are_parallel else "",
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
            try:
                written, there = connection.run(_BEGIN, values).fetchone()
            except psycopg.IntegrityError as error:  # such as an id that is twice in the batch
                raise NeedsAlone from error
            if written != len(intents):
                raise NeedsAlone
            return bool(there)

        return attempt

    def start(self, starts: Sequence[tuple[CallKey, float]]) -> Attempt | None:
        """Writes that the tools of calls begin, if all are unfinished calls of this owner."""
        if not starts:
            return None
        every = [
            (*self._calls(keys), Floats.of([at for _, at in part]), len(part))
            for keys, part in _by_place([key for key, _ in starts], starts)
        ]
        return _attempt(_START, every, call_rows("call.started", [key for key, _ in starts], starts[0][1]))

    def finish(self, ended: Sequence[Ended], blobs: Sequence[bytes]) -> Attempt | None:
        """Writes the outcomes of calls, if all are unfinished calls of this owner. None where some were refused."""
        if not ended or any(end.intent is not None for end in ended):
            return None
        keys = [end.key for end in ended]
        every = [
            (
                *self._calls(those),
                Floats.of([end.started_at for end, _ in part]),
                Floats.of([end.finished_at for end, _ in part]),
                Texts.of([end.outcome.status for end, _ in part]),
                Bytes.of([blob for _, blob in part]),
                len(part),
            )
            for those, part in _by_place(keys, list(zip(ended, blobs, strict=True)))
        ]
        return _attempt(_FINISH, every, call_rows("call.finished", keys, ended[0].finished_at))

    def _calls(self, keys: Sequence[CallKey]) -> Row:
        """The first values of a change of calls, which have one session and one scope."""
        return keys[0].session, keys[0].scope, Texts.of([key.call_id for key in keys]), self._owner


def _attempt(statement: str, every: Sequence[Row], events: Sequence[Row]) -> Attempt:
    """Tries a statement of `_all` with each of these values, and leaves nothing where one of them is refused.

    Where other programs may write at the same time, it is sent with the end of the transaction, which is repeated alone
    if it is refused.
    """

    def attempt(connection: Connection) -> bool:
        assert isinstance(connection, PostgresConnection)
        if connection.alone:
            try:
                with connection:  # a savepoint
                    for values in every:
                        connection.run(statement, values)
            except psycopg.DataError:
                return False
        else:
            for values in every:
                connection.later(statement, values, or_alone=True)
        _note(connection, events)
        return True

    return attempt


def _note(connection: PostgresConnection, events: Sequence[Row]) -> None:
    for event in events:
        connection.execute_later(NOTE, event)


def _batch_of(intent: Intent) -> Row:
    """What all intents of a batch have in common."""
    return intent.key.session, intent.key.scope, intent.batch, intent.authority


def _by_place(keys: Sequence[CallKey], values: Sequence[Value]) -> list[tuple[Sequence[CallKey], Sequence[Value]]]:
    """Calls and their values, apart for each session and scope, which nearly all calls have in common."""
    session, scope, _ = keys[0]
    if all(key.session == session and key.scope == scope for key in keys):
        return [(keys, values)]
    places: dict[tuple[str, str], tuple[list[CallKey], list[Value]]] = {}
    for key, value in zip(keys, values, strict=True):
        those, part = places.setdefault((key.session, key.scope), ([], []))
        those.append(key)
        part.append(value)
    return list(places.values())
