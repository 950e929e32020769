"""Functions that the queries of the store share. Owns keys and lists of columns in SQL, and how values become bytes.

The columns of a query are the fields of the named tuple that its rows are read as: one list for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from toolwright.stores.sql.connection import Connection
from toolwright.tools.outcome import encodable

T = TypeVar("T")
KEY = "session = ? AND scope = ? AND call_id = ?"
encode = msgspec.msgpack.Encoder().encode
"""A value in msgpack; `packed` writes what this cannot."""


# An integer beyond 64 bits has no form of its own in msgpack: it is stored as its digits.
_LARGE_INTEGER = 1
_MOST, _LEAST = 2**64 - 1, -(2**63)


def one(connection: Connection, query: str, values: tuple[Any, ...] = ()) -> Any:
    """The first column of the first row; None without a row."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def insert(table: str, columns: Iterable[str]) -> str:
    """The statement that writes a row of these columns, whose values are given in the same order."""
    names = tuple(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def insert_if_new(table: str, columns: Iterable[str]) -> str:
    """As `insert`, but a row that is there already stays as it is."""
    return f"{insert(table, columns)} ON CONFLICT DO NOTHING"


def put(table: str, key: Iterable[str], others: Iterable[str]) -> str:
    """As `insert`, with the columns of the primary key first; a row that is there gets the new values."""
    names, values = tuple(key), tuple(others)
    new = ", ".join(f"{name} = excluded.{name}" for name in values)
    return f"{insert(table, (*names, *values))} ON CONFLICT ({', '.join(names)}) DO UPDATE SET {new}"


def columns_of(row: type[NamedTuple]) -> str:
    """The columns of a query whose rows are read as this named tuple."""
    return ", ".join(row._fields)


def packed(value: msgspec.Struct) -> bytes:
    """A value in msgpack, to be read by an `unpacker`. Text without a form in UTF-8 is replaced."""
    try:
        return encode(value)
    except (UnicodeEncodeError, OverflowError):
        # Some text of a tool, such as that of an exception, cannot be encoded: the rest must be stored nevertheless.
        return encode(_encodable(msgspec.to_builtins(value, builtin_types=(bytes,))))


def unpacker(type: type[T]) -> Callable[[bytes], T]:
    """Reads a value of this type that `packed` wrote."""
    return msgspec.msgpack.Decoder(type, ext_hook=_read_extension).decode


def _read_extension(code: int, data: memoryview) -> object:
    if code != _LARGE_INTEGER:
        raise ValueError(f"an extension of the kind {code} is not known")
    return int(bytes(data))


def _encodable(value: object) -> object:
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return msgspec.msgpack.Ext(_LARGE_INTEGER, str(value).encode())
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {name: _encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value
