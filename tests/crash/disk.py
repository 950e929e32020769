"""A disk that loses power. Owns what of the written is really there after a cut; SQLite does not know of it.

A VFS over SQLite's own lets every operation through to real files, and writes down what was done. Played forward, that
gives for each instant what a disk was told to keep (what was synced), and what it only may have kept (the rest): of
this, each write may have come through, in whole sectors, in any order.

A name is there for sure when its folder was synced. SQLite's unix VFS does that with the first sync of a new journal or
log, and where it is asked to when a file is deleted.
"""

import os
import random
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw

SECTOR = 512


class Step(NamedTuple):
    """One thing that happened: to a file, or, as a `mark`, to the world outside."""

    kind: str  # create, delete, write, truncate, sync, sync_folder, mark
    name: str = ""
    offset: int = 0
    data: bytes = b""
    what: Any = None


class RecordingVFS(apsw.VFS):
    """SQLite's own way to files, written down step by step."""

    def __init__(self, name: str) -> None:
        self.steps: list[Step] = []
        self._lock = threading.Lock()
        self._files: set[str] = set()
        self.vfs_name = name
        super().__init__(name, "unix")

    def add(self, step: Step) -> None:
        with self._lock:
            self.steps.append(step)

    def mark(self, what: Any) -> None:
        self.add(Step("mark", what=what))

    def xOpen(self, name: Any, flags: list[int]) -> "RecordingFile":
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        new = path is not None and not os.path.exists(path)
        file = RecordingFile(name, flags, self)
        if new:
            self.add(Step("create", os.path.basename(path)))
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.add(Step("delete", os.path.basename(filename)))
        if syncdir:
            self.add(Step("sync_folder"))


class RecordingFile(apsw.VFSFile):
    """One open file; locks and shared memory stay with SQLite's own."""

    def __init__(self, name: Any, flags: list[int], vfs: RecordingVFS) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        assert path is not None, "A temporary file is nothing that a cut could lose."
        self._name = os.path.basename(path)
        self._vfs = vfs
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._vfs.add(Step("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._vfs.add(Step("truncate", self._name, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._vfs.add(Step("sync", self._name))


class Inode:
    """A file's content: what is there for sure, and what was done to it since."""

    def __init__(self, content: bytes = b"") -> None:
        self.sure = bytearray(content)
        self.since: list[Step] = []


class Disk:
    """What a disk holds while steps are done to it. One that `lies` says that it synced, and did not."""

    def __init__(self, files: dict[str, bytes] | None = None, *, lies: bool = False) -> None:
        self._lies = lies
        self._sure = {name: Inode(content) for name, content in (files or {}).items()}
        self._now = dict(self._sure)
        self._names_since: list[tuple[str, Inode | None]] = []
        self._new: set[str] = set()

    def do(self, step: Step) -> None:
        if step.kind == "create":
            inode = self._now[step.name] = Inode()
            self._names_since.append((step.name, inode))
            self._new.add(step.name)
        elif step.kind == "delete":
            self._names_since.append((step.name, None))
            del self._now[step.name]
        elif step.kind in ("write", "truncate"):
            self._now[step.name].since.append(step)
        elif step.kind == "sync" and not self._lies:
            inode = self._now[step.name]
            for done in inode.since:
                _apply(inode.sure, done)
            inode.since.clear()
            if step.name in self._new and step.name.endswith(("-journal", "-wal")):
                self._new.discard(step.name)
                self._sync_folder()
        elif step.kind == "sync_folder" and not self._lies:
            self._sync_folder()

    def _sync_folder(self) -> None:
        self._sure = dict(self._now)
        self._names_since.clear()

    def cuts(self, chance: random.Random) -> Iterator[tuple[str, dict[str, bytes]]]:
        """What may be on the disk if the power went now, worst, best and in between."""
        yield "nothing more came through", self._files(dict(self._sure), lambda since: [])
        if not self._names_since and not any(inode.since for inode in self._now.values()):
            return
        yield "everything came through", self._files(dict(self._now), lambda since: since)
        names = dict(self._sure)
        for name, inode in self._names_since[: chance.randint(0, len(self._names_since))]:
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
        yield "the first writes came through", self._files(names, lambda since: since[: chance.randint(0, len(since))])
        yield "some writes came through", self._files(names, lambda since: _torn(since, chance))

    @staticmethod
    def _files(names: dict[str, Inode], choose: Any) -> dict[str, bytes]:
        files = {}
        for name, inode in names.items():
            content = bytearray(inode.sure)
            for step in choose(inode.since):
                _apply(content, step)
            files[name] = bytes(content)
        return files


def _apply(content: bytearray, step: Step) -> None:
    if step.kind == "truncate":
        del content[step.offset :]
        content.extend(bytes(step.offset - len(content)))
    else:
        content.extend(bytes(max(0, step.offset - len(content))))
        content[step.offset : step.offset + len(step.data)] = step.data


def _torn(since: list[Step], chance: random.Random) -> list[Step]:
    """Some of the writes, some of them only in part."""
    kept = []
    for step in since:
        fate = chance.random()
        if fate < 0.4 or (fate < 0.7 and len(step.data) <= SECTOR):
            kept.append(step)
        elif fate < 0.7:
            for start in range(0, len(step.data), SECTOR):
                if chance.random() < 0.5:
                    kept.append(step._replace(offset=step.offset + start, data=step.data[start : start + SECTOR]))
    return kept
