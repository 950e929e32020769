"""Offering the work of a store to a driver. Owns which work was offered and when, and repeats notices that failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from toolwright.clock import Clock
from toolwright.drivers.contract import Desk, Driver, Work, WorkKind
from toolwright.errors import DriverError, StoreError
from toolwright.log_fields import log_fields

log = logging.getLogger("toolwright.drivers")

SWEEP = 5.0
"""Seconds between two looks for work that was not offered, such as that of a program without this driver."""
AGAIN = 60.0
"""Seconds after which work that still waits is offered again: the driver may have lost it."""
AT_ONCE = 10
"""How many offers are on their way at a time."""
MOST_UNSENT = 10_000
"""How many notices are remembered while the driver cannot be reached; the store has their content, too."""


class Offers:
    """Offers what waits in a store to a driver, once, and tells it what has changed.

    A process without a worker looks into the store when it has started work. With `sweep`, it looks from time to time.
    """

    def __init__(self, desk: Desk, driver: Driver, clock: Clock) -> None:
        self._desk = desk
        self._driver = driver
        self._clock = clock
        self._offered: dict[tuple[WorkKind, str], tuple[float | None, float]] = {}
        self._unsent: dict[tuple[WorkKind, str], str | None] = {}
        self._wake = asyncio.Event()
        self._sweeps = False
        self._closed = False
        self._away = False
        self._task: asyncio.Task[None] | None = None

    def sweep(self) -> None:
        """Look from time to time from now on, also without a `poke`."""
        self._sweeps = True
        self.poke()

    def poke(self) -> None:
        """There may be work to offer."""
        self._wake.set()
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._look())

    def woken(self, kind: WorkKind, id: str) -> None:
        """What some work waited for has come."""
        self._tell(kind, id, None)

    def cancelled(self, kind: WorkKind, id: str, reason: str) -> None:
        """Some work was cancelled."""
        self._tell(kind, id, reason)

    async def close(self) -> None:
        """Send the notices that are left, if that is possible now, and stop."""
        self._closed, task = True, self._task
        self._wake.set()
        if task is not None:
            await asyncio.wait({task})
        if not self._away:
            await self._tell_all()

    def _tell(self, kind: WorkKind, id: str, reason: str | None) -> None:
        if len(self._unsent) < MOST_UNSENT:
            self._unsent[kind, id] = reason or self._unsent.get((kind, id))
        self.poke()

    async def _look(self) -> None:
        while not self._closed:
            self._wake.clear()
            told = await self._round()
            if self._wake.is_set():
                continue
            if told and not self._sweeps:
                break
            await self._pause()
        self._task = None

    async def _round(self) -> bool:
        """One look; False when something could not be told, and is to be told later."""
        try:
            waiting = await self._desk.waiting()
        except StoreError as fault:
            log.warning("Work to offer cannot be read: %s", fault, extra=log_fields("driver.store_unavailable"))
            return False
        except Exception:  # the edge of the runtime: an error here must not end the offers
            log.exception("Work to offer cannot be found", extra=log_fields("driver.failed"))
            return False
        offers = self._to_offer(waiting)
        told = await self._all([self._offer(work) for work in offers])
        return await self._tell_all() and told

    def _to_offer(self, waiting: Sequence[Work]) -> list[Work]:
        now = self._clock.now()
        offers, known = [], self._offered
        self._offered = {}
        for work in waiting:
            key = work.kind, work.id
            before = known.get(key)
            due = work.not_before is None or work.not_before <= now
            if before is not None and before[0] == work.not_before and not (due and now - before[1] >= AGAIN):
                self._offered[key] = before
            else:
                offers.append(work)
        return offers

    async def _offer(self, work: Work) -> None:
        await self._driver.offer(work)
        self._offered[work.kind, work.id] = work.not_before, self._clock.now()

    async def _tell_all(self) -> bool:
        unsent = list(self._unsent.items())
        return await self._all([self._send(kind, id, reason) for (kind, id), reason in unsent])

    async def _send(self, kind: WorkKind, id: str, reason: str | None) -> None:
        if reason is None:
            await self._driver.wake(kind, id)
        else:
            await self._driver.cancel(kind, id, reason)
        if self._unsent.get((kind, id)) == reason:
            self._unsent.pop((kind, id), None)

    async def _all(self, notices: Sequence[Awaitable[None]]) -> bool:
        """Tell all of these, some at a time; False when the driver could not be reached for one of them."""
        places, done = asyncio.Semaphore(AT_ONCE), True

        async def tell(one: Awaitable[None]) -> bool:
            async with places:
                try:
                    await one
                except DriverError as fault:
                    self._cannot_tell(fault)
                    return False
                except Exception:  # a driver of another package may raise anything
                    log.exception("The driver failed", extra=log_fields("driver.failed"))
                    return False
                return True

        if notices:
            done = all(await asyncio.gather(*map(tell, notices)))
            if done:
                self._away = False
        return done

    def _cannot_tell(self, fault: DriverError) -> None:
        if not self._away:
            self._away = True
            log.warning(
                "The driver cannot be told about work, which waits in the store: %s",
                fault,
                extra=log_fields("driver.unavailable"),
            )

    async def _pause(self) -> None:
        woken = asyncio.ensure_future(self._wake.wait())
        late = asyncio.ensure_future(self._clock.sleep(SWEEP))
        try:
            await asyncio.wait({woken, late}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            late.cancel()
