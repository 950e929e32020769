"""Tokens of callers: making, listing, revoking and checking them. Owns what their values look like, and which hash of
a value is stored; does not own which requests need one.

A value is `tw_`, the id of the token, `_`, and 32 random bytes as text. It is given out once: the store has its hash.
A hash without salt is enough, for nobody can guess 32 random bytes.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import asdict

from toolwright.clock import Clock
from toolwright.errors import ToolwrightError
from toolwright.http.access.caller import EVERY_SESSION, SCOPES, Caller, Scope
from toolwright.http.access.refusals import Unauthenticated
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.tokens import StoredToken, TokenKind, TokenStore

PREFIXES: dict[TokenKind, str] = {"token": "tw", "login": "twc", "link": "twl"}
MOST_VALID: dict[TokenKind, int] = {"token": 10_000, "login": 10_000, "link": 1_000}
"""Tokens of a kind that may be valid at once in a store."""
LOGIN_SECONDS = 12 * 3600.0
"""How long a browser stays logged in."""
LINK_SECONDS = 600.0
"""How long a link to log in can be used."""
MOST_NAME = 100
"""Characters of the name of a token."""
MOST_PATTERNS = 100
"""Session patterns of a token."""
MOST_PATTERN = 200
"""Characters of a session pattern."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUE = re.compile(r"(twl|twc|tw)_([0-9a-z]{16})_[A-Za-z0-9_-]{43}")
_NOBODY = hashlib.sha256(b"a value that no token has").digest()
_REFUSED = "The token is not valid: it is unknown, revoked or expired; make one with toolwright tokens create"


