"""The files of a session: text and bytes, directories, flags, quotas, and what a tool may do with them."""

import asyncio
import hashlib

import pytest

from tests.support import fail_after
from toolwright import ToolCall, ToolContext, tool
from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing import FakeClock

MIB = 1024 * 1024


def code_of(refused) -> str:
    return refused.value.code


@pytest.mark.promise("SES-02")
async def test_text_and_bytes_come_back_as_they_were_written(place, open_runtime):
    clock = FakeClock()
    files = (await open_runtime(place, clock=clock)).session("s").files
    began = clock.now()
    written = await files.write("/notes/ü.txt", "grüße\r\n")
    assert await files.read("/workspace/notes/ü.txt") == "grüße\r\n"
    assert await files.read_bytes("notes/u\u0308.txt") == "grüße\r\n".encode()
    await clock.advance(5)
    again = await files.write("/notes/ü.txt", b"\xff\x00")
    assert await files.read_bytes("/notes/ü.txt") == b"\xff\x00"
    with pytest.raises(ServiceError, match="read it as bytes") as refused:
        await files.read("/notes/ü.txt")
    assert code_of(refused) == "not_text"
    assert (written.path, written.name, written.directory, written.size) == ("/notes/ü.txt", "ü.txt", False, 9)
    assert written.hash == hashlib.sha256("grüße\r\n".encode()).hexdigest()
    assert (again.created_at - began, again.updated_at - began) == (pytest.approx(0), pytest.approx(5))
    assert await files.stat("/notes/ü.txt") == again
    empty = await files.write("/empty", "")
    assert (await files.read("/empty"), empty.size) == ("", 0)


