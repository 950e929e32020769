"""What stays of runs: sessions that are deleted or exported with them, and what may go when it is old."""

import asyncio
from pathlib import Path

import pytest

from tests.background.conftest import Stage
from tests.support import in_memory, until
from toolwright import App, Runtime, ToolContext, tool
from toolwright.errors import RunError, ServiceError
from toolwright.session.core import SessionCore
from toolwright.stores.contracts.inspection import Pruned
from toolwright.stores.sqlite.admin.maintenance import check, prune, stats
from toolwright.testing import FunctionModel


@tool(supports_background=True)
async def echo(text: str = "hi") -> str:
    return text


@tool(supports_background=True)
async def endless() -> None:
    await asyncio.Event().wait()


@pytest.mark.promise("PROC-01")
async def test_a_session_with_runs_that_are_not_over_cannot_be_deleted(stage: Stage, place: str | Path):
    runtime = await stage.open(place, echo, endless, worker=False)
    run = await runtime.session("s").spawn("endless")
    with pytest.raises(ServiceError, match="1 unfinished background runs") as caught:
        await runtime.delete_session("s")
    assert caught.value.code == "unfinished"
    await run.cancel()
    assert await runtime.delete_session("s")
    assert await runtime.session("s").runs() == []


@pytest.mark.promise("PROC-01")
async def test_a_session_whose_run_works_here_cannot_be_deleted(stage: Stage, place: str | Path):
    runtime = await stage.open(place, endless)
    run = await runtime.session("s").spawn("endless")
    await stage.status(run, "running")
    with pytest.raises(ServiceError, match="has unfinished background runs; let them end") as caught:
        await runtime.delete_session("s")
    assert caught.value.code == "unfinished"
    if place != ":memory:":
        elsewhere = await stage.open(place)
        with pytest.raises(ServiceError, match="1 unfinished background runs"):
            await elsewhere.delete_session("s")


@pytest.mark.promise("SES-05")
async def test_a_run_that_was_not_over_when_its_session_was_exported_is_abandoned_where_it_is_imported(
    stage: Stage, place: str | Path, tmp_path: Path
):
    runtime = await stage.open(place, echo, endless)
    session = runtime.session("s")
    done, held = await session.spawn("echo", id="done"), await session.spawn("endless", id="held")
    await stage.until(done.wait())
    await stage.status(held, "running")
    await session.resources.upsert("mine", kind="server", name="web", status="active")
    await runtime.export_session("s", tmp_path / "s.zip")
    await runtime.import_session(tmp_path / "s.zip", as_id="copy")
    found = {each.id: each for each in await runtime.session("copy").resources.list()}
    assert {id: each.status for id, each in found.items()} == {
        "done": "completed",
        "held": "abandoned",
        "mine": "active",
    }
    assert found["held"].metadata["status_text"] == "Abandoned"
    assert {each.id: each.status for each in await session.resources.list()}["held"] == "active"


@pytest.mark.promise("PROC-01")
async def test_a_session_takes_its_runs_with_it_and_leaves_those_of_others(stage: Stage, place: str | Path):
    runtime = await stage.open(place, echo)
    gone, stays = await runtime.session("s").spawn("echo", id="one"), await runtime.session("t").spawn("echo", id="two")
    await gone.grant("t")
    await stays.grant("s")
    for run in (gone, stays):
        await stage.until(run.wait())
    assert [info.id for info in await runtime.sessions()] == ["s", "t"]
    assert await runtime.delete_session("s")
    with pytest.raises(RunError, match="no longer in the store"):
        await gone.refresh()
    with pytest.raises(RunError):
        await runtime.session("t").run("one")
    with pytest.raises(RunError):
        await runtime.session("s").run("two")
    assert (await stays.wait()).value == "hi"
    # The id is free again, and a grant of the old run is none of the new one.
    again = await runtime.session("s").spawn("echo", {"text": "new"}, id="one")
    assert (await stage.until(again.wait())).value == "new"
    with pytest.raises(RunError):
        await runtime.session("t").run("one")


@pytest.mark.promise("PROC-08")
async def test_an_archive_has_what_runs_left_in_their_session(stage: Stage, place: str | Path, tmp_path: Path):
    runtime = await stage.open(place, echo)
    session = runtime.session("s")
    run = await session.spawn("echo", {"text": "kept"}, signal_on_completion=True)
    await stage.until(run.wait())
    await runtime.export_session("s", tmp_path / "s.zip")
    await runtime.import_session(tmp_path / "s.zip", as_id="copy")
    copy = runtime.session("copy")
    assert await copy.files.read(f"/.background/{run.id}/result.json") == '"kept"'
    assert len(await copy.messages.list()) == 1
    assert await copy.runs() == []


