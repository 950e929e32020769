"""What is checked around every request, before its operation is looked for. Owns Host and Origin, the sizes and the
speed of a request, the number of open streams, and the security headers of every answer."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from typing import Any
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolwright.errors import StoreError
from toolwright.http.access.caller import Caller
from toolwright.http.access.limits import Limits
from toolwright.http.access.refusals import AccessRefused, TooManyRequests, TooSlow
from toolwright.http.access.sign_in import CALLER, SignIn
from toolwright.http.answers import JsonAnswer
from toolwright.http.problems import Problem, answer_of, problem_of
from toolwright.log_fields import log_fields

log = logging.getLogger("toolwright.http")

POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""For data: whatever a browser takes it for, such as a file of a session that is a page, it cannot do
anything. The files of the page have a policy of their own."""
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"content-security-policy", POLICY.encode()),
    (b"cache-control", b"no-store"),
)
_ASKED_BEFORE = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Prefer, Range"
    ),
    "Access-Control-Max-Age": "600",
}
"""What a browser is told that asks before a request of a page of another server."""
_EXPOSED = b"ETag, Location, Retry-After, Content-Range, Idempotent-Replayed"
_ONCE = (b"host", b"origin", b"authorization", b"content-length", b"content-type", b"cookie", b"idempotency-key")
_STREAM = b"text/event-stream"
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
RECHECK_SECONDS = 1.0
"""How often it is looked whether the tokens of open streams are still valid."""


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, sign_in: SignIn) -> None:
        self._app = app
        self._sign_in = sign_in
        self._limits = sign_in.limits
        self.streams = OpenStreams(sign_in)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        scope = without_authority(scope)
        body = _Body(scope, receive, self._limits)
        answer = _Answer(scope, send, body, self._limits, self.streams)
        try:
            try:
                require_bounded(scope, self._limits)
                headers = Headers(scope=scope)
                self._sign_in.origins.require(headers, scope["method"])
                if self._sign_in.origins.allows(headers.get("origin")):
                    answer.allow(headers["origin"])
                    if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                        await JsonAnswer(b"", 204, _ASKED_BEFORE)(scope, body.receive, answer.send)
                        return
                await self._app(scope, body.receive, answer.send)
            except (AccessRefused, Problem) as error:
                if answer.started:
                    raise
                await answer_of(problem_of(error))(scope, body.receive, answer.send)
        except _StreamRefused as refused:
            await answer_of(problem_of(refused.why))(scope, body.receive, answer.send)
        except ClientGone:
            log.warning("A client did not take its answer", extra=log_fields("http.client_gone"))
        except asyncio.CancelledError:
            if not answer.ended_by_us():
                raise
            # The token is not valid any more. The stream ends as if there were no more; the next request is refused.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            answer.close()


def without_authority(scope: Scope) -> Scope:
    """The request with a path only, where its line has a whole URL: its authority then stands for the Host header, as
    RFC 9112 (3.2.2) has it, and is checked as such."""
    target: bytes = scope.get("raw_path") or b""
    found = _ABSOLUTE.match(target)
    if found is None:
        return scope
    rest = target[found.end() :] or b"/"
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    headers.append((b"host", found[1]))
    return {**scope, "raw_path": rest, "path": unquote(rest.decode("latin-1")), "headers": headers}


def require_bounded(scope: Scope, limits: Limits) -> None:
    """Refuse a request whose line and headers are too much, or contradict each other.

    Raises:
        Problem: they are or do.
    """
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    line = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    size = line + sum(len(name) + len(value) + 4 for name, value in headers)
    if len(headers) > limits.headers or size > limits.header_bytes:
        raise Problem(
            431,
            "headers_too_large",
            f"The request has more than {limits.headers} headers or {limits.header_bytes} bytes of them; send fewer",
        )
    counted = Counter(name for name, _ in headers)
    for name in _ONCE:
        if counted[name] > 1:
            raise Problem(400, "header_twice", f"The header {name.decode()!r} is given twice; send it once")


