"""The desk of a runtime: its side towards a driver. Owns finding what waits in the store for a worker, and handing work
that was brought to the part that does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from toolwright.background.worker import LEASE, Worker
from toolwright.drivers.contract import HandedBack, Work, WorkKind, WorkResult
from toolwright.session.open_sessions import OpenSessions
from toolwright.stores.contracts.run_store import RunStore

MOST = 1_000
"""How many runs that wait are read at once: the oldest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Work of a kind beside background runs: schedules, or turns."""

    kind: WorkKind
    take: Callable[[float], Awaitable[bool]]
    """Begin with what is there, at an instant; True when there may be more to do at once."""
    waiting: Callable[[], Awaitable[Sequence[Work]]]
    """What waits for a worker."""
    work: Callable[[str], Awaitable[WorkResult]]
    """Work on the one of an id, as `Desk.work` does."""
    cancel: Callable[[str, str], Awaitable[object]]
    """Cancel the one of an id, for a reason."""


class RuntimeDesk:
    """`Desk` of a runtime, which may have a worker, or get one later."""

    def __init__(
        self,
        name: Callable[[], str],
        runs: Callable[[], RunStore],
        sessions: OpenSessions,
        duties: Sequence[Duty],
        worker: Callable[[], Worker | None],
        cancel_run: Callable[[str, str], Awaitable[object]],
        poke: Callable[[], None],
        capacity: int,
    ) -> None:
        self._name = name
        self._runs = runs
        self._sessions = sessions
        self._duties = {duty.kind: duty for duty in duties}
        self._worker = worker
        self._cancel_run = cancel_run
        self._poke = poke
        self.capacity = capacity

    @property
    def store(self) -> str:
        return self._name()

    async def take(self) -> None:
        worker = self._worker()
        if worker is not None:
            await worker.take()

    async def waiting(self) -> Sequence[Work]:
        runs = await self._runs().unclaimed(self._sessions.tool_names(), LEASE, MOST)
        found = [Work(kind="run", id=run.id, session=run.session, tool=run.tool, title=run.title) for run in runs]
        for duty in self._duties.values():
            found += await duty.waiting()
        return found

    async def work(self, kind: WorkKind, id: str) -> WorkResult:
        try:
            if kind != "run":
                return await self._duties[kind].work(id)
            worker = self._worker()
            if worker is None:
                raise HandedBack("This process has no worker")
            return await worker.work(id)
        finally:
            self._poke()  # what was done may let other work begin: a run of a schedule, or the next turn of a session

    async def cancel(self, kind: WorkKind, id: str, reason: str) -> None:
        await (self._cancel_run if kind == "run" else self._duties[kind].cancel)(id, reason)
