"""A bound for the errors of a provider, whose library reads the whole body of an error, however long that is.

Owns that bound. Imports the HTTP library, and so is imported only with a provider's library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2

MOST_ERROR_BYTES = 1024 * 1024


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
