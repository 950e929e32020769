"""Which processes use a store. Owns telling the living from the dead, by locks that end with their process.

Each process that opens a store holds a lock on a file of its own beside it. The operating system lets go of the lock
when the process ends, however it ends, and not before: one that was only stopped for a while is not taken for dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class OwnerLock:
    """The sign of life of one process that has a store open."""

    def __init__(self, store: Path, number: int) -> None:
        self._path = _path_of(store, number)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Say goodbye; what is left unfinished is anybody's from now on."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        os.close(self._fd)


def is_alive(store: Path, number: int) -> bool:
    """True while the process that took this number holds its lock."""
    try:
        fd = os.open(_path_of(store, number), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _path_of(store: Path, number: int) -> Path:
    return store.with_name(f"{store.name}-owner-{number}")
