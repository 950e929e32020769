"""Whole outputs in a directory of the host. Owns their names there, and that they outlast a power cut."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from toolwright import jsonx
from toolwright.ids import new_id
from toolwright.private_files import create_private

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def save_output(folder: Path, call_id: str, data: bytes) -> str:
    """Write a new file named after a call, and return its path. It is on the disk by then: the outcome will name it.

    Raises:
        OSError: it can not be written; nothing of it is there.
    """
    name = _UNSAFE.sub("_", call_id)[:100]
    if name != call_id or name.startswith("."):
        # Two ids may look the same once they are made safe.
        name = f"{name.lstrip('.') or 'call'}-{jsonx.digest(call_id.encode('utf-8', 'surrogatepass'))[:12]}"
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.txt"
    try:
        file = create_private(target)
    except FileExistsError:
        # Never over another file: its name may stand in a conversation.
        target = folder / f"{name}-{new_id('file')}.txt"
        file = create_private(target)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for each in {folder, *(one.parent for one in made)}:
            _sync_folder(each)
    except OSError:
        target.unlink(missing_ok=True)
        raise
    return str(target)


def _sync_folder(folder: Path) -> None:
    """See to it that what was made in a folder has its name there after a power cut."""
    # Not every system lets a folder be opened, nor every file system have it synced: there is no surer way then.
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
