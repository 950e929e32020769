"""The session's files as a script sees them. Owns carrying them into the sandbox, and what changed back out.

The sandbox has its own copy. What a script did to it becomes a plan, made of plain JSON: written to the journal before
any of it is done, it is done once, whatever happens in between.
"""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from typing import Any

from msgspec import Struct

from toolwright.errors import ServiceError
from toolwright.tools.outcome import ToolError
from toolwright.tools.services import FileInfo, FilesClient

ROOT = "/workspace"
"""Where the sandbox has the session's root, which is the other name it has in a session."""

FILE_BYTES = 10_000_000
"""The largest file that the sandbox can hold."""


class Loaded(Struct):
    """What of the session's files is in the sandbox, and what did not fit; by path in the session."""

    files: dict[str, FileInfo]
    directories: set[str]
    left_out: list[str]


class Plan(Struct):
    """What a script changed. Contents are in base64; `files` has each with the hash it had before, "" if it is new."""

    directories: list[str]
    files: list[tuple[str, str, str]]
    deleted: list[str]
    links: list[str]


async def load(files: FilesClient, sandbox: Any, most_files: int, most_bytes: int) -> Loaded:
    """Copy the session's files into an empty file system. What is too much is left out, the largest files first."""
    found, directories = await _tree(files)
    left_out = [info.path for info in found if info.size > FILE_BYTES]
    fitting = sorted((info for info in found if info.size <= FILE_BYTES), key=lambda info: (info.size, info.path))
    room = most_bytes
    loaded: dict[str, FileInfo] = {}
    for path in directories:
        _put_directory(sandbox, path)
    for info in fitting:
        room -= info.size
        if room < 0 or len(loaded) + len(directories) >= most_files:
            left_out.append(info.path)
            continue
        content = await files.read_bytes(info.path)
        try:
            sandbox.write_file(info.path, content)
        except RuntimeError:  # a name that the sandbox refuses, such as one with a line break
            left_out.append(info.path)
        else:
            loaded[info.path] = info
    return Loaded(loaded, set(directories), sorted(left_out))


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


def _put_directory(sandbox: Any, path: str) -> None:
    try:
        sandbox.mkdir(path, recursive=True)
    except RuntimeError:
        return  # its name is refused; so are the files below it, which are left out


def compare(sandbox: Any, before: Loaded, most_bytes: int) -> Plan:
    """Find out what a script changed.

    Raises:
        ToolError: it changed what it may not, or too much; then none of it is kept.
    """
    directories: set[str] = set()
    links: list[str] = []
    changed: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    room = most_bytes
    waiting = ["/"]
    while waiting:
        directory = waiting.pop()
        for entry in _entries(sandbox, directory):
            path = f"{directory.rstrip('/')}/{entry['name']}"
            kind = entry["metadata"]["file_type"]
            if kind == "directory":
                directories.add(path)
                waiting.append(path)
            elif kind == "file":
                seen.add(path)
                content = sandbox.read_file(path)
                known = before.files.get(path)
                if known is not None and known.hash == hashlib.sha256(content).hexdigest():
                    continue
                room -= len(content)
                if room < 0:
                    raise _refused(
                        f"The script changed more than {most_bytes} bytes of files; write less in one call", "too_large"
                    )
                changed.append((path, (known.hash or "") if known else "", base64.b64encode(content).decode("ascii")))
            else:
                links.append(path)
    hidden = set(before.left_out)
    deleted = sorted(path for path in before.files if path not in seen)
    gone = [path for path in before.directories - directories if not any(_below(kept, path) for kept in hidden)]
    for path in [*(path for path, _, _ in changed), *deleted]:
        if path in hidden:
            raise _refused(
                f"The script wrote {path!r}, which is there but too large for it to see; use another name", "conflict"
            )
        if path in before.files and before.files[path].readonly:
            raise _refused(f"The script changed {path!r}, which is read-only; leave it as it is", "readonly")
    # The deepest first, so that each directory is empty when its turn comes.
    deleted += sorted(gone, key=lambda path: (-path.count("/"), path))
    return Plan(sorted(directories - before.directories), sorted(changed), deleted, sorted(links))


def _entries(sandbox: Any, directory: str) -> list[dict[str, Any]]:
    try:
        entries: list[dict[str, Any]] = sandbox.read_dir(directory)
    except RuntimeError:
        return []  # the script removed the root itself
    return entries


def _below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory}/")


def _refused(message: str, code: str) -> ToolError:
    category = {"too_large": "resource_limit", "bad_name": "invalid_arguments"}.get(code, "permission_denied")
    return ToolError(f"{message}. Nothing that it did was kept.", category=category, code=code)


async def require_paths(files: FilesClient, plan: Plan) -> None:
    """Refuse a plan with names that the session can not have, before any of it is done.

    Raises:
        ToolError: it has one; then none of it is kept.
    """
    new = [*plan.directories, *(path for path, expected, _ in plan.files if not expected)]
    spelled: dict[str, str] = {}
    for path in new:
        if path == ROOT or _below(path, ROOT):
            raise _refused(
                f"The script made {ROOT + path!r}, and in the root {ROOT[1:]!r} is another name of the root itself; "
                "use another name",
                "bad_name",
            )
        twin = spelled.setdefault(unicodedata.normalize("NFC", path), path)
        if twin != path:
            raise _refused(f"The script made {path!r} twice, spelled in two ways; keep one of them", "bad_name")
        try:
            there = await files.stat(path)
        except ServiceError as error:
            raise _refused(str(error), "bad_name") from error
        if there is not None and there.path not in plan.deleted:
            raise _refused(f"The script made {path!r}, which is there by another spelling; use that one", "bad_name")


async def carry_out(files: FilesClient, plan: Plan) -> None:
    """Do to the session's files what the script did to its copy; only to what is still as the script saw it.

    Raises:
        ToolError: some of it could not be done, such as for want of room; the message says how much was.
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
            await files.write(path, base64.b64decode(content), expected=expected)
            done += 1
    except ServiceError as error:
        category = "resource_limit" if error.code == "quota" else "execution"
        kept = f"Of {total} changes that the script made to files, the first {done} were kept"
        raise ToolError(f"{error}. {kept}", category=category, code=error.code) from error
