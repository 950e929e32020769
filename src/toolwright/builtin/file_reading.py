"""Tools that look at the session's files: `read_file`, `list_directory`, `grep_files`, `stat_file`.

Owns how content is shown to a model; does not own where files are stored or which paths are valid.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import hashlib
from typing import Annotated, Any

from pydantic import Field

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.output_schemas import one_of, several, shape
from toolwright.builtin.paging import count_lines, page_of
from toolwright.builtin.time_and_echo import instant
from toolwright.errors import ServiceError
from toolwright.tools.claims import tree
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import Image, Success, ToolError
from toolwright.tools.service_protocols import FileInfo

Path = Annotated[str, Field(min_length=1, max_length=4_096)]

MOST_TEXT = 16 * 1024 * 1024
MOST_BINARY = 32 * 1024
MOST_IMAGE = 5 * 1024 * 1024
LARGE = 256 * 1024  # beyond, splitting into lines takes long enough to be done off the loop

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"))


async def file_at(ctx: ToolContext, path: str) -> FileInfo:
    """The metadata of a file that a tool was asked to use.

    Raises:
        ToolError: there is none, or it is a directory.
    """
    info = await ctx.files.stat(path)
    if info is None:
        raise ToolError(
            f"There is no file {path!r}; list_directory shows the entries", category="not_found", code="not_found"
        )
    if info.directory:
        raise ToolError(
            f"{path!r} is a directory; use list_directory to see its entries",
            category="invalid_arguments",
            code="is_directory",
        )
    return info


def hash_of(content: bytes) -> str:
    """The hash of content, as the files have it."""
    return hashlib.sha256(content).hexdigest()


def text_of(content: bytes) -> str | None:
    """The content as text, or None when it is not."""
    if b"\0" in content:
        return None
    try:
        if len(content) <= LARGE:
            return content.decode("utf-8")
        # In pieces, for a thread: one call would hold the interpreter's lock for as long as it takes.
        decoder = codecs.getincrementaldecoder("utf-8")()
        parts = [decoder.decode(content[at : at + LARGE]) for at in range(0, len(content), LARGE)]
        return "".join([*parts, decoder.decode(b"", final=True)])
    except UnicodeDecodeError:
        return None


@boxed(
    "Read File",
    category="files",
    readonly=True,
    idempotent=True,
    open_world=False,
    reads="path",
    gives=shape(
        {
            "path": "string",
            "size": "integer",
            "hash": "string",
            "encoding": one_of("text", "base64", "image"),
            "content?": "string",
            "offset?": "integer",
            "lines?": "integer",
            "total_lines?": "integer",
            "next_offset?": "integer",
            "media_type?": "string",
        }
    ),
)
async def read_file(
    ctx: ToolContext,
    path: Path,
    offset: Annotated[int, Field(ge=1)] = 1,
    limit: Annotated[int, Field(ge=1, le=10_000)] = 2_000,
) -> object:
    """Read a file of the session. Each line of text comes with its number; an image is shown as an image.

    When `next_offset` is given there is more: read on from there. A file that is not text comes as base64. The numbers
    and the tab after them are not part of the file: leave them out of edits.

    Args:
        path: The absolute path of the file.
        offset: The first line to show, counted from 1.
        limit: How many lines to show at most.
    """
    try:
        content = await ctx.files.read_bytes(path)
    except ServiceError:
        await file_at(ctx, path)  # asked only now, for most files are there
        raise
    large = len(content) > LARGE
    digest = await asyncio.to_thread(hash_of, content) if large else hash_of(content)
    about = {"path": path, "size": len(content), "hash": digest}
    media_type = _image_type(content)
    if media_type is not None:
        if len(content) > MOST_IMAGE:
            raise _too_large(path, len(content), MOST_IMAGE, "make a smaller image of it first")
        shown = {**about, "encoding": "image", "media_type": media_type}
        return Success(shown, images=(Image.from_bytes(content, media_type),))
    if len(content) > MOST_TEXT:
        raise _too_large(path, len(content), MOST_TEXT, "use grep_files to find the lines that matter")
    text = await asyncio.to_thread(text_of, content) if large else text_of(content)
    if text is None:
        if len(content) > MOST_BINARY:
            raise _too_large(path, len(content), MOST_BINARY, "it is not text and can only be read whole")
        return {**about, "encoding": "base64", "content": base64.b64encode(content).decode("ascii")}
    page = await asyncio.to_thread(page_of, text, offset, limit) if len(text) > LARGE else page_of(text, offset, limit)
    if page is None:
        total = count_lines(text)
        raise ToolError(
            f"The file {path!r} has {total} lines, and none at offset {offset}; use an offset from 1 to {total}",
            category="invalid_arguments",
            code="wrong_range",
        )
    return {**about, "encoding": "text", **page}


def _image_type(content: bytes) -> str | None:
    for start, media_type in _IMAGES:
        if content.startswith(start):
            return media_type
    if content.startswith(b"GIF89a"):
        return "image/gif"
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def _too_large(path: str, size: int, most: int, remedy: str) -> ToolError:
    return ToolError(
        f"The file {path!r} has {size} bytes, and at most {most} can be shown; {remedy}",
        category="resource_limit",
        code="too_large",
    )


_ENTRY: dict[str, Any] = {
    "path": "string",
    "type": one_of("file", "directory"),
    "size": "integer",
    "readonly": "boolean",
    "updated_at": "string",
}


def _entry(info: FileInfo) -> dict[str, Any]:
    return {
        "path": info.path,
        "type": "directory" if info.directory else "file",
        "size": info.size,
        "readonly": info.readonly,
        "updated_at": instant(info.updated_at),
    }


@boxed(
    "List Directory",
    category="files",
    readonly=True,
    idempotent=True,
    open_world=False,
    reads=tree("path"),
    gives=shape({"path": "string", "entries": several(shape({"name": "string", **_ENTRY})), "total": "integer"}),
)
async def list_directory(
    ctx: ToolContext,
    path: Path = "/",
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=1_000)] = 200,
) -> object:
    """List the files and directories in a directory of the session, by name.

    Args:
        path: The absolute path of the directory.
        offset: How many entries to pass over; more are left when offset and entries together are below the total.
        limit: How many entries to show at most.
    """
    info = await ctx.files.stat(path)
    if info is None:
        raise _no_directory(path)
    if not info.directory:
        raise ToolError(
            f"{path!r} is a file and not a directory; use read_file or stat_file",
            category="invalid_arguments",
            code="not_directory",
        )
    found = await ctx.files.list(path)
    entries = [{"name": entry.name, **_entry(entry)} for entry in found[offset : offset + limit]]
    return {"path": info.path, "entries": entries, "total": len(found)}


@boxed(
    "Grep Files",
    category="files",
    readonly=True,
    idempotent=True,
    open_world=False,
    needs=["files"],
    reads=tree("path"),
    gives=shape(
        {
            "matches": several(shape({"path": "string", "line": "integer", "text": "string"})),
            "count": "integer",
            "more": "boolean",
        }
    ),
)
async def grep_files(
    ctx: ToolContext,
    pattern: Annotated[str, Field(min_length=1, max_length=1_000)],
    path: Path = "/",
    glob: Annotated[str | None, Field(min_length=1, max_length=200)] = None,
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100,
) -> object:
    """Find the lines of the session's files that match a regular expression, with path and line number.

    Args:
        pattern: The regular expression, without look-around or back-references.
        path: The file or directory to search, with all that is below it.
        glob: Search only files of this name, such as '*.py', or of this path if it has a slash, such as '/src/*.py'.
        limit: How many matches to show at most; `more` tells whether there are others.
    """
    if await ctx.files.stat(path) is None:
        raise _no_directory(path)
    found = await ctx.files.grep(pattern, path, glob=glob, limit=limit + 1)
    matches = [{"path": match.path, "line": match.line, "text": _cut(match.text)} for match in found[:limit]]
    return {"matches": matches, "count": len(matches), "more": len(found) > limit}


def _cut(line: str) -> str:
    return line if len(line) <= 500 else line[:500] + "…"


def _no_directory(path: str) -> ToolError:
    return ToolError(
        f"There is no file or directory {path!r}; list_directory shows the entries",
        category="not_found",
        code="not_found",
    )


@boxed(
    "Stat File",
    category="files",
    readonly=True,
    idempotent=True,
    open_world=False,
    reads=tree("path"),
    gives=shape({**_ENTRY, "hash?": "string", "created_at": "string"}),
)
async def stat_file(ctx: ToolContext, path: Path) -> object:
    """Tell the size, hash, times and flags of a file or directory, without its content.

    Args:
        path: The absolute path.
    """
    info = await ctx.files.stat(path)
    if info is None:
        raise _no_directory(path)
    about = {**_entry(info), "created_at": instant(info.created_at)}
    return about if info.hash is None else {**about, "hash": info.hash}
