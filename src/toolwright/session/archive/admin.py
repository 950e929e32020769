"""Sessions as a whole: listed, exported, imported, removed. Owns that none of their calls runs meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from msgspec import structs

from toolwright.argument_checks import require_path
from toolwright.errors import ServiceError
from toolwright.session.archive.exporting import write_archive
from toolwright.session.archive.format import Exported, Imported
from toolwright.session.archive.importing import opened_archive
from toolwright.session.open_sessions import OpenSessions, require_session_id
from toolwright.session.parts import SharedParts
from toolwright.stores.contracts.archives import SessionInfo, SessionWriter
from toolwright.stores.contracts.turns import TURN_SCOPE


class TurnsInMemory(Protocol):
    """The turns of a runtime without a file, which are not where the other records of its sessions are."""

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many turns each session has, and how many of them are unfinished."""
        ...

    def forget(self, session: str) -> bool:
        """Forget the turns of a session; True when there were some."""
        ...


class Archives:
    """The sessions of a store, whether they are open in this process or not."""

    def __init__(self, shared: SharedParts, sessions: OpenSessions, turns: TurnsInMemory | None) -> None:
        self._shared = shared
        self._open = sessions
        self._turns = turns

    async def list_sessions(
        self, only: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[SessionInfo]:
        """Every session that has records, calls or turns in the store, by id; only the one of an id; or the next ones
        after an id."""
        archives = self._shared.stores().archives
        if self._turns is None:
            return await archives.list_sessions(only, after=after, limit=limit)
        found = await archives.list_sessions(only)
        counts = self._turns.counts()
        told = {info.id: info for info in found}
        for id, (turns, unfinished) in counts.items():
            if only is not None and id != only:
                continue
            info = told.get(id) or SessionInfo(id, 0, 0, {})
            told[id] = structs.replace(info, turns=turns, unfinished_turns=unfinished)
        return [told[id] for id in sorted(told) if id > after][:limit]

    async def export(self, session_id: str, path: str | Path, replace: bool) -> Exported:
        """Write a session into an archive."""
        file = require_path("archive", path)
        require_session_id(session_id)
        now = self._shared.clock.now()
        return await self._shared.stores().archives.read_session(
            session_id, lambda rows: write_archive(file, session_id, rows, now, replace=replace)
        )

    async def import_(self, path: str | Path, as_id: str | None, replace: bool) -> Imported:
        """Make a session of an archive."""
        file = require_path("archive", path)
        session_id = await asyncio.to_thread(self._id_in, file) if as_id is None else as_id
        require_session_id(session_id)
        self._require_quiet(session_id)

        def fill(writer: SessionWriter) -> Imported:
            with opened_archive(file, self._shared.quotas) as archive:
                if as_id is None and archive.manifest.session != session_id:
                    raise ServiceError(f"The archive {str(file)!r} changed while it was read; import it again")
                return archive.fill(writer, session_id)

        imported = await self._shared.stores().archives.fill_session(session_id, fill, replace)
        if self._turns is not None:
            self._turns.forget(session_id)
        session = self._open.get(session_id)
        if session is not None:
            session.forget_calls()
            if imported.counts["secrets"]:
                await session.secrets_changed()
            await session.connections_changed()
        return imported

    async def delete(self, session_id: str) -> bool:
        """Remove a session, and the data of this process about it."""
        require_session_id(session_id)
        self._require_quiet(session_id)
        removed = await self._shared.stores().archives.delete_session(session_id)
        self._shared.forget_session(session_id)
        if self._turns is not None:
            removed = self._turns.forget(session_id) or removed
        session = self._open.get(session_id)
        if session is not None and not session.batches:
            self._open.forget(session_id)
        return removed

    def _id_in(self, file: Path) -> str:
        with opened_archive(file, self._shared.quotas) as archive:
            return archive.manifest.session

    def _require_quiet(self, session_id: str) -> None:
        turns = 0 if self._turns is None else self._turns.counts().get(session_id, (0, 0))[1]
        if turns:
            raise ServiceError(
                f"The session {session_id!r:.200} has {turns} unfinished turns; let them end or cancel them",
                "unfinished",
            )
        session = self._open.get(session_id)
        if session is not None and session.batches:
            what = "batches that still run" if session.own_batches else "unfinished background runs"
            if any(batch.scope.startswith(TURN_SCOPE) for batch in session.batches):
                what = "unfinished turns"
            raise ServiceError(
                f"The session {session_id!r:.200} has {what}; let them end or cancel them",
                "unfinished",
            )
