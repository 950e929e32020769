"""One guarded request and its redirects. Owns resolution, the pinned connection and the time bounds; does not own what
a body means.

A name is resolved once for each hop, every address is checked, and the connection goes to a checked address while TLS
and the Host header keep the name. So an answer that changes between check and use changes nothing. There is no proxy,
no cookie, no referrer, and no credential.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpcore
import httpx
from msgspec import Struct

from toolwright.builtin.addresses import Address, Reach
from toolwright.builtin.urls import Target
from toolwright.clock import Clock
from toolwright.tools.outcome import ToolError

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_ADDRESSES = 4  # that are tried; a name may have hundreds


class Manners(Struct, frozen=True):
    """How the owner wants requests to be made."""

    reach: Reach
    ports: frozenset[int] | None
    max_redirects: int
    allow_downgrade: bool
    connect: float
    first_byte: float
    user_agent: str
    resolve: Resolve
    clock: Clock
    ssl_context: ssl.SSLContext


class Answer(Struct, frozen=True):
    """A response whose body is still to come."""

    target: Target
    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    redirects: int


@asynccontextmanager
async def request(
    target: Target, manners: Manners, permit: Callable[[Target], Awaitable[None]]
) -> AsyncIterator[Answer]:
    """Ask for a URL and follow its redirects, each as carefully as the first; `permit` may refuse any of them.

    Raises:
        ToolError: it is refused, or the other side does not answer as it should.
    """
    hops = 0
    while True:
        try:
            await permit(target)
            addresses = await _find(target, manners)
        except ToolError as error:
            if not hops:
                raise
            raise _redirected(error, hops) from None
        async with AsyncExitStack() as open_things:
            status, headers, chunks = await _ask(target, addresses, manners, open_things)
            location = headers.get("location") if status in _REDIRECTS else None
            if location is None:
                yield Answer(target, status, headers, chunks, hops)
                return
        hops += 1
        if hops > manners.max_redirects:
            raise ToolError(
                f"Host {target.host!r} redirects too often (more than {manners.max_redirects} times); "
                "ask for the page that it means.",
                category="external",
                code="too_many_redirects",
            )
        try:
            following = target.follow(location)
        except ToolError as error:
            raise _redirected(error, hops) from None
        if target.scheme == "https" and following.scheme == "http" and not manners.allow_downgrade:
            raise ToolError(
                f"Host {target.host!r} redirects from https to http, which is not followed; "
                "ask for the http page by its own URL if that is meant.",
                category="permission_denied",
                code="downgrade_refused",
            )
        target = following


def _redirected(error: ToolError, hop: int) -> ToolError:
    failure = error.failure
    return ToolError(
        f"Redirect {hop} is not followed. {failure.message}",
        category=failure.category,
        code=failure.code,
        retry=failure.retry,
        detail=failure.detail,
    )


async def _find(target: Target, manners: Manners) -> list[Address]:
    """The addresses of a host, all of them allowed."""
    host, port = target.host, target.port
    if manners.ports is not None and port not in manners.ports:
        known = ", ".join(str(port) for port in sorted(manners.ports))
        raise ToolError(
            f"Port {port} of host {host!r} is not fetched from; use one of {known}.",
            category="permission_denied",
            code="port_refused",
        )
    if ":" in host or host.replace(".", "").isdigit():
        return manners.reach.check(host, [host])
    async with within(manners.clock, manners.first_byte, f"Host {host!r} was not found in {manners.first_byte:g} s"):
        try:
            found = await manners.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(
                f"Host {host!r} can not be found; check its spelling.",
                category="external",
                code="name_not_resolved",
                retry=True,
                detail=str(error),
            ) from None
    return manners.reach.check(host, found)


async def _ask(
    target: Target, addresses: list[Address], manners: Manners, open_things: AsyncExitStack
) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
    """Send the request and read the head of the response. What it opens is closed with `open_things`."""
    pool = httpcore.AsyncConnectionPool(
        ssl_context=manners.ssl_context,
        network_backend=_Pinned(addresses, manners.connect),
        max_connections=1,
        max_keepalive_connections=0,
    )
    headers: dict[str | bytes, str | bytes] = {
        "Host": target.url.netloc.decode("ascii"),
        "User-Agent": manners.user_agent,
        "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.5",
        "Accept-Encoding": "gzip",
        "Connection": "close",
    }
    url = httpcore.URL(scheme=target.scheme, host=target.url.raw_host, port=target.port, target=target.url.raw_path)
    patience = f"Host {target.host!r} did not answer in {manners.first_byte:g} s"
    async with within(manners.clock, manners.first_byte, patience), _mapped(target.host):
        await open_things.enter_async_context(pool)
        response = await open_things.enter_async_context(pool.stream("GET", url, headers=headers))
    found: dict[str, str] = {}
    for name, value in response.headers:
        found.setdefault(name.decode("latin-1").lower(), _text(value))  # of two, the first counts
    return response.status, found, _body(response, target.host)


async def _body(response: httpcore.Response, host: str) -> AsyncIterator[bytes]:
    async with _mapped(host):
        async for chunk in response.aiter_stream():
            yield chunk


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connects to the addresses that were checked, whatever name it is given."""

    def __init__(self, addresses: Sequence[Address], patience: float) -> None:
        self._addresses = addresses[:_MOST_ADDRESSES]
        self._patience = patience
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        last: Exception | None = None
        for address in self._addresses:
            try:
                return await self._network.connect_tcp(
                    str(address), port, self._patience, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise last or httpcore.ConnectError("no address")


@asynccontextmanager
async def within(clock: Clock, seconds: float, complaint: str) -> AsyncIterator[None]:
    """Fail once this much time has passed by the clock.

    Raises:
        ToolError: with the complaint and category "timeout".
    """
    limit = asyncio.timeout(None)
    try:
        async with limit:
            timer = clock.call_at(clock.monotonic() + seconds, lambda: limit.reschedule(0.0))
            try:
                yield
            finally:
                timer.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise ToolError(
            f"{complaint}; try again later, or another page.", category="timeout", code="timeout", retry=True
        ) from None


@asynccontextmanager
async def _mapped(host: str) -> AsyncIterator[None]:
    """Turn what the network does to us into failures. Their text is ours: a library's may quote what was sent."""
    try:
        yield
    except httpcore.RemoteProtocolError as error:
        raise ToolError(
            f"Host {host!r} does not speak proper HTTP; it can not be fetched from.",
            category="external",
            code="protocol_error",
            detail=str(error)[:500],
        ) from None
    except httpcore.LocalProtocolError as error:
        raise ToolError(
            "The URL can not be sent; check what it is made of.",
            category="invalid_arguments",
            code="invalid_url",
            detail=str(error)[:500],
        ) from None
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        if isinstance(error.__cause__, ssl.SSLError):
            raise ToolError(
                f"Host {host!r} can not prove who it is (TLS), and is not fetched from.",
                category="external",
                code="tls_failed",
                detail=str(error)[:500],
            ) from None
        raise ToolError(
            f"Host {host!r} can not be connected to; try again later.",
            category="external",
            code="connection_failed",
            retry=True,
            detail=str(error)[:500],
        ) from None
    except (httpcore.NetworkError, httpcore.TimeoutException, ssl.SSLError, OSError) as error:
        raise ToolError(
            f"The connection to host {host!r} broke off; try again.",
            category="external",
            code="connection_lost",
            retry=True,
            detail=str(error)[:500],
        ) from None


async def resolve_by_system(host: str, port: int) -> list[str]:
    """The addresses of a host by the machine's own resolver, in its order of preference."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for _, _, _, _, place in found]


@functools.cache
def usual_tls() -> ssl.SSLContext:
    """What TLS trusts unless the owner says otherwise. The environment may not add an authority of its own."""
    return httpx.create_ssl_context(trust_env=False)
