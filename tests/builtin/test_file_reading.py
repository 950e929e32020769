"""Tools that look at the session's files."""

import base64
import hashlib

import pytest

from toolwright.builtin.file_reading import (
    MOST_BINARY,
    MOST_IMAGE,
    MOST_TEXT,
    grep_files,
    list_directory,
    read_file,
    stat_file,
)
from toolwright.builtin.paging import LINE_CHARS, PAGE_BYTES
from toolwright.builtin.time_and_echo import instant

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))


@pytest.mark.promise("BLT-01")
async def test_a_file_is_read_with_numbered_lines(run, files):
    await files.write("/notes/a.txt", "first\n\tsecond\n\nfourth")
    value = (await run(read_file, path="/workspace/notes/a.txt")).value
    assert value == {
        "path": "/workspace/notes/a.txt",
        "size": 21,
        "hash": hashlib.sha256(b"first\n\tsecond\n\nfourth").hexdigest(),
        "encoding": "text",
        "content": "     1\tfirst\n     2\t\tsecond\n     3\t\n     4\tfourth",
        "offset": 1,
        "lines": 4,
        "total_lines": 4,
    }


@pytest.mark.promise("BLT-01")
async def test_a_long_file_is_read_page_by_page_and_every_line_is_shown_once(run, files):
    await files.write("/a", "".join(f"line {number}\n" for number in range(1, 26)))
    offset, seen = 1, []
    while offset is not None:
        page = (await run(read_file, path="/a", offset=offset, limit=10)).value
        assert page["total_lines"] == 25
        seen += [line.split("\t") for line in page["content"].split("\n")]
        offset = page.get("next_offset")
    assert seen == [[f"{number:>6}", f"line {number}"] for number in range(1, 26)]


async def test_a_page_ends_before_it_is_too_long_for_a_model(run, files):
    await files.write("/a", "é" * 100 + "\n" + ("x" * 990 + "\n") * 200)
    outcome = await run(read_file, path="/a")
    page = outcome.value
    assert len(page["content"].encode()) <= PAGE_BYTES
    assert page["next_offset"] == page["lines"] + 1 > 30
    assert outcome.text == outcome.full_text()  # nothing was cut off it


async def test_a_line_that_is_too_long_is_cut_and_says_so(run, files):
    await files.write("/a", "x" * (LINE_CHARS + 7) + "\nshort\n")
    lines = (await run(read_file, path="/a")).value["content"].split("\n")
    assert lines[0] == "     1\t" + "x" * LINE_CHARS + "… [7 more characters on this line]"
    assert lines[1] == "     2\tshort"


@pytest.mark.parametrize(("content", "total"), [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\n\n", 2), ("a\r\nb", 2)])
async def test_the_end_of_a_file_is_no_line_of_its_own(run, files, content, total):
    await files.write("/a", content)
    value = (await run(read_file, path="/a")).value
    assert (value["total_lines"], value["lines"]) == (total, total)
    assert "next_offset" not in value


@pytest.mark.parametrize("offset", [4, 10**12])
async def test_an_offset_past_the_end_is_refused_with_the_number_of_lines(run, files, offset):
    await files.write("/a", "1\n2\n3\n")
    outcome = await run(read_file, path="/a", offset=offset)
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "wrong_range")
    assert "has 3 lines" in outcome.failure.message


@pytest.mark.parametrize("arguments", [{"offset": 0}, {"offset": -1}, {"limit": 0}, {"limit": 10_001}, {"path": ""}])
async def test_a_range_that_is_none_is_refused(run, files, arguments):
    await files.write("/a", "1\n2\n3\n")
    assert (await run(read_file, **{"path": "/a", **arguments})).failure.category == "invalid_arguments"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00a", b"text\0with a zero"], ids=["bytes", "zero"])
async def test_what_is_not_text_comes_as_base64(run, files, content):
    await files.write("/a", content)
    value = (await run(read_file, path="/a")).value
    assert value["encoding"] == "base64"
    assert base64.b64decode(value["content"]) == content


@pytest.mark.promise("SES-04")
@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x01\x02\x03\x04WEBPVP8 ", "image/webp"),
    ],
)
async def test_an_image_is_shown_as_an_image(run, files, content, media_type):
    await files.write("/picture", content)
    outcome = await run(read_file, path="/picture")
    assert outcome.value["encoding"] == "image"
    assert outcome.value["media_type"] == media_type
    assert "content" not in outcome.value
    assert [(base64.b64decode(image.data), image.media_type) for image in outcome.images] == [(content, media_type)]


@pytest.mark.parametrize(
    "content",
    [b"x" * (MOST_TEXT + 1), b"\xff" * (MOST_BINARY + 1), PNG + b"\0" * MOST_IMAGE],
    ids=["text", "binary", "image"],
)
async def test_what_is_too_large_to_be_shown_is_refused(run, files, content):
    await files.write("/a", content)
    outcome = await run(read_file, path="/a")
    assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "too_large")
    assert str(len(content)) in outcome.failure.message


async def test_a_large_text_is_paged_like_a_small_one(run, files):
    await files.write("/a", "".join(f"{number}\n" for number in range(1, 100_001)))
    value = (await run(read_file, path="/a", offset=99_999)).value
    assert value["content"] == " 99999\t99999\n100000\t100000"


