"""Sessions as a whole: exported, imported, removed. Owns that nothing of them runs meanwhile; not the format."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toolwright.clock import Clock
from toolwright.errors import ServiceError
from toolwright.session.archive.exporting import write_archive
from toolwright.session.archive.format import Exported, Imported
from toolwright.session.archive.importing import opened_archive
from toolwright.session.session import Session, require_session_id
from toolwright.stores.contracts.archives import ArchiveStore, SessionSink
from toolwright.stores.contracts.sessions import Quotas


class KeptSessions:
    """The sessions of a store, and those of them that are open in this process."""

    def __init__(self, store: ArchiveStore, open_here: dict[str, Session], clock: Clock, quotas: Quotas) -> None:
        self._store = store
        self._open_here = open_here
        self._clock = clock
        self._quotas = quotas

    async def export(self, session_id: str, path: Path, replace: bool) -> Exported:
        """Write a session into an archive."""
        require_session_id(session_id)
        now = self._clock.now()
        return await self._store.read_session(
            session_id, lambda rows: write_archive(path, session_id, rows, now, replace=replace)
        )

    async def import_(self, path: Path, as_id: str | None, replace: bool) -> Imported:
        """Make a session of an archive."""
        session_id = await asyncio.to_thread(self._id_in, path) if as_id is None else as_id
        require_session_id(session_id)
        self._require_quiet(session_id)

        def fill(sink: SessionSink) -> Imported:
            with opened_archive(path, self._quotas) as archive:
                if as_id is None and archive.manifest.session != session_id:
                    raise ServiceError(f"The archive {str(path)!r} changed while it was read; import it again")
                return archive.fill(sink, session_id)

        imported = await self._store.fill_session(session_id, fill, replace)
        session = self._open_here.get(session_id)
        if session is not None:
            session.forget_calls()
            await session.connections_changed()
        return imported

    def _id_in(self, path: Path) -> str:
        with opened_archive(path, self._quotas) as archive:
            return archive.manifest.session

    async def delete(self, session_id: str) -> bool:
        """Remove a session."""
        require_session_id(session_id)
        self._require_quiet(session_id)
        removed = await self._store.delete_session(session_id)
        # What this process remembers of it goes, too: its calls in memory, its policy, its tools.
        session = self._open_here.get(session_id)
        if session is not None and not session.batches:
            del self._open_here[session_id]
        return removed

    def _require_quiet(self, session_id: str) -> None:
        session = self._open_here.get(session_id)
        if session is not None and session.batches:
            own = any(batch not in session.batches_apart for batch in session.batches)
            what = "batches that still run" if own else "background runs that are not over"
            raise ServiceError(
                f"The session {session_id!r:.200} has {what}; wait for them, or cancel them",
                "unfinished",
            )
