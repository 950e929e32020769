"""Tokens in a SQL store. Owns their queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolwright.stores.contracts.tokens import StoredToken, TokenKind
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import columns_of, insert_if_new, one
from toolwright.stores.sql.connection import Connection


class TokenRow(NamedTuple):
    """A token as it is read. `scopes` and `sessions` are JSON."""

    id: str
    kind: TokenKind
    hash: bytes
    name: str
    scopes: str
    sessions: str
    created_at: float
    created_by: str | None
    expires_at: float | None
    revoked_at: float | None
    parent: str | None


_COLUMNS = columns_of(TokenRow)
_MOST_KNOWN = 1_000
_VALID = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"


class SqlTokenStore:
    """`TokenStore` in a SQL store.

    `alone`: no other process has the tokens, as in memory. Then they are remembered, and read once.
    """

    def __init__(self, changes: Changes, *, alone: bool = False) -> None:
        self._changes = changes
        self._known: dict[str, StoredToken] | None = {} if alone else None

    def _forget(self) -> None:
        """A token changes: whatever is remembered is read again, also by those who ask while it does."""
        if self._known is not None:
            self._known = {}

    async def add_token(self, token: StoredToken, most: int) -> bool:
        def work(connection: Connection) -> bool:
            now = token.created_at
            connection.execute("DELETE FROM tokens WHERE kind <> 'token' AND expires_at <= ?", (now,))
            count = f"SELECT count(*) FROM tokens WHERE kind = ? AND {_VALID}"
            if one(connection, count, (token.kind, now)) >= most:
                return False
            parent = f"SELECT 1 FROM tokens WHERE id = ? AND {_VALID}"
            if token.parent is not None and one(connection, parent, (token.parent, now)) is None:
                return False
            connection.execute(insert_if_new("tokens", TokenRow._fields), _to_row(token))
            return connection.changes() == 1

        return await self._changes.change(None, work)

    async def get_token(self, id: str) -> StoredToken | None:
        known = self._known
        if known is None:
            return await self._changes.read(lambda connection: _find(connection, id))
        found = known.get(id)
        if found is None:
            found = await self._changes.read(lambda connection: _find(connection, id))
            if found is not None and len(known) < _MOST_KNOWN:
                # If a change came meanwhile, `self._known` is another dictionary by now; this one is not read again.
                known[id] = found
        return found

    async def list_tokens(self, kind: TokenKind, after: str | None, limit: int) -> list[StoredToken]:
        query = f"SELECT {_COLUMNS} FROM tokens WHERE kind = ? AND id > ? ORDER BY id LIMIT ?"

        def work(connection: Connection) -> list[StoredToken]:
            return [_to_token(row) for row in connection.execute(query, (kind, after or "", limit))]

        return await self._changes.read(work)

    async def valid_tokens(self, ids: Sequence[str], at: float) -> set[str]:
        query = f"SELECT id FROM tokens WHERE id IN (SELECT value FROM json_each(?)) AND {_VALID}"

        def work(connection: Connection) -> set[str]:
            return {str(row[0]) for row in connection.execute(query, (json.dumps(list(ids)), at))}

        return await self._changes.read(work)

    async def revoke_token(self, id: str, at: float) -> StoredToken | None:
        def work(connection: Connection) -> StoredToken | None:
            connection.execute(
                "UPDATE tokens SET revoked_at = ?1 WHERE (id = ?2 OR parent = ?2) AND revoked_at IS NULL", (at, id)
            )
            return _find(connection, id)

        # Not by `change`, whose result must have a form in msgpack.
        try:
            return await self._changes.submit(work)
        finally:
            self._forget()

    async def use_link(self, id: str, hash: bytes, login_hash: bytes, at: float, expires_at: float) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute(
                "UPDATE tokens SET kind = 'login', hash = ?, created_at = ?, expires_at = ?"
                f" WHERE id = ? AND kind = 'link' AND hash = ? AND {_VALID}",
                (login_hash, at, expires_at, id, hash, at),
            )
            return connection.changes() == 1

        try:
            return await self._changes.change(None, work)
        finally:
            self._forget()


def _find(connection: Connection, id: str) -> StoredToken | None:
    row: Any = connection.execute(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", (id,)).fetchone()
    return None if row is None else _to_token(row)


def _to_row(token: StoredToken) -> TokenRow:
    return TokenRow(
        id=token.id,
        kind=token.kind,
        hash=token.hash,
        name=token.name,
        scopes=json.dumps(token.scopes),
        sessions=json.dumps(token.sessions),
        created_at=token.created_at,
        created_by=token.created_by,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        parent=token.parent,
    )


def _to_token(values: tuple[Any, ...]) -> StoredToken:
    row = TokenRow._make(values)._asdict()
    return StoredToken(
        **{**row, "scopes": tuple(json.loads(row["scopes"])), "sessions": tuple(json.loads(row["sessions"]))}
    )
