"""What the queries of the store share. Owns keys in SQL, and how values become bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from toolwright.tools.outcome import encodable

KEY = "session = ? AND scope = ? AND call_id = ?"
_encode = msgspec.msgpack.Encoder().encode


def one(connection: apsw.Connection, query: str, values: tuple[Any, ...] = ()) -> Any:
    """The first column of the first row; None without a row."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def packed(value: msgspec.Struct) -> bytes:
    """A value in msgpack. What has no form in UTF-8 is replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # Some text of a tool's, an exception's for one, can not be encoded: the rest must be kept all the same.
        return _encode(_encodable(msgspec.to_builtins(value, builtin_types=(bytes,))))


def packed_all(values: Sequence[msgspec.Struct]) -> list[bytes]:
    """Values in msgpack, as `packed` gives them."""
    try:
        return list(map(_encode, values))
    except UnicodeEncodeError:
        return list(map(packed, values))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {name: _encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value
