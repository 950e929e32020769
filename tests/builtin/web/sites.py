"""Real servers on loopback, and a web_fetch that finds them by name. Owns both; does not own what they serve."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from tests.support import fail_after
from toolwright import Runtime, ToolOutcome
from toolwright.builtin.web import web_fetch_tool

PATIENCE = 20.0
Handler = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One connection, after its request has been read."""

    def __init__(self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request.decode("latin-1")
        self.reader = reader
        self.writer = writer

    @property
    def path(self) -> str:
        return self.request.split(" ", 2)[1]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the other side is gone."""
        with suppress(ConnectionError):
            while await self.reader.read(1024):
                pass

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Site:
    """A server: what it was asked, and how often it was connected to."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        self.requests: list[str] = []
        self.asked = asyncio.Event()
        self.left = asyncio.Event()


class Web:
    """Sites, their names, and the tool that is tried on them."""

    def __init__(self) -> None:
        self.names: dict[str, list[list[str]]] = {"pages.example": [["127.0.0.1"]]}
        self.lookups: list[str] = []
        self._open = AsyncExitStack()

    async def resolve(self, host: str, port: int) -> list[str]:
        """The scripted answers one after the other, the last for ever; numbers the way the system reads them."""
        self.lookups.append(host)
        if host in self.names:
            answers = self.names[host]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        found = await asyncio.get_running_loop().getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
        return [str(place[0]) for *_, place in found]

    async def serve(
        self, handler: Handler | bytes, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> Site:
        handling: set[Any] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            site.connections += 1
            handling.add(asyncio.current_task())
            try:
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    exchange = Exchange(await reader.readuntil(b"\r\n\r\n"), reader, writer)
                    site.requests.append(exchange.request)
                    site.asked.set()
                    if isinstance(handler, bytes):
                        await exchange.send(handler)
                    else:
                        await handler(exchange)
            finally:
                site.left.set()
                writer.close()

        server = await asyncio.start_server(handle, host, port, ssl=tls)
        site = Site(server.sockets[0].getsockname()[1])

        async def close() -> None:
            server.close()
            async with fail_after(PATIENCE):
                await asyncio.gather(*handling)

        self._open.push_async_callback(close)
        return site

    async def open(self, **options: Any) -> Runtime:
        """A runtime with a web_fetch that reaches pages.example, on any port, and nothing else that is private."""
        settings: dict[str, Any] = {"allow_hosts": ["pages.example"], "ports": None, "resolve": self.resolve}
        tool = web_fetch_tool(**(settings | options))
        return await self._open.enter_async_context(Runtime.open(tools=[tool]))

    async def fetch(self, url: str, /, *, arguments: dict[str, Any] | None = None, **options: Any) -> ToolOutcome:
        runtime = await self.open(**options)
        call = {"name": "web_fetch", "arguments": {"url": url, **(arguments or {})}}
        async with fail_after(PATIENCE):
            (outcome,) = await runtime.session("s").run_batch([call])
        return outcome

    async def close(self) -> None:
        await self._open.aclose()


def response(body: bytes = b"", *, status: str = "200 OK", type: str | None = "text/plain", **headers: str) -> bytes:
    """A whole response. Keywords are headers, with _ for -."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    if type is not None:
        lines.append(f"Content-Type: {type}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return response(status=status, type=None, Location=location)
