"""Counting disk syncs: a layer between SQLite and the system that notes each one and passes it on."""

import contextlib
from collections.abc import Iterator
from typing import Any

import apsw


class SyncCount:
    """How often SQLite asked the system to bring a file to the disk."""

    def __init__(self) -> None:
        self.total = 0


@contextlib.contextmanager
def counted_syncs() -> Iterator[SyncCount]:
    """Count the syncs of every file that is opened and closed inside the block."""
    count, system = SyncCount(), apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def xSync(self, flags: int) -> None:
            count.total += 1
            super().xSync(flags)

    class Layer(apsw.VFS):
        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
            return File(system, name, flags)

    layer = Layer("counting-syncs", system, makedefault=True)
    try:
        yield count
    finally:
        layer.unregister()
