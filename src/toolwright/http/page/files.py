"""The page: static files beside this module, as an ASGI application. Owns their bytes and headers; what they show they
read from the API. There is no build step: the files are served as they are written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.types import Receive, Scope, Send

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
"""Nothing from elsewhere, nothing inline, and no string that becomes markup or script."""
_HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)
_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class PageFile(NamedTuple):
    """A file of the page. `etag` is a hash of its bytes, so that a browser loads it again only when it changed."""

    content: bytes
    media_type: bytes
    etag: bytes


@cache
def page_files() -> Mapping[str, PageFile]:
    """All files of the page by their paths, which are read once; the entry "" is the page itself."""
    found = dict(_below(files("toolwright.http.page"), ""))
    return {"": found["index.html"], **found}


def _below(folder: Traversable, prefix: str) -> list[tuple[str, PageFile]]:
    found: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            found += _below(entry, path + "/")
        elif (media_type := _TYPES.get("." + entry.name.rpartition(".")[2])) is not None:
            content = entry.read_bytes()
            etag = b'"' + hashlib.sha256(content).hexdigest()[:32].encode() + b'"'
            found.append((path, PageFile(content, media_type, etag)))
    return found


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the file of a request. A path is looked up among the files, and is never one of the machine."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :]
    if scope["method"] not in ("GET", "HEAD"):
        await _answer(send, 405, [(b"allow", b"GET, HEAD"), *_HEADERS], b"")
        return
    file = page_files().get(path.removeprefix("/"))
    if file is None:
        headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
        await _answer(send, 404, headers, b"There is no such file; the page is at /\n")
        return
    headers = [(b"content-type", file.media_type), (b"etag", file.etag), *_HEADERS]
    known = dict(scope["headers"]).get(b"if-none-match", b"")
    if file.etag in [each.strip().removeprefix(b"W/") for each in known.split(b",")]:
        await _answer(send, 304, headers, b"")
        return
    await _answer(send, 200, headers, file.content if scope["method"] == "GET" else b"", len(file.content))


async def _answer(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes, length: int | None = None
) -> None:
    if status != 304:
        headers = [*headers, (b"content-length", b"%d" % (len(body) if length is None else length))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
