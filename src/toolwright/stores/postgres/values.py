"""Values on their way to PostgreSQL and back. Owns the form of text, which may have U+0000, and of whole columns.

PostgreSQL cannot hold U+0000 in text, nor half a character (a lone surrogate). U+0001 announces them here: U+0000 is
written as U+0001 U+0001, U+0001 as U+0001 U+0002, and half a character as U+0001 U+0003 and its number. So every text
comes back as it was, and the order of texts without halves stays that of their characters.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types.numeric import Int8Dumper, NumericBinaryLoader
from psycopg.types.string import StrDumperUnknown

MARK = "\x01"
_TO_WRITE = re.compile("[\0\x01\ud800-\udfff]")
_TO_READ = re.compile("\x01(\x01|\x02|\x03[0-9a-f]{4})")
_BYTEA, _INT8, _TEXT, _FLOAT8 = 17, 20, 25, 701
_LENGTH = struct.Struct("!i").pack
_FLOAT = struct.Struct("!id").pack
_INT = struct.Struct("!iq").pack
_HEAD = struct.Struct("!iiIii").pack
_NULL = _LENGTH(-1)


def written(text: str) -> str:
    """Text as PostgreSQL can hold it."""
    return _TO_WRITE.sub(_write, text)


def read(text: str) -> str:
    """Text that `written` made, as it was."""
    return _TO_READ.sub(_read, text) if MARK in text else text


def _write(found: re.Match[str]) -> str:
    character = found.group()
    if character == "\0":
        return MARK + "\x01"
    return MARK + "\x02" if character == MARK else f"{MARK}\x03{ord(character):04x}"


def _read(found: re.Match[str]) -> str:
    code = found.group(1)
    if code == "\x01":
        return "\0"
    return MARK if code == "\x02" else chr(int(code[1:], 16))


def encoded(text: str) -> bytes:
    """The bytes of text as PostgreSQL can hold it."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return written(text).encode()
    return data if b"\0" not in data and b"\x01" not in data else written(text).encode()


class Column(bytes):
    """Values of one column for many rows, as an array of PostgreSQL in its binary form. `oid` is that of the array."""

    oid: ClassVar[int]


class Texts(Column):
    """A column of text."""

    oid = 1009

    @classmethod
    def of(cls, values: Sequence[str | None]) -> Texts:
        """The column of these values, of which those of a batch are often all the same."""
        pieces = {value: _NULL if value is None else _piece(encoded(value)) for value in dict.fromkeys(values)}
        return cls(_array(_TEXT, [*map(pieces.__getitem__, values)]))


class Bytes(Column):
    """A column of bytes."""

    oid = 1001

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Bytes:
        """The column of these values."""
        return cls(_array(_BYTEA, [_NULL if value is None else _piece(value) for value in values]))


class Floats(Column):
    """A column of numbers."""

    oid = 1022

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Floats:
        """The column of these values."""
        return cls(_array(_FLOAT8, [_NULL if value is None else _FLOAT(8, value) for value in values]))


class Integers(Column):
    """A column of whole numbers."""

    oid = 1016

    @classmethod
    def of(cls, values: Iterable[int]) -> Integers:
        """The column of these values."""
        return cls(_array(_INT8, [_INT(8, value) for value in values]))


def _piece(data: bytes) -> bytes:
    return _LENGTH(len(data)) + data


def _array(oid: int, pieces: list[bytes]) -> bytes:
    return _HEAD(1, 1, oid, len(pieces), 1) + b"".join(pieces)


class _TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return encoded(obj)


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        text = str(data, "utf-8")
        return read(text) if MARK in text else text


class _BinaryTextLoader(_TextLoader):
    format = Format.BINARY


class _SumLoader(NumericBinaryLoader):
    """Sums of whole numbers have a type of their own, and are whole numbers here."""

    def load(self, data: Buffer) -> Any:
        return int(super().load(data))


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> Buffer | None:
        return obj


def register(connection: psycopg.Connection[Any]) -> None:
    """Let a connection write and read values in these forms."""
    adapters = connection.adapters
    adapters.register_dumper(str, _TextDumper)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(bool, Int8Dumper)  # columns of yes and no are numbers, as in SQLite
    for kind in (Texts, Bytes, Floats, Integers):
        adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (_ColumnDumper,), {"oid": kind.oid}))
    for name in ("text", "varchar", "name"):
        adapters.register_loader(name, _TextLoader)
        adapters.register_loader(name, _BinaryTextLoader)
    adapters.register_loader("numeric", _SumLoader)