@pytest.mark.promise("SES-02")
async def test_names_differ_by_case(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    await files.write("/a", "small")
    await files.write("/A", "large")
    assert (await files.read("/a"), await files.read("/A")) == ("small", "large")


@pytest.mark.promise("SES-02")
async def test_directories_come_with_their_files_and_a_file_is_never_one(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    await files.write("/a/b/c.txt", "c")
    await files.write("/a/b.txt", "b")
    await files.write("/a/b-c/d.txt", "d")
    made = await files.make_directory("/a/new/deep")
    assert (made.directory, made.hash, made.size) == (True, None, 0)
    assert await files.make_directory("/a/new/deep") == made == await files.stat("/a/new/deep")
    assert [(info.path, info.directory) for info in await files.list("/a")] == [
        ("/a/b", True),
        ("/a/b-c", True),
        ("/a/b.txt", False),
        ("/a/new", True),
    ]
    assert [info.path for info in await files.list()] == ["/a"]
    assert await files.list("/a/new/deep") == []
    root = await files.stat("/")
    assert (root.directory, root.path) == (True, "/")
    assert (await files.make_directory("/")).path == "/"

    for refused_use, code in (
        (files.write("/a/b", "x"), "is_directory"),
        (files.write("/", "x"), "is_directory"),
        (files.read("/a"), "is_directory"),
        (files.read("/"), "is_directory"),
        (files.write("/a/b.txt/c", "x"), "not_directory"),
        (files.make_directory("/a/b.txt"), "not_directory"),
        (files.make_directory("/a/b.txt/c"), "not_directory"),
        (files.list("/a/b.txt"), "not_directory"),
        (files.list("/none"), "not_found"),
        (files.read("/none"), "not_found"),
        (files.grep("x", "/none"), "not_found"),
    ):
        with pytest.raises(ServiceError) as refused:
            await refused_use
        assert code_of(refused) == code
    assert await files.stat("/none") is None
    assert await files.stat("/a/b.txt/c") is None
    for path in ("/a", "/none"):
        with pytest.raises(ServiceError):
            _ = [piece async for piece in files.stream(path)]


@pytest.mark.promise("SES-02")
async def test_a_directory_is_removed_with_all_that_is_in_it_or_not_at_all(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    for path in ("/a/b/c", "/a/d", "/a-b", "/a.txt", "/a0", "/b/c"):
        await files.write(path, path)
    with pytest.raises(ServiceError, match="recursive=True") as refused:
        await files.delete("/a")
    assert code_of(refused) == "not_empty"
    assert await files.delete("/a", recursive=True) == 4
    assert [info.path for info in await files.list()] == ["/a-b", "/a.txt", "/a0", "/b"]
    assert (await files.delete("/a-b"), await files.delete("/a-b"), await files.delete("/none/x", True)) == (1, 0, 0)
    await files.make_directory("/empty")
    assert await files.delete("/empty") == 1
    with pytest.raises(ServiceError):
        await files.delete("/")
    assert await files.delete("/", recursive=True) == 4
    assert (await files.list(), await files.delete("/")) == ([], 0)


@pytest.mark.promise("SES-02")
async def test_a_write_happens_only_where_the_content_is_as_expected(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    first = await files.write("/a", "one", expected="")
    second = await files.write("/a", "two", expected=first.hash)
    for expected, content in (("", "three"), (first.hash, "three"), ("", "two"), (first.hash, "two")):
        with pytest.raises(ServiceError, match=second.hash) as refused:
            await files.write("/a", content, expected=expected)
        assert code_of(refused) == "conflict"
    assert await files.read("/a") == "two"
    with pytest.raises(ServiceError, match="is not there") as refused:
        await files.write("/b", "x", expected=first.hash)
    assert code_of(refused) == "conflict"
    for wrong in ("nonsense", first.hash.upper(), 3, b""):
        with pytest.raises(ServiceError, match="hash"):
            await files.write("/a", "x", expected=wrong)
    assert await files.stat("/b") is None


@pytest.mark.promise("SES-02")
async def test_of_many_writers_with_one_expectation_one_wins_even_with_the_same_content(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    tries = await asyncio.gather(
        *(files.write("/lock", "taken", expected="") for _ in range(20)), return_exceptions=True
    )
    assert sum(isinstance(each, ServiceError) and each.code == "conflict" for each in tries) == 19


@pytest.mark.promise("SES-02")
async def test_tools_do_not_change_what_is_read_only_and_the_host_may(place, open_runtime):
    @tool
    async def change(ctx: ToolContext, verb: str) -> int | str:
        if verb == "read":
            return await ctx.files.read("/d/fixed")
        if verb == "write":
            return (await ctx.files.write("/d/fixed", "other", readonly=False)).size
        return await ctx.files.delete("/d/fixed" if verb == "delete" else verb, recursive=True)

    session = (await open_runtime(place, change)).session("s")
    assert (await session.files.write("/d/fixed", "text", readonly=True)).readonly
    assert (await session.files.write("/d/fixed", "kept")).readonly
    await session.files.write("/d/free", "text")
    for verb in ("write", "delete", "/d", "/"):
        outcome = await session.call("change", verb=verb)
        assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "permission_denied")
        assert "'/d/fixed' is read-only" in outcome.text
    assert (await session.call("change", verb="read")).value == "kept"
    assert await session.files.read("/d/free") == "text"
    assert not (await session.files.write("/d/fixed", "x", readonly=False)).readonly
    assert (await session.call("change", verb="write")).value == 5
    await session.files.write("/d/fixed", "text", readonly=True)
    assert await session.files.delete("/d", recursive=True) == 3


@pytest.mark.promise("SES-02")
@pytest.mark.parametrize("content", [3, None, ["x"], "\ud800", {}], ids=ascii)
async def test_content_that_is_neither_text_nor_bytes_is_refused(place, open_runtime, content):
    files = (await open_runtime(place)).session("s").files
    with pytest.raises(ServiceError, match="bytes"):
        await files.write("/a", content)

    async def chunks():
        yield content

    with pytest.raises(ServiceError, match="bytes"):
        await files.write_stream("/a", chunks())
    with pytest.raises(ServiceError, match="readonly"):
        await files.write("/a", "x", readonly=content if content is not None else 1)
    assert await files.list() == []


@pytest.mark.promise("SES-02")
async def test_a_session_may_not_keep_more_files_or_bytes_than_its_quota(place, open_runtime):
    runtime = await open_runtime(place, quotas=Quotas(files=Quota(4, 100), file_bytes=60))
    files = runtime.session("s").files
    await files.write("/d/a", "x" * 60)
    for use, says in (
        (files.write("/d/b", "x" * 61), "at most 60 bytes"),
        (files.write("/d/b", "x" * 41), "100 bytes of files, and this would make 101"),
        (files.write("/e/f/g", "x"), "4 files"),
        (files.make_directory("/e/f/g"), "4 files"),
    ):
        with pytest.raises(ServiceError, match=says) as refused:
            await use
        assert code_of(refused) == "quota"
    assert [info.path for info in await files.list()] == ["/d"]  # what was refused left no directory behind
    # What a session keeps twice counts twice, though it is stored once.
    await files.write("/d/b", "x" * 40)
    await files.write("/d/b", "y" * 40)
    await files.write("/d/a", "x" * 10)
    await files.write("/d/c", "x" * 50)
    await files.delete("/d", recursive=True)
    await files.write("/e/f/g", "x" * 60)
    await runtime.session("t").files.write("/a", "x" * 60)


async def endless(piece=b"x" * 65_536):
    while True:
        yield piece


@pytest.mark.promise("SES-02")
async def test_streams_are_written_and_read_in_pieces(place, open_runtime):
    files = (await open_runtime(place, quotas=Quotas(file_bytes=4 * MIB))).session("s").files
    data = bytes(range(256)) * (10 * 1024) + b"end"

    async def chunks():
        for start in range(0, len(data), 100_003):
            yield data[start : start + 100_003]

    written = await files.write_stream("/big", chunks())
    assert (written.size, written.hash) == (len(data), hashlib.sha256(data).hexdigest())
    pieces = [piece async for piece in files.stream("/big")]
    assert [len(piece) for piece in pieces] == [MIB, MIB, len(data) - 2 * MIB]
    assert b"".join(pieces) == data == await files.read_bytes("/big")
    whole = await files.write("/whole", data)
    assert whole.hash == written.hash
    # At the edges of a piece.
    for size in (0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB):
        await files.write("/edge", data[:size])
        assert b"".join([piece async for piece in files.stream("/edge")]) == data[:size]
    async with fail_after(20):
        with pytest.raises(ServiceError, match="at most 4194304 bytes") as refused:
            await files.write_stream("/endless", endless())
    assert code_of(refused) == "quota"
    assert await files.stat("/endless") is None


@pytest.mark.promise("SES-02")
async def test_a_stream_that_fails_writes_nothing(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    await files.write("/a", "before")

    async def broken():
        yield b"half"
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        await files.write_stream("/a", broken())
    assert await files.read("/a") == "before"


@pytest.mark.promise("SES-02")
async def test_a_file_that_is_changed_while_it_is_streamed_is_not_mixed(place, open_runtime):
    files = (await open_runtime(place)).session("s").files
    await files.write("/big", b"a" * (2 * MIB))
    stream = files.stream("/big")
    assert (await anext(stream))[:1] == b"a"
    await files.write("/big", b"b" * (2 * MIB))
    with pytest.raises(ServiceError, match="read it again") as refused:
        await anext(stream)
    assert code_of(refused) == "conflict"


async def test_tools_of_one_batch_write_and_read_files_of_their_session(place, open_runtime):
    @tool
    async def put(ctx: ToolContext, path: str) -> str | None:
        return (await ctx.files.write(path, f"content of {path}")).hash

    @tool
    async def look(ctx: ToolContext) -> list[str]:
        return [info.name for info in await ctx.files.list("/d")]

    session = (await open_runtime(place, put, look)).session("s")
    calls = [ToolCall(name="put", arguments={"path": f"d/{n}"}) for n in range(3)]
    outcomes = await session.run_batch([*calls, ToolCall(name="look", arguments={})])
    assert outcomes[-1].value == ["0", "1", "2"]
    assert await session.files.read("/d/2") == "content of d/2"
