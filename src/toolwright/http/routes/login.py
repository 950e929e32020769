"""Logins of browsers: by a token, or by a link that works once. The browser gets a cookie that no script can read."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins
from starlette.responses import RedirectResponse, Response

from toolwright.http.access.caller import Caller, Scope
from toolwright.http.access.refusals import Unauthenticated
from toolwright.http.access.sign_in import set_cookie
from toolwright.http.access.tokens import LoginInfo
from toolwright.http.answers import JsonAnswer
from toolwright.http.cursors import Page, PageQuery, page_from, read_cursor
from toolwright.http.operations import Operation, ServiceRequest
from toolwright.http.problems import not_found

MOST_BYTES = 4_096
"""Bytes of a request to log in: it comes from somebody who is not known yet."""


class LoginBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The token of somebody who logs in."""

    token: Annotated[str, Meta(min_length=1, max_length=200)]


class LinkQuery(Struct, frozen=True, kw_only=True):
    """The value of a link to log in."""

    link: Annotated[str, Meta(max_length=200)]


class Identity(Struct, frozen=True, kw_only=True):
    """Who makes a request, and what they may do in which sessions."""

    name: str
    scopes: list[Scope]
    sessions: list[str]
    """Shell-style patterns."""
    login: bool
    """True for a browser that is logged in, false for a token."""


async def get_login(request: ServiceRequest) -> Identity:
    """Who makes this request."""
    return _identity(await request.service.authenticate(request.raw))


async def log_in(request: ServiceRequest[LoginBody]) -> JsonAnswer:
    """Log a browser in by a token."""
    login = await request.service.sign_in.login(request.raw, request.body.token)
    seconds = login.expires_at - request.runtime.clock.now()
    cookie = set_cookie(request.raw, login.cookie, seconds)
    return JsonAnswer.of(to_builtins(_identity(login.caller)), 200, {"Set-Cookie": cookie})


async def log_out(request: ServiceRequest) -> JsonAnswer:
    """End the login of this browser, here and in the store."""
    try:
        caller = await request.service.sign_in(request.raw)
    except Unauthenticated:
        pass  # it ended before
    else:
        await request.service.sign_in.logout(caller)
    return JsonAnswer(b"", 204, {"Set-Cookie": set_cookie(request.raw, "", 0)})


async def log_in_by_link(request: ServiceRequest[None, LinkQuery]) -> Response:
    """Log a browser in by a link, and show it the page."""
    login = await request.service.sign_in.login_by_link(request.raw, request.query.link)
    seconds = login.expires_at - request.runtime.clock.now()
    root = request.raw.scope.get("root_path", "")
    return RedirectResponse(f"{root}/", 303, {"Set-Cookie": set_cookie(request.raw, login.cookie, seconds)})


async def list_logins(request: ServiceRequest[None, PageQuery]) -> dict[str, Any]:
    """The browsers that are logged in, oldest first; those that logged out lately, too."""
    place, limit = read_cursor(request.query.cursor, tuple[str]), request.query.limit
    tokens = await request.service.sign_in.tokens()
    found = await tokens.logins(None if place is None else place[0], limit + 1)
    return page_from(found, limit, lambda one: (one.id,))


async def end_login(request: ServiceRequest) -> dict[str, Any]:
    """End the login of a browser: from now on in every process, and its open streams within a second."""
    id = request.path["login"]
    ended = await (await request.service.sign_in.tokens()).end_login(id)
    if ended is None:
        raise not_found(f"There is no login {id!r:.200}; GET /v1/logins lists them")
    return ended.to_json()


def _identity(caller: Caller) -> Identity:
    return Identity(
        name=caller.name,
        scopes=sorted(caller.scopes),
        sessions=list(caller.sessions),
        login=caller.login is not None,
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/logins",
        handler=list_logins,
        scope="admin",
        everywhere=True,
        summary="List the browsers that are logged in",
        tag="access",
        query=PageQuery,
        answer=Page[LoginInfo],
    ),
    Operation(
        method="DELETE",
        path="/logins/{login}",
        handler=end_login,
        scope="admin",
        everywhere=True,
        summary="End the login of a browser",
        tag="access",
        answer=LoginInfo,
    ),
    Operation(
        method="GET",
        path="/login",
        handler=get_login,
        scope=None,
        summary="Who makes this request",
        tag="access",
        answer=Identity,
    ),
    Operation(
        method="POST",
        path="/login",
        handler=log_in,
        scope=None,
        summary="Log a browser in by a token",
        tag="access",
        body=LoginBody,
        body_bytes=MOST_BYTES,
        answer=Identity,
        remembered=False,
    ),
    Operation(
        method="DELETE",
        path="/login",
        handler=log_out,
        scope=None,
        summary="Log this browser out",
        tag="access",
        status=204,
    ),
    Operation(
        method="GET",
        path="/login",
        prefix="",
        handler=log_in_by_link,
        scope=None,
        summary="Log a browser in by a link that works once",
        tag="access",
        query=LinkQuery,
        status=303,
    ),
)
