"""The files of the page, without a browser: what they may do, and what they weigh. `tests/peers` opens them."""

import re
from typing import Any

import pytest

from tests.http.client import opened
from toolwright.http.page import page_files

FIRST_VIEW = 300 * 1024
"""Bytes of everything that the first view loads."""


@pytest.mark.promise("UI-01")
async def test_the_page_is_served_with_headers_that_forbid_everything_from_elsewhere() -> None:
    async with opened() as client:
        answer = await client.http.get("/")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"


async def test_a_file_that_a_browser_has_is_not_sent_again() -> None:
    async with opened() as client:
        first = await client.http.get("/page.css")
        again = await client.http.get("/page.css", headers={"If-None-Match": f'W/{first.headers["etag"]}, "other"'})

    assert (first.status_code, first.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/nothing.js", "/files.py", "/__init__.py", "/..%2fservice.py", "/core/../files.py", "//etc/passwd"]
)
async def test_only_files_of_the_page_are_served(path: str) -> None:
    async with opened() as client:
        answer = await client.http.get(path)

    assert answer.status_code == 404
    assert "import" not in answer.text


async def test_the_page_is_only_read() -> None:
    async with opened() as client:
        answer = await client.http.post("/", content=b"x")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_every_module_that_the_page_imports_is_there() -> None:
    files = page_files()
    missing = []
    for path, file in files.items():
        if not path.endswith(".js"):
            continue
        folder = path.rpartition("/")[0].split("/") if "/" in path else []
        for wanted in re.findall(r"""(?:from|import)\s*\(?\s*"(\.[^"]+)\"""", file.content.decode()):
            parts = list(folder)
            for step in wanted.split("/"):
                if step == "..":
                    parts.pop()
                elif step != ".":
                    parts.append(step)
            if "/".join(parts) not in files:
                missing.append(f"{path}: {wanted}")
    linked = re.findall(r'(?:href|src)="([^"#]+)"', files[""].content.decode())

    assert missing == []
    assert [path for path in linked if path not in files] == []


@pytest.mark.promise("UI-02")
def test_no_file_of_the_page_can_make_markup_of_a_text() -> None:
    ways = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|createContextualFragment|setHTML"
        r"|\beval\(|new Function|setAttribute\(\"on|javascript:"
    )

    found = {path: ways.findall(file.content.decode()) for path, file in page_files().items()}

    assert {path: words for path, words in found.items() if words} == {}


def test_nothing_inline_and_nothing_from_elsewhere_is_in_the_page() -> None:
    markup: Any = page_files()[""].content.decode()

    assert re.findall(r"<script(?![^>]*src=)|style=|<style|\son\w+=|https?://", markup) == []


def test_all_files_of_the_page_together_are_smaller_than_the_first_view_may_be() -> None:
    size = sum(len(file.content) for path, file in page_files().items() if path)

    assert size < FIRST_VIEW, f"{size / 1024:.0f} KiB"
