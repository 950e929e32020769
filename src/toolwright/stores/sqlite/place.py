"""Where a store lies. Owns the identity of its file: one file is one place, however its path is spelled.

The path is resolved once, when the store is opened. From then on the files beside the store are found through the open
directory, and not through a path that depends on the working directory of the program or on a symbolic link.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Self

from toolwright.errors import StoreError

LOG = "-wal"
"""How the name of the log ends that SQLite keeps beside the file."""


class StorePlace:
    """The file of a store and its directory. `path` is absolute and has no symbolic links."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = self.path.name
        self._directory = -1
        self._identities: dict[str, tuple[int, int]] = {}

    @property
    def directory(self) -> int:
        """A descriptor of the directory: it stays the same directory if that is moved, or a parent of it."""
        if self._directory < 0:
            self._directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._directory

    def require_one_name(self) -> None:
        """Refuse a file that has several names.

        SQLite keeps the log of a database under the name that it was opened with: two names would have two logs, and
        each program would overwrite what the other has committed.

        Raises:
            StoreError: there are hard links to the file.
        """
        try:
            found = os.stat(self.path)
        except OSError:
            return  # There is no such file yet, or opening it says what is wrong.
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            raise StoreError(
                f"The store {str(self.path)!r} cannot be opened: its file has {found.st_nlink} names (hard links), "
                "and SQLite would keep a log for each; remove the other names, or use a symbolic link or a copy"
            )

    def remember(self) -> None:
        """Note which files are the store's, once it is open, for `require_same`."""
        for name in (self.name, self.name + LOG):
            found = os.stat(name, dir_fd=self.directory)
            self._identities[name] = (found.st_dev, found.st_ino)

    def require_same(self) -> None:
        """Refuse to go on when the files of the open store are no longer those in its directory.

        Raises:
            StoreError: one of them was deleted, moved or replaced.
        """
        for name, identity in self._identities.items():
            try:
                found = os.stat(name, dir_fd=self._directory)
            except OSError:
                found = None
            if found is None or (found.st_dev, found.st_ino) != identity:
                what = "deleted or moved" if found is None else "replaced"
                raise StoreError(
                    f"The store {str(self.path)!r} can keep nothing more: its file {name!r} was {what} while this "
                    "program had it open; end the program, put the file back or restore a copy, and start it again"
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
