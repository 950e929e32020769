"""Whole batches in PostgreSQL. Owns the statements that write all calls of a batch at once, as arrays of columns.

Calls that somebody knows already, or that are not this owner's, are rare: the shared queries of the journal are for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolwright.stores.contracts.journal import CallKey, Ended, Intent
from toolwright.stores.postgres.connection import NeedsAlone, PostgresConnection
from toolwright.stores.postgres.values import Bytes, Floats, Integers, Texts
from toolwright.stores.sql.calls.journal import Attempt
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import note_batch, note_calls

_KEYS = "unnest($1::text[], $2::text[], $3::text[]"
_SAME = "calls.session = each.session AND calls.scope = each.scope AND calls.call_id = each.call_id"
# Not `outcome IS NULL`: the planner would read all unfinished calls to find these.
_OWN = f"{_SAME} AND calls.owner = $4 AND calls.outcome IS NOT DISTINCT FROM NULL"
_BEGIN = (
    "INSERT INTO calls (session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent, queued_at,"
    " owner, started_at, authority)"
    f" SELECT session, scope, call_id, $5, position, tool, tool_id, arguments, source, parent, queued_at, $4,"
    f" started_at, $6 FROM {_KEYS}, $7::int8[], $8::text[], $9::text[], $10::bytea[], $11::text[], $12::text[],"
    " $13::float8[], $14::float8[]) AS each (session, scope, call_id, position, tool, tool_id, arguments, source,"
    " parent, queued_at, started_at) ON CONFLICT DO NOTHING"
)
_START = (
    f"UPDATE calls SET started_at = each.at FROM {_KEYS}, $5::float8[]) AS each (session, scope, call_id, at)"
    f" WHERE {_OWN}"
)
_FINISH = (
    "UPDATE calls SET started_at = coalesce(each.started_at, calls.started_at), finished_at = each.finished_at,"
    " status = each.status, outcome = each.outcome,"
    " authority = CASE each.status WHEN 'connection_required' THEN calls.authority END"
    f" FROM {_KEYS}, $5::float8[], $6::float8[], $7::text[], $8::bytea[])"
    " AS each (session, scope, call_id, started_at, finished_at, status, outcome)"
    f" WHERE {_OWN}"
)


class PostgresBatches:
    """`WholeBatches` in PostgreSQL, for the calls of one owner."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def begin(self, intents: Sequence[Intent]) -> Attempt | None:
        """Writes the intents of a batch, if none of its calls is known. None where they have not the same batch."""
        first = intents[0] if intents else None
        if first is None or any(
            (intent.batch, intent.authority) != (first.batch, first.authority) for intent in intents
        ):
            return None
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
        )
        starts = [(intent.key, intent.starts_at) for intent in intents if intent.starts_at is not None]

        def write(connection: PostgresConnection) -> bool:
            connection.run(_BEGIN, values)
            if connection.changes() != len(intents):
                return False
            note_batch(connection, intents)
            if starts:
                note_calls(connection, "call.started", [key for key, _ in starts], starts[0][1] or 0.0)
            return True

        return _attempt(write)

    def start(self, starts: Sequence[tuple[CallKey, float]]) -> Attempt | None:
        """Writes that the tools of calls begin, if all are unfinished calls of this owner."""
        if not starts:
            return None
        keys = [key for key, _ in starts]
        values = (*_keys(keys), self._owner, Floats.of([at for _, at in starts]))

        def write(connection: PostgresConnection) -> bool:
            connection.run(_START, values)
            if connection.changes() != len(starts):
                return False
            note_calls(connection, "call.started", keys, starts[0][1])
            return True

        return _attempt(write)

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
        )

        def write(connection: PostgresConnection) -> bool:
            connection.run(_FINISH, values)
            if connection.changes() != len(ended):
                return False
            note_calls(connection, "call.finished", keys, ended[0].finished_at)
            return True

        return _attempt(write)


def _attempt(write: Callable[[PostgresConnection], bool]) -> Attempt:
    """Tries `write`, and leaves nothing of it where that did not do it all.

    Where other programs may write at the same time, `NeedsAlone` is raised then, and the transaction is repeated alone.
    """

    def attempt(connection: Connection) -> bool:
        assert isinstance(connection, PostgresConnection)
        if not connection.alone:
            if not write(connection):
                raise NeedsAlone
            return True
        try:
            with connection:  # a savepoint
                if not write(connection):
                    raise NeedsAlone
        except NeedsAlone:
            return False
        return True

    return attempt


def _keys(keys: Sequence[CallKey]) -> tuple[Texts, Texts, Texts]:
    """The columns of the keys of calls, which nearly always have one session and one scope."""
    session, scope = (keys[0].session, keys[0].scope) if keys else ("", "")
    if all(key.session == session and key.scope == scope for key in keys):
        columns = Texts.same(session, len(keys)), Texts.same(scope, len(keys))
    else:
        columns = Texts.of([key.session for key in keys]), Texts.of([key.scope for key in keys])
    return (*columns, Texts.of([key.call_id for key in keys]))
