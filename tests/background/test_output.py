"""What a run prints: a live tail, a log that is capped and in the store while it runs, few transactions."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.background.conftest import Stage
from toolwright import Success, ToolContext, tool
from toolwright.stores.sqlite.store import SqliteStore

KI = 1024


@pytest.mark.promise("PROC-07")
async def test_the_end_of_the_output_is_shown_live(stage: Stage, place: str | Path):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        await ctx.output("stdout", "a" * 3_000)
        await ctx.output("stderr", "oops\n")
        await ctx.output("stderr", "again")
        await go.wait()

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")

    async def printed() -> bool:
        return bool((await run.refresh()).tail)

    await stage.until_so(printed)
    end = "\n[stderr] oops\nagain"
    assert run.record.tail == "a" * (2_048 - len(end)) + end
    assert run.to_json()["output_tail"] == run.record.tail
    assert await run.log() == "[stdout] " + "a" * 3_000 + end
    assert run.record.status == "running"
    go.set()
    await stage.until(run.wait())
    assert run.record.tail.endswith("again")


@pytest.mark.promise("PROC-07")
async def test_the_log_is_in_the_store_while_the_run_goes_on(stage: Stage, file: Path):
    """Another process, or the same after a crash, reads what was printed a moment ago."""
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        await ctx.output("stdout", "line\n")
        await go.wait()

    session = (await stage.open(file, work)).session("s")
    other = (await stage.open(file, work, worker=False)).session("s")
    run = await session.spawn("work")
    await stage.status(run, "running")
    await stage.pass_time(0.5, 0.25)
    assert await (await other.run(run.id)).log() == "[stdout] line\n"
    go.set()
    await stage.until(run.wait())


@pytest.mark.promise("PROC-07")
async def test_a_log_that_is_too_long_keeps_its_head_and_its_tail(stage: Stage, place: str | Path):
    lines = [f"{number:07d}\n" for number in range(100_000)]

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        for number, line in enumerate(lines):
            ctx.output("stdout", line)
            if number % 25_000 == 0:
                await stage.clock.sleep(0.3)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.until(run.wait())
    log = await run.log()
    assert await session.files.read(f"/.background/{run.id}/output.log") == log
    assert len(log) <= 256 * KI + 100
    assert len(log) >= 200 * KI
    head, marker, tail = log.partition("\n[system] ")
    assert marker
    said, _, tail = tail.partition(" characters of output were left out here\n")
    whole = "[stdout] " + "".join(lines)
    assert whole.startswith(head)
    assert len(head) >= 127 * KI
    assert tail.startswith("[stdout] ")
    assert whole.endswith(tail.removeprefix("[stdout] "))
    missing = len(whole) - len(head) - len(tail) + len("[stdout] ")
    # What it says counts the names of streams too, once for each piece.
    assert missing <= int(said) <= missing * 1.01


@pytest.mark.promise("PROC-07")
async def test_one_huge_piece_is_cut_in_the_same_way(stage: Stage, place: str | Path):
    text = "".join(chr(0x4E00 + number % 20_000) for number in range(1_000_000))

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        await ctx.output("stdout", text)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.until(run.wait())
    log = await run.log()
    head, _, rest = log.removeprefix("[stdout] ").partition("\n[system] ")
    tail = rest.partition("[stdout] ")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 240 * KI <= len(log) <= 256 * KI + 100


@pytest.mark.promise("PROC-07")
async def test_a_run_that_prints_without_end_costs_few_transactions(stage: Stage, file: Path):
    """100,000 chunks a second for five seconds of virtual time: at most 20 transactions in each of them."""
    store = SqliteStore(file, sync="normal")
    counts: list[int] = []

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        for _ in range(5):
            counts.append(store.commits)
            for _ in range(100):
                for number in range(1_000):
                    ctx.output("stdout", f"{number}\n")
                await stage.clock.sleep(0.01)
        counts.append(store.commits)

    session = (await stage.open(store, work)).session("s")  # type: ignore[arg-type]
    run = await session.spawn("work")
    await stage.until(run.wait(), step=0.01)
    assert len(counts) == 6
    assert max(after - before for before, after in pairwise(counts)) <= 20
    assert len(await run.log()) <= 256 * KI + 100


@pytest.mark.promise("PROC-07")
async def test_many_runs_report_in_the_same_transactions(stage: Stage, file: Path):
    store = SqliteStore(file, sync="normal")
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        while not go.is_set():
            ctx.output("stdout", "x")
            ctx.progress(1)
            await stage.clock.sleep(0.1)

    runtime = await stage.open(store, work)  # type: ignore[arg-type]
    runs = [await runtime.session(f"s{number}").spawn("work") for number in range(40)]
    for run in runs:
        await stage.status(run, "running")
    await stage.pass_time(1, 0.05)
    before = store.commits
    await stage.pass_time(1, 0.05)
    assert store.commits - before <= 20
    go.set()
    for run in runs:
        assert (await stage.until(run.wait())).status == "success"


@pytest.mark.promise("PROC-07")
async def test_nested_calls_print_into_the_run_and_their_progress_stays_theirs(stage: Stage, place: str | Path):
    @tool
    async def inner(ctx: ToolContext) -> None:
        await ctx.progress(99)
        await ctx.output("stdout", "inner")

    @tool(supports_background=True)
    async def outer(ctx: ToolContext) -> None:
        await ctx.progress(1, 2)
        await ctx.call("inner")

    session = (await stage.open(place, outer, inner)).session("s")
    run = await session.spawn("outer")
    await stage.until(run.wait())
    assert run.record.progress.current == 1
    assert await run.log() == "[stdout] inner"


@pytest.mark.promise("PROC-07")
async def test_a_tool_on_a_thread_and_one_in_a_child_process_print_into_their_runs(stage: Stage, place: str | Path):
    session = (await stage.open(place, on_a_thread, in_a_child)).session("s")
    for name in ("on_a_thread", "in_a_child"):
        run = await session.spawn(name)
        assert (await stage.until(run.wait(), step=0.05)).value == name
        assert await run.log() == f"[stdout] {name}"
        assert run.record.progress.label == "half"


@tool(supports_background=True)
def on_a_thread(ctx: ToolContext) -> str:
    ctx.output("stdout", "on_a_thread")
    ctx.progress(1, 2, "half")
    return "on_a_thread"


@tool(supports_background=True, isolation="process")
def in_a_child(ctx: ToolContext) -> str:
    ctx.output("stdout", "in_a_child")
    ctx.progress(1, 2, "half")
    return "in_a_child"


@pytest.mark.promise("PROC-07")
async def test_a_tool_says_what_it_is_doing_and_its_run_shows_it(stage: Stage, place: str | Path):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        await ctx.status("Uploading")
        await ctx.receive("more")
        await go.wait()

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.status(run, "waiting")
    assert run.record.status_text == "Waiting for signal more"
    await run.signal("more")
    await stage.status(run, "running")
    assert run.record.status_text == "Uploading"
    go.set()
    await stage.until(run.wait())
    said = [event.payload["text"] async for event in run.events() if event.type == "status"]
    assert said[-2:] == ["Uploading", "Uploading"]


@pytest.mark.promise("PROC-07")
async def test_a_tool_in_a_child_process_says_what_it_is_doing(stage: Stage, place: str | Path):
    @tool(supports_background=True, isolation="process")
    def work(ctx: ToolContext) -> None:
        ctx.status("Counting")

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.until(run.wait())
    assert "Counting" in [event.payload["text"] async for event in run.events() if event.type == "status"]


@pytest.mark.promise("PROC-08", "OUT-06")
@pytest.mark.parametrize("length", [10, 300 * KI])
async def test_the_raw_output_of_a_run_is_its_log_file(stage: Stage, place: str | Path, length: int):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> Success:
        await ctx.output("stdout", "streamed")
        return Success({"ok": True}, raw_output="x" * length)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.until(run.wait())
    log = await session.files.read(run.record.log_path)
    if length == 10:
        assert log == "x" * 10
    else:
        missing = 300 * KI - 256 * KI
        assert (
            log == "x" * 128 * KI + f"\n[system] {missing} characters of output were left out here\n" + "x" * 128 * KI
        )


@pytest.mark.promise("PROC-08")
@pytest.mark.parametrize(
    ("said", "summary"), [("3 of 4 pages", "3 of 4 pages"), ("  ", '{"ok":true}'), (7, '{"ok":true}')]
)
async def test_a_tool_says_how_its_run_is_summed_up(stage: Stage, place: str | Path, said, summary: str):
    @tool(supports_background=True)
    async def work() -> Success:
        return Success({"ok": True}, metadata={"summary": said})

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work", signal_on_completion=True)
    await stage.until(run.wait())
    (message,) = await session.messages.list()
    assert f"- summary: {json.dumps(summary)}" in message.content
    (resource,) = await session.resources.list(kind="background_run")
    assert resource.metadata["summary"] == summary
