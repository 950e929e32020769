"""Hearing that another process has written. Owns what this process knows of the writes of others, the connection that
listens, and the words by which writers tell it.

A writer tells of its transaction when others may wait for what it wrote: a resolution, a signal, a run, an end. The
intents and outcomes of batches, which come by the thousand, are not told: they are seen with the next sign of life.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import selectors
import threading
from collections.abc import Callable, Mapping

import psycopg

from toolwright.errors import StoreError
from toolwright.stores.postgres.address import Address

RETRY = 1.0
"""Seconds before the next try to listen, where the server is away."""
_NUMBER = re.compile(r"[0-9]{1,18}")


def channel_of(address: Address) -> str:
    """The channel of a store, as it stands in statements."""
    return f"toolwright_{address.lock_key('news') & (2**64 - 1):016x}"


def notice(owner: str, news: int) -> str:
    """What a writer tells: who it is, and how much it has written that may concern others."""
    return f"{owner} {news}"


class Listener:
    """Counts the news of other owners. It listens on a thread that begins with the first waiter.

    `look` asks for a look at the store, whose result comes to `seen`.
    """

    def __init__(self, address: Address, owner: str, look: Callable[[], object]) -> None:
        self._address = address
        self._owner = owner
        self._look = look
        self._known: dict[str, int] = {}
        self.heard = 0
        self.hears = False
        """True while it is told of everything at once."""
        self._lock = threading.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._thread: threading.Thread | None = None
        self._wake, self._woken = -1, -1
        self._ended = False

    def seen(self, others: Mapping[str, int]) -> None:
        """These are the owners that live, each with its news, as the store had it a moment ago."""
        with self._lock:
            # A notice may be newer than what was seen.
            known = {owner: max(news, self._known.get(owner, 0)) for owner, news in others.items()}
            is_new, self._known = known != self._known, known
        if is_new:
            self._ring()

    def _told(self, notice: str) -> None:
        owner, _, news = notice.partition(" ")
        if owner == self._owner or not _NUMBER.fullmatch(news):  # any program of the database may notify something
            return
        with self._lock:
            is_new = int(news) > self._known.get(owner, -1)
            if is_new:
                self._known[owner] = int(news)
        if is_new:
            self._ring()

    def is_told(self) -> bool:
        """False while there are waiters, and the server cannot notify."""
        return self.hears or not self._waiters

    async def wait(self, heard: int, seconds: float) -> None:
        """Wait until more was heard than this, or some seconds have passed."""
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.heard != heard or self._ended:
                return
            self._start()
            self._waiters.add(future)
        try:
            await asyncio.wait({future}, timeout=seconds)
        finally:
            with self._lock:
                self._waiters.discard(future)
            future.cancel()

    def end(self) -> None:
        """Stop listening, and let those who wait go on."""
        with self._lock:
            self._ended = True
        self._ring()
        if self._thread is not None:
            os.write(self._wake, b"x")
            self._thread.join()
            os.close(self._wake)
            os.close(self._woken)
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._woken, self._wake = os.pipe()
            self._thread = threading.Thread(target=self._work, name="toolwright-listener", daemon=True)
            self._thread.start()

    def _ring(self) -> None:
        with self._lock:
            self.heard += 1
            waiters, self._waiters = self._waiters, set()
        for future in waiters:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                future.get_loop().call_soon_threadsafe(_let_go, future)

    def _work(self) -> None:
        while not self._ended:
            with contextlib.suppress(psycopg.Error, StoreError, OSError):
                self._listen()
            self.hears = False
            with selectors.DefaultSelector() as pause:
                pause.register(self._woken, selectors.EVENT_READ)
                pause.select(RETRY)

    def _listen(self) -> None:
        """Listen until the connection is lost, or the listener is closed."""
        connection = self._address.connect()
        told = connection.raw.pgconn
        try:
            connection.command(f"LISTEN {channel_of(self._address)}")
            self.hears = True
            self._look()  # what came before was not heard
            with selectors.DefaultSelector() as both:
                both.register(self._woken, selectors.EVENT_READ)
                both.register(told.socket, selectors.EVENT_READ)
                while not self._ended:
                    both.select()
                    told.consume_input()
                    while (notice := told.notifies()) is not None:
                        self._told(notice.extra.decode())
        finally:
            connection.raw.close()


def _let_go(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
