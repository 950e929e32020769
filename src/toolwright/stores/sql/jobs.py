"""The protocols for running the jobs of a store. The `Writer` of each store fulfils them, and has the thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, TypeVar

from toolwright.stores.sql.connection import Connection

T = TypeVar("T")


class Jobs(Protocol):
    """Runs jobs on a connection: a `Writer`, or its replacement in a test."""

    def do(self, work: Callable[[Connection], T], *, synced: bool = True, quiet: bool = False) -> Awaitable[T]: ...

    def read(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...

    async def close(self) -> None: ...


class JobQueue(Protocol):
    """Runs jobs one after the other, in the order in which they were asked for."""

    def do(
        self,
        work: Callable[[Connection], T],
        *,
        synced: bool = True,
        shared: bool = False,
        ordered: Collection[str] = (),
        quiet: bool = False,
    ) -> asyncio.Future[T]:
        """Run `work` inside the next transaction; its result comes when that is committed.

        With `synced=False` a power cut may lose it until the next synced commit; a crash of this process does not.
        `shared` means that it may run at the same time as other such work of other programs; `ordered` are sessions of
        which no other work runs at the same time that has them, too. `quiet` means that no process waits for what it
        writes: it need not be among the news of the store.

        Raises:
            StoreError: the store could not write; nothing of the transaction is there.
            StoreUnavailable: the store did not answer; whether it wrote is not known.
        """
        ...

    def read(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Run `work`, which changes nothing, after all earlier requests; other processes are not delayed.

        Raises:
            StoreError: the store could not be read.
        """
        ...


class Read(Protocol):
    """Runs a job that changes nothing."""

    def __call__(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...
