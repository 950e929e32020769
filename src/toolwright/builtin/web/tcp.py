"""One connection. Owns finding addresses, connecting to a checked one, and the names of connection failures."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpcore
import httpx

from toolwright.builtin.web.addresses import Address
from toolwright.tools.outcome import ToolError

_MOST_ADDRESSES = 4  # that are tried; a name may have hundreds


class Pinned(httpcore.AsyncNetworkBackend):
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
async def mapped(host: str) -> AsyncIterator[None]:
    """Turn network errors into failures. Their text is ours: a library's text may quote the data that was sent."""
    try:
        yield
    except httpcore.RemoteProtocolError as error:
        raise ToolError(
            f"Host {host!r} does not speak proper HTTP; it cannot be fetched from.",
            category="external",
            code="protocol_error",
            detail=str(error)[:500],
        ) from None
    except httpcore.LocalProtocolError as error:
        raise ToolError(
            "The URL cannot be sent; check its characters.",
            category="invalid_arguments",
            code="invalid_url",
            detail=str(error)[:500],
        ) from None
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        if _by_tls(error):
            raise ToolError(
                f"Host {host!r} cannot prove who it is (TLS), and is not fetched from.",
                category="external",
                code="tls_failed",
                detail=str(error)[:500],
            ) from None
        raise ToolError(
            f"Host {host!r} cannot be connected to; try again later.",
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


def _by_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


async def resolve_by_system(host: str, port: int) -> list[str]:
    """The addresses of a host by the machine's own resolver, in its order of preference."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for _, _, _, _, place in found]


@functools.cache
def usual_tls() -> ssl.SSLContext:
    """The certificates that TLS trusts unless the owner chooses others. The environment may not add an authority."""
    return httpx.create_ssl_context(trust_env=False)
