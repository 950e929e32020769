"""Sessions as a whole, for the owner of a runtime. Owns how they are listed, exported, imported and removed."""

from __future__ import annotations

from pathlib import Path

from toolwright.argument_checks import require_path
from toolwright.clock import Clock
from toolwright.session.archive.admin import KeptSessions
from toolwright.session.archive.format import Exported, Imported
from toolwright.session.parts import Shared
from toolwright.session.session import Session
from toolwright.stores.contracts.archives import SessionInfo


class Archiving:
    """The part of a runtime that keeps whole sessions."""

    clock: Clock
    _shared: Shared
    _sessions: dict[str, Session]

    async def sessions(self) -> list[SessionInfo]:
        """Every session that keeps something or has calls in the store, by id; in memory calls are not counted."""
        self._shared.require_open()
        return await self._shared.stores().archives.list_sessions()

    async def export_session(self, session_id: str, path: str | Path, *, replace: bool = False) -> Exported:
        """Write all that a session keeps into one archive, as it is at one moment; secrets stay sealed in it.

        Its calls, runs and schedules are not part of it: what was imported does nothing by itself.

        Raises:
            ArchiveError: the file exists and is not to be replaced, or cannot be written.
            ServiceError: there is no such session.
        """
        self._shared.require_open()
        return await self._sessions_kept.export(session_id, require_path("archive", path), replace)

    async def import_session(self, path: str | Path, *, as_id: str | None = None, replace: bool = False) -> Imported:
        """Make a session of an archive, all of it or nothing, under its own id or another.

        Secrets come with it only under its own id, and where those of this store are sealed by the same master key:
        the others are left out, and named in what is returned. `replace` removes a session of this id first, with its
        calls.

        Raises:
            ArchiveError: it is not an archive of a session, or not what it says it is.
            ServiceError: the session exists, or something in the archive is not usable or too much.
        """
        self._shared.require_open()
        return await self._sessions_kept.import_(require_path("archive", path), as_id, replace)

    async def delete_session(self, session_id: str) -> bool:
        """Remove a session that has nothing unfinished, with its calls and all it keeps; False when there is none.

        Sessions that its tools opened stay.

        Raises:
            ServiceError: something of it is unfinished.
        """
        self._shared.require_open()
        return await self._sessions_kept.delete(session_id)

    @property
    def _sessions_kept(self) -> KeptSessions:
        return KeptSessions(self._shared.stores().archives, self._sessions, self.clock, self._shared.quotas)
