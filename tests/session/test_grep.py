"""Searching the files of a session: lines, paths, and bounds on time and size."""

import asyncio
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import fail_after
from toolwright import Policy, Runtime, ToolContext, tool
from toolwright.errors import ServiceError

MIB = 1024 * 1024


def shown(found) -> list[tuple[str, int, str]]:
    return [(match.path, match.line, match.text) for match in found]


@pytest.mark.promise("SES-02")
async def test_lines_are_found_with_their_numbers_in_the_order_of_paths(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    await files.write("/b/two.txt", "no\nan apple\n\napple pie, apple\nno")
    await files.write("/b/one.txt", "Apple\r\npineapple")
    await files.write("/b-c.txt", "apple")
    await files.write("/a", b"\xffapple\n")
    await files.write("/binary", b"apple\0")
    await files.write("/empty", "")
    every = [
        ("/a", 1, "\ufffdapple"),
        ("/b-c.txt", 1, "apple"),
        ("/b/one.txt", 2, "pineapple"),
        ("/b/two.txt", 2, "an apple"),
        ("/b/two.txt", 4, "apple pie, apple"),
    ]
    assert shown(await files.grep("apple")) == every
    assert shown(await files.grep("apple", "/b")) == every[2:]
    assert shown(await files.grep("apple", "/b/two.txt")) == every[3:]
    assert shown(await files.grep("apple", "/workspace/b/")) == every[2:]
    assert shown(await files.grep("apple", limit=2)) == every[:2]
    assert shown(await files.grep("(?i)^apple$", "/b-c.txt")) == [("/b-c.txt", 1, "apple")]
    assert shown(await files.grep("(?i)^apple", "/b")) == [("/b/one.txt", 1, "Apple\r"), every[4]]
    assert shown(await files.grep("^$", "/b")) == [("/b/two.txt", 3, "")]
    assert shown(await files.grep("apple\\s+apple", "/b")) == []
    assert shown(await files.grep("pie$", "/")) == []
    assert shown(await files.grep("x*", "/b/one.txt")) == [("/b/one.txt", 1, "Apple\r"), ("/b/one.txt", 2, "pineapple")]
    assert await files.grep("x*", "/empty") == []


@given(
    pieces=st.lists(st.sampled_from(["a", "b", "ab", "\n", "\n\n", "ü", "aü\n", ""]), max_size=40),
    pattern=st.sampled_from(["a", "^a", "b$", "^$", "ab|ü", "a*", "[^a]", "^", "$", "a.b", "\\bab\\b"]),
)
@settings(max_examples=60)
def test_the_lines_found_are_those_that_match_by_themselves(pieces, pattern):
    text = "".join(pieces)

    async def check() -> None:
        async with Runtime.open() as runtime:
            files = runtime.session("s").files
            await files.write("/a", text)
            found = [(match.line, match.text) for match in await files.grep(pattern)]
            lines = text.split("\n")
            if lines[-1] == "":
                del lines[-1]
            expected = [(n, line) for n, line in enumerate(lines, 1) if re.search(pattern, line, re.ASCII)]
            assert found == expected

    asyncio.run(check())


@pytest.mark.promise("SES-02")
async def test_lines_are_found_across_the_pieces_of_a_large_file(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    lines = [f"{number} {'x' * (number % 97)}" for number in range(120_000)]
    lines[20_000] = "needle " + "y" * (2 * MIB) + " haystack"
    lines[90_000] = "a needle"
    text = "\n".join(lines)
    assert len(text) > 6 * MIB
    await files.write("/big", text)
    await files.write("/zzz", "needle")
    found = shown(await files.grep("needle"))
    assert [(path, line) for path, line, _ in found] == [("/big", 20_001), ("/big", 90_001), ("/zzz", 1)]
    assert found[0][2].startswith("needle yyy")
    assert found[0][2].endswith("y…")
    assert len(found[0][2]) <= 2_001
    (end,) = await files.grep("haystack")
    assert (end.line, end.text[0], end.text[-10:]) == (20_001, "…", "y haystack")


@pytest.mark.promise("SES-02")
@pytest.mark.parametrize(
    "pattern",
    ["", "(", "a)", "[", "*", "(?=a)b", "(a)\\1", "(?P<x", "a{1001}", "\ud800", "x" * 5000, 3, None, b"a"],
    ids=ascii,
)
async def test_a_pattern_that_is_not_usable_is_refused(place, open_runtime, pattern):
    files = (await open_runtime(place)).session("s").files
    await files.write("/a", "a")
    with pytest.raises(ServiceError, match="pattern") as refused:
        await files.grep(pattern)
    assert refused.value.code == "invalid_arguments"
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None, 10**9])
async def test_a_limit_that_is_not_usable_is_refused(place, open_runtime, limit):
    files = (await open_runtime(place)).session("s").files
    with pytest.raises(ServiceError, match="limit"):
        await files.grep("a", limit=limit)


