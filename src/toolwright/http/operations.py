"""The operations of the API. Owns what a route says of itself, from which checks and the OpenAPI document are made, and
the request as its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, Protocol, TypeAlias
from urllib.parse import quote

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypeVar

from toolwright.app import App
from toolwright.http.access.caller import Authenticate, Caller, Scope
from toolwright.http.access.sign_in import SignIn
from toolwright.http.answers import JsonAnswer, StreamAnswer
from toolwright.http.idempotency import IdempotencyKey
from toolwright.http.problems import Problem
from toolwright.runtime.runtime import Runtime
from toolwright.runtime.used_sessions import used_session
from toolwright.session.session import Session

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Body = TypeVar("Body", default=None)
Query = TypeVar("Query", default=None)
LONGEST_ID = 500
"""Characters of the id of a session, a call or a scope that comes over HTTP."""
UNBOUNDED = ("path", "key")
"""The parameters of paths that are no ids: the path of a file, and the key of a wait or a value."""
Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
SESSION = "session"
"""The name of the path parameter that is a session: the caller must have the scope there."""


class RequestCounts:
    """How many requests a service answered, and how long that took."""

    __slots__ = ("answered", "open", "seconds")

    def __init__(self) -> None:
        self.answered: dict[tuple[str, int], int] = {}
        """By the id of the operation and the status."""
        self.seconds: dict[str, tuple[int, float]] = {}
        """How many and how long together, by the id of the operation; streams are not counted."""
        self.open = 0

    def note(self, operation: str, status: int, seconds: float | None) -> None:
        """A request was answered; `seconds` is None for a stream."""
        key = (operation, status)
        self.answered[key] = self.answered.get(key, 0) + 1
        if seconds is not None:
            count, total = self.seconds.get(operation, (0, 0.0))
            self.seconds[operation] = (count + 1, total + seconds)


class ServiceInfo(Protocol):
    """What a handler may know of the service it is part of."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All that it serves."""
        ...

    @property
    def ready(self) -> bool:
        """False once it stops."""
        ...

    @property
    def counts(self) -> RequestCounts:
        """Its requests so far."""
        ...

    @property
    def authenticate(self) -> Authenticate:
        """Proves who makes a request."""
        ...

    @property
    def sign_in(self) -> SignIn:
        """The tokens of the store, and the logins of browsers."""
        ...


class ServiceRequest(Generic[Body, Query]):
    """A request whose caller, parameters and body are checked."""

    __slots__ = ("app", "body", "caller", "key", "path", "query", "raw", "runtime", "scope", "service")

    def __init__(
        self,
        *,
        runtime: Runtime,
        app: App | None,
        caller: Caller,
        scope: Scope | None,
        path: Mapping[str, str],
        query: Query,
        body: Body,
        raw: Request,
        key: IdempotencyKey | None,
        service: ServiceInfo,
    ) -> None:
        self.runtime = runtime
        self.app = app
        """The app of the service; None where it was given a runtime."""
        self.caller = caller
        self.scope: Scope | None = scope
        """The scope that the operation needs."""
        self.path = path
        """The parameters of the path."""
        self.query = query
        self.body = body
        self.raw = raw
        """The request of Starlette, for headers and streams."""
        self.key = key
        """The `Idempotency-Key`, if one was sent."""
        self.service = service

    def session(self) -> Session:
        """The session that the path names."""
        return used_session(self.runtime, self.path[SESSION])

    def sees(self, session: str) -> bool:
        """True when the caller has the scope of the operation in a session: lists leave other ones out."""
        return self.scope is None or self.caller.may(self.scope, session)

    def require(self, session: str, otherwise: Problem) -> None:
        """Refuse something that belongs to a session in which the caller has not the scope, as if it were not there.

        Raises:
            Problem: `otherwise`.
        """
        if not self.sees(session):
            raise otherwise

    def require_scope_in(self, session: str | None) -> None:
        """Refuse a session that the client names, and in which the caller has not the scope; None is no session.

        Raises:
            Problem: 403.
        """
        if session is not None and not self.sees(session):
            raise Problem(403, "forbidden", f"The token has not the scope {self.scope!r} in session {session!r:.200}")

    def new_id(self, given: str | None, prefix: str) -> str | None:
        """The id of something new: that which the client gives, else one made of the `Idempotency-Key`, so that a
        request that is repeated makes nothing more; None without both."""
        return given or (None if self.key is None else self.key.derive(prefix))

    def link(self, *parts: str) -> str:
        """The path of something of the API, for a header: each part is encoded, whatever it has in it."""
        root: str = self.raw.scope.get("root_path", "")
        return "/".join([quote(root), "v1", *(quote(part, safe="") for part in parts)])

    def accepts(self, media_type: str) -> bool:
        """True when the client asks for a media type by its name."""
        return media_type in self.raw.headers.get("accept", "")

    def prefers(self, word: str) -> bool:
        """True when the `Prefer` header of the client has a word, such as "respond-async"."""
        return word in self._preferences()

    def patience(self) -> float:
        """How many seconds the answer may be waited for: as `Prefer: wait=N` says, and no longer than the limit."""
        limit, given = self.service.sign_in.limits.answer_seconds, self._preferences().get("wait", "")
        return min(limit, float(given)) if given.isascii() and given.isdigit() else limit

    def _preferences(self) -> dict[str, str]:
        given = self.raw.headers.get("prefer")
        if not given:
            return {}
        parts = (part.split(";")[0].partition("=") for part in given.split(","))
        return {name.strip().lower(): value.strip().strip('"')[:18] for name, _, value in parts}


