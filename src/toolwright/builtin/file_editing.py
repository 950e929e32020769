"""Tools that change the session's files: `write_file`, `edit_file`, `delete_file`. Owns edits and their diffs."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, TypeVarTuple

from pydantic import BaseModel, ConfigDict, Field

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.diffs import unified
from toolwright.builtin.file_reading import LARGE, Path, file_at, hash_of, text_of
from toolwright.builtin.output_schemas import shape
from toolwright.tools.claims import tree
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError

T = TypeVar("T")
Inputs = TypeVarTuple("Inputs")

MOST_EDITED = 4 * 1024 * 1024
"""Bytes of a file that is edited, before and after. More take long to search and to replace."""
_TOGETHER = 10_000
_NO_DIFF = "(left out: the file held a secret, and a change of it could show the rest)"
Hash = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]


@boxed(
    "Write File",
    category="files",
    idempotent=True,
    destructive=True,
    open_world=False,
    capabilities=["writes_files"],
    writes="path",
    gives=shape({"path": "string", "size": "integer", "hash": "string"}),
)
async def write_file(
    ctx: ToolContext,
    path: Path,
    content: str,
    encoding: Literal["text", "base64"] = "text",
    expected_hash: Hash | None = None,
) -> object:
    """Write a file of the session, replacing its content, and create the directories above it.

    Args:
        path: The absolute path of the file.
        content: All that the file shall have.
        encoding: "base64" when the content is base64 of something that is not text.
        expected_hash: Write only if the file has this hash now, as read_file gave it; "" if it must not exist yet.
    """
    data: str | bytes = content
    if encoding == "base64":
        try:
            data = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise ToolError(
                f"The content for {path!r} is not base64; encode it, or use encoding 'text'",
                category="invalid_arguments",
                code="bad_encoding",
            ) from None
    info = await ctx.files.write(path, data, expected=expected_hash)
    return {"path": info.path, "size": info.size, "hash": info.hash}


class Edit(BaseModel):
    """One text to put in place of another."""

    model_config = ConfigDict(extra="forbid")

    old_text: Annotated[
        str, Field(min_length=1, description="The text to replace, exactly as in the file, without line numbers.")
    ]
    new_text: Annotated[str, Field(description='The new text; "" removes it.')]
    replace_all: Annotated[
        bool, Field(description="Replace every place where it is found. Otherwise it must be found exactly once.")
    ] = False


@boxed(
    "Edit File",
    category="files",
    idempotent=True,
    destructive=True,
    open_world=False,
    capabilities=["writes_files"],
    writes="path",
    gives=shape({"path": "string", "replacements": "integer", "size": "integer", "hash": "string", "diff": "string"}),
)
async def edit_file(
    ctx: ToolContext,
    path: Path,
    edits: Annotated[list[Edit], Field(min_length=1, max_length=100)],
    expected_hash: Hash | None = None,
) -> object:
    """Replace texts in a file of the session: all of the edits, or none if one does not fit.

    Each edit sees the result of the edits before it. Gives the changes as a unified diff, and the new hash.

    Args:
        path: The absolute path of the file.
        edits: The replacements, in order.
        expected_hash: Edit only if the file has this hash now, as read_file gave it.
    """
    made: dict[str, bytes] = {}

    async def plan() -> dict[str, Any]:
        content = await _editable(ctx, path)
        planned: dict[str, Any]
        old, made["data"], planned = await _off_loop(len(content), _planned, content, edits, path, expected_hash)
        if await ctx.secrets.hides(old):
            planned["diff"] = _NO_DIFF
        # A crash may come after the file is written, when the old text is gone: so the result of the call is stored
        # first.
        return planned

    planned = await ctx.step("plan", plan)
    before = planned.pop("before")
    if not made:
        await _again(ctx, path, before, planned["hash"], edits, made)
    if made:
        await ctx.files.write(path, made["data"], expected=before)
    return {"path": path, **planned}


async def _again(
    ctx: ToolContext, path: str, before: str, after: str, edits: list[Edit], made: dict[str, bytes]
) -> None:
    """Make the new content of a call that was cut off, unless it was written by then."""
    now = await ctx.files.read_bytes(path)
    found = await _off_loop(len(now), hash_of, now)
    if found == before:
        _, made["data"], _ = await _off_loop(len(now), _planned, now, edits, path, None)
    elif found != after:
        raise _changed(path)


async def _editable(ctx: ToolContext, path: str) -> bytes:
    info = await file_at(ctx, path)
    if info.readonly:
        raise ToolError(
            f"The file {path!r} is read-only; write to another path", category="permission_denied", code="readonly"
        )
    if info.size > MOST_EDITED:
        raise ToolError(
            f"The file {path!r} has {info.size} bytes, and at most {MOST_EDITED} can be edited; use write_file",
            category="resource_limit",
            code="too_large",
        )
    return await ctx.files.read_bytes(path)


def _planned(content: bytes, edits: list[Edit], path: str, expected: str | None) -> tuple[str, bytes, dict[str, Any]]:
    """The old text, the new content, and the result of the call.

    Raises:
        ToolError: the content is not text or not as expected, or an edit does not fit.
    """
    before = hash_of(content)
    if expected is not None and before != expected:
        raise _changed(path)
    old = text_of(content)
    if old is None:
        raise ToolError(
            f"The file {path!r} is not text; write it whole with write_file and encoding 'base64'",
            category="invalid_arguments",
            code="not_text",
        )
    new, replacements = _apply(old, edits, path)
    data = new.encode()
    return (
        old,
        data,
        {
            "before": before,
            "hash": hash_of(data),
            "size": len(data),
            "replacements": replacements,
            "diff": unified(old, new, path),
        },
    )


def _apply(text: str, edits: list[Edit], path: str) -> tuple[str, int]:
    """The text with every edit made, and how many replacements that took.

    Raises:
        ToolError: an edit does not fit.
    """
    old, replacements = text, 0
    for number, edit in enumerate(edits, 1):
        found = text.count(edit.old_text)
        if not found:
            raise _does_not_fit(
                f"Edit {number} was not made: its old_text is not in {path!r}; read the file and copy it exactly",
                "no_match",
            )
        # Places that overlap, as "aa" in "aaa", are more than one as well.
        ambiguous = text.find(edit.old_text, text.find(edit.old_text) + 1) >= 0
        if ambiguous and not edit.replace_all:
            raise _does_not_fit(
                f"Edit {number} was not made: its old_text is in {path!r} {max(found, 2)} times; "
                "add lines around it, or set replace_all",
                "many_matches",
            )
        if len(text) + found * (len(edit.new_text) - len(edit.old_text)) > MOST_EDITED:
            raise ToolError(
                f"Edit {number} would make {path!r} longer than {MOST_EDITED} characters; make it smaller",
                category="resource_limit",
                code="too_large",
            )
        text = _replaced(text, edit.old_text, edit.new_text)
        replacements += found
    if text == old:
        raise _does_not_fit(f"The edits change nothing in {path!r}; give new texts that differ", "no_change")
    return text, replacements


def _replaced(text: str, old: str, new: str) -> str:
    """The text with one text in place of another, made in pieces, for a thread."""
    if len(text) <= LARGE:
        return text.replace(old, new)
    pieces: list[str] = []
    parts: list[str] = []
    at = 0
    while (found := text.find(old, at)) >= 0:
        parts += (text[at:found], new)
        at = found + len(old)
        if len(parts) > _TOGETHER:
            pieces.append("".join(parts))
            parts = []
    return "".join([*pieces, *parts, text[at:]])


def _does_not_fit(message: str, code: str) -> ToolError:
    return ToolError(f"{message}. Nothing was changed", category="invalid_arguments", code=code)


def _changed(path: str) -> ToolError:
    return ToolError(
        f"The file {path!r} has changed: its hash is another; read it again. Nothing was changed",
        code="conflict",
    )


async def _off_loop(size: int, function: Callable[[*Inputs], T], *args: *Inputs) -> T:
    return await asyncio.to_thread(function, *args) if size > LARGE else function(*args)


@boxed(
    "Delete File",
    category="files",
    idempotent=True,
    destructive=True,
    open_world=False,
    capabilities=["writes_files"],
    writes=tree("path"),
    gives=shape({"path": "string", "deleted": "integer"}),
)
async def delete_file(ctx: ToolContext, path: Path, recursive: bool = False) -> object:
    """Delete a file of the session, or a directory.

    Args:
        path: The absolute path.
        recursive: Whether to delete a directory with all that is in it.
    """
    # First, and not after a look: when it is repeated after a crash, it returns the number that was deleted the first
    # time.
    deleted = await ctx.files.delete(path, recursive)
    if not deleted:
        raise ToolError(
            f"There is no file or directory {path!r}; list_directory shows the entries",
            category="not_found",
            code="not_found",
        )
    return {"path": path, "deleted": deleted}