class TokenInfo(Struct, frozen=True, kw_only=True):
    """A token, without its value. `sessions` are patterns of the sessions for which its scopes hold."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sessions: tuple[str, ...]
    state: Literal["valid", "expired", "revoked"]
    created_at: float
    created_by: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The token as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class LoginInfo(TokenInfo, frozen=True, kw_only=True):
    """The login of a browser. It has the scopes of the token that it was made with, or of a link."""

    token: str | None = None
    """The id of that token; null for a link."""


class NewToken(NamedTuple):
    """A token that was made just now, with the only copy of its value."""

    info: TokenInfo
    value: str

    def __repr__(self) -> str:
        return f"NewToken({self.info!r}, value=…)"


class Login(NamedTuple):
    """A browser that is logged in: who it is, the value of its cookie, and until when."""

    caller: Caller
    cookie: str
    expires_at: float

    def __repr__(self) -> str:
        return f"Login({self.caller!r}, cookie=…)"


class TokenExists(ToolwrightError):
    """A token was made before under the same key. Its value was shown then, and is not known any more."""

    def __init__(self, info: TokenInfo) -> None:
        super().__init__(
            f"The token {info.id!r} was made by an earlier request of this key, and its value was shown then; if it is "
            "lost, revoke it and make another one"
        )
        self.info = info


class Tokens:
    """The tokens of a store."""

    def __init__(self, store: TokenStore, clock: Clock) -> None:
        self._store = store
        self.clock = clock

    # --- for administrators

    async def create(
        self,
        name: str,
        scopes: Iterable[str],
        sessions: Iterable[str] = EVERY_SESSION,
        *,
        expires_at: float | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> NewToken:
        """Make a token.

        Args:
            name: who uses it, as decisions show it.
            scopes: some of "read", "run", "approve" and "admin"; the last includes the others.
            sessions: shell-style patterns of the sessions in which the scopes hold.
            expires_at: the instant from which it is not valid any more; None for never.
            by: who makes it.
            key: makes one token only, however often it is given.

        Raises:
            TokenExists: one was made under the key before.
            ToolwrightError: an argument is not usable, or the store has too many tokens.
        """
        granted, patterns = _scopes(scopes), _patterns(sessions)
        now = self.clock.now()
        if expires_at is not None and not now < expires_at:
            raise ToolwrightError("The token would be expired already; give an instant that is still to come")
        value, stored = self._new("token", _name(name), granted, patterns, expires_at, by, key=key)
        if not await self._store.add_token(stored, MOST_VALID["token"]):
            if (earlier := await self._store.get_token(stored.id)) is not None:
                raise TokenExists(_info(earlier, now))
            raise ToolwrightError(
                f"The store has {MOST_VALID['token']} valid tokens, the maximum; revoke some with toolwright tokens"
            )
        return NewToken(_info(stored, now), value)

    async def list(self, after: str | None = None, limit: int = 100) -> list[TokenInfo]:
        """The tokens, oldest first, revoked and expired ones too; `after` is the id of the last one that is known."""
        now = self.clock.now()
        return [_info(each, now) for each in await self._store.list_tokens("token", after, limit)]

    async def revoke(self, id: str) -> TokenInfo | None:
        """Revoke a token with all logins that were made with it, from now on in every process; None for no token."""
        now = self.clock.now()
        revoked = await self._store.revoke_token(id, now)
        return None if revoked is None or revoked.kind != "token" else _info(revoked, now)

    async def logins(self, after: str | None = None, limit: int = 100) -> builtins.list[LoginInfo]:
        """The logins of browsers, oldest first, also those that ended and are not forgotten yet."""
        now = self.clock.now()
        found = await self._store.list_tokens("login", after, limit)
        return [LoginInfo(**asdict(_info(each, now)), token=each.parent) for each in found]

    async def end_login(self, id: str) -> LoginInfo | None:
        """End the login of a browser, from now on in every process; None for no login."""
        known, now = await self._store.get_token(id), self.clock.now()
        if known is None or known.kind != "login":
            return None
        ended = await self._store.revoke_token(id, now)
        return None if ended is None else LoginInfo(**asdict(_info(ended, now)), token=ended.parent)

    # --- for requests

    async def verify(self, value: str, address: str | None = None) -> Caller:
        """The caller that a token proves.

        Raises:
            Unauthenticated: it is not a token, or none that is valid now.
        """
        return _caller(await self._find("token", value), address)

    async def verify_login(self, cookie: str, address: str | None = None) -> Caller:
        """The caller that the cookie of a browser proves.

        Raises:
            Unauthenticated: it is not a login, or none that is valid now.
        """
        return _caller(await self._find("login", cookie), address)

    async def login(self, value: str, address: str | None = None) -> Login:
        """Log a browser in by a token. The login ends with the token.

        Raises:
            Unauthenticated: it is not a token, or none that is valid now.
            ToolwrightError: too many browsers are logged in.
        """
        token, now = await self._find("token", value), self.clock.now()
        expires_at = now + LOGIN_SECONDS
        if token.expires_at is not None:
            expires_at = min(expires_at, token.expires_at)
        cookie, login = self._new("login", token.name, token.scopes, token.sessions, expires_at, None, token.id)
        if not await self._store.add_token(login, MOST_VALID["login"]):
            await self._find("token", value)
            raise ToolwrightError(f"{MOST_VALID['login']} browsers are logged in, the maximum; log out somewhere")
        return Login(_caller(login, address), cookie, expires_at)

    async def link(self, name: str, scopes: Iterable[str], sessions: Iterable[str] = EVERY_SESSION) -> str:
        """The value of a link by which one browser logs in, once and soon.

        Raises:
            ToolwrightError: an argument is not usable, or too many links are unused.
        """
        expires_at = self.clock.now() + LINK_SECONDS
        value, stored = self._new("link", _name(name), _scopes(scopes), _patterns(sessions), expires_at, None)
        if not await self._store.add_token(stored, MOST_VALID["link"]):
            raise ToolwrightError(f"{MOST_VALID['link']} links are unused, the maximum; wait until some expire")
        return value

    async def login_by_link(self, value: str, address: str | None = None) -> Login:
        """Log a browser in by a link, which cannot be used again.

        Raises:
            Unauthenticated: it is not a link, or was used, or is expired.
        """
        link, now = await self._find("link", value), self.clock.now()
        cookie = f"{PREFIXES['login']}_{link.id}_{secrets.token_urlsafe(32)}"
        expires_at = now + LOGIN_SECONDS
        if not await self._store.use_link(link.id, _hash(value), _hash(cookie), now, expires_at):
            raise Unauthenticated(_REFUSED)
        return Login(_caller(link, address), cookie, expires_at)

    async def logout(self, caller: Caller) -> None:
        """End the login of a browser; a token stays as it is."""
        if caller.login is not None:
            await self._store.revoke_token(caller.login, self.clock.now())

    async def still_valid(self, callers: Sequence[Caller]) -> set[str]:
        """The ids of the tokens and logins among those of these callers that are valid now."""
        ids = {each.proof for each in callers if each.proof is not None}
        return await self._store.valid_tokens(sorted(ids), self.clock.now())

    async def _find(self, kind: TokenKind, value: str) -> StoredToken:
        parts = _VALUE.fullmatch(value)
        stored = None if parts is None or parts[1] != PREFIXES[kind] else await self._store.get_token(parts[2])
        known = stored is not None and stored.kind == kind
        # The same work for an id that is not there.
        right = hmac.compare_digest(stored.hash if stored is not None else _NOBODY, _hash(value))
        if stored is None or not (known and right and stored.valid_at(self.clock.now())):
            raise Unauthenticated(_REFUSED)
        return stored

    def _new(
        self,
        kind: TokenKind,
        name: str,
        scopes: tuple[str, ...],
        sessions: tuple[str, ...],
        expires_at: float | None,
        by: str | None,
        parent: str | None = None,
        key: str | None = None,
    ) -> tuple[str, StoredToken]:
        now = self.clock.now()
        id = _new_id(now) if key is None else _id_of(key)
        value = f"{PREFIXES[kind]}_{id}_{secrets.token_urlsafe(32)}"
        stored = StoredToken(
            id=id,
            kind=kind,
            hash=_hash(value),
            name=name,
            scopes=scopes,
            sessions=sessions,
            created_at=now,
            created_by=by,
            expires_at=expires_at,
            parent=parent,
        )
        return value, stored


def _new_id(now: float) -> str:
    """An id of 16 characters, ten of which are the time: ids sort in the order they were made."""
    milliseconds, timed = max(int(now * 1000), 0), ""
    for _ in range(10):
        timed = _ALPHABET[milliseconds & 31] + timed
        milliseconds >>= 5
    return timed + "".join(secrets.choice(_ALPHABET) for _ in range(6))


def _id_of(key: str) -> str:
    return "".join(_ALPHABET[byte & 31] for byte in _hash(key)[:16])


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def _caller(stored: StoredToken, address: str | None) -> Caller:
    scopes = frozenset(scope for scope in SCOPES if scope in stored.scopes)
    login = None if stored.kind == "token" else stored.id
    token = stored.id if stored.kind == "token" else stored.parent
    return Caller(stored.name, scopes, stored.sessions, token, address, login)


def _info(stored: StoredToken, now: float) -> TokenInfo:
    state: Literal["valid", "expired", "revoked"] = "valid"
    if not stored.valid_at(now):
        state = "expired" if stored.revoked_at is None else "revoked"
    return TokenInfo(
        id=stored.id,
        name=stored.name,
        scopes=cast("tuple[Scope, ...]", stored.scopes),
        sessions=stored.sessions,
        state=state,
        created_at=stored.created_at,
        created_by=stored.created_by,
        expires_at=stored.expires_at,
        revoked_at=stored.revoked_at,
    )


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > MOST_NAME or not name.isprintable():
        raise ToolwrightError(
            f"The name {name!r:.200} of a token is not one line of up to {MOST_NAME} visible characters; say who uses "
            "the token"
        )
    return name


def _scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    given = [scopes] if isinstance(scopes, str) else list(scopes)
    for each in given:
        if each not in SCOPES:
            raise ToolwrightError(f"The scope {each!r:.200} is not known; use some of {', '.join(SCOPES)}")
    if not given:
        raise ToolwrightError(f"The token has no scope; give it some of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def _patterns(sessions: Iterable[str]) -> tuple[str, ...]:
    given = [sessions] if isinstance(sessions, str) else list(sessions)
    if not given or len(given) > MOST_PATTERNS:
        raise ToolwrightError(
            f"The token has {len(given)} session patterns; give it 1 to {MOST_PATTERNS}, or '*' for every session"
        )
    for each in given:
        if not isinstance(each, str) or not each or len(each) > MOST_PATTERN or not each.isprintable():
            raise ToolwrightError(
                f"The session pattern {each!r:.200} is not usable; use up to {MOST_PATTERN} visible characters"
            )
    return tuple(dict.fromkeys(given))