@pytest.mark.promise("PROC-01")
async def test_runs_that_ended_long_ago_may_go(stage: Stage, file: Path):
    runtime = await stage.open(file, echo, endless)
    session = runtime.session("s")
    old = await session.spawn("echo")
    await stage.until(old.wait())
    never = await session.spawn("endless")
    await never.signal("go", 1)
    await never.cancel()
    await stage.until(never.wait())
    await stage.pass_time(100, 10)
    between = stage.clock.now()
    new = await session.spawn("echo")
    await stage.until(new.wait())
    active = await session.spawn("endless")
    await stage.status(active, "running")
    assert await check(file) == []
    assert (await stats(file)).runs == {"completed": 2, "cancelled": 1, "running": 1}
    planned = await prune(file, between, dry_run=True)
    assert planned.runs == 2
    removed = await prune(file, between)
    assert removed.runs == 2
    assert [run.id for run in await session.runs()] == [active.id, new.id]
    assert await check(file) == []
    assert (await prune(file, stage.clock.now() + 1, sessions=["other"])) == Pruned()
    assert (await prune(file, stage.clock.now() + 1, sessions=["s"])).runs == 1
    assert (await active.refresh()).status == "running"
    assert await session.files.read(f"/.background/{old.id}/result.json") == '"hi"'


@pytest.mark.promise("PROC-01")
async def test_what_stands_above_an_active_run_stays(stage: Stage, file: Path):
    @tool(supports_background=True)
    async def start(ctx: ToolContext) -> str:
        return (await ctx.runs.spawn("endless")).id

    runtime = await stage.open(file, start, endless)
    session = runtime.session("s")
    parent = await session.spawn("start")
    await stage.until(parent.wait())
    assert (await prune(file, stage.clock.now() + 1)).runs == 0
    (child,) = await parent.children()
    await child.cancel()
    await stage.until(child.wait())
    assert (await prune(file, stage.clock.now() + 1)).runs == 2


@pytest.mark.promise("PROC-04")
async def test_what_an_active_run_did_stays_however_old(stage: Stage, file: Path):
    """Its finished calls too: the worker that takes it over must not make them again."""
    did = []
    held = asyncio.Event()

    @tool
    async def inner() -> str:
        did.append("inner")
        return "inner"

    @tool(supports_background=True, idempotent=True)
    async def outer(ctx: ToolContext) -> str:
        value = (await ctx.call("inner")).text
        if not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return value

    first = await stage.open(file, inner, outer)
    run = await first.session("s").spawn("outer")
    await stage.until(held.wait())
    await stage.close(first)
    assert (await prune(file, stage.clock.now() + 1)).spared >= 1
    again = await stage.open(file, inner, outer, worker=True)
    assert "inner" in (await stage.until((await again.session("s").run(run.id)).wait())).text
    assert did == ["inner"]


@pytest.mark.promise("PROC-04", "TURN-08")
@pytest.mark.parametrize("what", ["runs", "turns"])
async def test_a_worker_does_not_keep_the_sessions_that_it_worked_for_in_memory(file: Path, what: str):
    app = App(tools=[echo], model=FunctionModel(lambda request: "Done."))
    async with app.open(file, worker=False) as starter:
        for number in range(30):
            session = starter.session(f"s{number}")
            if what == "runs":
                await session.spawn("echo")
            else:
                await session.start_turn("Go.", background=True)
    del starter, session
    before = in_memory(SessionCore)
    async with app.open(file, worker=True) as runtime:
        assert runtime.worker is not None
        counts = runtime.worker.counts
        await until(lambda: counts.by_action["completed"] + counts.turns_by_action["answered"] == 30)
        await until(lambda: in_memory(SessionCore) - before < 10)


@pytest.mark.promise("PROC-10")
async def test_a_program_does_not_keep_the_sessions_whose_runs_it_starts_by_triggers_in_memory(file: Path):
    async with Runtime.open(file, tools=[echo], worker=False) as other:
        for number in range(30):
            await other.session(f"s{number}").on("topic", "echo")
    del other
    before = in_memory(SessionCore)
    async with Runtime.open(file, tools=[echo], worker=False) as runtime:
        assert len(await runtime.occur("topic")) == 30
        assert in_memory(SessionCore) - before < 10


@pytest.mark.promise("PROC-09")
async def test_a_program_does_not_keep_the_sessions_whose_runs_it_cancels_in_memory(stage: Stage, file: Path):
    @tool(supports_background=True, approval="required")
    async def wipe() -> str:
        return "wiped"

    first = await stage.open(file, wipe)
    runs = [await first.session(f"s{number}").spawn("wipe") for number in range(20)]

    async def all_wait() -> bool:
        return len(await first.approvals()) == len(runs)

    await stage.until_so(all_wait)
    await stage.close(first)
    before = in_memory(SessionCore)
    second = await stage.open(file, wipe, worker=False)
    for each in runs:
        run = await second.run(each.id)
        assert run.status == "queued"
        assert await run.cancel()
    assert in_memory(SessionCore) - before < 10
