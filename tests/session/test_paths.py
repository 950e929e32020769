"""Every spelling of a path means one place in the session, or nothing."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwright.errors import ServiceError
from toolwright.session.services.paths import clean_path

MEANT = {
    "/a": "/a",
    "a": "/a",
    "./a": "/a",
    "/./a/./b": "/a/b",
    "//a///b//": "/a/b",
    "/": "/",
    ".": "/",
    "//": "/",
    "/workspace": "/",
    "/workspace/": "/",
    "workspace": "/",
    "/workspace/a": "/a",
    "workspace/a": "/a",
    "//workspace//a": "/a",
    "/./workspace/a": "/a",
    "/workspace/workspace/a": "/a",
    "/Workspace/a": "/Workspace/a",
    "/WORKSPACE": "/WORKSPACE",
    "/workspaces/a": "/workspaces/a",
    "/a/workspace": "/a/workspace",
    "/A": "/A",
    "/etc/passwd": "/etc/passwd",
    "~/a": "/~/a",
    "$HOME/a": "/$HOME/a",
    "C:/a": "/C:/a",
    "file:///etc/passwd": "/file:/etc/passwd",
    "/%2e%2e/%2fetc": "/%2e%2e/%2fetc",
    "/..a": "/..a",
    "/a..": "/a..",
    "/a..b": "/a..b",
    "/.hidden": "/.hidden",
    "/a -> b": "/a -> b",
    "/-rf": "/-rf",
    "/*": "/*",
    "/con": "/con",
    "/a:stream": "/a:stream",
    "/ a ": "/ a ",
    "/日本/ü.txt": "/日本/ü.txt",
    "/u\u0308": "/ü",
    "/\u212b": "/å".upper(),
    "/a\u2026": "/a\u2026",
    "/a\u00a0b": "/a\u00a0b",
    "/" + "x" * 255: "/" + "x" * 255,
    "/" + "a/" * 64: "/" + "/".join("a" * 64),
}
"""Spellings, and the one that each stands for."""

REFUSED = [
    "",
    "..",
    "../a",
    "/..",
    "/../a",
    "/a/../b",
    "/a/..",
    "a/b/../../../etc/passwd",
    "/workspace/..",
    "/workspace/../a",
    "/./../a",
    "//..//a",
    "/...",
    "/. .",
    "/.. ",
    "/ ..",
    "/ ",
    "/a/ /b",
    "\\",
    "..\\a",
    "/a\\b",
    "/a\\..\\b",
    "C:\\Windows",
    "\\\\host\\share",
    "/a\0",
    "/a\0b",
    "\0",
    "/a\nb",
    "/a\rb",
    "/a\tb",
    "/a\x1b[2J",
    "/a\x7f",
    "/a\x85",
    "/a\u2028b",
    "/a\u2029b",
    "/a\u200bb",
    "/a\u202eb",
    "/a\ufeff",
    "/.\u200b.",
    "/a\u2066b",
    "/\ud800",
    "/a\udc00b",
    "/\uff0e\uff0e/a",
    "/\uff0e\uff0e",
    "/\uff0e",
    "/\u2025/a",
    "/\u2024\u2024",
    "/.\u2024",
    "/a\u2215b",
    "/a\u2044b",
    "/a\u29f8b",
    "/a\u2571b",
    "/a\u2216b",
    "/\u2026",
    "/\ufe52\ufe52",
    "/a\uff0fb",
    "/..\uff0fb",
    "/a\uff3cb",
    "/a\ufe68b",
    "/\u2100",
    "/\u3000",
    "/" + "x" * 256,
    "/" + "ü" * 128,
    "/" + "a/" * 65,
    "/" + ("x" * 200 + "/") * 21,
    "x" * 1_000_000,
    "../" * 1_000,
    None,
    3,
    b"/a",
    ["/a"],
]
"""What is no path of a session."""


@pytest.mark.promise("SES-02")
@pytest.mark.parametrize("path", MEANT, ids=ascii)
def test_a_spelling_means_one_path(path):
    assert clean_path(path) == MEANT[path]
    assert clean_path(MEANT[path]) == MEANT[path]


def named(path):
    return f"{ascii(path)[:40]} of {len(path) if isinstance(path, str) else 'another kind'}"


@pytest.mark.promise("SES-02")
@pytest.mark.parametrize("path", REFUSED, ids=named)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ServiceError) as refused:
        clean_path(path)
    assert refused.value.code == "invalid_arguments"
    assert len(str(refused.value)) < 600


@pytest.mark.promise("SES-02")
async def test_every_verb_refuses_what_is_no_path_and_keeps_nothing(place, open_runtime):
    files = (await open_runtime(place)).session("s").files

    async def chunks():
        yield b"x"

    async def streamed(path):
        return [piece async for piece in files.stream(path)]

    for path in REFUSED:
        for use in (
            files.read(path),
            files.read_bytes(path),
            files.write(path, "x"),
            files.write_stream(path, chunks()),
            streamed(path),
            files.make_directory(path),
            files.list(path),
            files.stat(path),
            files.delete(path, recursive=True),
            files.grep("x", path),
        ):
            with pytest.raises(ServiceError, match="path"):
                await use
    assert await files.list() == []


@pytest.mark.promise("SES-02")
@given(st.text(st.sampled_from("./\\ aAü\u0308\0\n\u2024\u2025\uff0e\uff0f\u2215") | st.characters(), max_size=30))
def test_whatever_is_written_stays_below_the_root(path):
    try:
        clean = clean_path(path)
    except ServiceError:
        return
    assert clean.startswith("/")
    names = clean.removeprefix("/").split("/") if clean != "/" else []
    assert names[:1] != ["workspace"]
    assert not {"", ".", ".."}.intersection(names)
    assert unicodedata.normalize("NFC", clean) == clean == clean_path(clean)
    assert all(len(name.encode()) <= 255 for name in names)
    for form in ("NFKC", "NFKD"):
        assert not {".", ".."}.intersection(unicodedata.normalize(form, clean).split("/"))