@pytest.mark.promise("SES-02")
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*(a*)*c", "([a-z]+)*=", "(.*a){20}b", "(x+x+)+y"])
async def test_a_pattern_that_would_backtrack_for_ever_returns_in_time(place, open_runtime, pattern):
    files = (await open_runtime(place)).session("s").files
    await files.write("/a", "a" * 5_000 + "!\n" + "x" * 5_000)
    async with fail_after(5):
        assert await files.grep(pattern) == []


@pytest.mark.promise("SES-02")
async def test_a_search_that_takes_too_long_is_stopped_and_says_so(place, open_runtime):
    files = (await open_runtime(place, policy=Policy(grep_timeout=0.001))).session("s").files
    for number in range(4):
        await files.write(f"/{number}", f"{number}\n" * (2 * MIB))
    async with fail_after(5):
        with pytest.raises(ServiceError, match=r"took longer than 0\.001 s") as refused:
            await files.grep("\\d", limit=100_000)
    assert refused.value.code == "timeout"
    assert await files.read_bytes("/0") == b"0\n" * (2 * MIB)


@pytest.mark.promise("SES-02")
async def test_a_batch_may_bound_the_searches_of_its_tools(place, open_runtime):
    @tool
    async def look(ctx: ToolContext) -> int:
        return len(await ctx.files.grep("\\d", limit=100_000))

    session = (await open_runtime(place, look)).session("s")
    await session.files.write("/a", "1\n" * 100_000)
    assert (await session.call("look")).value == 100_000
    (late,) = await session.run_batch([{"id": "c", "name": "look", "arguments": {}}], grep_timeout=0.001)
    assert (late.failure.category, late.failure.code) == ("timeout", "timeout")


@pytest.mark.promise("SES-02")
async def test_the_loop_goes_on_while_files_are_searched(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    for number in range(8):
        await files.write(f"/{number}", f"{number} some text\n" * (MIB // 4))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await files.grep("(some|any) (text|word) that is not there") == []
    counting.cancel()
    assert turns > 10


async def test_a_search_that_is_cancelled_leaves_nothing_behind(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    for number in range(8):
        await files.write(f"/{number}", f"{number} some text\n" * (MIB // 4))
    search = asyncio.create_task(files.grep("nothing like that"))
    for _ in range(3):
        await asyncio.sleep(0)
    search.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert time.monotonic() - began < 60


@pytest.mark.promise("SES-02")
@pytest.mark.parametrize(
    ("glob", "paths"),
    [
        ("*.py", ["/a.py", "/src/b.py", "/src/deep/c.py"]),
        ("/src/*.py", ["/src/b.py", "/src/deep/c.py"]),
        ("b.*", ["/src/b.py"]),
    ],
)
async def test_only_files_of_a_path_pattern_are_searched(place, open_runtime, glob, paths):
    files = (await open_runtime(place)).session("s").files
    for path in ("/a.py", "/a.txt", "/src/b.py", "/src/deep/c.py"):
        await files.write(path, "apple")
    assert [match.path for match in await files.grep("apple", glob=glob)] == paths
    assert [match.path for match in await files.grep("apple", "/src/deep", glob="*.py")] == ["/src/deep/c.py"]
    for wrong in ("", "x" * 201, 3):
        with pytest.raises(ServiceError, match="glob"):
            await files.grep("apple", glob=wrong)
