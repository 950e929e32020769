"""The contract of copying a store into another one. Owns what the two ends of a copy are asked; copies nothing.

A store is copied as tables of plain rows. The tables, their columns and the meaning of the values are those of the
stores of this package, whose schemas are the list: `stores/postgres/schema.sql`. What only means something while
programs have a store open is not content: its owners, its workers, and leases, which are over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

Row = tuple[Any, ...]
"""The values of one row: None, int, float, str or bytes."""


class CopyTable(Struct, frozen=True):
    """A table of records, with its columns in the order of the values of a row."""

    name: str
    columns: tuple[str, ...]


class CopyPage(NamedTuple):
    """Some rows of a table, which fit into memory. `position` is where its source continues after them."""

    rows: Sequence[Row]
    position: bytes


class CopySource(Protocol):
    """A store that is read whole. While it is open, no other program opens the store, and its content does not change.

    Every verb raises `StoreError` where the store cannot be read, and `StoreUnavailable` where it does not answer.
    """

    @property
    def store_id(self) -> str:
        """A name of the content, which a copy has, too, and no other store. It tells nothing else of the store."""
        ...

    @property
    def tables(self) -> Sequence[CopyTable]:
        """Its tables, in the order in which they are to be copied."""
        ...

    async def count(self, table: CopyTable) -> int:
        """How many rows a table has."""
        ...

    def pages(self, table: CopyTable, after: bytes | None = None) -> AsyncIterator[CopyPage]:
        """The rows of a table, each once, in an order that is the same each time; those after a position."""
        ...

    async def close(self) -> None:
        """Let other programs have the store again."""
        ...


class CopyTarget(CopySource, Protocol):
    """A store that is being filled. Until `finish`, no program can open it as a store."""

    @property
    def finished(self) -> bool:
        """True for a store that is whole: it is only compared, and never written to."""
        ...

    @property
    def positions(self) -> Mapping[str, bytes]:
        """The position of the last page of each table that was written, also by an earlier process."""
        ...

    async def write(self, table: CopyTable, page: CopyPage) -> None:
        """Write a page and its position, both or nothing. A kill loses nothing that was written before."""
        ...

    async def clear(self, table: CopyTable) -> None:
        """Remove all rows of a table, and its position."""
        ...

    async def finish(self) -> None:
        """Make it a store that can be opened, durably: in one step, after which it is `finished`.

        Numbers that the store gives continue after those that the tables and the counters have.
        """
        ...


@runtime_checkable
class CopyScheme(Protocol):
    """What a `StoreScheme` has whose stores can be copied. Implemented by `stores/sqlite/scheme.py`."""

    async def copy_source(self, url: str) -> CopySource:
        """Hold a store, to read it whole.

        Raises:
            StoreError: there is none, it is of another version, or a program has it open.
        """
        ...

    async def copy_target(self, url: str, store_id: str) -> CopyTarget:
        """Hold the copy of a store, or begin one where nothing is.

        Raises:
            StoreError: something else is there, or a program has it open.
        """
        ...


def packed_row(row: Row) -> bytes:
    """The bytes of a row: equal rows have equal bytes, in every store. A source may use them for its positions, too."""
    try:
        return _pack(row)
    except UnicodeEncodeError:  # half a character, which some stores can hold
        return _pack([_whole(value) for value in row])


def unpacked_row(data: bytes) -> Row:
    """The row that `packed_row` gave these bytes."""
    return _unpack(data)


_HALVES = 1
_pack = msgspec.msgpack.Encoder().encode


def _whole(value: object) -> object:
    return msgspec.msgpack.Ext(_HALVES, value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else value


def _read_text(code: int, data: memoryview) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")


_unpack = msgspec.msgpack.Decoder(tuple, ext_hook=_read_text).decode