class _Body:
    """The body of a request, which must come at a certain speed."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        names: dict[bytes, bytes] = dict(scope["headers"])
        self.done = b"transfer-encoding" not in names and names.get(b"content-length", b"0") == b"0"
        self._receive = receive
        self._limits = limits
        self._begun: float | None = None
        self._bytes = 0

    async def receive(self) -> Message:
        """The next message of the server.

        Raises:
            TooSlow: the next part does not come.
        """
        if self.done:
            return await self._receive()
        limits, now = self._limits, time.monotonic()
        begun = self._begun = now if self._begun is None else self._begun
        # After its first seconds a body must have its rate: one byte now and then is as bad as none.
        patience = begun + limits.body_seconds + self._bytes / limits.body_rate - now
        try:
            if patience <= 0:
                raise TimeoutError
            async with asyncio.timeout(min(limits.body_seconds, patience)):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow("The body of the request came too slowly; send it at once") from None
        self._bytes += len(message.get("body", b""))
        self.done = message["type"] != "http.request" or not message.get("more_body", False)
        return message


class _Answer:
    """The answer to a request: with our headers, to a client that takes it."""

    def __init__(self, scope: Scope, send: Send, body: _Body, limits: Limits, streams: OpenStreams) -> None:
        self._headers = _HEADERS
        self._scope = scope
        self._send = send
        self._body = body
        self._limits = limits
        self._streams = streams
        self._stream: _Stream | None = None
        # The task of the request, which has others that send: cancelling it ends them all.
        self._task = asyncio.current_task()
        self.started = False

    async def send(self, message: Message) -> None:
        """Pass a message on to the server."""
        if message["type"] == "http.response.start":
            self._start(message)
        try:
            async with asyncio.timeout(self._limits.send_seconds):
                await self._send(message)
        except TimeoutError:
            raise ClientGone from None

    def allow(self, origin: str) -> None:
        """Let a page of another server read the answer. It sends a token: the login of a browser is not for it."""
        self._headers = (
            *(each for each in self._headers if each[0] != b"cross-origin-resource-policy"),
            (b"cross-origin-resource-policy", b"cross-origin"),
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def _start(self, message: Message) -> None:
        headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
        named = {name.lower(): value for name, value in headers}
        if named.get(b"content-type", b"").startswith(_STREAM) and message["status"] == 200:
            self._stream = self._streams.open(self._scope.get(CALLER), self._task)
        headers.extend(each for each in self._headers if each[0] not in named)
        if not self._body.done:
            headers.append((b"connection", b"close"))  # nobody reads the rest of the body
        message["headers"] = headers
        self.started = True

    def ended_by_us(self) -> bool:
        """True when the stream was cancelled since its token is not valid any more. The cancelling is over then."""
        stream = self._stream
        if stream is None or not stream.ended:
            return False
        return stream.task is not None and stream.task.uncancel() == 0

    def close(self) -> None:
        """The request is over."""
        if self._stream is not None:
            self._streams.close(self._stream)


class ClientGone(OSError):
    """A client does not take its answer, and is given up."""


class _StreamRefused(Exception):
    """A stream that is one too many, before it began."""

    def __init__(self, why: TooManyRequests) -> None:
        super().__init__(str(why))
        self.why = why


class _Stream:
    """An open stream of events."""

    __slots__ = ("caller", "ended", "task")

    def __init__(self, caller: Caller | None, task: asyncio.Task[Any] | None) -> None:
        self.caller = caller
        self.task = task
        self.ended = False


class OpenStreams:
    """The streams of a service that are open: so many by each caller, and only as long as its token is valid."""

    def __init__(self, sign_in: SignIn) -> None:
        self._sign_in = sign_in
        self._open: set[_Stream] = set()
        self._callers: Counter[str | None] = Counter()
        self._watching: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller | None, task: asyncio.Task[Any] | None) -> _Stream:
        """Count a stream that begins, in the task of a request."""
        limits, name = self._sign_in.limits, _name(caller)
        if len(self._open) >= limits.streams or self._callers[name] >= limits.streams_per_caller:
            raise _StreamRefused(TooManyRequests("Too many streams are open; close some", 5.0))
        stream = _Stream(caller, task)
        self._open.add(stream)
        self._callers[name] += 1
        if caller is not None and caller.proof is not None and self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
        return stream

    def close(self, stream: _Stream) -> None:
        """Count a stream that ended."""
        if stream in self._open:
            self._open.remove(stream)
            name = _name(stream.caller)
            self._callers[name] -= 1
            if not self._callers[name]:
                del self._callers[name]
            if not self._open and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    async def _watch(self) -> None:
        """End the streams whose tokens are not valid any more."""
        tokens = await self._sign_in.tokens()
        while True:
            await tokens.clock.sleep(RECHECK_SECONDS)
            watched = [stream for stream in self._open if stream.caller is not None and stream.caller.proof is not None]
            try:
                valid = await tokens.still_valid([stream.caller for stream in watched if stream.caller is not None])
            except StoreError:
                continue  # it is looked again; a store that is away revokes nothing
            for stream in watched:
                lost = stream.caller is not None and stream.caller.proof not in valid
                if lost and stream in self._open and not stream.ended and stream.task is not None:
                    stream.ended = True
                    stream.task.cancel()


def _name(caller: Caller | None) -> str | None:
    return None if caller is None else caller.token or caller.login or caller.name
