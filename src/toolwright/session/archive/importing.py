"""Reading the archive of a session. Owns trusting nothing in it: names, sizes, hashes, counts; runs on a thread.

Nothing is unpacked to the disk. Each read is bounded by the quotas of a session, whatever sizes the archive states, and
one wrong byte refuses all of it.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from toolwright.errors import ArchiveError, ServiceError
from toolwright.session.archive.format import BLOB, FORMAT, MANIFEST, VERSION, Imported, Manifest
from toolwright.session.services.connections import DETAIL_BYTES, MOST
from toolwright.session.services.paths import SLASHES
from toolwright.session.services.quotas import require_name
from toolwright.stores.contracts.archives import (
    TABLES,
    AttachmentRow,
    ConnectionRow,
    FileRow,
    KeyValueRow,
    MessageRow,
    ResourceRow,
    Row,
    SecretRow,
    SessionWriter,
    Table,
)
from toolwright.stores.contracts.sessions import Quota, Quotas

PIECE = 1024 * 1024
_MANIFEST_BYTES = 64 * 1024
_AROUND = 64 * 1024
_MOST_NUMBER = 2**53
"""The number of a message, at most: those after it must have numbers, too, and be read from JSON as they are."""
"""Bytes of a row beside its content."""
_DIRECTORY_ENTRY = 256
"""Bytes that the zip's directory may have for each member; ours have about 120."""


