"""Calls that change files of their session, killed at every point of their life and run again."""

import hashlib
import shutil

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, tool

WORK = """
async def chunks():
    for letter in b"abc":
        yield bytes([letter]) * 900_000

@tool(on_crash="rerun")
async def work(ctx: ToolContext) -> list:
    files = ctx.files
    first = await files.write("/new/a.txt", "first", expected="")
    second = await files.write("/new/a.txt", "second", expected=first.hash)
    third = await files.write("/new/a.txt", "first", expected=second.hash)
    await files.write("/log", "once")
    big = await files.write_stream("/new/big", chunks())
    removed = await files.delete("/old", recursive=True)
    await files.make_directory("/old/again")
    return [third.size, big.size, removed, "x" * 100_000]

async def main():
    async with Runtime.open(store, tools=[work]) as runtime:
        session = runtime.session("s")
        if not await session.files.stat("/begun"):
            await session.files.write("/old/x/y", "old")
            await session.files.write("/begun", "")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="work", arguments={})])
        listed = [info.path for folder in ("/", "/new", "/.outputs") for info in await session.files.list(folder)]
        say([outcome.value, outcome.spilled_to, listed, await session.files.read("/new/a.txt")])
"""
EXPECTED = [
    [5, 2_700_000, 3, "x" * 100_000],
    "/.outputs/c1.txt",
    ["/.outputs", "/begun", "/log", "/new", "/old", "/new/a.txt", "/new/big", "/.outputs/c1.txt"],
    "first",
]


def require_sound(crashes) -> None:
    """Nothing is kept that nothing refers to, and the counts are those of the rows."""
    with crashes.look() as connection:
        kept = {row[0] for row in connection.execute("SELECT DISTINCT digest FROM blobs")}
        named = {row[0] for row in connection.execute("SELECT DISTINCT digest FROM files WHERE size > 0")}
        assert kept == named
        for digest in kept:
            pieces = connection.execute("SELECT content FROM blobs WHERE digest = ? ORDER BY number", (digest,))
            assert hashlib.sha256(b"".join(row[0] for row in pieces)).digest() == digest
        counted = connection.execute("SELECT entries, bytes FROM usage WHERE service = 'files'").fetchall()
        assert counted in (connection.execute("SELECT count(*), sum(size) FROM files").fetchall(), [])


@pytest.mark.promise("SES-02", "EFF-06", "OUT-05")
def test_files_are_changed_once_wherever_the_process_is_killed(crashes):
    points = crashes.points(WORK)
    assert len(points) > 20
    for point, nth in points:
        for path in crashes.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        crashes.kill_at(point, WORK, nth=nth)
        require_sound(crashes) if crashes.calls() else None
        (said,) = crashes.run(WORK).said
        assert said == EXPECTED, (point, nth)
        require_sound(crashes)


@pytest.mark.promise("SES-02", "EFF-06")
async def test_a_write_that_was_made_before_a_crash_is_not_refused_nor_made_again_after_it(crashes):
    program = """
@tool(on_crash="rerun")
async def claim(ctx: ToolContext, name: str) -> str:
    info = await ctx.files.write("/lock", name, expected="")
    await ctx.files.delete("/token")
    if dies:
        die()
    return info.hash

async def main():
    async with Runtime.open(store, tools=[claim]) as runtime:
        await runtime.session("s").files.write("/token", "t")
        await runtime.session("s").run_batch([ToolCall(id="c1", name="claim", arguments={"name": "me"})])
"""

    @tool(on_crash="rerun")
    async def claim(ctx: ToolContext, name: str) -> str | None:
        info = await ctx.files.write("/lock", name, expected="")
        await ctx.files.delete("/token")
        return info.hash

    crashes.crash(program, dies=True)
    async with fail_after(10), Runtime.open(crashes.store, tools=[claim]) as runtime:
        session = runtime.session("s")
        # Meanwhile others go on: what the call did is not done over theirs.
        await session.files.write("/lock", "theirs")
        await session.files.write("/token", "new")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="claim", arguments={"name": "me"})])
        assert outcome.value == hashlib.sha256(b"me").hexdigest()
        assert (await session.files.read("/lock"), await session.files.read("/token")) == ("theirs", "new")
        (other,) = await session.run_batch([ToolCall(id="c2", name="claim", arguments={"name": "theirs"})])
        assert other.failure.code == "conflict"


@pytest.mark.promise("SES-02")
def test_a_hundred_mib_go_in_and_out_in_little_memory(crashes):
    program = """
import hashlib, resource
from toolwright import Quotas

MIB = 1024 * 1024

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def own():  # without the pages of the file that are mapped, which the system takes back when it likes
    (line,) = [line for line in open("/proc/self/status") if line.startswith("RssAnon:")]
    return int(line.split()[1]) / 1024

async def chunks():
    for number in range(100):
        yield bytes([number]) * MIB

async def main():
    async with Runtime.open(store, sync="normal", quotas=Quotas(file_bytes=128 * MIB)) as runtime:
        files = runtime.session("s").files
        await files.write("/warm", b"x" * MIB)
        before = peak()
        written = await files.write_stream("/big", chunks())
        by_writing = peak() - before
        read, before, most = hashlib.sha256(), own(), 0
        async for piece in files.stream("/big"):
            read.update(piece)
            most = max(most, own())
        say([written.size, written.hash == read.hexdigest(), by_writing, most - before])
"""
    ((size, same, by_writing, by_reading),) = crashes.run(program).said
    assert (size, same) == (100 * 1024 * 1024, True)
    assert by_writing < 30
    assert by_reading < 30
