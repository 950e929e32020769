"""The contract of drivers. Owns what a driver brings, to whom, and the answers to it; has no driver.

A driver decides when a worker begins on something, and which worker. It decides nothing else: whether the work is
there, who has it, and what of it is done is in the store, and a claim there is what lets a worker begin. A driver may
therefore bring the same work twice, too late, or to two workers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from toolwright.clock import Clock
from toolwright.errors import ToolwrightError

WorkKind = Literal["run", "turn", "schedule"]


class HandedBack(ToolwrightError):
    """A worker could not finish its work, because it closes or cannot do it: the driver brings it to another worker."""


class Work(Struct, frozen=True, kw_only=True):
    """Something to be brought to a worker: a background run, a turn, or a schedule with its next instant.

    `tool` and `title` are for people. `begun` is true for work that a worker had and no longer has.
    """

    kind: WorkKind
    id: str
    session: str
    tool: str = ""
    title: str = ""
    not_before: float | None = None
    """The instant at which it is to be brought; None for now."""
    begun: bool = False


class WorkResult(Struct, frozen=True, kw_only=True):
    """How far a worker came. `state` is "ended" when nothing is left to do, and "waiting" when the driver must bring it
    again: at `again_at`, or when `Driver.wake` is called for it. `status` is the final state in the store."""

    state: Literal["ended", "waiting"]
    status: str = ""
    again_at: float | None = None


class Desk(Protocol):
    """The side of a worker that a driver uses."""

    @property
    def store(self) -> str:
        """A short name of the store, the same in all processes that have it open, and another one for each store."""
        ...

    @property
    def capacity(self) -> int:
        """How much it may be brought at once."""
        ...

    async def take(self) -> None:
        """Claim in the store whatever there is room for, and begin with it."""
        ...

    async def waiting(self) -> Sequence[Work]:
        """What waits in the store to be brought to a worker: runs and turns that no living worker has, and schedules.

        Raises:
            StoreError: the store cannot be read.
        """
        ...

    async def work(self, kind: WorkKind, id: str) -> WorkResult:
        """Claim this work and do it, until it has ended or waits; or watch it, while another worker has it.

        Cancelling this stops only the watching.

        Raises:
            HandedBack: it is to be brought to another worker.
            StoreError: the store cannot be used now; it is to be brought again.
        """
        ...

    async def cancel(self, kind: WorkKind, id: str, reason: str) -> None:
        """Somebody cancelled the work at the driver: write that into the store, which stops it wherever it is."""
        ...


class Driver(Protocol):
    """Brings work to the workers of one store. Implemented by `drivers/store.py` and `drivers/temporal/driver.py`.

    A method that cannot reach the engine now raises `DriverUnavailable`, and is called again later. Methods may be
    called in any order, from any process, and twice.
    """

    @property
    def claims(self) -> bool:
        """True when workers look for work in the store themselves, and are not brought any."""
        ...

    def open(self, desk: Desk) -> None:
        """Begin. Called once, before all other methods."""
        ...

    def serve(self) -> None:
        """Bring work to the desk from now on. Not called where the process has no worker."""
        ...

    async def look(self) -> None:
        """One look of the worker: called from time to time and when there is news, and never twice at once."""
        ...

    async def offer(self, work: Work) -> None:
        """The work is in the store: bring it to a worker. Offered twice, it is brought once."""
        ...

    async def cancel(self, kind: WorkKind, id: str, reason: str) -> None:
        """The work was cancelled in the store: show that. The store tells the worker that has it."""
        ...

    async def wake(self, kind: WorkKind, id: str) -> None:
        """What the work waited for has come."""
        ...

    def stop(self) -> None:
        """Bring no more work. Work that was brought may end."""
        ...

    async def close(self) -> None:
        """End. The desk has released all of its work."""
        ...


class DriverScheme(Protocol):
    """How the drivers of a URL scheme are made. Implemented by `drivers/temporal/scheme.py`."""

    def make(self, url: str, clock: Clock) -> Driver:
        """The driver of a URL. Nothing is connected yet: a server that is away now is waited for.

        Raises:
            DriverError: the URL is not usable.
            MissingRequirement: a library is not installed.
        """
        ...
