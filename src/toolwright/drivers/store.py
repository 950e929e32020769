"""The driver of the store itself: each worker looks for work in it when there are news, or it is poked."""

from __future__ import annotations

from toolwright.drivers.contract import Desk, Work, WorkKind


class StoreDriver:
    """Workers claim what they have room for. Nothing is offered or told: all of it is in the store, where they look."""

    claims = True

    def __init__(self) -> None:
        self._desk: Desk | None = None

    def open(self, desk: Desk) -> None:
        self._desk = desk

    def serve(self) -> None:
        pass

    async def look(self) -> None:
        if self._desk is not None:
            await self._desk.take()

    async def offer(self, work: Work) -> None:
        pass

    async def cancel(self, kind: WorkKind, id: str, reason: str) -> None:
        pass

    async def wake(self, kind: WorkKind, id: str) -> None:
        pass

    def stop(self) -> None:
        self._desk = None

    async def close(self) -> None:
        pass
