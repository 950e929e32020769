"""What tests do to a SQLite store that no program may: use its connection, and let its process seem dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import apsw

from toolwright.stores.sqlite.store import SqliteStore

T = TypeVar("T")


def run_on_connection(
    store: SqliteStore, work: Callable[[apsw.Connection], T], *, writes: bool = True
) -> asyncio.Future[T]:
    """Run `work` on the connection that the store writes with, after all that was asked of the store before.

    With `writes` it is part of a transaction. It can set a pragma that makes the next writes fail, or hold them up.
    """
    return store._writer.do(work) if writes else store._writer.read(work)


async def let_write(store: SqliteStore, may: bool) -> None:
    """Let the store write again, or from now on fail whenever it tries to."""
    pragma = f"PRAGMA query_only = {not may}"
    await run_on_connection(store, lambda connection: connection.execute(pragma).fetchall(), writes=False)


def queued_writes(store: SqliteStore) -> int:
    """How much was asked of the store that its thread has not yet taken up."""
    return store._writer.jobs.queued


def drop_locks(store: SqliteStore) -> None:
    """Release the locks that show that the process of the store lives, as the operating system does when it ends."""
    for lock in store._locks:
        lock.drop()
