"""The contract of tokens: who may use the HTTP service of a store. Owns the values and the verbs; does not own what a
token looks like, nor what its scopes mean (`http/access`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

TokenKind = Literal["token", "login", "link"]
"""A token that a program sends with each request; the login of a browser, which holds it in a cookie; a link that makes
one login."""


class StoredToken(Struct, frozen=True, kw_only=True):
    """A token without its value: of the value, only a hash is stored. Instants are seconds since the epoch.

    `sessions` are the patterns of the sessions that it may be used for. `parent` is the token that a login was made
    with.
    """

    id: str
    kind: TokenKind
    hash: bytes
    name: str
    scopes: tuple[str, ...]
    sessions: tuple[str, ...]
    created_at: float
    created_by: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    parent: str | None = None

    def valid_at(self, now: float) -> bool:
        """True when it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class TokenStore(Protocol):
    """The contract of tokens in a database. What one process writes, all others read from then on.

    Implemented by `stores/sql/tokens.py`.
    """

    async def add_token(self, token: StoredToken, most: int) -> bool:
        """Store a new token, unless `most` of its kind are valid at its `created_at`: False then.

        False also for one whose id is there already, or whose parent is not valid any more at that instant. Logins and
        links that expired before that instant are forgotten.
        """
        ...

    async def get_token(self, id: str) -> StoredToken | None: ...

    async def list_tokens(self, kind: TokenKind, after: str | None, limit: int) -> list[StoredToken]:
        """In the order of their ids, with ids beyond `after`; revoked and expired tokens too."""
        ...

    async def valid_tokens(self, ids: Sequence[str], at: float) -> set[str]:
        """Those of the ids whose tokens are valid at an instant."""
        ...

    async def revoke_token(self, id: str, at: float) -> StoredToken | None:
        """Revoke a token with the logins that were made with it, and return it; None when there is none.

        One that is revoked already keeps its instant.
        """
        ...

    async def use_link(self, id: str, hash: bytes, login_hash: bytes, at: float, expires_at: float) -> bool:
        """Make a valid link of this hash the login of another hash: True for the first only."""
        ...