@pytest.mark.parametrize("tool", [read_file, list_directory, stat_file], ids=lambda tool: tool.name)
async def test_what_is_not_there_is_not_found(run, tool):
    outcome = await run(tool, path="/missing")
    assert (outcome.failure.category, outcome.failure.code) == ("not_found", "not_found")
    assert "'/missing'" in outcome.failure.message


@pytest.mark.parametrize("tool", [read_file, list_directory, stat_file], ids=lambda tool: tool.name)
@pytest.mark.parametrize("path", ["/a/../../b", "/a\0b"], ids=repr)
async def test_a_path_that_the_files_refuse_is_a_failure(run, tool, path):
    assert (await run(tool, path=path)).failure.category == "invalid_arguments"


async def test_a_directory_is_not_read(run, files):
    await files.write("/folder/a", "x")
    outcome = await run(read_file, path="/folder")
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "is_directory")
    assert "list_directory" in outcome.failure.message


@pytest.mark.promise("BLT-01")
async def test_a_directory_is_listed_by_name(run, files):
    await files.write("/folder/b.txt", "four")
    await files.write("/folder/a/deep", "x")
    await files.write("/folder/c", b"", readonly=True)
    value = (await run(list_directory, path="/folder")).value
    assert value["path"] == "/folder"
    assert value["total"] == 3
    shown = [(entry["name"], entry["path"], entry["type"], entry["readonly"]) for entry in value["entries"]]
    assert shown == [
        ("a", "/folder/a", "directory", False),
        ("b.txt", "/folder/b.txt", "file", False),
        ("c", "/folder/c", "file", True),
    ]
    assert value["entries"][1]["size"] == 4
    assert value["entries"][1]["updated_at"].endswith("Z")


async def test_the_root_is_listed_also_when_it_is_empty(run):
    assert (await run(list_directory)).value == {"path": "/", "entries": [], "total": 0}


async def test_a_long_directory_is_listed_in_parts(run, files):
    for number in range(5):
        await files.write(f"/{number}", "x")
    value = (await run(list_directory, offset=3, limit=4)).value
    assert ([entry["name"] for entry in value["entries"]], value["total"]) == (["3", "4"], 5)


async def test_a_file_is_not_listed(run, files):
    await files.write("/a", "x")
    outcome = await run(list_directory, path="/a")
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "not_directory")


@pytest.mark.promise("BLT-01")
async def test_lines_that_match_are_found_with_path_and_number(run, files):
    await files.write("/src/a.py", "import os\n\ndef main(): ...\n")
    await files.write("/src/b/c.py", "def other(): ...\n")
    await files.write("/doc", "def not here\n")
    value = (await run(grep_files, pattern=r"^def \w+", path="/src")).value
    assert value == {
        "matches": [
            {"path": "/src/a.py", "line": 3, "text": "def main(): ..."},
            {"path": "/src/b/c.py", "line": 1, "text": "def other(): ..."},
        ],
        "count": 2,
        "more": False,
    }


async def test_one_file_is_searched_by_its_path(run, files):
    await files.write("/a", "x\n")
    await files.write("/b", "x\n")
    assert [match["path"] for match in (await run(grep_files, pattern="x", path="/b")).value["matches"]] == ["/b"]


@pytest.mark.parametrize(("lines", "more"), [(3, False), (4, True)])
async def test_more_matches_than_asked_for_are_left_out_and_that_is_said(run, files, lines, more):
    await files.write("/a", "x\n" * lines)
    value = (await run(grep_files, pattern="x", limit=3)).value
    assert (value["count"], value["more"]) == (3, more)


async def test_a_match_on_a_very_long_line_is_cut(run, files):
    await files.write("/a", "x" * 10_000)
    (match,) = (await run(grep_files, pattern="x+")).value["matches"]
    assert match["text"] == "x" * 500 + "…"


@pytest.mark.parametrize("pattern", ["(", "", "x" * 1_001, "[z-a]"], ids=["open", "empty", "long", "range"])
async def test_a_pattern_that_cannot_be_read_is_refused(run, pattern):
    assert (await run(grep_files, pattern=pattern)).failure.category == "invalid_arguments"


async def test_searching_what_is_not_there_is_not_found(run):
    assert (await run(grep_files, pattern="x", path="/missing")).failure.code == "not_found"


@pytest.mark.promise("BLT-01")
async def test_a_file_is_described_without_its_content(run, files):
    await files.write("/a.txt", "hello", readonly=True)
    info = await files.stat("/a.txt")
    instants = {"created_at": instant(info.created_at), "updated_at": instant(info.updated_at)}
    assert (await run(stat_file, path="/a.txt")).value == {
        **instants,
        "path": "/a.txt",
        "type": "file",
        "size": 5,
        "readonly": True,
        "hash": hashlib.sha256(b"hello").hexdigest(),
    }


async def test_a_directory_is_described_without_a_hash(run, files):
    await files.make_directory("/folder")
    value = (await run(stat_file, path="/folder")).value
    assert value["type"] == "directory"
    assert "hash" not in value
