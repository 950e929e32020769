"""A real HTTP server on the loopback address that says what a test gives it, byte for byte.

Owns HTTP: chunks split anywhere, pauses, cut connections, and a record of what was asked. The shapes of each provider's
answers are in `shapes.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """A request as the server received it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Reply:
    """An answer: its pieces are written one by one; a piece that is an event is waited for."""

    pieces: Iterable[bytes | asyncio.Event] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = "text/event-stream"
    cut: bool = False
    """Close the connection where the answer should end properly."""
    hang: bool = False
    """Send no more after the pieces, and keep the connection."""


def whole(data: object, status: int = 200, **headers: str) -> Reply:
    """A JSON answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([json.dumps(data).encode()], status, named, "application/json")


def streamed(data: bytes, *, size: int = 0, cut: bool = False, hang: bool = False) -> Reply:
    """A stream of events, in pieces of `size` bytes."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    return Reply(pieces, cut=cut, hang=hang)


class Loopback:
    """The server. `replies` are given in order, the last one again and again; a function makes one of the request."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[Asked], Reply]] = []
        self.asked: list[Asked] = []
        self.connections = 0
        self.broken_off = asyncio.Event()
        """Set when a client ended a request whose answer was not complete."""
        self.waiting = asyncio.Event()
        """Set when the server has written its pieces and hangs."""
        self.address = ""

    def will(self, *replies: Reply | Callable[[Asked], Reply]) -> None:
        self.replies = list(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                content = await reader.readexactly(int(headers.get("content-length") or 0))
                method, path, _ = first.split(" ")
                asked = Asked(method, path, headers, json.loads(content) if content else None)
                self.asked.append(asked)
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                if not await self.write(reply(asked) if callable(reply) else reply, reader, writer):
                    break

    async def write(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Write a reply; True when the connection can be used again."""
        writer.write(f"HTTP/1.1 {reply.status} Said\r\ncontent-type: {reply.kind}\r\n".encode())
        writer.write("".join(f"{name}: {value}\r\n" for name, value in reply.headers.items()).encode())
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        for piece in reply.pieces:
            if isinstance(piece, asyncio.Event):
                await self.until_event_or_end(piece, reader)
                if not piece.is_set():
                    return False
                continue
            if piece:  # an empty chunk would end the answer
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)  # so that each piece is a packet of its own
        if reply.hang:
            self.waiting.set()
            await reader.read(1)
            self.broken_off.set()
        if reply.cut or reply.hang:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def until_event_or_end(self, event: asyncio.Event, reader: asyncio.StreamReader) -> None:
        tasks = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(reader.read(1))]
        self.waiting.set()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not event.is_set():
            self.broken_off.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    """Run the server on a free port of the loopback address."""
    server = Loopback()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.CancelledError):
            await server.serve(reader, writer)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()
