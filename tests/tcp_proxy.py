"""A network that can fail, on loopback. Owns passing bytes between a program and its database, and failing to."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

COMMITTED = b"COMMIT\0"
"""Part of a commit that is not a prepared statement, and of the answer to every commit."""


class TcpProxy:
    """Passes connections on to a port of this machine, until it is told to drop them, stall, or lose an answer."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._links: set[_Link] = set()
        self._open = True
        self._loses_answer = False
        self._delays_commit = False
        self._lost = threading.Event()
        self._found = asyncio.Event()
        self.port = 0
        started = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(started,), name="proxy", daemon=True)
        self._thread.start()
        started.wait()

    def drop(self) -> None:
        """Cut all connections, and take no new ones until it is mended."""
        self._do(self._drop)

    def stall(self) -> None:
        """Pass nothing on: the connections look open, and nobody answers."""
        self._do(lambda: self._set_flow(False))

    def mend(self) -> None:
        """Pass everything on again, and take connections."""
        self._do(self._mend)

    def lose_answer(self) -> None:
        """Let the answer to the next commit not come back."""
        self._lost.clear()
        self._loses_answer = True

    def wait_lost(self, seconds: float) -> bool:
        """Wait until there was such a commit; False when none comes."""
        return self._lost.wait(seconds)

    def delay_commit(self) -> None:
        """Cut the connection of the next commit before it comes to the database, where it arrives later."""
        self._lost.clear()
        self._delays_commit = True

    def deliver(self) -> None:
        """Let the commit arrive that was delayed."""
        self._do(self._find)

    def give_answer(self) -> None:
        """Let the answer that was lost come after all."""
        self._do(self._find)

    def close(self) -> None:
        """Cut everything, and end."""
        if self._thread.is_alive():
            self._do(self._drop)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _do(self, what: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _find(self) -> None:
        self._found.set()
        self._found = asyncio.Event()

    def _drop(self) -> None:
        self._open = False
        for link in list(self._links):
            link.cut()

    def _mend(self) -> None:
        self._open = True
        self._set_flow(True)

    def _set_flow(self, flows: bool) -> None:
        self._open = flows
        for link in self._links:
            (link.flows.set if flows else link.flows.clear)()

    async def commit(self, cut: Callable[[], None]) -> None:
        """Wait where a commit is to be delayed. Of the links."""
        if self._delays_commit:
            self._delays_commit = False
            cut()
            self._lost.set()
            await self._found.wait()

    async def answer(self) -> None:
        """Wait where an answer is to be lost. Of the links."""
        if self._loses_answer:
            self._loses_answer = False
            self._lost.set()
            await self._found.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), there)
        self._links.add(link)
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the proxy ends
                await link.run()
        finally:
            self._links.discard(link)
            link.cut()


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection of a program, and the one to the database that belongs to it."""

    def __init__(self, proxy: TcpProxy, here: Stream, there: Stream) -> None:
        self._proxy = proxy
        self._here, self._there = here, there
        self.flows = asyncio.Event()
        self.flows.set()

    async def run(self) -> None:
        """Pass bytes until one side ends."""
        ways = [
            asyncio.ensure_future(self._pump(self._here[0], self._there[1], answers=False)),
            asyncio.ensure_future(self._pump(self._there[0], self._here[1], answers=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    def cut(self) -> None:
        """End both connections, so that each side sees it at once."""
        for _, writer in (self._here, self._there):
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                await self.flows.wait()
                if answers and COMMITTED in data:
                    await self._proxy.answer()
                elif COMMITTED in data:
                    await self._proxy.commit(self._here[1].transport.abort)
                target.write(data)
                await target.drain()
