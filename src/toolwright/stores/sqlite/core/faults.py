"""Explains faults of the file of a store. Owns the reasons and their remedies; others meet the fault."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import apsw

from toolwright.errors import StoreDamaged, StoreError, StoreUnavailable

_REASONS = {
    "Full": "the disk is full; free some space",
    "Busy": "another program holds it{}; wait, or stop that program",
    "Locked": "another program holds it{}; wait, or stop that program",
    "NotADB": "it is not a SQLite database; choose another file",
    "Corrupt": "it is damaged; restore it from a copy",
    "IO": "the disk reports an error; check it, and the space left on it",
    "TooBig": "it is larger than a store can hold; let tools return less",
}
_BESIDE = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite makes beside a store; they get its permissions when they are made, and keep
them."""


_KINDS: dict[type[apsw.Error], type[StoreError]] = {
    apsw.CorruptError: StoreDamaged,
    apsw.BusyError: StoreUnavailable,
    apsw.LockedError: StoreUnavailable,
}


def store_error(message: str, error: apsw.Error) -> StoreError:
    """The error of a store for one of SQLite: whether the file is damaged, held by another program, or refused."""
    return _KINDS.get(type(error), StoreError)(message)


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def reason(path: Path, error: apsw.Error, waited: float = 0.0, writable: Callable[[Path], bool] = _is_writable) -> str:
    """The fault of a file, and the remedy.

    `waited` is for how many seconds it was tried; `writable` tests whether the system lets this process write to a
    path.
    """
    name = type(error).__name__.removesuffix("Error")
    if name == "CantOpen":
        return (
            not_openable(path, writable)
            or "the system does not allow it; check the permissions of the file and its directory"
        )
    if name == "ReadOnly":
        return _closed(path, writable) or "it cannot be written to; check the permissions of the file and its directory"
    since = f", and did for {waited:.1f} s" if waited >= 0.1 else ""
    return _REASONS[name].format(since) if name in _REASONS else str(error)


def not_openable(path: Path, writable: Callable[[Path], bool] = _is_writable) -> str | None:
    """Why a file could not be opened, or made, as far as names and permissions tell, and the remedy."""
    if not os.path.isdir(path.parent):  # False, and no error, for a directory that this process may not read
        return f"there is no directory {str(path.parent)!r}; make it first"
    if os.path.isdir(path):
        return "it is a directory; give the path of a file"
    if os.path.exists(path) and not os.path.isfile(path):
        return "it is no regular file; give the path of one"
    try:
        os.lstat(path.with_name(path.name + _BESIDE[-1]))
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return "its name is too long for the file system; choose a shorter one"
    return _closed(path, writable)


def _closed(path: Path, writable: Callable[[Path], bool]) -> str | None:
    """Which of the files that must be written to cannot be, if one cannot."""
    if os.path.exists(path) and not writable(path):
        return "it cannot be written to; check its permissions"
    beside = [path.with_name(path.name + ending) for ending in _BESIDE]
    closed = [repr(str(one)) for one in beside if os.path.exists(one) and not writable(one)]
    if closed:
        return f"{' and '.join(closed)} beside it cannot be written to; check the permissions"
    where = str(path.parent)
    return None if writable(path.parent) else f"its directory {where!r} cannot be written to; check its permissions"
