"""The session's files as a script sees them. Owns copying them into the sandbox, and copying changes back out.

The sandbox is in another process and has its own copy. The changes of a script come back as data and become a plan in
plain JSON. The plan is written to the journal before it is carried out, so that it is carried out once, whatever
happens in between.
"""

from __future__ import annotations

import asyncio
import base64
import unicodedata
from collections.abc import AsyncIterator

from msgspec import Struct

from toolwright.errors import ServiceError
from toolwright.tools.outcome import ToolError
from toolwright.tools.service_protocols import FileInfo, FilesClient

ROOT = "/workspace"
"""The other name of a session's root, in the sandbox and in every tool."""

FILE_BYTES = 10_000_000
"""The largest file that the sandbox can hold."""

_PIECE_BYTES = 256 * 1024
_CHUNK = 1024 * 1024
"""Characters of base64 that are decoded at once; four of them are three bytes."""


class Loaded(Struct):
    """The session's files that are in the sandbox, and those that did not fit; by path in the session."""

    files: dict[str, FileInfo]
    directories: set[str]
    left_out: list[str]


class Plan(Struct):
    """The changes of a script. Contents are in base64; `files` has each with the hash it had before, "" if it is
    new."""

    directories: list[str]
    files: list[tuple[str, str, str]]
    deleted: list[str]
    links: list[str]


async def choose(files: FilesClient, most_files: int, most_bytes: int) -> Loaded:
    """Choose the session's files that a script gets. If they are too large together, the largest files are left out
    first."""
    found, directories = await _tree(files)
    left_out = [info.path for info in found if info.size > FILE_BYTES]
    fitting = sorted((info for info in found if info.size <= FILE_BYTES), key=lambda info: (info.size, info.path))
    room = most_bytes
    loaded: dict[str, FileInfo] = {}
    for info in fitting:
        room -= info.size
        if room < 0 or len(loaded) + len(directories) >= most_files:
            left_out.append(info.path)
        else:
            loaded[info.path] = info
    return Loaded(loaded, set(directories), left_out)


async def pieces(files: FilesClient, loaded: Loaded) -> AsyncIterator[list[tuple[str, str, bytes]]]:
    """The content of the chosen files, in pieces that are sent to the sandbox; the last one is empty."""
    piece: list[tuple[str, str, bytes]] = []
    size = 0
    for path, info in loaded.files.items():
        content = await files.read_bytes(path)
        piece.append((path, info.hash or "", content))
        size += len(content) + 100
        if size > _PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
    yield []


async def _tree(files: FilesClient) -> tuple[list[FileInfo], list[str]]:
    found: list[FileInfo] = []
    directories: list[str] = []
    waiting = ["/"]
    while waiting:
        for info in await files.list(waiting.pop()):
            if info.directory:
                directories.append(info.path)
                waiting.append(info.path)
            else:
                found.append(info)
    return found, sorted(directories)


class Changes(Struct):
    """The differences after a script, as the sandbox reports them. They are checked, not trusted."""

    directories: list[str] = []
    files: list[tuple[str, str]] = []
    deleted: list[str] = []
    gone: list[str] = []
    links: list[str] = []


def plan_of(changes: Changes, before: Loaded) -> Plan:
    """The changes to the session's files that a script's changes require.

    Raises:
        ToolError: it changed a file that it may not change; then no change is kept.
    """
    hidden = set(before.left_out)
    deleted = [path for path in changes.deleted if path in before.files]
    gone = [
        path for path in changes.gone if path in before.directories and not any(_below(kept, path) for kept in hidden)
    ]
    for path in [*(path for path, _ in changes.files), *deleted]:
        if path in hidden:
            raise refused(
                f"The script wrote {path!r}, which is there but too large for it to see; use another name", "conflict"
            )
        if path in before.files and before.files[path].readonly:
            raise refused(f"The script changed {path!r}, which is read-only; leave it as it is", "readonly")
    files = [
        (path, (before.files[path].hash or "") if path in before.files else "", content)
        for path, content in changes.files
    ]
    # The deepest first, so that each directory is empty when it is removed.
    deleted += sorted(gone, key=lambda path: (-path.count("/"), path))
    return Plan(changes.directories, files, deleted, changes.links)


def _below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory}/")


def refused(message: str, code: str) -> ToolError:
    """The failure of a script whose changes are not kept."""
    category = {"too_large": "resource_limit", "bad_name": "invalid_arguments"}.get(code, "permission_denied")
    return ToolError(f"{message}. None of its changes were kept.", category=category, code=code)


async def require_paths(files: FilesClient, plan: Plan) -> None:
    """Refuse a plan with names that the session cannot have, before any of it is done.

    Raises:
        ToolError: it has one; then no change is kept.
    """
    new = [*plan.directories, *(path for path, expected, _ in plan.files if not expected)]
    spelled: dict[str, str] = {}
    for path in new:
        if path == ROOT or _below(path, ROOT):
            raise refused(
                f"The script made {ROOT + path!r}, and in the root {ROOT[1:]!r} is another name of the root itself; "
                "use another name",
                "bad_name",
            )
        twin = spelled.setdefault(unicodedata.normalize("NFC", path), path)
        if twin != path:
            raise refused(f"The script made {path!r} twice, spelled in two ways; keep one of them", "bad_name")
        try:
            there = await files.stat(path)
        except ServiceError as error:
            raise refused(str(error), "bad_name") from error
        if there is not None and there.path not in plan.deleted:
            raise refused(f"The script made {path!r}, which is there by another spelling; use that one", "bad_name")


def _decoded(content: str) -> bytes:
    """The bytes of a long text in base64; in chunks, for each holds the interpreter's lock."""
    return b"".join(base64.b64decode(content[at : at + _CHUNK]) for at in range(0, len(content), _CHUNK))


async def carry_out(files: FilesClient, plan: Plan) -> None:
    """Apply the script's changes to the session's files; only to files that are still as the script saw them.

    Raises:
        ToolError: some changes could not be made, for example because the quota is used up; it says how many were made.
    """
    done, total = 0, len(plan.deleted) + len(plan.directories) + len(plan.files)
    try:
        for path in plan.deleted:
            await files.delete(path)
            done += 1
        for path in plan.directories:
            await files.make_directory(path)
            done += 1
        for path, expected, content in plan.files:
            large = len(content) > _CHUNK
            data = await asyncio.to_thread(_decoded, content) if large else base64.b64decode(content)
            await files.write(path, data, expected=expected)
            done += 1
    except ServiceError as error:
        category = "resource_limit" if error.code == "quota" else "execution"
        kept = f"Of {total} changes that the script made to files, the first {done} were kept"
        raise ToolError(f"{error}. {kept}", category=category, code=error.code) from error
