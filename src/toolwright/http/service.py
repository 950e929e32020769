"""The service: an app and its store over HTTP, as an ASGI application. Owns what happens around every operation, in one
place: finding it, who asks, the checks of the request, and problems as answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolwright.app import App
from toolwright.app_options import OpenOptions
from toolwright.errors import ToolwrightError
from toolwright.http import access_log
from toolwright.http.access.caller import Authenticate, Caller
from toolwright.http.access.limits import Limits
from toolwright.http.access.origins import Origins
from toolwright.http.access.sign_in import CALLER, SignIn
from toolwright.http.access.tokens import Tokens
from toolwright.http.answers import JsonAnswer, StreamAnswer
from toolwright.http.batch_cancels import cancels_of
from toolwright.http.checks import BodyCheck, read_query
from toolwright.http.events import feed_of
from toolwright.http.guard import Guard
from toolwright.http.idempotency import HEADER, Answered, IdempotencyKey, RememberedRequests, read_key
from toolwright.http.operations import LONGEST_ID, SESSION, UNBOUNDED, Operation, RequestCounts, ServiceRequest
from toolwright.http.page import page
from toolwright.http.problems import Problem, answer_of, not_found, problem_of
from toolwright.http.routes import OPERATIONS
from toolwright.http.routing import Routes
from toolwright.log_fields import log_fields
from toolwright.runtime.runtime import Runtime, stores_of, tokens_of
from toolwright.stores.contracts.store import Store

log = logging.getLogger("toolwright.http")

NOBODY = Caller("nobody", frozenset(), ())
"""The caller of an operation that needs no token."""


class Service:
    """An ASGI application that serves a runtime. It opens its app with the lifespan of the server, or at the first
    request where it is mounted into another application; `close` then closes it."""

    def __init__(
        self,
        app: App | Runtime,
        store: str | Path | Store,
        options: OpenOptions,
        *,
        authenticate: Authenticate | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        limits: Limits | None = None,
        operations: Iterable[Operation] = OPERATIONS,
        page: ASGIApp | None = None,
    ) -> None:
        self._app = app if isinstance(app, App) else None
        self._runtime = app if isinstance(app, Runtime) else None
        self._store = store
        self._options = options
        self.sign_in = SignIn(self._tokens, Origins(hosts, origins), limits or Limits())
        self.authenticate: Authenticate = authenticate or self.sign_in
        self.guard = Guard(self._serve, self.sign_in)
        self.operations = tuple(operations)
        self._routes = Routes(self.operations)
        self._readers = {
            id(one): one.reader or BodyCheck(one.body).read for one in self.operations if one.body is not None
        }
        self._remembered = RememberedRequests()
        self._page = page
        self._opening: asyncio.Task[Runtime] | None = None
        self.counts = RequestCounts()
        self.ready = True
        """False once the service stops: it is not to be sent requests any more."""

    # --- opening and closing

    async def open(self) -> Runtime:
        """The runtime, opened when it is first needed."""
        if self._runtime is not None:
            return self._runtime
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.ensure_future(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Runtime:
        assert self._app is not None
        self._runtime = await self._app.open(self._store, **self._options)
        return self._runtime

    async def _tokens(self) -> Tokens:
        runtime = self._runtime or await self.open()
        return Tokens(tokens_of(runtime), runtime.clock)

    def stop(self) -> None:
        """Take no more part in the work: the service is not ready, and its streams end with a hint to come back."""
        self.ready = False
        if self._runtime is not None:
            feed_of(self._runtime).stop()
            cancels_of(self._runtime).stop()

    async def close(self) -> None:
        """Close the runtime that the service opened; one that it was given stays open."""
        self.stop()
        if self._app is not None and self._runtime is not None:
            await self._runtime.close()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[Runtime]:
        """The runtime while the service runs, for an application that mounts it."""
        try:
            yield await self.open()
        finally:
            await self.close()

    # --- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            if access_log.wanted():
                tracing = None if self._runtime is None else self._runtime.app.telemetry
                await access_log.logged(self.guard, tracing, scope, receive, send)
            else:
                await self.guard(scope, receive, send)
        else:
            raise ToolwrightError(f"The service does not speak {scope['type']!r}; use HTTP")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:
            log.error("The service cannot open its app", exc_info=error, extra=log_fields("http.not_opened"))
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp
        begun, name, counts = time.perf_counter(), "none", self.counts
        counts.open += 1
        try:
            raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
            root = scope.get("root_path", "")
            if root and raw_path.startswith(root.encode()):
                raw_path = raw_path[len(root) :]
            found = self._routes.find(scope["method"], raw_path)
            if found is None:
                if self._page is not None and not raw_path.startswith(b"/v1/"):
                    scope[access_log.ROUTE] = "page"
                    await self._page(scope, receive, send)
                    return
                raise not_found("There is no such path; /v1/openapi.json lists them")
            name = found[0].id
            scope[access_log.ROUTE] = found[0].full_path
            scope[access_log.SESSION_OF_PATH] = found[1].get(SESSION)
            answer = await self._answer(found[0], found[1], Request(scope, receive))
        except ClientDisconnect:
            return  # before its request was whole: there is nobody to answer
        except Exception as error:  # whatever happens is told as a problem
            answer = answer_of(problem_of(error))
        finally:
            counts.open -= 1
        if isinstance(answer, JsonAnswer):
            counts.note(name, answer.status, time.perf_counter() - begun)
        else:
            counts.note(name, getattr(answer, "status_code", 200), None)
        counts.open += 1
        try:
            await answer(scope, receive, send)
        finally:
            counts.open -= 1

    async def _answer(self, operation: Operation, path: dict[str, str], raw: Request) -> ASGIApp:
        caller = NOBODY
        _require_short(path)
        if operation.scope is not None:
            caller = raw.scope[CALLER] = await self.authenticate(raw)
            _require_scope(operation, caller, path.get(SESSION))
        if operation.authority is not None:
            operation.authority(self._runtime or await self.open(), path)
        query = None
        if operation.query is not None:
            query = read_query(operation.query, raw.query_params.multi_items() if raw.scope["query_string"] else [])
        if operation.body is not None or operation.upload is not None:
            _require_plain(raw)
        data = b"" if operation.body is None else await self._read_body(operation, raw)
        body = None if operation.body is None else self._readers[id(operation)](data)
        request: ServiceRequest[Any, Any] = ServiceRequest(
            runtime=self._runtime or await self.open(),
            app=self._app,
            caller=caller,
            scope=operation.scope,
            path=path,
            query=query,
            body=body,
            raw=raw,
            key=None,
            service=self,
        )
        given = raw.headers.get(HEADER) if operation.method == "POST" and operation.remembered else None
        if given is None:
            return await _handle(operation, request)
        key = read_key(given, caller, operation.method, raw.scope["path"])
        content = b"\0".join((raw.url.query.encode(), data))

        async def work(key: IdempotencyKey) -> Answered:
            request.key = key
            return await _handle(operation, request)

        store, now = stores_of(request.runtime).requests, request.runtime.clock.now()
        # A stranger who guesses keys of waits must not fill the store with refusals.
        known = operation.scope is not None
        return await self._remembered.answer(store, now, key, content, work, keeps_refusals=known)

    async def _read_body(self, operation: Operation, raw: Request) -> bytes:
        most = self.sign_in.limits.body_bytes
        data = await read_all(raw, most if operation.body_bytes is None else min(most, operation.body_bytes))
        if not data and not operation.body_needed:
            data = b"{}"
        elif raw.headers.get("content-type", "application/json").partition(";")[0].strip().lower() not in _JSON:
            raise Problem(415, "not_json", "The body is not JSON; send it as application/json")
        return data


async def _handle(operation: Operation, request: ServiceRequest[Any, Any]) -> Answered:
    tracing, trace = request.runtime.app.telemetry, request.raw.headers.get("traceparent")
    if tracing is None or trace is None or tracing.current():  # else a middleware has read the header already
        answer = await operation.handler(request)
    else:
        with tracing.inside(trace):
            answer = await operation.handler(request)
    return (
        answer if isinstance(answer, (JsonAnswer, StreamAnswer, Response)) else JsonAnswer.of(answer, operation.status)
    )


_JSON = ("application/json", "text/json")


def _require_plain(raw: Request) -> None:
    """Refuse a body that is compressed: it would be read, or stored as a file, as if it were not."""
    coding = raw.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise Problem(
            415,
            "encoded",
            f"The body has the Content-Encoding {coding!r:.100}; send it as it is",
            headers={"Accept-Encoding": "identity"},
        )


def _require_short(path: Mapping[str, str]) -> None:
    """Refuse an id that is too long to be one. The path of a file and the key of a wait have bounds of their own."""
    for name, value in path.items():
        if len(value) > LONGEST_ID and name not in UNBOUNDED:
            raise Problem(
                400,
                "bad_path",
                f"The {name} in the path has {len(value)} characters, and an id has at most {LONGEST_ID}: "
                f"{value!r:.50}…; use a shorter one",
            )


def _require_scope(operation: Operation, caller: Caller, session: str | None) -> None:
    assert operation.scope is not None
    if operation.everywhere and not caller.everywhere:
        raise Problem(
            403,
            "forbidden",
            f"The token of {caller.name!r} is restricted to some sessions, and this concerns all; use another",
        )
    if not caller.may(operation.scope, session):
        where = "" if session is None or not caller.may(operation.scope) else f" in session {session!r:.200}"
        raise Problem(
            403, "forbidden", f"The token of {caller.name!r} has not the scope {operation.scope!r}{where}; use another"
        )


async def read_all(raw: Request, most: int) -> bytes:
    """The whole body of a request.

    Raises:
        Problem: it is longer than `most` bytes.
    """
    declared = raw.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise too_large(most)
    chunks, size = [], 0
    async for chunk in raw.stream():
        size += len(chunk)
        if size > most:
            raise too_large(most)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def too_large(most: int) -> Problem:
    """The problem of a body that is too large."""
    return Problem(413, "too_large", f"The body has more than {most} bytes; send less at once")


def create_app(
    app: App | Runtime,
    store: str | Path | Store = ":memory:",
    *,
    authenticate: Authenticate | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: Limits | None = None,
    **options: Unpack[OpenOptions],
) -> Service:
    """The service of an app over a store, as an ASGI application: for `uvicorn`, or to be mounted into another one.

    Args:
        app: the app, which is opened and closed with the service; or a runtime that is open already, and stays so.
        store: as for `App.open`; it is not looked at where `app` is a runtime.
        authenticate: proves who makes a request, in place of the tokens of the store.
        hosts: the names by which the service is reached, beside those of loopback: requests for others are refused.
        origins: pages of other servers that may use it, such as "https://desk.example.com".
        limits: how much it takes from its clients.
        options: those of `App.open`.
    """
    return Service(
        app, store, options, authenticate=authenticate, hosts=hosts, origins=origins, limits=limits, page=page
    )
