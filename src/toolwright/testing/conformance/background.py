"""Support for cases about background runs. Owns finding their stores, and the values of the cases."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from toolwright.errors import ServiceError
from toolwright.stores.contracts.background_run import BackgroundRun, Options, Registration, Status
from toolwright.stores.contracts.run_store import Claimed, Ending, Limits, Renewal, RunStore
from toolwright.stores.contracts.schedule import Schedule, Timing
from toolwright.stores.contracts.schedule_store import Firing
from toolwright.stores.contracts.sessions import Mark, Quotas
from toolwright.stores.contracts.store import BackgroundStores, Store
from toolwright.testing.conformance.cases import Database
from toolwright.testing.conformance.controllers import raised
from toolwright.tools.background_protocols import Trigger
from toolwright.tools.outcome import ToolOutcome

PLENTY = Limits(per_session=1_000, per_worker=1_000)
QUEUEING = Limits(per_session=1, per_worker=1_000, queue=True)
QUOTAS = Quotas()
LEASE = 30.0


class CaseClock:
    """The clock of leases in these cases: both its times are the time that the last verb got.

    `ahead` is for how many seconds its wall clock was set forward.
    """

    def __init__(self) -> None:
        self.at = 100.0
        self.ahead = 0.0

    def now(self) -> float:
        """The time of the last verb, by a wall clock that may have been set."""
        return self.at + self.ahead

    def monotonic(self) -> float:
        """The time of the last verb."""
        return self.at

    def call_at(self, when: float, callback: object, *args: object) -> object:
        """Nothing waits for this clock."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """Nothing waits for this clock."""
        raise NotImplementedError


CASE_CLOCK = CaseClock()
"""The lease clock that a `Database` passes to the stores that it opens for these cases."""


class TimedRuns:
    """A `RunStore` for cases, which pass the time of each verb and the end of a lease."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._runs, verb)

    async def register(self, new: Sequence[Registration], limits: Limits, mark: Mark | None) -> list[str]:
        """Register runs at the instant of the last of them."""
        CASE_CLOCK.at = new[-1].at if new else CASE_CLOCK.at
        return await self._runs.register(new, limits, mark)

    async def claim(
        self,
        worker: str,
        tools: Sequence[str],
        now: float,
        until: float,
        most: int,
        only: Sequence[str] | None = None,
        *,
        fair: bool = False,
    ) -> list[Claimed]:
        """Claim at an instant."""
        CASE_CLOCK.at = now
        return await self._runs.claim(worker, tools, now, until - now, most, only, fair=fair)

    async def unclaimed(self, tools: Sequence[str], now: float, limit: int) -> list[BackgroundRun]:
        """Look for runs that could be claimed at an instant."""
        CASE_CLOCK.at = now
        return await self._runs.unclaimed(tools, LEASE, limit)

    async def renew(
        self, worker: str, held: Sequence[tuple[str, int]], now: float, until: float, capacity: int
    ) -> Renewal:
        """Renew at an instant."""
        CASE_CLOCK.at = now
        return await self._runs.renew(worker, held, now, until - now, capacity)

    async def work_waits(self, worker: str, tools: Sequence[str], now: float) -> bool:
        """Look for work at an instant."""
        CASE_CLOCK.at = now
        return await self._runs.work_waits(worker, tools, LEASE)


class TimedServices:
    """The services of a store, with its runs as `TimedRuns`."""

    def __init__(self, services: BackgroundStores) -> None:
        self._services = services
        self.runs = TimedRuns(services.runs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services, name)


def services_of(store: Store) -> TimedServices:
    """The services of a store."""
    services: BackgroundStores | None = getattr(store, "services", None)
    assert services is not None, "The store has no `services`: it keeps calls only, and these cases are not for it."
    return TimedServices(services)


async def open_services(database: Database) -> TimedServices:
    """Open the services of a database as one more owner."""
    return services_of(await database.open())