Answer: TypeAlias = "Response | JsonAnswer | StreamAnswer | object"
"""What a handler returns: a response, or a value that is answered as JSON with the status of the operation."""
Handler: TypeAlias = Callable[[ServiceRequest[Any, Any]], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAnswer:
    """Another answer that an operation may give, for the document."""

    status: int
    says: str
    type: object = None
    """The type of its body; None where that is no JSON."""
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    Args:
        path: below the prefix, such as "/sessions/{session}/turns". A parameter is one segment, which may have an
            encoded slash in it; a last one written `{path:path}` is all the rest. A `{session}` is checked for the
            caller's scope before the handler is called.
        handler: gets the checked request.
        scope: what the caller needs; None for a route that needs no token.
        summary: one line for the document.
        answer: the type of the JSON that it answers; None where it has no body, or is no JSON.
        body: the type of the JSON in the request. A handler without one reads the stream of `request.raw` itself.
        body_needed: False where the body may be missing.
        body_bytes: the most bytes of the body, where they are fewer than the limit of the service.
        authority: checks what the path has in place of a token, before the body is read; raises what refuses it.
        other_bodies: other types that the body may have, which only the document tells; `reader` reads them.
        reader: reads the body in place of its type, and raises `Problem`.
        query: a struct of the query parameters, each with a default.
        upload: the media type of a body that the handler reads as a stream.
        status: the status of the answer.
        also: other answers than that and problems.
        media_type: the media type of an answer that is no JSON.
        everywhere: whether the caller may not be restricted to some sessions, since all are concerned.
        remembered: whether an `Idempotency-Key` keeps the answer of a POST.
        prefix: "/v1"; "" for a path of its own.
    """

    method: Method
    path: str
    handler: Handler
    scope: Scope | None
    summary: str
    tag: str
    answer: object = None
    body: object = None
    body_needed: bool = True
    body_bytes: int | None = None
    authority: Callable[[Runtime, Mapping[str, str]], object] | None = None
    other_bodies: tuple[object, ...] = ()
    reader: Callable[[bytes], object] | None = None
    query: type | None = None
    upload: str | None = None
    status: int = 200
    also: tuple[OtherAnswer, ...] = ()
    media_type: str = "application/json"
    description: str = ""
    everywhere: bool = False
    remembered: bool = True
    prefix: str = "/v1"
    name: str = field(default="")
    """The id of the operation; by default the name of its handler."""

    @property
    def full_path(self) -> str:
        """The path with its prefix."""
        return self.prefix + self.path

    @property
    def id(self) -> str:
        """The id of the operation in the document."""
        return self.name or getattr(self.handler, "__name__", "").strip("_")
