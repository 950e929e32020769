"""A server in this process that real clients connect to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn

from tests.support import fail_after
from toolwright.http import Service
from toolwright.http.connections import server_config


class Reply:
    """The raw answer to a request: its status, its headers with lower-case names, and its body."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first else None
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


class Connection:
    """A connection whose bytes the test writes itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def reply(self) -> Reply:
        """The next answer on the connection."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = Reply(head).headers.get("content-length")
        return Reply(head + (await self.reader.readexactly(int(length)) if length else b""))

    async def rest(self) -> bytes:
        """All that comes until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


class LiveServer:
    """A server that listens on a port of loopback."""

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.host = f"Host: 127.0.0.1:{port}\r\n".encode()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def live(service: Service, **options: Any) -> AsyncIterator[LiveServer]:
    """Serve until the end of the block."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(service, service.sign_in.limits, lifespan="on", **options))
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        async with fail_after(10):
            while not server.started:
                assert not serving.done(), serving
                await asyncio.sleep(0)
        yield LiveServer(service, listening.getsockname()[1])
    finally:
        service.stop()
        server.should_exit = True
        async with fail_after(10):
            await serving
        listening.close()


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[str]:
    """The address of a service while it is served."""
    async with live(service) as server:
        yield server.url
