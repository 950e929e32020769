"""Copying a store into another one. Owns the order of the steps and the comparison; the ends of a copy read and write.

Each page of rows is written with its position, so that a copy which was cut off continues there. At the end all tables
of the target are read back and compared with the source. Only then can the target be opened as a store.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolwright.errors import StoreError
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.copying import CopyScheme, CopySource, CopyTable, CopyTarget, Row, packed_row
from toolwright.stores.contracts.scheme import file_of, without_password
from toolwright.stores.contracts.sessions import Sealed
from toolwright.stores.opening import find_scheme
from toolwright.stores.sql.event_rows import OPENED

_WHOLE = 1 << 256


class CopyProgress(Struct, frozen=True):
    """How far a copy is: the rows of one table that are copied, or checked, of those that it has."""

    stage: Literal["copy", "check"]
    table: str
    rows: int
    of: int


class Digest(Struct, frozen=True):
    """What a table has, whatever the order of its rows: their number, and the sum of their hashes."""

    rows: int
    sum: str


class Copied(Struct, frozen=True):
    """A copy that is whole. `tables` are the digests of source and target, which are equal."""

    source: str
    target: str
    tables: dict[str, Digest]
    written: int
    """How many rows were written now; none where the copy was whole already."""
    master_keys: tuple[str, ...] = ()
    """The ids of the master keys that seal the secrets of the store: the target needs the same keys."""

    @property
    def rows(self) -> int:
        """How many rows the store has."""
        return sum(table.rows for table in self.tables.values())

    def to_json(self) -> dict[str, Any]:
        """The copy as plain data."""
        return plain_data(self)


Tell = Callable[[CopyProgress], None]


async def copy_store(source: str | Path, target: str | Path, *, tell: Tell | None = None) -> Copied:
    """Copy a store whole into another one, of any scheme, and compare them; nothing of the source is changed.

    No program may have either of them open. A copy that was cut off continues when it is asked for again; one that is
    whole is only compared. `tell` is called as it proceeds.

    Raises:
        StoreError: one of them cannot be copied from or to, is open, or the target has other content. A copy that was
            begun stays, and continues when it is asked for again.
        StoreUnavailable: one of them does not answer.
    """
    (from_scheme, from_url), (to_scheme, to_url) = _scheme(source), _scheme(target)
    names = without_password(from_url), without_password(to_url)
    if _is_same(from_url, to_url):
        raise StoreError(f"The store {names[0]!r} cannot be copied to itself; name another target")
    async with contextlib.AsyncExitStack() as stack:
        old = await from_scheme.copy_source(from_url)
        stack.push_async_callback(old.close)
        new = await to_scheme.copy_target(to_url, old.store_id)
        stack.push_async_callback(new.close)
        return await _Copy(old, new, names, tell or (lambda progress: None)).run()


def _is_same(one: str, other: str) -> bool:
    files = file_of(one), file_of(other)
    if files[0] is None or files[1] is None:
        return one == other
    return os.path.realpath(files[0]) == os.path.realpath(files[1])


def _scheme(location: str | Path) -> tuple[CopyScheme, str]:
    scheme, url = find_scheme(location)
    if not isinstance(scheme, CopyScheme):
        raise StoreError(
            f"The store {without_password(url)!r} cannot be copied: its scheme does not offer that; see CopyScheme in "
            "docs/writing-a-store.md"
        )
    return scheme, url


class _Copy:
    """One copy, from its source to its target."""

    def __init__(self, source: CopySource, target: CopyTarget, names: tuple[str, str], tell: Tell) -> None:
        self._source, self._target = source, target
        self._names = names
        self._tell = tell
        self._counts: dict[str, int] = {}
        self._masters: set[str] = set()

    async def run(self) -> Copied:
        source, target = self._source, self._target
        self._require_same_tables()
        for table in source.tables:
            self._counts[table.name] = await source.count(table)
        if target.finished:
            digests = {table.name: await self._digest(source, table) for table in source.tables}
            if other := await self._differing(digests):
                raise StoreError(
                    f"The store {self._names[1]!r} has other content than {self._names[0]!r}: {_listed(other)} differ, "
                    "since one of them was used after the copy; name another target, or remove this one"
                )
            return self._done(digests, 0)
        written = 0
        for last in (False, True):
            digests = {}
            for table in source.tables:
                digest, rows = await self._copy(table)
                digests[table.name] = digest
                written += rows
            other = await self._differing(digests)
            if not other:
                await target.finish()
                return self._done(digests, written)
            if last:
                break
            # The source was used after an earlier part of the copy: what has changed is copied again.
            for table in other:
                await target.clear(table)
        raise StoreError(
            f"The copy {self._names[1]!r} does not have the content of {self._names[0]!r}: {_listed(other)} differ "
            "after they were written; check the target with its own tools, and report it"
        )

    def _done(self, digests: dict[str, Digest], written: int) -> Copied:
        return Copied(*self._names, digests, written, tuple(sorted(self._masters)))

    def _require_same_tables(self) -> None:
        there = {table.name: table.columns for table in self._target.tables}
        for table in self._source.tables:
            if there.pop(table.name, None) != table.columns:
                raise StoreError(
                    f"The store {self._names[0]!r} cannot be copied to {self._names[1]!r}: the table {table.name!r} is "
                    "another one there; install the same version of toolwright and of the package of the store"
                )
        if there:
            raise StoreError(
                f"The store {self._names[0]!r} cannot be copied to {self._names[1]!r}: it has no table "
                f"{next(iter(there))!r}; install the same version of toolwright and of the package of the store"
            )

    async def _copy(self, table: CopyTable) -> tuple[Digest, int]:
        """Write the rows of a table that the target does not have yet; return its digest, and how many there were."""
        after = self._target.positions.get(table.name)
        sum, count, written = _Sum(table), self._counts[table.name], 0
        self._tell(CopyProgress("copy", table.name, 0, count))
        skipped = 0 if after is None else await self._target.count(table)
        async for page in self._source.pages(table, after):
            await self._target.write(table, page)
            sum.add(page.rows)
            written += len(page.rows)
            self._tell(CopyProgress("copy", table.name, min(count, skipped + written), count))
            self._note_masters(table, page.rows)
        if after is not None:  # an earlier process wrote the rows before
            return await self._digest(self._source, table), written
        return sum.digest(), written

    async def _digest(self, end: CopySource, table: CopyTable) -> Digest:
        sum, count = _Sum(table), self._counts[table.name]
        self._tell(CopyProgress("check", table.name, 0, count))
        async for page in end.pages(table):
            sum.add(page.rows)
            self._tell(CopyProgress("check", table.name, min(count, sum.rows), count))
            if end is self._source:
                self._note_masters(table, page.rows)
        return sum.digest()

    async def _differing(self, digests: dict[str, Digest]) -> list[CopyTable]:
        """The tables of the target that are not as these digests say."""
        return [
            table for table in self._target.tables if await self._digest(self._target, table) != digests[table.name]
        ]

    def _note_masters(self, table: CopyTable, rows: Iterable[Row]) -> None:
        if table.name == "secrets":
            place = table.columns.index("master")
            self._masters.update(row[place] for row in rows)
        elif table.name == "meta":
            sealed = [value for name, value in rows if name == "fingerprints"]
            self._masters.update(msgspec.json.decode(value, type=Sealed).master for value in sealed)


class _Sum:
    """The digest of the rows of a table, which come in any order.

    Rows of the event log that only say that the store was opened are not counted: they do not make two stores differ.
    """

    def __init__(self, table: CopyTable) -> None:
        self._kind = table.columns.index("kind") if table.name == "events" else None
        self.rows = 0
        self._sum = 0

    def add(self, rows: Sequence[Row]) -> None:
        if self._kind is not None:
            rows = [row for row in rows if row[self._kind] != OPENED]
        self.rows += len(rows)
        for row in rows:
            self._sum += int.from_bytes(hashlib.sha256(packed_row(row)).digest(), "big")
        self._sum %= _WHOLE

    def digest(self) -> Digest:
        return Digest(self.rows, f"{self._sum:064x}")


def _listed(tables: Sequence[CopyTable]) -> str:
    return ", ".join(repr(table.name) for table in tables)
