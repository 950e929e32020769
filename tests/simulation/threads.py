"""Threads of simulated processes, as greenlets on the seeded loop. Owns when one of them waits, and who wakes it.

The code of the store runs in threads that block: on a queue, a pause, an answer of the server. Here each such thread
is a greenlet, which goes back to the loop where it would block, so that one seed gives one order. Nothing else of that
code is replaced: its modules get these classes for `threading`, `queue`, `time`, `selectors` and `os`.
"""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import greenlet  # type: ignore[import-untyped]

from tests.effects.interleaving.loop import PROCESS, Process, SeededLoop


class BlockedLoop(Exception):
    """Code on an event loop waited as only a thread may."""


class Threads:
    """The threads of all processes of one world."""

    def __init__(self, loop: SeededLoop) -> None:
        self.loop = loop
        self._main = greenlet.getcurrent()
        self._all: set[greenlet.greenlet] = set()
        self.threading = SimpleNamespace(
            Thread=self._thread, Event=lambda: Event(self), Lock=NoLock, get_ident=lambda: 0
        )
        self.queue = SimpleNamespace(SimpleQueue=lambda: SimpleQueue(self), Empty=queue.Empty)
        self.time = SimpleNamespace(monotonic=loop.time, sleep=self.sleep, time=lambda: clock_of(loop))
        self.select = SimpleNamespace(poll=Poll, POLLIN=1)
        self.selectors = SimpleNamespace(DefaultSelector=lambda: Selector(self), EVENT_READ=1)
        self.os = SimpleNamespace(pipe=lambda: (pipe := Readable(self), pipe), write=_write, close=_close)

    def _thread(self, target: Callable[..., Any], name: str = "", daemon: bool = True, args: Any = ()) -> Thread:
        return Thread(self, lambda: target(*args))

    def run(self, work: Callable[[], Any], process: Process) -> None:
        """Run `work` as a thread of a process."""
        thread = greenlet.greenlet(work, parent=self._main)
        thread.gr_context = process.context.copy()
        self._all.add(thread)
        self.loop.call_soon(self._resume, thread, context=process.context)

    def _resume(self, thread: greenlet.greenlet) -> None:
        thread.switch()
        if thread.dead:
            self._all.discard(thread)

    def wait(self, waiters: list[Callable[[], None]] | None, seconds: float | None) -> None:
        """Let the loop go on until somebody calls what is put among `waiters`, or some seconds have passed."""
        this = greenlet.getcurrent()
        process = PROCESS.get()
        if this is self._main or process is None:
            raise BlockedLoop("the event loop waits for something that takes time")
        woken = False

        def wake() -> None:
            nonlocal woken
            if not woken:
                woken = True
                self.loop.call_soon(self._resume, this, context=process.context)

        if waiters is not None:
            waiters.append(wake)
        timer = None if seconds is None else self.loop.call_later(seconds, wake, context=process.context)
        self._main.switch()
        if timer is not None:
            timer.cancel()
        if waiters is not None and wake in waiters:
            waiters.remove(wake)

    def sleep(self, seconds: float) -> None:
        self.wait(None, seconds)

    async def to_thread(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """`asyncio.to_thread` of a simulated process."""
        process = PROCESS.get()
        assert process is not None
        result: asyncio.Future[Any] = self.loop.create_future()

        def do() -> None:
            try:
                done = work(*args, **options)
            except BaseException as error:
                if isinstance(error, greenlet.GreenletExit):
                    raise
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(done)

        self.run(do, process)
        return await result

    def end(self) -> None:
        """End the threads that never come to their own end: those of processes that were killed."""
        for thread in list(self._all):
            thread.throw(greenlet.GreenletExit)
        self._all.clear()


def clock_of(loop: SeededLoop) -> float:
    """The wall clock of the process that asks."""
    process = PROCESS.get()
    return EPOCH + loop.time() + getattr(process, "ahead", 0.0)


EPOCH = 1_800_000_000.0
"""The wall clock at the beginning of every history."""


class Thread:
    """A `threading.Thread`."""

    def __init__(self, threads: Threads, work: Callable[[], Any]) -> None:
        self._threads = threads
        self._work = work
        self._over: list[Callable[[], None]] = []
        self._alive = False

    def start(self) -> None:
        process = PROCESS.get()
        assert process is not None
        self._alive = True
        self._threads.run(self._run, process)

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self._alive = False
            for wake in [*self._over]:
                wake()

    def is_alive(self) -> bool:
        return self._alive

    def join(self) -> None:
        while self._alive:
            self._threads.wait(self._over, None)


class Event:
    """A `threading.Event`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._set = False
        self._waiters: list[Callable[[], None]] = []

    def set(self) -> None:
        self._set = True
        for wake in [*self._waiters]:
            wake()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._threads.wait(self._waiters, timeout)
        return self._set


class NoLock:
    """A `threading.Lock` around code that never waits: no other thread comes in between."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class SimpleQueue:
    """A `queue.SimpleQueue`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._items: deque[Any] = deque()
        self._waiters: list[Callable[[], None]] = []

    def empty(self) -> bool:
        return not self._items

    def put(self, item: Any) -> None:
        self._items.append(item)
        for wake in [*self._waiters]:
            wake()

    def get_nowait(self) -> Any:
        return self._items.popleft()

    def get(self, timeout: float | None = None) -> Any:
        if not self._items:
            self._threads.wait(self._waiters, timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class Readable:
    """Something that a selector waits for: a pipe, or the socket of a connection."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self.ready = False
        self.waiters: list[Callable[[], None]] = []

    def ring(self) -> None:
        self.ready = True
        for wake in [*self.waiters]:
            wake()


def _write(pipe: Readable, data: bytes) -> None:
    pipe.ring()


def _close(pipe: Readable) -> None:
    pass


class Poll:
    """A `select.poll` that does not wait."""

    def __init__(self) -> None:
        self._watched: list[Readable] = []

    def register(self, watched: Readable, events: int) -> None:
        self._watched.append(watched)

    def poll(self, timeout: int) -> list[Readable]:
        return [one for one in self._watched if one.ready]


class Selector:
    """A `selectors.DefaultSelector`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._watched: list[Readable] = []

    def __enter__(self) -> Selector:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def register(self, watched: Readable, events: int) -> None:
        self._watched.append(watched)

    def select(self, timeout: float | None = None) -> None:
        if any(one.ready for one in self._watched):
            return
        waiters: list[Callable[[], None]] = []

        def wake() -> None:
            for each in [*waiters]:
                each()

        for one in self._watched:
            one.waiters.append(wake)
        try:
            self._threads.wait(waiters, timeout)
        finally:
            for one in self._watched:
                one.waiters.remove(wake)
