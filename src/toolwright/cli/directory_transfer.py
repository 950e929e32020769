"""Whole directories between a session and this machine. Owns the way through them; each file goes by `transfer`.

A directory is no unit: where one of its files is refused, those before it have been written, and the error counts them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from toolwright.cli.exits import BadInput
from toolwright.cli.file_transfer import read_pieces, require_free, write_path
from toolwright.errors import ServiceError
from toolwright.session.services.files import Files
from toolwright.stores.contracts.scheme import file_of
from toolwright.tools.outcome import encodable
from toolwright.tools.service_protocols import FileInfo


class Found(NamedTuple):
    """The contents of a directory of this machine, by paths below it with slashes, each directory before its contents.

    `left_out` are links, devices and the like, which lead elsewhere or nowhere, and the store with its master key,
    which no tool is to read.
    """

    directories: list[str]
    files: list[str]
    left_out: list[str]


@dataclass(slots=True)
class Written:
    """The files and bytes written so far."""

    files: int = 0
    size: int = 0
    left_out: list[str] = field(default_factory=list)

    def add(self, size: int) -> None:
        """Count a file."""
        self.files += 1
        self.size += size


def look_through(source: str, store: str) -> Found:
    """List the contents of a directory of this machine, perhaps the one of the store.

    Raises:
        BadInput: some of it cannot be read.
    """
    found = Found([], [], [])
    file = file_of(store)
    own = None if file is None else str(file.resolve())
    for above, directories, names in os.walk(source, onerror=_unreadable):
        for name in sorted((*directories, *names)):
            place = Path(above, name)
            kind = found.left_out if own is not None and str(place.resolve()).startswith(own) else _kind(found, place)
            kind.append(place.relative_to(source).as_posix())
        directories.sort()
    return found


def _kind(found: Found, place: Path) -> list[str]:
    try:
        mode = place.lstat().st_mode
    except OSError as error:
        _unreadable(error)
    return found.directories if stat.S_ISDIR(mode) else found.files if stat.S_ISREG(mode) else found.left_out


def _unreadable(error: OSError) -> NoReturn:
    raise BadInput(f"{error.filename!r} cannot be read ({error.strerror}); check its permissions")


async def put_tree(files: Files, source: str, found: Found, path: str) -> Written:
    """Write the found files of this machine into a directory of a session, beside its files.

    Raises:
        BadInput: a file cannot be read, or the session refuses it.
    """
    written = Written(left_out=[encodable(each) for each in found.left_out])
    with _counting(written):
        await files.make_directory(path)
        for each in found.directories:
            await files.make_directory(f"{path}/{each}")
        for each in found.files:
            info = await files.write_stream(f"{path}/{each}", read_pieces(str(Path(source, each))))
            written.add(info.size)
    return written


async def get_tree(files: Files, top: list[FileInfo], target: Path, *, force: bool) -> Written:
    """Write a directory of a session to one of this machine, which must be new, unless files in it may be written over.

    `top` is the listing of the directory.

    Raises:
        BadInput: it is there, or something cannot be written.
    """
    if not force:
        require_free(target)
    written = Written()
    with _counting(written):
        waiting = [(target, top)]
        while waiting:
            place, entries = waiting.pop()
            _make(place)
            for info in entries:
                if info.directory:
                    waiting.append((place / info.name, await files.list(info.path)))
                else:
                    written.add(await write_path(files.stream(info.path), place / info.name, force=force))
    return written


def _make(place: Path) -> None:
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"{str(place)!r} cannot be made ({error.strerror}); choose another place") from None


@contextmanager
def _counting(written: Written) -> Iterator[None]:
    try:
        yield
    except (ServiceError, BadInput) as error:
        raise BadInput(f"{error} ({written.files} files were written before)") from error
