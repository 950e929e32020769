"""A log line for each request. Owns what it says: never a path, a query, a header or a body, which may hold a secret.

A route is the path of an operation with its parameters unfilled: the key of a wait, which is its own authority, is not
in it.
"""

from __future__ import annotations

import logging
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolwright.http.access.caller import Caller
from toolwright.http.access.sign_in import CALLER
from toolwright.log_fields import log_fields
from toolwright.tools.tracing import Tracing

log = logging.getLogger("toolwright.http.access")

ROUTE = "toolwright.route"
"""Where the service writes into the scope of a request which route it has."""
SESSION_OF_PATH = "toolwright.session"
"""Where it writes which session the path names."""
_LEFT = 499
"""The status of a request whose client left before it had an answer."""


def wanted() -> bool:
    """Whether the log takes the lines; where it does not, they are not made."""
    return log.isEnabledFor(logging.INFO)


async def logged(app: ASGIApp, tracing: Tracing | None, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request, and log it at its end: of a stream, when it is over. The line is part of the trace that the
    client sent along, where there is tracing."""
    begun, status = time.perf_counter(), _LEFT

    async def noted(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await app(scope, receive, noted)
    finally:
        trace = None if tracing is None or tracing.current() else Headers(scope=scope).get("traceparent")
        if tracing is None or trace is None:
            _tell(scope, status, time.perf_counter() - begun)
        else:
            with tracing.inside(trace):
                _tell(scope, status, time.perf_counter() - begun)


def _tell(scope: Scope, status: int, seconds: float) -> None:
    route, caller = scope.get(ROUTE, "none"), scope.get(CALLER)
    who = caller.name if isinstance(caller, Caller) else None
    client = scope.get("client")
    log.info(
        "%s %s %d in %.1f ms%s",
        scope["method"],
        route,
        status,
        seconds * 1_000,
        "" if who is None else f" by {who!r}",
        extra=log_fields(
            "http.request",
            session=scope.get(SESSION_OF_PATH),
            method=scope["method"],
            route=route,
            status=status,
            seconds=round(seconds, 6),
            caller=who,
            address=client[0] if client else None,
        ),
    )
