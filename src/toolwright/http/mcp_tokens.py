"""Tokens of the store for MCP clients, the same as those of the HTTP service. Owns what a token lets a client do, and
which session its calls belong to; the protocol is the SDK's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl

from toolwright.http.access.caller import SCOPES, Caller, Scope
from toolwright.http.access.origins import LOOPBACK
from toolwright.http.access.refusals import Unauthenticated
from toolwright.http.access.tokens import Tokens
from toolwright.mcp.server_request import MAY_DECIDE, NAME, Client
from toolwright.mcp.server_sessions import SHARED, ChooseSession, NoSession

_SESSIONS = "dev.toolwright/sessions"
NEEDED: Scope = "run"
"""The scope that a client needs."""


class StoreTokenVerifier:
    """`TokenVerifier` of the SDK, by the tokens of a store."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        """What a token proves; None for one that is not valid now."""
        try:
            caller = await self._tokens.verify(token)
        except Unauthenticated:
            return None
        return AccessToken(
            token="",  # nobody needs it any more
            client_id=caller.token or "",
            scopes=[scope for scope in SCOPES if caller.may(scope)],
            claims={NAME: caller.name, _SESSIONS: list(caller.sessions), MAY_DECIDE: caller.may("approve")},
        )


def session_by_token(session: str | None = None) -> ChooseSession:
    """Chooses the session of a client by its token: `session` for all, or else `mcp:` and the name of the token.

    A token that is restricted to sessions and not valid in that one has the session that it names, if it names one
    without a pattern.
    """

    def choose(client: Client) -> str:
        access = get_access_token()
        if access is None:
            raise NoSession("This server asks for a token; send one as Authorization: Bearer tw_…")
        claims = access.claims or {}
        caller = Caller(str(claims[NAME]), frozenset({NEEDED}), tuple(claims[_SESSIONS]))
        meant = session or f"{SHARED}:{caller.name}"
        if session is None and not caller.sees(meant):
            named = [each for each in caller.sessions if not set("*?[") & set(each)]
            meant = named[0] if len(named) == 1 else meant
        if not caller.sees(meant):
            raise NoSession(f"The token of {caller.name!r} is not valid in the session {meant!r}; use another token")
        return meant

    return choose


def app_options(tokens: Tokens, url: str, hosts: Sequence[str] = ()) -> dict[str, Any]:
    """The options of the SDK's `streamable_http_app` for a server that asks for tokens of a store.

    `url` is that of the server, and `hosts` are the names by which clients reach it, beside those of loopback.
    """
    names = [*LOOPBACK, *hosts]
    return {
        "auth": AuthSettings(issuer_url=AnyHttpUrl(url), resource_server_url=None, required_scopes=[NEEDED]),
        "token_verifier": StoreTokenVerifier(tokens),
        "transport_security": TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[each for name in names for each in (name, f"{name}:*")],
            allowed_origins=[
                f"{scheme}://{each}" for name in names for each in (name, f"{name}:*") for scheme in ("http", "https")
            ],
        ),
    }
