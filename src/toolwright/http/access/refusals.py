"""Requests that are refused before their route sees them. Owns the status and the headers of the answer."""

from __future__ import annotations

import math

from toolwright.errors import ToolwrightError


class AccessRefused(ToolwrightError):
    """A request that is refused. The text says nothing about which tokens exist."""

    status = 403
    code = "forbidden"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {}


class Unauthenticated(AccessRefused):
    """No token came with the request, or none that is valid now."""

    status = 401
    code = "unauthenticated"

    @property
    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class WrongOrigin(AccessRefused):
    """The request was not meant for this server, or a page of another one made it."""

    code = "wrong_origin"


class TooManyRequests(AccessRefused):
    """The limit of requests is used up. `retry_after` is in seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(max(1, math.ceil(self.retry_after)))}


class TooSlow(AccessRefused):
    """A request whose body does not come."""

    status = 408
    code = "too_slow"
