"""Triggers in a SQL store. Owns their queries, and entering an occurrence with all that it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import RunError
from toolwright.stores.contracts.background_run import Options
from toolwright.stores.contracts.triggers import Occurrence, Start
from toolwright.stores.sql.background.runs import enter_run
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import one, packed
from toolwright.stores.sql.connection import Connection
from toolwright.tools.background_protocols import Trigger

_COLUMNS = "session, id, topic, pattern, tool, arguments, payload_as, title, options, created_at, authority"
_options = msgspec.msgpack.Decoder(Options).decode


class SqlTriggerStore:
    """`TriggerStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def add_trigger(self, trigger: Trigger, most: int) -> Trigger:
        def work(connection: Connection) -> Trigger:
            for known in _select(connection, "session = ? AND id = ?", trigger.session, trigger.id):
                if replace(trigger, created_at=known.created_at, authority=known.authority) != known:
                    raise RunError(
                        f"The id {trigger.id!r} is that of another trigger; remove that one first, or use another id",
                        "conflict",
                    )
                # Adding it again starts it from now on, with the permissions of the new caller.
                connection.execute(
                    "UPDATE triggers SET authority = ? WHERE session = ? AND id = ?",
                    (trigger.authority, trigger.session, trigger.id),
                )
                return replace(known, authority=trigger.authority)
            query = "SELECT count(*) FROM triggers WHERE session = ?"
            if one(connection, query, (trigger.session,)) >= most:
                raise RunError(
                    f"The session already has {most} triggers, the maximum; remove one first", "trigger_limit"
                )
            _insert(connection, trigger)
            return trigger

        return await self._changes.change(None, work)

    async def list_triggers(self, session: str) -> list[Trigger]:
        return await self._changes.read(lambda connection: _select(connection, "session = ?", session))

    async def triggers_of(self, topic: str) -> list[Trigger]:
        return await self._changes.read(lambda connection: _select(connection, "topic = ?", topic))

    async def remove_trigger(self, session: str, id: str) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute("DELETE FROM triggers WHERE session = ? AND id = ?", (session, id))
            return connection.changes() == 1

        return await self._changes.change(None, work)

    async def occur(
        self, occurrence: Occurrence, known: Sequence[Trigger], starts: Sequence[Start]
    ) -> list[str] | None:
        def work(connection: Connection) -> list[str] | None:
            query = "SELECT digest, started FROM occurrences WHERE topic = ? AND key = ?"
            before: Any = connection.execute(query, (occurrence.topic, occurrence.key)).fetchone()
            if before is not None:
                if before[0] != occurrence.digest:
                    raise RunError(
                        f"The key {occurrence.key!r} of topic {occurrence.topic!r} was used for another payload; give "
                        "each occurrence its own",
                        "conflict",
                    )
                started: list[str] = jsonx.decode(before[1])
                return started
            if _select(connection, "topic = ?", occurrence.topic) != list(known):
                return None
            for start in starts:
                enter_run(connection, start.registration, start.limits, self._changes.lease_time(connection))
            ids = [start.registration.id for start in starts]
            connection.execute(
                "INSERT INTO occurrences (topic, key, digest, at, started) VALUES (?, ?, ?, ?, ?)",
                (occurrence.topic, occurrence.key, occurrence.digest, occurrence.at, jsonx.encode(ids)),
            )
            return ids

        return await self._changes.change(None, work)


def _select(connection: Connection, where: str, *values: str) -> list[Trigger]:
    query = f"SELECT {_COLUMNS} FROM triggers WHERE {where} ORDER BY created_at, session, id"
    return [_trigger(row) for row in connection.execute(query, values)]


def _trigger(row: tuple[Any, ...]) -> Trigger:
    session, id, topic, pattern, tool, arguments, payload_as, title, options, created_at, authority = row
    how = _options(options)
    return Trigger(
        id=id,
        session=session,
        topic=topic,
        tool=tool,
        arguments=jsonx.decode(arguments),
        match=jsonx.decode(pattern),
        payload_as=payload_as,
        title=title,
        timeout=how.timeout,
        signal_on_completion=how.signal_on_completion,
        created_at=created_at,
        authority=authority or b"",
    )


def _insert(connection: Connection, new: Trigger) -> None:
    options = Options(timeout=new.timeout, signal_on_completion=new.signal_on_completion)
    connection.execute(
        f"INSERT INTO triggers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.session,
            new.id,
            new.topic,
            jsonx.encode(new.match),
            new.tool,
            jsonx.encode(new.arguments),
            new.payload_as,
            new.title,
            packed(options),
            new.created_at,
            new.authority,
        ),
    )
