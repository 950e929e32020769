"""Machines of a world: each has a process with the real runtime over the real PostgreSQL store. Owns their lives, and
the places where the real code meets the simulated world."""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import psycopg

from tests.effects.interleaving.loop import PROCESS, Process
from tests.simulation.network import Link, SimulatedAddress
from tests.simulation.server import Server
from tests.simulation.threads import EPOCH, Threads, clock_of
from toolwright import App, Runtime, StoreError, ids
from toolwright.clock import SystemClock, Timer
from toolwright.stores.contracts.sessions import Sealed
from toolwright.stores.postgres import batches, life, listener, store, writer
from toolwright.stores.postgres.faults import cannot_open
from toolwright.stores.sql import event_rows, job_thread
from toolwright.stores.sql.background import runs
from toolwright.stores.sql.codec import one


class Died(Exception):
    """The machine that was asked has died meanwhile."""


class MachineClock(SystemClock):
    """The clock of a machine: wall clocks may be wrong, and monotonic ones begin anywhere."""

    def __init__(self, machine: Machine, threads: Threads) -> None:
        self._loop = threads.loop
        self._machine = machine

    def now(self) -> float:  # type: ignore[override]
        return EPOCH + self._loop.time() + self._machine.ahead

    def monotonic(self) -> float:  # type: ignore[override]
        return self._loop.time() + self._machine.booted

    def call_at(self, when: float, callback: Callable[..., Any], *args: object) -> Timer:
        return self._loop.call_at(when - self._machine.booted, callback, *args)


class SimulatedStore(store.PostgresStore):
    """The real store; only the schema is there already, in the words of SQLite."""

    def _prepare(self) -> tuple[bytes, Sealed | None]:
        try:
            connection = self.address.connect()
            try:
                connection.execute("INSERT INTO commits (owner, number) VALUES (?, 0)", (self.owner,))
                return bytes(one(connection, "SELECT value FROM meta WHERE name = 'secret'")), None
            finally:
                connection.raw.close()
        except psycopg.OperationalError as error:
            raise cannot_open(self.address.shown, error) from error


class Columns(list[Any]):
    """A column of values, which the real store would write in the form of an array."""

    of = staticmethod(list)
    same = staticmethod(lambda value, times: [value] * times)


class Machine(Process):
    """A machine with one process."""

    def __init__(self, name: str, world: Any) -> None:
        super().__init__(name)
        self.world = world
        self.server: Server = world.server
        self.link = Link(world.threads, world.chance)
        self.ahead = 0.0
        self.booted = world.chance.choice((5.0, 1_000.0, 1e6))
        self.runtime: Runtime | None = None
        self.owner = ""
        self.closing = False
        self._died: asyncio.Future[None] = world.loop.create_future()
        self.troubles: list[tuple[float, float]] = []
        """When it stood still or was cut off: from, until."""

    @property
    def usable(self) -> bool:
        return self.runtime is not None and not self.dead and not self.closing

    def excused(self, most: float) -> bool:
        """True if it may be taken for dead: it was silent for longer than `most` seconds, and that is not long ago."""
        now = self.world.loop.time()
        silent = sum(min(until, now) - since for since, until in self.troubles if until > now - 2 * most)
        return self.dead or self.closing or silent > most

    def silenced(self, seconds: float) -> None:
        now = self.world.loop.time()
        self.troubles.append((now, now + seconds))

    def freeze(self, seconds: float) -> None:
        self.asleep_until = self.world.loop.time() + seconds
        self.silenced(seconds)

    def cut_off(self, seconds: float) -> None:
        self.link.cut_until = self.world.loop.time() + seconds
        self.silenced(seconds)

    def kill(self, *, silent: bool) -> None:
        """End its process; with `silent` the machine itself has no power, and the server is not told."""
        self.dead = True
        self._died.set_result(None)
        self.server.hang_up(self, silent=silent or self.link.down)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin something in its process."""
        task = self.world.loop.create_task(work, context=self.context.copy())
        self.world.tasks.append((task, work))
        return task

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin something that must not fail."""
        self.start(work).add_done_callback(self._begun, context=self.world.context)

    def _begun(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.wrong(f"{self}: {error!r}")
            self.world.ledger.story.append("".join(traceback.format_exception(error)))

    async def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in its process.

        Raises:
            Died: the process ended meanwhile.
        """
        task = self.start(work)
        await asyncio.wait({task, self._died}, return_when=asyncio.FIRST_COMPLETED)
        if self.dead:
            raise Died(self.name)
        return task.result()

    async def open(self, app: App, *, worker: bool) -> None:
        """Open its runtime; a server that is away is asked again, as by whoever starts processes."""
        clock = MachineClock(self, self.world.threads)
        while not self.dead:
            try:
                opened = await SimulatedStore.open("", clock=clock)
                self.owner = opened.owner
                self.world.owners[opened.owner] = self
                self.runtime = await app.open(opened, worker=worker, clock=clock)
                break
            except StoreError as error:
                self.world.note(self, f"cannot open its store: {error}")
                await asyncio.sleep(1.0)
        assert self.runtime is not None
        if self.runtime.worker is not None:
            self.world.workers[self.runtime.worker.name] = self
        self.world.note(self, "is open")

    async def close(self) -> None:
        self.closing = True
        assert self.runtime is not None
        await self.runtime.close()
        self.world.note(self, "is closed")


@contextlib.contextmanager
def simulated(world: Any, chance: random.Random) -> Iterator[None]:
    """Let the real code run in this world: its threads, its time, its randomness, and the way to its server."""
    threads: Threads = world.threads
    real_dead, real_take = life.Life.dead_among, runs.take_run

    def dead_among(self: life.Life, owners: set[str], connection: Any) -> set[str]:
        dead = real_dead(self, owners, connection)
        world.judge_dead(PROCESS.get(), dead)
        return dead

    def take_run(connection: Any, run: Any, worker: str, *rest: Any) -> Any:
        if run.status in ("running", "waiting"):  # else it was handed back
            world.judge_takeover(PROCESS.get(), run)
        return real_take(connection, run, worker, *rest)

    numbers = SimpleNamespace(urandom=chance.randbytes)
    wall = SimpleNamespace(time=lambda: clock_of(threads.loop), time_ns=lambda: int(clock_of(threads.loop) * 1e9))
    with contextlib.ExitStack() as stack:
        for module, name, stand_in in (
            (job_thread, "threading", threads.threading),
            (job_thread, "queue", threads.queue),
            (life, "threading", threads.threading),
            (life, "time", threads.time),
            (life, "select", threads.select),
            (life, "Texts", Columns),
            (life, "Integers", Columns),
            (life.Life, "dead_among", dead_among),
            (runs, "take_run", take_run),
            (listener, "threading", threads.threading),
            (listener, "selectors", threads.selectors),
            (listener, "os", threads.os),
            (writer, "time", threads.time),
            (store, "Address", SimulatedAddress),
            (batches, "Texts", Columns),
            (batches, "Bytes", Columns),
            (batches, "Floats", Columns),
            (batches, "Integers", Columns),
            (event_rows, "time", wall),
            (ids, "os", numbers),
            (ids, "time", wall),
            (ids, "_last", 0),
            (ids, "_run", "simulated"),
            (ids, "_next", iter(range(10**9)).__next__),
            (asyncio, "to_thread", threads.to_thread),
        ):
            stack.enter_context(patch.object(module, name, stand_in))
        yield
