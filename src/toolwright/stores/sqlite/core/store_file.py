"""Where a store lies. Owns the identity of its file: one file is one place, however its path is spelled.

The path is resolved once, when the store is opened. From then on the files beside the store are found through the open
directory, and not through a path that depends on the working directory of the program or on a symbolic link.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from pathlib import Path
from typing import Self

import apsw

from toolwright.errors import StoreError, StoreLost

BESIDE = re.compile(r"-(wal|shm|journal|turns|owner-[0-9]+)", re.ASCII)
"""How the names of the files beside a store end, which SQLite and this package make and remove."""
LOG = "-wal"
"""The suffix of the log file that SQLite makes beside the file."""
HEADER = 100
"""The bytes of a SQLite file that hold the number of pages and the size of a page."""
PATIENCE, PAUSE = 10, 0.02
"""How often, and after how many seconds, a file that seems too short is looked at again."""


class StorePlace:
    """The file of a store and its directory. `path` is absolute and has no symbolic links."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = self.path.name
        self._directory = -1
        self._identities: dict[str, tuple[int, int]] = {}
        self._size = 0

    @property
    def directory(self) -> int:
        """A descriptor of the directory: it stays the same directory if that is moved, or a parent of it."""
        if self._directory < 0:
            self._directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._directory

    def require_own_name(self) -> None:
        """Refuse a name that may be that of a file beside another store, which would be removed with it.

        Raises:
            StoreError: the name ends as those names do.
        """
        found = BESIDE.search(self.name)
        if found is not None and found.end() == len(self.name):
            raise StoreError(
                f"The store {str(self.path)!r} cannot be opened: a name that ends with {found.group()!r} is that of a "
                f"file beside the store {self.name[: found.start()]!r}, and is removed with it; choose another name"
            )

    def require_one_name(self) -> None:
        """Refuse a file that has several names.

        SQLite names the log of a database after the name that it was opened with: two names would have two logs, and
        each program would overwrite commits of the other.

        Raises:
            StoreError: there are hard links to the file.
        """
        try:
            found = os.stat(self.path)
        except OSError:
            return  # There is no such file yet, or opening it explains the problem.
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            raise StoreError(
                f"The store {str(self.path)!r} cannot be opened: its file has {found.st_nlink} names (hard links), "
                "and SQLite would keep a log for each; remove the other names, or use a symbolic link or a copy"
            )

    def remember(self) -> None:
        """Note which files are the store's, once it is open, for `require_same`.

        Raises:
            StoreError: a file cannot be looked at.
        """
        for name in (self.name, self.name + LOG):
            try:
                found = os.stat(name, dir_fd=self.directory)
            except OSError as error:
                raise StoreError(
                    f"The store {str(self.path)!r} cannot be opened: its file {name!r} cannot be looked at "
                    f"({error.strerror}); check the disk and its permissions, and open it again"
                ) from error
            self._identities[name] = (found.st_dev, found.st_ino)
            if name == self.name:
                self._size = found.st_size

    def require_same(self, connection: apsw.Connection) -> int:
        """Refuse to continue when the files of the open store are no longer those in its directory, or cut short.

        Returns the size of the log.

        Raises:
            StoreLost: one of them was deleted, moved or replaced, or the store was truncated.
        """
        log_size = 0
        for name, identity in self._identities.items():
            try:
                found = os.stat(name, dir_fd=self._directory)
            except OSError:
                found = None
            if found is None or (found.st_dev, found.st_ino) != identity:
                what = "deleted or moved" if found is None else "replaced"
                raise StoreLost(
                    f"The store {str(self.path)!r} can store nothing more: its file {name!r} was {what} while this "
                    "program had it open; end the program, put the file back or restore a copy, and start it again"
                )
            if found.st_size != self._size and name == self.name:
                if found.st_size < self._size:
                    self._require_whole(connection)
                self._size = found.st_size
            log_size = found.st_size  # the log comes last
        return log_size

    def lengthen_log(self, size: int, end: int) -> None:
        """Write zeros behind the log, which has `size` bytes, up to `end`, while this program alone may write to it.

        A disk syncs bytes that a file has already much faster than bytes by which it grows. SQLite reads no further
        than the last page that was written to the log. Where the disk is full, SQLite says so better.
        """
        with contextlib.suppress(OSError):
            fd = os.open(self.name + LOG, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._directory)
            try:
                os.pwrite(fd, bytes(end - size), size)
            finally:
                os.close(fd)

    def _require_whole(self, connection: apsw.Connection) -> None:
        """Refuse a file that is shorter than its header states. Only a vacuum shortens a file together with its
        header."""
        for _ in range(PATIENCE):
            # SQLite must read it: to open and close the file here would drop the locks that this process has on it.
            _, head = connection.read("main", 0, 0, HEADER)
            page = int.from_bytes(head[16:18], "big")
            pages = int.from_bytes(head[28:32], "big")
            size = os.stat(self.name, dir_fd=self._directory).st_size
            if 0 < pages * (65_536 if page == 1 else page) <= size:
                return
            time.sleep(PAUSE)  # Another program may be moving pages from the log to the file, the header first.
        raise StoreLost(
            f"The store {str(self.path)!r} can store nothing more: its file {self.name!r} was truncated while this "
            "program had it open; end the program, restore a copy, and start it again"
        )

    def close(self) -> None:
        """Close the directory."""
        directory, self._directory = self._directory, -1
        if directory >= 0:
            os.close(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
