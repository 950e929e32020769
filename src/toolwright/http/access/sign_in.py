"""Who makes a request. Owns reading the token or the cookie of a request, the login of a browser, and the limits on
requests and on wrong tokens; does not own what a caller may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http.cookies import SimpleCookie
from typing import TypeVar

from starlette.requests import HTTPConnection

from toolwright.http.access.caller import Caller
from toolwright.http.access.limits import Limits, Rate
from toolwright.http.access.origins import Origins
from toolwright.http.access.refusals import Unauthenticated
from toolwright.http.access.tokens import Login, Tokens

_T = TypeVar("_T")
CALLER = "toolwright.caller"
"""Where the scope of a request has its caller, once that is proved."""
_NO_TOKEN = "The request has no token; send one as Authorization: Bearer tw_…, which toolwright tokens create makes"


class SignIn:
    """Proves the callers of a service by its tokens, as `Authenticate` asks for.

    `tokens` gives the tokens of the store, which may have to be opened first.
    """

    def __init__(self, tokens: Callable[[], Awaitable[Tokens]], origins: Origins, limits: Limits) -> None:
        self._tokens = tokens
        self.origins = origins
        self.limits = limits
        self._requests = Rate(limits.requests_per_second, limits.requests_at_once)
        self._wrong = Rate(limits.wrong_tokens_per_minute / 60, limits.wrong_tokens_at_once)

    async def __call__(self, connection: HTTPConnection) -> Caller:
        """The caller of a request, by its token, or else by the cookie of a browser."""
        tokens, address = await self._tokens(), address_of(connection)
        method = connection.scope.get("method", "GET")
        given = connection.headers.get("authorization")
        if given is not None:
            scheme, _, value = given.partition(" ")
            if scheme.lower() != "bearer":
                raise Unauthenticated(_NO_TOKEN)
            caller = await self._proved(tokens.verify(value.strip(), address), tokens, address)
        elif (cookie := cookie_of(connection)) is not None:
            self.origins.require_own_page(connection.headers, method)
            caller = await self._proved(tokens.verify_login(cookie, address), tokens, address)
        else:
            raise Unauthenticated(_NO_TOKEN)
        name = caller.token or caller.login or caller.name
        self._requests.require(
            name, tokens.clock.monotonic(), "The token asks too often; wait as long as Retry-After says"
        )
        return caller

    async def login(self, connection: HTTPConnection, value: str) -> Login:
        """Log a browser in by a token.

        Raises:
            AccessRefused: the token is not valid, or wrong ones came too often.
        """
        tokens, address = await self._tokens(), address_of(connection)
        self.origins.require_own_page(connection.headers, "POST")
        return await self._proved(tokens.login(value, address), tokens, address)

    async def login_by_link(self, connection: HTTPConnection, value: str) -> Login:
        """Log a browser in by a link.

        Raises:
            AccessRefused: the link is not valid, or wrong ones came too often.
        """
        tokens, address = await self._tokens(), address_of(connection)
        return await self._proved(tokens.login_by_link(value, address), tokens, address)

    async def logout(self, caller: Caller) -> None:
        """End the login of a browser."""
        await (await self._tokens()).logout(caller)

    async def tokens(self) -> Tokens:
        """The tokens of the store."""
        return await self._tokens()

    async def _proved(self, proving: Awaitable[_T], tokens: Tokens, address: str | None) -> _T:
        """The result of a proof. An address with too many wrong proofs gets a refusal for further wrong ones; a
        right proof is always accepted, because many clients may share an address."""
        try:
            return await proving
        except Unauthenticated:
            self._wrong.require(
                address or "", tokens.clock.monotonic(), "Too many wrong tokens came from this address; wait a little"
            )
            raise


def address_of(connection: HTTPConnection) -> str | None:
    """The address that a request came from, as one short visible line; a proxy in front may have told it."""
    if connection.client is None:
        return None
    return "".join(each for each in connection.client.host[:64] if each.isprintable() and each != " ") or None


def cookie_name(connection: HTTPConnection) -> str:
    """The name of the cookie of a login. It has the port, since cookies of all ports of a host are sent to each."""
    server = connection.scope.get("server")
    return f"toolwright_{server[1] if server else 0}"


def cookie_of(connection: HTTPConnection) -> str | None:
    """The login that a browser sends; None where it sends none."""
    return connection.cookies.get(cookie_name(connection)) or None


def set_cookie(connection: HTTPConnection, value: str, seconds: float) -> str:
    """The header that gives a browser its login: no script can read it, and no page of others can use it.

    Without a value the browser forgets it.
    """
    cookie: SimpleCookie = SimpleCookie()
    name = cookie_name(connection)
    cookie[name] = value
    cookie[name]["path"] = connection.scope.get("root_path", "") or "/"
    cookie[name]["max-age"] = str(int(seconds))
    cookie[name]["httponly"] = True
    cookie[name]["samesite"] = "strict"
    if connection.url.scheme == "https":
        cookie[name]["secure"] = True
    return cookie[name].OutputString()
