"""Tokens: who may use the service. Their values are shown once, when they are made."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from toolwright.http.access.caller import EVERY_SESSION, Scope
from toolwright.http.access.tokens import MOST_NAME, MOST_PATTERN, MOST_PATTERNS, TokenExists, TokenInfo
from toolwright.http.answers import JsonAnswer
from toolwright.http.cursors import Page, PageQuery, page_from, read_cursor
from toolwright.http.idempotency import HEADER, read_key
from toolwright.http.operations import Operation, ServiceRequest
from toolwright.http.problems import Problem, not_found

Pattern = Annotated[str, Meta(min_length=1, max_length=MOST_PATTERN)]
LONGEST_LIFE = 100 * 366 * 86_400


class NewTokenBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A token that is to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
    """Who uses it. Decisions that are made with it show this name."""
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=4)]
    """What it may do; `admin` includes the others."""
    sessions: Annotated[tuple[Pattern, ...], Meta(min_length=1, max_length=MOST_PATTERNS)] = EVERY_SESSION
    """Shell-style patterns of the sessions in which it may do so."""
    expires_in: Annotated[float, Meta(gt=0, le=LONGEST_LIFE)] | None = None
    """Seconds for which it is valid; null for ever."""


class MadeToken(Struct, frozen=True, kw_only=True):
    """A token that was made, with its value, which nobody can read later."""

    token: TokenInfo
    value: str


async def list_tokens(request: ServiceRequest[None, PageQuery]) -> dict[str, Any]:
    """The tokens, without their values; revoked and expired ones too."""
    place, limit = read_cursor(request.query.cursor, tuple[str]), request.query.limit
    tokens = await request.service.sign_in.tokens()
    found = await tokens.list(None if place is None else place[0], limit + 1)
    return page_from(found, limit, lambda one: (one.id,))


async def make_token(request: ServiceRequest[NewTokenBody]) -> JsonAnswer:
    """Make a token. With an `Idempotency-Key` it is made once: a second request is told so, for the value of the token
    is stored nowhere."""
    body, tokens = request.body, await request.service.sign_in.tokens()
    given = request.raw.headers.get(HEADER)
    key = None if given is None else read_key(given, request.caller, "POST", request.raw.scope["path"])
    try:
        made = await tokens.create(
            body.name,
            body.scopes,
            body.sessions,
            expires_at=None if body.expires_in is None else tokens.clock.now() + body.expires_in,
            by=request.caller.name,
            key=None if key is None else key.digest,
        )
    except TokenExists as error:
        raise Problem(409, "made_before", str(error), members={"stands": error.info.to_json()}) from None
    return JsonAnswer.of({"token": made.info.to_json(), "value": made.value}, 201)


async def revoke_token(request: ServiceRequest) -> dict[str, Any]:
    """Revoke a token, with the logins that were made with it: from now on in every process."""
    id = request.path["token"]
    revoked = await (await request.service.sign_in.tokens()).revoke(id)
    if revoked is None:
        raise not_found(f"There is no token {id!r:.200}; GET /v1/tokens lists them")
    return revoked.to_json()


OPERATIONS = (
    Operation(
        method="GET",
        path="/tokens",
        handler=list_tokens,
        scope="admin",
        everywhere=True,
        summary="List the tokens",
        tag="access",
        query=PageQuery,
        answer=Page[TokenInfo],
    ),
    Operation(
        method="POST",
        path="/tokens",
        handler=make_token,
        scope="admin",
        everywhere=True,
        summary="Make a token",
        tag="access",
        body=NewTokenBody,
        answer=MadeToken,
        status=201,
        remembered=False,
    ),
    Operation(
        method="DELETE",
        path="/tokens/{token}",
        handler=revoke_token,
        scope="admin",
        everywhere=True,
        summary="Revoke a token",
        tag="access",
        answer=TokenInfo,
    ),
)
