"""The contract of schedules. Owns the verbs of their store and the values they take; has no queries."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from toolwright.stores.contracts.background_run import Registration
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.contracts.schedule import Fired, Schedule, State
from toolwright.stores.contracts.sessions import Mark


class Firing(NamedTuple):
    """One instant of a schedule, and its run. Without a registration nothing is started.

    With `unless_active` it is passed over while a run of the schedule is not over.
    """

    instant: float
    what: str
    registration: Registration | None
    unless_active: bool = False


class ScheduleStore(Protocol):
    """The contract of schedules in a database. A write is durable once its method has returned.

    Implemented by `stores/sql/background/schedules.py`.
    """

    async def add(self, schedule: Schedule, most: int, mark: Mark | None) -> str:
        """Enter a schedule and return its id; one of the same id and content that is there already is left as it is.

        Raises:
            ScheduleError: the session has `most` that are active or paused already ("session_limit"), or the id is
                that of another schedule ("conflict").
        """
        ...

    async def added(self, mark: Mark) -> str | None:
        """The id of the schedule that was added under a mark before."""
        ...

    async def find(self, id: str) -> Schedule | None:
        """The schedule of an id."""
        ...

    async def list(self, session: str | None, *, active: bool = False) -> builtins.list[Schedule]:
        """Schedules, the oldest first: all, or only the active and paused ones."""
        ...

    async def due(self, now: float, limit: int, after: tuple[float, str] | None = None) -> builtins.list[Schedule]:
        """The active schedules whose next instant has come, the oldest instant first; after an instant and an id."""
        ...

    async def fire(
        self,
        id: str,
        expected: float | None,
        firings: Sequence[Firing],
        next_at: float | None,
        at: float,
        limits: Limits,
    ) -> builtins.list[str] | None:
        """Fire instants, once: None, without a change, unless the schedule is active and `expected` is still its next
        instant.

        Starts the runs, writes the history and moves on the next instant, all together; a schedule without a next
        instant has ended. Gives the ids of the runs. An instant that was fired before is not fired again. Beyond the
        limits a run waits; it is never refused.
        """
        ...

    async def run_now(
        self, id: str, registration: Registration, at: float, limits: Limits, mark: Mark | None
    ) -> str | None:
        """Start a run beside the instants, and return its id; None when the schedule was cancelled."""
        ...

    async def change(
        self, id: str, before: Sequence[State], state: State, next_at: float | None, mark: Mark | None
    ) -> bool:
        """Set the state and the next instant; False when it is not in one of the states it must be in before.

        The next instant only rises: an earlier one than there is changes only the state. Without one it has none any
        more.
        """
        ...

    async def history(self, id: str, limit: int) -> builtins.list[Fired]:
        """Its records, the latest instant first."""
        ...
