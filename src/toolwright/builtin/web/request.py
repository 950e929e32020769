"""One guarded request and its redirects. Owns the checks at each hop; does not own the meaning of a body.

A name is resolved once for each hop, every address is checked, and the connection goes to a checked address while TLS
and the Host header keep the name. So an answer that changes between check and use changes nothing. There is no proxy,
no cookie, no referrer, and no credential.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpcore
from msgspec import Struct

from toolwright.builtin.timeouts import within
from toolwright.builtin.web.addresses import Address, Reach
from toolwright.builtin.web.tcp import Pinned, mapped
from toolwright.builtin.web.urls import Target
from toolwright.clock import Clock
from toolwright.tools.outcome import ToolError

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


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
    chunks: AsyncGenerator[bytes, None]
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
                f"Host {host!r} cannot be found; check its spelling.",
                category="external",
                code="name_not_resolved",
                retry=True,
                detail=str(error),
            ) from None
    return manners.reach.check(host, found)


async def _ask(
    target: Target, addresses: list[Address], manners: Manners, open_things: AsyncExitStack
) -> tuple[int, dict[str, str], AsyncGenerator[bytes, None]]:
    """Send the request and read the head of the response. Everything that it opens is closed with `open_things`."""
    pool = httpcore.AsyncConnectionPool(
        ssl_context=manners.ssl_context,
        network_backend=Pinned(addresses, manners.connect),
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
    async with within(manners.clock, manners.first_byte, patience), mapped(target.host):
        await open_things.enter_async_context(pool)
        response = await open_things.enter_async_context(pool.stream("GET", url, headers=headers))
    found: dict[str, str] = {}
    for name, value in response.headers:
        found.setdefault(name.decode("latin-1").lower(), _text(value))  # of two, the first counts
    return response.status, found, _body(response, target.host)


async def _body(response: httpcore.Response, host: str) -> AsyncGenerator[bytes, None]:
    async with mapped(host):
        async for chunk in response.aiter_stream():
            yield chunk


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
