"""Files that only their owner may read. Owns their mode, whatever the umask; does not own their content."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO

from toolwright.log_fields import log_fields

log = logging.getLogger("toolwright.session")

MODE = 0o600
_GROUP_WRITES = 0o020


def make_private(path: Path) -> None:
    """Make a file that only its owner may read and write, or restrict the mode of an existing one.

    A file that its group may write to was set up to be shared with the group: it stays so, and nobody else may read it.
    The mode of a file of another user cannot be changed; that is logged.

    Raises:
        OSError: it cannot be made.
    """
    if not make_if_missing(path):
        tighten(path)


def make_if_missing(path: Path) -> bool:
    """Make a file that only its owner may read and write; False, and no change, where there is a file already.

    Raises:
        OSError: it cannot be made.
    """
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), MODE)
    except FileExistsError:
        return False
    try:
        if os.name != "nt":
            os.fchmod(number, MODE)  # the umask may have taken even the owner's part of it
    finally:
        os.close(number)
    return True


def private_mode(mode: int) -> int:
    """The part of a mode that stays in a private file: its owner's, and its group's where the group may write."""
    return mode & (0o660 if mode & _GROUP_WRITES else MODE)


def tighten(path: Path) -> None:
    """Restrict an existing file to its owner; see `make_private`."""
    if os.name == "nt":
        return
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        mode = stat.S_IMODE(status.st_mode)
        kept = private_mode(mode)
        if not stat.S_ISREG(status.st_mode) or mode == kept:
            return
        try:
            os.chmod(path, kept)
        except PermissionError:
            log.warning(
                "The file %r may be read by others (mode %04o), and belongs to another user",
                str(path),
                mode,
                extra=log_fields("file.readable_by_others", path=str(path)),
            )


def append_private(path: Path) -> BinaryIO:
    """Open a file to add to it; only its owner may read it."""
    make_private(path)
    return path.open("ab")


def create_private(path: Path) -> BinaryIO:
    """Make a new file that only its owner may read, and open it.

    Raises:
        FileExistsError: there is one already.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), MODE)
    try:
        if os.name != "nt":
            os.fchmod(number, MODE)
    finally:
        os.close(number)
    return path.open("wb")
