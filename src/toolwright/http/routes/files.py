"""The files of a session: bytes with entity tags, in whole or in parts, and uploads of any length."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from toolwright.errors import ServiceError
from toolwright.http.answers import JsonAnswer
from toolwright.http.cursors import Page, PageQuery, page_from, read_cursor
from toolwright.http.operations import Operation, OtherAnswer, ServiceRequest
from toolwright.http.problems import Problem, not_found
from toolwright.http.ranges import ContentAnswer, matches, read_range
from toolwright.session.services.files import Files
from toolwright.tools.service_protocols import FileInfo

BYTES = "application/octet-stream"
_PATH = Annotated[str, Meta(max_length=4_096)]


class FilesQuery(PageQuery, frozen=True, kw_only=True):
    """Which files are listed."""

    under: Annotated[_PATH, Meta(description="Only what is in this directory, and below it.")] = "/"


class DeleteQuery(Struct, frozen=True, kw_only=True):
    """How a file or directory is removed."""

    recursive: Annotated[bool, Meta(description="Remove a directory with all that is in it.")] = False


async def list_files(request: ServiceRequest[None, FilesQuery]) -> dict[str, Any]:
    """The files and directories below a directory, each directory before what is in it, by name."""
    place = read_cursor(request.query.cursor, tuple[str])
    limit = request.query.limit
    found: list[FileInfo] = []
    after = None if place is None else _order(place[0])
    async for info in _walk(request.session().files, request.query.under, after):
        found.append(info)
        if len(found) > limit:
            break
    return page_from(found, limit, lambda info: (info.path,))


def _order(path: str) -> list[str]:
    """What paths are ordered by: directories before their content, and names one by one."""
    return path.split("/")


async def _walk(files: Files, under: str, after: list[str] | None) -> AsyncIterator[FileInfo]:
    """The entries below a directory that come after a place, in order."""
    waiting = list(reversed(await files.list(under)))
    while waiting:
        info = waiting.pop()
        order = _order(info.path)
        shown = after is not None and order <= after
        if not shown:
            yield info
        # Of a directory that was shown, the rest is still to come only where the place is in it.
        if info.directory and (not shown or (after is not None and after[: len(order)] == order)):
            waiting += reversed(await files.list(info.path))


async def read_file(request: ServiceRequest[None, None]) -> ContentAnswer | Response:
    """The bytes of a file. `If-None-Match` saves reading it again, `Range` reads a part."""
    files, path = request.session().files, _path(request)
    info = await _find(files, path)
    given = request.raw.headers
    headers = {
        "content-type": _media_type(path),
        "etag": _tag(info),
        "last-modified": formatdate(info.updated_at, usegmt=True),
    }
    known = given.get("if-none-match")
    if known is not None and matches(known, _tag(info), weak=True):
        return Response(status_code=304, headers={"etag": _tag(info)})
    _require_match(given.get("if-match"), info)
    same = given.get("if-range")
    wanted = given.get("range") if same is None or same == _tag(info) else None

    def open(start: int) -> AsyncIterator[bytes]:
        return files.stream(path, start=start, expected=info.hash)

    return ContentAnswer(open, info.size, read_range(wanted, info.size), headers)


async def write_file(request: ServiceRequest[None, None]) -> JsonAnswer:
    """Write a file from the body, all of it or nothing. `If-Match` replaces only what was read, and `If-None-Match: *`
    makes only a file that is not there."""
    files, path = request.session().files, _path(request)
    before = await files.stat(path)
    expected = _expected(request, before)
    try:
        info = await files.write_stream(path, _body(request), expected=expected)
    except ServiceError as error:
        if error.code != "conflict":
            raise
        raise _conflict(str(error), await files.stat(path)) from None
    except ClientDisconnect:
        raise Problem(400, "cut_off", "The upload was cut off, and nothing is written; send it again") from None
    return JsonAnswer.of(info.to_json(), 201 if before is None else 200, {"ETag": _tag(info)})


async def delete_file(request: ServiceRequest[None, DeleteQuery]) -> None:
    """Remove a file or a directory."""
    files, path = request.session().files, _path(request)
    info = await files.stat(path)
    if info is None:
        raise _missing(path)
    match = request.raw.headers.get("if-match")
    _require_match(match, info)
    expected = None if match is None or match.strip() == "*" else info.hash
    try:
        await files.delete(path, recursive=request.query.recursive, expected=expected)
    except ServiceError as error:
        if error.code != "conflict":
            raise
        raise _conflict(str(error), await files.stat(path)) from None


async def _body(request: ServiceRequest[None, None]) -> AsyncIterator[bytes]:
    async for piece in request.raw.stream():
        if piece:
            yield piece


def _path(request: ServiceRequest[Any, Any]) -> str:
    return "/" + request.path["path"]


async def _find(files: Files, path: str) -> FileInfo:
    info = await files.stat(path)
    if info is None:
        raise _missing(path)
    if info.directory:
        raise Problem(409, "is_directory", f"The path {path!r:.200} is a directory; list it with ?under=")
    return info


def _missing(path: str) -> Problem:
    return not_found(f"There is no file {path!r:.200} in this session; list its files")


def _tag(info: FileInfo) -> str:
    return f'"{info.hash or "directory"}"'


def _require_match(header: str | None, info: FileInfo) -> None:
    if header is not None and not matches(header, _tag(info), weak=False):
        raise _conflict(f"The file {info.path!r:.200} is another one than If-Match says; read it again", info)


def _expected(request: ServiceRequest[None, None], before: FileInfo | None) -> str | None:
    """The hash that the file must have when it is written: None for any, and "" where there must be none."""
    given = request.raw.headers
    if (same := given.get("if-match")) is not None:
        if before is None:
            raise _conflict("There is no file that If-Match could be of; leave the header out to make one", None)
        _require_match(same, before)
        return before.hash
    if (none := given.get("if-none-match")) is not None:
        if none.strip() != "*":
            raise Problem(422, "bad_precondition", "If-None-Match of a PUT is `*`, for a file that must not be there")
        return ""
    return None


def _conflict(detail: str, stands: FileInfo | None) -> Problem:
    return Problem(409, "conflict", detail, members={"stands": None if stands is None else stands.to_json()})


def _media_type(path: str) -> str:
    guessed, encoding = mimetypes.guess_type(path)
    if guessed is None or encoding is not None:
        return BYTES
    return f"{guessed}; charset=utf-8" if guessed.startswith("text/") else guessed


_OF = "/sessions/{session}/files"
OPERATIONS = (
    Operation(
        method="GET",
        path=_OF,
        handler=list_files,
        scope="read",
        summary="List the files of a session",
        tag="files",
        query=FilesQuery,
        answer=Page[FileInfo],
    ),
    Operation(
        method="GET",
        path=f"{_OF}/{{path:path}}",
        handler=read_file,
        scope="read",
        summary="Read a file, or a part of it",
        tag="files",
        media_type="*/*",
        also=(
            OtherAnswer(status=206, says="A part of the file.", media_type="*/*"),
            OtherAnswer(status=304, says="The file is the one of If-None-Match.", media_type="*/*"),
        ),
    ),
    Operation(
        method="PUT",
        path=f"{_OF}/{{path:path}}",
        handler=write_file,
        scope="run",
        summary="Write a file from the body",
        tag="files",
        upload=BYTES,
        answer=FileInfo,
        also=(OtherAnswer(status=201, says="The file was not there before.", type=FileInfo),),
    ),
    Operation(
        method="DELETE",
        path=f"{_OF}/{{path:path}}",
        handler=delete_file,
        scope="run",
        summary="Remove a file or a directory",
        tag="files",
        query=DeleteQuery,
        status=204,
    ),
)
