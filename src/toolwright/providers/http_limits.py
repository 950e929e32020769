"""The limits of requests: seconds to connect, and bytes of an error, whose body a provider's library reads as a whole.

Imports the HTTP library of the providers' libraries, and so is imported only with one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2

MOST_ERROR_BYTES = 1024 * 1024
CONNECT_SECONDS = 10.0


def timeouts(seconds: float) -> httpx2.Timeout:
    """The seconds without a byte after which a request fails; fewer are given to connect."""
    return httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


class _Beginning(httpx2.AsyncByteStream):
    """The beginning of a body. The rest is not read."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_ERROR_BYTES
        async for chunk in self._body:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._body.aclose()


async def bound_error(response: httpx2.Response) -> None:
    """For the hooks of an HTTP client: cut the body of an error off."""
    if response.status_code >= 400:
        response.stream = _Beginning(response.stream)
