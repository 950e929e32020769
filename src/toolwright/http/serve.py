"""Running a service on a port of this machine, until it is told to stop. Owns listening, and the order of stopping:
streams are ended, requests are answered, background work is finished or handed over, and then the app is closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from toolwright.errors import RuntimeClosed, ToolwrightError
from toolwright.http.connections import server_config
from toolwright.http.service import Service
from toolwright.log_fields import log_fields
from toolwright.runtime.runtime import Runtime

log = logging.getLogger("toolwright.http")

Started = Callable[[str], Awaitable[None]]
"""Told the URL of a service that answers from now on."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 8700,
    *,
    stop: asyncio.Event,
    started: Started,
    grace: float = 30.0,
    proxy: bool = False,
) -> None:
    """Serve on a port until `stop` is set; 0 takes a free one.

    Then no more connections are taken, streams end, and requests and background work have `grace` seconds to end.
    `proxy` lets a proxy on this machine tell from where a request came, and by which scheme.

    Raises:
        ToolwrightError: the address cannot be used, or the app cannot be opened.
    """
    with listening(host, port) as listener:
        runtime = await service.open()
        config = server_config(
            service,
            service.sign_in.limits,
            lifespan="off",  # opened above, so that its error is told as it is
            proxy_headers=proxy,
            forwarded_allow_ips="127.0.0.1,::1" if proxy else None,
            timeout_graceful_shutdown=None if math.isinf(grace) else max(1, round(grace)),
        )
        server = _Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        told = asyncio.ensure_future(stop.wait())
        # While requests are served: what a crash cut off may take long to finish.
        recovering = asyncio.ensure_future(_recover(runtime))
        try:
            await started(url_of(listener))
            both: set[asyncio.Future[Any]] = {serving, told}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            service.stop()
            server.should_exit = True
            await asyncio.gather(serving, runtime.drain(grace))
        finally:
            told.cancel()
            if not serving.done():
                server.should_exit = server.force_exit = True
                await asyncio.wait({serving})
            await service.close()
            await asyncio.wait({recovering})


async def _recover(runtime: Runtime) -> None:
    """Finish the calls and turns that a crash cut off."""
    try:
        await runtime.recover()
    except RuntimeClosed:
        pass  # the service stops; the next one continues
    except ToolwrightError as error:
        log.error("What a crash cut off cannot be recovered: %s", error, extra=log_fields("http.not_recovered"))


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens: from now on nobody who reads its address is refused.

    Raises:
        ToolwrightError: the address cannot be used.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ToolwrightError(f"The host {host!r} is not usable ({error.strerror}); use an address") from None
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except OSError as error:
            raise ToolwrightError(
                f"Port {port} of {host!r} cannot be listened on ({error.strerror}); use another --port or --host"
            ) from None
        yield listener


def url_of(listener: socket.socket) -> str:
    """The URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
