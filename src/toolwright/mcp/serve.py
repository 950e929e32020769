"""Running an MCP server over stdio or HTTP. Owns the addresses that it may listen on; the transports are the SDK's."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from mcp.server import streamable_http
from mcp.server.stdio import stdio_server
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
        await server.run(read, write, server.create_initialization_options())


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