class Archive:
    """An archive that is open to be read."""

    def __init__(self, path: Path, zip: zipfile.ZipFile, quotas: Quotas) -> None:
        self._zip = zip
        self._quotas = quotas
        self._members = {info.filename: info for info in zip.infolist()}
        self._check_members()
        self.manifest = self._read_manifest()

    def _check_members(self) -> None:
        if len(self._members) != len(self._zip.infolist()):
            raise ArchiveError("The archive has two members of one name; export it again")
        known = {MANIFEST, *(f"{table}.jsonl" for table in TABLES)}
        for name, info in self._members.items():
            if name not in known and not BLOB.fullmatch(name):
                raise ArchiveError(f"The archive has a member {name!r:.200} that is none of a session's; use another")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 0x1:
                raise ArchiveError(f"The member {name!r} is encrypted or packed in a way that is not known")
        if missing := sorted(known - self._members.keys()):
            raise ArchiveError(f"The archive has no {', '.join(missing)}; it is not whole, export it again")

    def _read_manifest(self) -> Manifest:
        with self._zip.open(MANIFEST) as member:
            data = member.read(_MANIFEST_BYTES + 1)
        if len(data) > _MANIFEST_BYTES:
            raise ArchiveError("The manifest of the archive is too long; use another archive")
        manifest = msgspec.json.decode(data, type=Manifest)
        if manifest.format != FORMAT:
            raise ArchiveError(f"The archive is a {manifest.format!r:.100}, and not one of a session")
        if manifest.version != VERSION:
            raise ArchiveError(
                f"The archive has version {manifest.version}, and this toolwright reads {VERSION}; "
                "import it with the toolwright that wrote it, or a later one"
            )
        if set(manifest.counts) != set(TABLES):
            raise ArchiveError("The manifest of the archive does not count the records of the session; export it again")
        return manifest

    def fill(self, writer: SessionWriter, session: str) -> Imported:
        """Write the checked content of the archive into a session of this id."""
        counts: dict[str, int] = dict.fromkeys(TABLES, 0)
        left_out: list[str] = []
        contents: dict[str, int] = {}
        directories = {"/"}
        for table in TABLES:
            quota, seen = self._quota(table), 0
            for row in self._rows(table, quota):
                seen += 1
                if seen > quota.entries:
                    quota.require(table.replace("_", "-"), seen, 0)
                if isinstance(row, SecretRow) and (
                    session != self.manifest.session or not writer.knows_master(row.master)
                ):
                    # It is sealed for the session it was in, by a key that must be the one of this store.
                    left_out.append(require_name("name of a secret", row.name))
                    continue
                _check_row(row, directories)
                if isinstance(row, FileRow) and row.size > self._quotas.file_bytes:
                    raise ServiceError(
                        f"The file {row.path!r:.200} has {row.size} bytes and may have {self._quotas.file_bytes}",
                        "quota",
                    )
                if isinstance(row, (FileRow, AttachmentRow)) and row.hash is not None:
                    self._check_content(row.hash, row.size, contents)
                try:
                    writer.add(table, row)
                except (OverflowError, ValueError) as error:
                    raise ArchiveError(f"A row of {table} cannot be kept: {error}; export it again") from error
                counts[table] += 1
                if counts[table] % 100 == 0:
                    self._require_quota(writer, table, quota)
            if seen != self.manifest.counts[table]:
                raise ArchiveError(f"The archive has {seen} {table}, and its manifest says another number")
            self._require_quota(writer, table, quota)
        for name in self._members:
            if (found := BLOB.fullmatch(name)) and found[1] not in contents:
                raise ArchiveError(f"The member {name!r} belongs to no file and no attachment; export it again")
        for hash, size in contents.items():
            writer.add_blob(hash, self._pieces(hash, size))
        return Imported(session, counts, tuple(left_out))

    def _quota(self, table: Table) -> Quota:
        return Quota(MOST, MOST * DETAIL_BYTES) if table == "connections" else getattr(self._quotas, table)

    def _require_quota(self, writer: SessionWriter, table: Table, quota: Quota) -> None:
        usage = writer.usage(table)
        quota.require(table.replace("_", "-"), usage.entries, usage.bytes)

    def _rows(self, table: Table, quota: Quota) -> Iterator[Row]:
        decoder = msgspec.json.Decoder(TABLES[table])
        # The content of files is elsewhere; that of secrets is in base64.
        content = 0 if table in ("files", "attachments") else quota.bytes * 4 // 3
        left = content
        with self._zip.open(f"{table}.jsonl") as member, io.BufferedReader(cast("io.RawIOBase", member)) as lines:
            while line := lines.readline(_AROUND + content):
                left -= max(0, len(line) - _AROUND)
                if not line.endswith(b"\n") or left < 0:
                    raise ArchiveError(f"A row of {table} is cut off, or there is too much of it; export it again")
                yield decoder.decode(line)

    def _check_content(self, hash: str, size: int, contents: dict[str, int]) -> None:
        if f"blobs/{hash}" not in self._members:
            raise ArchiveError(f"The archive lacks the content {hash!r:.80} of a file or an attachment")
        if contents.setdefault(hash, size) != size:
            raise ArchiveError(f"The content {hash!r} has two sizes in the archive; export it again")

    def _pieces(self, hash: str, size: int) -> Iterator[bytes]:
        whole, left = hashlib.sha256(), size
        with self._zip.open(f"blobs/{hash}") as member:
            while piece := member.read(PIECE):
                left -= len(piece)
                if left < 0:
                    break
                whole.update(piece)
                yield piece
        if left != 0 or whole.hexdigest() != hash:
            raise ArchiveError(f"The content {hash!r} does not match its hash and size; export it again")


@contextmanager
def opened_archive(path: Path, quotas: Quotas) -> Iterator[Archive]:
    """An archive to be read.

    Raises:
        ArchiveError: it is no archive of a session, here or while it is read.
        ServiceError: something in it is not usable, or more than the quotas allow.
    """
    try:
        with path.open("rb") as file:
            _check_directory(file, quotas)
            with zipfile.ZipFile(file) as zip:
                yield Archive(path, zip, quotas)
    except FileNotFoundError:
        raise ArchiveError(f"There is no archive {str(path)!r}; check the path") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ArchiveError(f"The archive {str(path)!r} cannot be read: {error}; export it again") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveError(f"The archive {str(path)!r} has a row of another shape: {error}; export it again") from error


