"""A SQLite store as its keeper sees it. Owns `SqliteInspector`: the functions of this folder, for one file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from toolwright.errors import StoreError
from toolwright.stores.contracts.inspection import Named, PastBatch, PastCall, Pruned, Stats
from toolwright.stores.contracts.waits import APPROVALS, WaitKind
from toolwright.stores.sqlite.admin import history, maintenance
from toolwright.stores.sqlite.core.faults import not_openable


class SqliteInspector:
    """`StoreInspector` of one SQLite file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    async def exists(self) -> bool:
        return await asyncio.to_thread(os.path.isfile, self.path)  # False, and no error, for a name that is too long

    async def check_access(self) -> None:
        if why := await asyncio.to_thread(not_openable, self.path):
            raise StoreError(f"The store {str(self.path)!r} cannot be opened: {why}")

    async def version(self) -> int:
        return await maintenance.version(self.path)

    async def migrate(self) -> tuple[int, int]:
        return await maintenance.migrate(self.path)

    async def stats(self) -> Stats:
        return await maintenance.stats(self.path)

    async def check(self) -> list[str]:
        return await maintenance.check(self.path)

    async def prune(
        self,
        before: float | None,
        *,
        sessions: Collection[str] | None = None,
        vacuum: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        return await maintenance.prune(self.path, before, sessions=sessions, vacuum=vacuum, dry_run=dry_run)

    async def batches(self, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
        return await history.batches(self.path, session, limit=limit)

    async def calls(self, *, batch: str | None = None, session: str | None = None) -> list[PastCall]:
        return await history.calls(self.path, batch=batch, session=session)

    async def find_runs(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        return await history.runs_called(self.path, word, session, limit=limit)

    async def find_schedules(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        return await history.schedules_called(self.path, word, session, limit=limit)

    async def decided_key(
        self, call_id: str, session: str | None = None, kinds: Sequence[WaitKind] = APPROVALS
    ) -> str | None:
        return await history.decided_key(self.path, call_id, session, kinds)

    async def workers(self) -> list[str]:
        return await history.workers(self.path)
