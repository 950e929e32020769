"""Writing the archive of a session. Owns that it is whole or not there; runs on a thread."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import zipfile
from pathlib import Path
from typing import IO

from toolwright import jsonx
from toolwright.errors import ArchiveError
from toolwright.ids import new_id
from toolwright.private_files import create_private
from toolwright.session.archive.format import FORMAT, MANIFEST, VERSION, Exported, Manifest
from toolwright.stores.contracts.archives import TABLES, SessionRows

JUST_MADE = 5.0
"""Seconds without a write after which a file does not belong to a running export."""


def write_archive(path: Path, session: str, rows: SessionRows, now: float, *, replace: bool) -> Exported:
    """Write the contents of a session into a file that only its owner may read, one row and one piece at a time.

    Raises:
        ArchiveError: the file exists and is not to be replaced, or cannot be written.
    """
    if path.exists() and not replace:
        raise ArchiveError(f"There is a file {str(path)!r} already; choose another name, or say that it is to go")
    partial = path.with_name(f".{path.name}.{new_id('part')}")
    try:
        _remove_left(path)
        try:
            # Sealed or not, it is a conversation: only its owner may read it.
            with create_private(partial) as file:
                # Held until the file is complete: a file without this lock is the rest of a killed export.
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                counts = _fill(file, session, rows, now)
                file.flush()
                os.fsync(file.fileno())
                size = partial.stat().st_size
                os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except (OSError, zipfile.LargeZipFile) as error:
        raise ArchiveError(f"The archive {str(path)!r} cannot be written: {error}; choose another place") from error
    return Exported(session, counts, size)


def _remove_left(path: Path) -> None:
    """Remove the files of killed exports to the same target. A running export holds its lock."""
    beginning = f".{path.name}.part_"
    for name in os.listdir(path.parent):
        if not name.startswith(beginning):
            continue
        left = path.with_name(name)
        with contextlib.suppress(OSError):  # Another's, or just gone.
            number = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # Not before it is old enough: another export makes its file before it can lock it.
                if time.time() - os.fstat(number).st_mtime > JUST_MADE:
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()
            finally:
                os.close(number)


def _fill(file: IO[bytes], session: str, rows: SessionRows, now: float) -> dict[str, int]:
    counts: dict[str, int] = {}
    hashes: dict[str, None] = {}
    # Readers refuse the wider format of archives of 4 GiB and more, so that none is written.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=False) as archive:
        for table in TABLES:
            counts[table] = 0
            with archive.open(_member(f"{table}.jsonl"), "w") as out:
                for row in rows.rows(table):
                    out.write(jsonx.encode(row) + b"\n")
                    counts[table] += 1
                    content = getattr(row, "hash", None)
                    if content is not None:
                        hashes[content] = None
        for content in hashes:
            with archive.open(_member(f"blobs/{content}"), "w") as out:
                for piece in rows.blob(content):
                    out.write(piece)
        manifest = Manifest(FORMAT, VERSION, session, now, counts)
        archive.writestr(_member(MANIFEST), jsonx.encode(manifest))
    return counts


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    return info
