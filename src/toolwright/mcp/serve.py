"""Running an MCP server over stdio or HTTP. Owns the addresses that it may listen on; the transports are the SDK's."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ipaddress
import json
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any, Self

import anyio
import uvicorn
from mcp.server import streamable_http
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from toolwright.errors import ToolwrightError
from toolwright.mcp.tool_server import ToolServer

PATH = "/mcp"
IDLE_SECONDS = 15
"""Seconds for which an idle connection stays open: longer than clients keep one, so that none is closed while the next
request is on its way."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the program, which has more to close."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_stdio(server: ToolServer) -> None:
    """Serve one client over stdin and stdout, until it closes them. Whatever tools print goes to stderr."""
    async with stdio_server() as (read, write):
        await server.run(_Answered(read, write), write, server.create_initialization_options())


class _Answered:
    """The messages of a stream. A line that is none is answered with an error: the SDK leaves its sender waiting."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the sender, which the SDK asks for by this name."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while isinstance(item := await self._read.receive(), ValueError):
            await self._write.send(SessionMessage(_not_read(item)))
        return item  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def _not_read(problem: ValueError) -> JSONRPCError:
    """The answer to a line that is no message, with the id of the request where it can be read."""
    given: object = problem.errors()[0]["input"] if isinstance(problem, ValidationError) else None
    if isinstance(given, str):
        try:
            given = json.loads(given)  # it reads half of a surrogate pair, too
        except (ValueError, RecursionError):
            told = ErrorData(code=PARSE_ERROR, message="The message is not JSON; send JSON in UTF-8")
            return JSONRPCError(jsonrpc="2.0", id=None, error=told)
    # The id of an answer is that of a request of this side.
    id = given.get("id") if isinstance(given, dict) and "method" in given else None
    told = ErrorData(code=INVALID_REQUEST, message="The message is no request of JSON-RPC, or has half of a character")
    return JSONRPCError(jsonrpc="2.0", id=id if type(id) in (int, str) else None, error=told)


async def serve_http(
    server: ToolServer,
    address: str,
    started: Callable[[str], None] = lambda url: None,
    stop: asyncio.Event | None = None,
    **options: Any,
) -> None:
    """Serve clients over streamable HTTP at `http://ADDRESS/mcp`, until `stop` is set. Requests then have two seconds.

    Anybody who reaches the address may call the tools, so that it must be of this machine only. Requests of other hosts
    and of web pages are refused by their headers. `options` are those of the SDK's `streamable_http_app`.

    Raises:
        ToolwrightError: the address cannot be used.
    """
    host, port = loopback_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen(128)  # from now on, so that nobody who reads the address is refused
        except OSError as error:
            raise ToolwrightError(
                f"The address {address!r} cannot be used ({error.strerror}); choose another port"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        app = server.streamable_http_app(streamable_http_path=PATH, host=host, **options)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=2, timeout_keep_alive=IDLE_SECONDS
        )
        running = _Server(config)
        streamable_http.logger.addFilter(_not_of_clients_that_left)
        started(f"http://{shown}:{listening.getsockname()[1]}{PATH}")
        serving = asyncio.ensure_future(running.serve(sockets=[listening]))
        told = asyncio.ensure_future((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            running.should_exit = True
            await serving


def _not_of_clients_that_left(record: logging.LogRecord) -> bool:
    """False for a log line about a client that closed its connection before its request was whole."""
    return record.exc_info is None or not isinstance(record.exc_info[1], ClientDisconnect)


def loopback_address(address: str) -> tuple[str, int]:
    """The host and the port of `HOST:PORT`, or of a port alone.

    Raises:
        ToolwrightError: it is not an address of this machine only.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ToolwrightError(f"The address {address!r} has no port; use HOST:PORT, as in 127.0.0.1:8765")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ToolwrightError(
            f"The host {host!r} can be reached by other machines, and this server does not ask its clients who they "
            "are; use 127.0.0.1, with a proxy before it that does"
        )
    return host, int(port)
