"""Maintenance of a store in one call: its path or URL first. Owns nothing; `StoreInspector` documents each verb."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from toolwright.stores.contracts.inspection import PastBatch, PastCall, Pruned, Stats
from toolwright.stores.opening import inspect_store


async def stats(location: str | Path) -> Stats:
    """Count the records of a store."""
    return await inspect_store(location).stats()


async def check(location: str | Path) -> list[str]:
    """The problems of a store, one sentence each; empty when there are none."""
    return await inspect_store(location).check()


async def prune(
    location: str | Path,
    before: float | None,
    *,
    sessions: Collection[str] | None = None,
    vacuum: bool = False,
    dry_run: bool = False,
) -> Pruned:
    """Remove records that finished before an instant, see `StoreInspector.prune`."""
    return await inspect_store(location).prune(before, sessions=sessions, vacuum=vacuum, dry_run=dry_run)


async def migrate(location: str | Path) -> tuple[int, int]:
    """Bring a store up to date; return the version it had and the version it has now."""
    return await inspect_store(location).migrate()


async def batches(location: str | Path, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
    """The batches of a store, or of one of its sessions, the newest first."""
    return await inspect_store(location).batches(session, limit=limit)


async def calls(location: str | Path, *, batch: str | None = None, session: str | None = None) -> list[PastCall]:
    """The calls of a batch, of a session, or of a batch in a session, in the order they were queued."""
    return await inspect_store(location).calls(batch=batch, session=session)
