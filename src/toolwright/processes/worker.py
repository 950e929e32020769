"""Who runs processes. Owns claiming them, holding on to them by leases, and handing them back; not what they do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from toolwright.clock import Clock
from toolwright.errors import StoreError
from toolwright.ids import uuid7
from toolwright.processes.bell import Bell
from toolwright.processes.running import Running
from toolwright.processes.sink import Sink
from toolwright.processes.store import Claimed, ProcessStore

log = logging.getLogger("toolwright.processes")

LEASE = 30.0
"""Seconds that a worker may be silent before another takes its processes."""
RENEW = 10.0
"""Seconds between two renewals."""
LOOK = 0.5
"""Seconds between two looks for something to do."""
FLUSH = 0.25
"""Seconds that reports of processes are gathered before they are written, all in one transaction."""

Turn = Callable[[float], Awaitable[None]]
"""Something else that a worker does each time it looks: it is given the instant."""


class Worker:
    """Runs processes of one store, up to `capacity` at once, until it is closed.

    `tools` gives the names it can run, `start` makes a claimed process run.
    """

    def __init__(
        self,
        store: ProcessStore,
        clock: Clock,
        bell: Bell,
        *,
        capacity: int,
        tools: Callable[[], Sequence[str]],
        start: Callable[[Worker, Claimed], Running],
        turns: Sequence[Turn] = (),
    ) -> None:
        self.name = f"worker_{uuid7()}"
        self.capacity = capacity
        self._store = store
        self._clock = clock
        self._bell = bell
        self._alive: dict[str, Running] = {}
        self._tools = tools
        self._start = start
        self._turns = turns
        self._held: dict[str, Running] = {}
        self._dirty: list[Sink] = []
        self._wake = asyncio.Event()
        self._flushing: asyncio.Task[None] | None = None
        self._renewed = float("-inf")
        self._stopping = False
        self._loop = asyncio.ensure_future(self._serve())

    @property
    def running(self) -> int:
        """How many processes it runs now."""
        return len(self._held)

    def poke(self) -> None:
        """There may be something to do: look now."""
        self._wake.set()

    async def close(self, bound: float = 0.0) -> None:
        """Claim nothing more, let what runs end within `bound` seconds, and hand back the rest."""
        if self._stopping:
            return
        self._stopping = True
        self._wake.set()
        # Leases are renewed until the last of its processes has ended or is handed back.
        deadline = self._clock.monotonic() + bound
        while self._held and self._clock.monotonic() < deadline:
            await self._pause(min(LOOK, deadline - self._clock.monotonic()))
            await self._hold_on()
        self._loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._loop
        left = list(self._held.values())
        for running in left:
            running.let_go()
        await asyncio.gather(*(running.ended() for running in left))
        with contextlib.suppress(StoreError):  # then its leases end by themselves
            await self.flush()
            await self._store.hand_back(self.name, [running.hold for running in left], self._clock.now())
            await self._store.leave(self.name)
        self._bell.ring([running.id for running in left])

    async def _serve(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._hold_on()
                if not self._stopping:
                    for turn in self._turns:
                        await turn(self._clock.now())
                    await self._claim()
            except StoreError as fault:
                log.warning("The worker can not use its store, and tries again: %s", fault)
            await self._pause(LOOK)

    async def _hold_on(self) -> None:
        """Renew the leases when it is time, and stop what is to be cancelled or is no longer this worker's."""
        now = self._clock.monotonic()
        if now - self._renewed >= RENEW or self._renewed == float("-inf"):
            held = list(self._held.values())
            until = self._clock.now() + LEASE
            found = await self._store.renew(self.name, [running.hold for running in held], until, self.capacity)
            self._renewed = now
            for id in found.lost:
                self._lose(id)
            cancelled = found.cancelled
        else:
            cancelled = await self._store.cancelled(self.name) if self._held else {}
        for id, reason in cancelled.items():
            if id in self._held:
                self._held[id].cancel(reason)

    async def _claim(self) -> None:
        free = self.capacity - len(self._held)
        tools = self._tools()
        now = self._clock.now()
        if free <= 0 or not await self._store.work_waits(self.name, tools, now):
            return
        for claimed in await self._store.claim(self.name, tools, now, now + LEASE, free):
            await self._stop(claimed.process.id)
            running = self._held[claimed.process.id] = self._start(self, claimed)
            self._alive[running.id] = running
            running.task.add_done_callback(lambda _, running=running: self._over(running))  # type: ignore[misc]

    async def _stop(self, id: str) -> None:
        """What it lost, perhaps without knowing, it may take again; but what it still does of it shares the call."""
        before = self._alive.get(id)
        if before is not None:
            before.let_go()
            await before.ended()

    def _over(self, running: Running) -> None:
        if self._alive.get(running.id) is running:
            del self._alive[running.id]
        if self._held.get(running.id) is running and not running.let_gone:
            del self._held[running.id]
        self._bell.ring([running.id])
        self._wake.set()

    def _lose(self, id: str) -> None:
        running = self._held.pop(id, None)
        if running is not None:
            log.warning("The process %r was taken over by another worker", id)
            running.let_go()

    async def _pause(self, seconds: float) -> None:
        """Wait for some time, or until there may be something to do."""
        woken = asyncio.ensure_future(self._wake.wait())
        late = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({woken, late}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            late.cancel()

    # --- reports

    def dirty(self, sink: Sink) -> None:
        """A process has something to report."""
        self._dirty.append(sink)
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush_soon())

    async def _flush_soon(self) -> None:
        try:
            await self._clock.sleep(FLUSH)
            await self.flush()
        except StoreError as fault:
            log.warning("What processes report can not be written: %s", fault)
        finally:
            self._flushing = None
            if self._dirty:
                self._flushing = asyncio.ensure_future(self._flush_soon())

    async def flush(self, only: Sink | None = None) -> None:
        """Write what processes have reported, of one or of all."""
        sinks = [sink for sink in self._dirty if only is None or sink is only]
        self._dirty = [sink for sink in self._dirty if sink not in sinks]
        reports = [report for report in (sink.take() for sink in sinks) if report is not None]
        if reports:
            for id in await self._store.report(reports):
                self._lose(id)
            self._bell.ring([report.id for report in reports])

    def state(self) -> dict[str, Any]:
        """What there is to say of the worker, for whoever looks after it."""
        return {"worker": self.name, "capacity": self.capacity, "running": len(self._held), "stopping": self._stopping}