def _check_directory(file: IO[bytes], quotas: Quotas) -> None:
    """Refuse a directory that is larger than any we write, before all of it is read into memory."""
    most = quotas.files.entries + quotas.attachments.entries + len(TABLES) + 1
    size = file.seek(0, os.SEEK_END)
    if size < 42:
        raise ArchiveError("The file is too short to be an archive; check the path")
    file.seek(size - 42)
    locator, end = file.read(20), file.read(22)
    # The zip64 format has its sizes elsewhere, and a comment may hide another end: we write neither.
    if end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0" or locator[:4] == b"PK\x06\x07":
        raise ArchiveError("The file is not an archive of a session; check the path, or export it again")
    (count,), (length,) = struct.unpack("<H", end[10:12]), struct.unpack("<L", end[12:16])
    if count > most or length > most * _DIRECTORY_ENTRY:
        raise ArchiveError(f"The archive has more than the {most} members that a session may have")
    file.seek(0)


def _check_row(row: Row, directories: set[str]) -> None:
    """The checks of the services themselves, so that the import accepts nothing that they would refuse."""
    for field in ("created_at", "updated_at", "at", "connected_at"):
        instant: Any = getattr(row, field, 0.0)
        if not 0 <= instant < 1e12:
            raise ArchiveError(f"An instant in the archive is {instant!r}; export it again")
    if isinstance(row, FileRow):
        _check_file(row, directories)
    elif isinstance(row, KeyValueRow):
        require_name("key", row.key)
        msgspec.json.decode(row.value)
    elif isinstance(row, SecretRow):
        require_name("name of a secret", row.name)
    elif isinstance(row, MessageRow):
        if not 1 <= row.number <= _MOST_NUMBER:
            raise ArchiveError(f"A message in the archive has the number {row.number}; export it again")
        msgspec.json.decode(row.content)
        _require_object(row.metadata)
    elif isinstance(row, AttachmentRow):
        require_name("name of an attachment", row.name)
        require_name("media type", row.media_type)
    elif isinstance(row, ResourceRow):
        for what in ("id", "kind", "name", "status"):
            require_name(f"{what} of a resource", getattr(row, what))
        _require_object(row.metadata)
    elif isinstance(row, ConnectionRow):
        require_name("provider", row.provider)
        msgspec.json.decode(row.detail)
        if len(bytes(row.detail)) > DETAIL_BYTES:
            raise ServiceError(f"The detail of the connection to {row.provider!r} is too long", "quota")


def _require_object(data: msgspec.Raw) -> None:
    msgspec.json.decode(data, type=dict)


def _check_file(row: FileRow, directories: set[str]) -> None:
    names = row.path.split("/")
    fine = names[0] == "" and len(names) > 1 and len(row.path.encode()) <= 4096 and len(names) <= 65
    fine = fine and names[1] != "workspace" and all(map(_is_name, names[1:]))
    if not fine:
        raise ArchiveError(f"The archive has a file at {row.path!r:.200}, which is not a path in a session")
    # Directories come before their content: rows are in the order of their paths.
    if (row.path.rpartition("/")[0] or "/") not in directories:
        raise ArchiveError(f"The file {row.path!r:.200} stands in no directory of the archive; export it again")
    if row.directory != (row.hash is None) or row.size < 0 or (row.directory and row.size):
        raise ArchiveError(f"The entry {row.path!r:.200} is half a file and half a directory; export it again")
    if row.directory:
        directories.add(row.path)


def _is_name(name: str) -> bool:
    """True for a name that files may have: nothing that leads elsewhere, or looks as if it did."""
    plain = unicodedata.normalize("NFKC", name)
    return (
        bool(plain.strip(" ."))
        and len(name.encode()) <= 255
        and name == unicodedata.normalize("NFC", name)
        and not SLASHES & set(plain + name)
        and not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in name)
    )