def registration(
    id: str = "p1",
    *,
    at: float = 100.0,
    session: str = "s1",
    tool: str = "work",
    options: Options = Options(),  # noqa: B008 - it is frozen
    parent: str | None = None,
    schedule: str | None = None,
    alone: bool = False,
) -> Registration:
    return Registration(
        id=id,
        session=session,
        tool=tool,
        arguments=b"{}",
        title="Work",
        options=options,
        at=at,
        parent=parent,
        schedule=schedule,
        alone=alone,
    )


async def claim(stores: TimedServices, worker: str = "w1", now: float = 100.0, most: int = 100) -> list[BackgroundRun]:
    """The runs that a worker claims, for the length of a lease."""
    return [one.run for one in await stores.runs.claim(worker, ["work"], now, now + LEASE, most)]


async def begun(stores: TimedServices, id: str = "p1", worker: str = "w1") -> BackgroundRun:
    """A new run, which a worker claimed at 100."""
    await stores.runs.register([registration(id)], PLENTY, None)
    (run,) = await claim(stores, worker)
    return run


async def taken_over(stores: TimedServices) -> tuple[BackgroundRun, BackgroundRun]:
    """A new run, once as the worker with the expired lease knows it, and once as the worker that claimed it at 131."""
    former = await begun(stores)
    (heir,) = await claim(stores, "w2", 131.0)
    return former, heir


async def current(stores: TimedServices, id: str = "p1") -> BackgroundRun:
    """A run that must exist, as it is now."""
    found: BackgroundRun | None = await stores.runs.find(id)
    assert found is not None, f"The run {id!r} is not there."
    return found


def ending(
    run: BackgroundRun,
    status: Status = "completed",
    *,
    at: float = 200.0,
    files: Sequence[tuple[str, bytes]] = (),
    tell: bytes | None = None,
    evidence: bytes = b"",
) -> Ending:
    return Ending(
        id=run.id,
        token=run.token,
        at=at,
        status=status,
        outcome=ToolOutcome(run.id, run.tool, "success", b'"fine"'),
        summary="It is fine.",
        status_text=status.title(),
        files=files,
        tell=tell,
        evidence=evidence,
    )


async def end(stores: TimedServices, run: BackgroundRun) -> None:
    """End a run that its holder must still hold."""
    assert await stores.runs.finish(ending(run), QUOTAS)


async def types(stores: TimedServices, id: str = "p1") -> list[str]:
    """The types of the events of a run, in order."""
    return [event.type for event in await stores.runs.events(id, 0, 1_000)]


def schedule(
    id: str = "h1", *, session: str = "s1", next_at: float | None = 1_000.0, created_at: float = 100.0
) -> Schedule:
    return Schedule(
        id=id,
        session=session,
        tool="work",
        arguments={},
        title="Work",
        options=Options(),
        timing=Timing(cron="* * * * *"),
        next_at=next_at,
        created_at=created_at,
    )


async def scheduled(stores: TimedServices, id: str = "h1") -> Schedule:
    """A schedule that must be there, as it is now."""
    found: Schedule | None = await stores.schedules.find(id)
    assert found is not None, f"The schedule {id!r} is not there."
    return found


def firing(
    run: str | None, instant: float = 1_000.0, *, schedule: str = "h1", alone: bool = False, unless_active: bool = False
) -> Firing:
    """An instant for which a run is started, or without one it is missed."""
    if run is None:
        return Firing(instant, "missed", None)
    started = registration(run, at=instant, schedule=schedule, alone=alone)
    return Firing(instant, "fired", started, unless_active)


def trigger(
    id: str = "t1", *, session: str = "s1", topic: str = "order", title: str = "Work", created_at: float = 100.0
) -> Trigger:
    return Trigger(
        id=id,
        session=session,
        topic=topic,
        tool="work",
        arguments={"n": 1},
        match={"kind": "b*"},
        payload_as="order",
        title=title,
        timeout=60.0,
        signal_on_completion=True,
        created_at=created_at,
    )


async def refusal(work: Awaitable[Any]) -> str:
    """The code of the refusal that must come."""
    return (await raised(ServiceError, work)).code
