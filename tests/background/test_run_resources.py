"""Background runs among the resources of their session."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Policy, ToolContext, ToolError, tool
from toolwright.stores.contracts.sessions import Quota, Quotas


@tool(supports_background=True)
async def work(ctx: ToolContext, text: str = "hello") -> str:
    """Print something, and fail on demand."""
    await ctx.progress(1, total=2, label="half")
    await ctx.output("stdout", text)
    if text == "fail":
        raise ToolError("It broke.")
    return "done"


async def ended(run):
    async with fail_after(10):
        return await run.wait()


@pytest.mark.promise("PROC-07")
async def test_a_run_is_a_resource_of_its_session_from_its_beginning_to_its_end(place, open_runtime):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def gated(ctx: ToolContext) -> str:
        await ctx.progress(1, total=2)
        await ctx.output("stdout", "so far")
        await go.wait()
        return "done"

    session = (await open_runtime(place, gated, work, policy=Policy(background_per_session=5))).session("s")
    run = await session.spawn("gated", title="The long one", signal_on_completion=True)
    (first,) = await session.resources.list(kind="background_run")
    paths = {
        "artifact_dir": f"/.background/{run.id}",
        "log_path": f"/.background/{run.id}/output.log",
        "result_path": f"/.background/{run.id}/result.json",
    }
    assert (first.id, first.name, first.status) == (run.id, "The long one", "active")
    assert first.metadata == {
        "tool": "gated",
        "status_text": "Queued",
        "progress": None,
        "output_tail": "",
        "summary": None,
        "signal_on_completion": True,
        **paths,
    }
    async with fail_after(10):
        async for event in run.follow():
            if event.type == "output":
                break
    live = await session.resources.get(run.id)
    assert (live.status, live.metadata["status_text"], live.metadata["output_tail"]) == (
        "active",
        "Running",
        "[stdout] so far",
    )
    assert live.metadata["progress"] == {"current": 1.0, "total": 2.0}
    go.set()
    await ended(run)
    last = await session.resources.get(run.id)
    assert (last.status, last.metadata["status_text"], last.metadata["summary"]) == ("completed", "Completed", "done")
    assert last.metadata.items() >= paths.items()


@pytest.mark.promise("PROC-08")
async def test_its_status_is_that_of_the_end(open_runtime):
    session = (await open_runtime(":memory:", work)).session("s")
    failed = await session.spawn("work", {"text": "fail"})
    await ended(failed)
    resource = await session.resources.get(failed.id)
    assert (resource.status, resource.metadata["summary"]) == ("failed", "It broke.")


async def test_a_run_that_its_worker_hands_back_is_queued_again(open_runtime):
    @tool(supports_background=True)
    async def endless(ctx: ToolContext) -> None:
        await ctx.output("stdout", "so far")
        await asyncio.Event().wait()

    runtime = await open_runtime(":memory:", endless)
    session = runtime.session("s")
    run = await session.spawn("endless")
    async with fail_after(10):
        async for event in run.follow():
            if event.type == "output":
                break
        assert (await session.resources.get(run.id)).metadata["status_text"] == "Running"
        await runtime.drain(0)
    resource = await session.resources.get(run.id)
    assert (resource.status, resource.metadata["status_text"]) == ("active", "Queued")


async def test_a_run_that_never_began_is_shown_as_cancelled(open_runtime):
    session = (await open_runtime(":memory:", work, worker=False)).session("s")
    run = await session.spawn("work")
    await run.cancel("not needed")
    resource = await session.resources.get(run.id)
    assert (resource.status, resource.metadata["status_text"]) == ("cancelled", "Cancelled")


@pytest.mark.parametrize("text", ["a\0b", "\x1b[31mred\"'\\", "ä😀\u2028", "{}"], ids=ascii)
async def test_whatever_it_prints_can_be_read_there(open_runtime, text):
    session = (await open_runtime(":memory:", work)).session("s")
    run = await session.spawn("work", {"text": text})
    await ended(run)
    assert (await session.resources.get(run.id)).metadata["output_tail"] == f"[stdout] {text}"


@pytest.mark.promise("PROC-08")
@pytest.mark.parametrize("quota", [Quota(0, 10**6), Quota(1, 10**6), Quota(100, 10)], ids=["none", "one", "small"])
async def test_a_run_without_quota_for_its_resource_runs_all_the_same(place, open_runtime, quota):
    session = (await open_runtime(place, work, quotas=Quotas(resources=quota))).session("s")
    for _ in range(2):
        assert (await ended(await session.spawn("work"))).value == "done"
    assert len(await session.resources.list()) == (1 if quota.entries == 1 else 0)


async def test_one_that_was_removed_or_is_something_else_now_is_left_alone(open_runtime):
    session = (await open_runtime(":memory:", work, worker=False)).session("s")
    gone, other = await session.spawn("work"), await session.spawn("work")
    await session.resources.delete(gone.id)
    await session.resources.upsert(other.id, kind="mine", name="Mine", status="good")
    await gone.cancel()
    await other.cancel()
    (left,) = await session.resources.list()
    assert (left.id, left.kind, left.status) == (other.id, "mine", "good")


async def test_only_the_newest_runs_are_shown(open_runtime, monkeypatch):
    monkeypatch.setattr("toolwright.stores.sql.background.runs.KEPT", 2)
    session = (await open_runtime(":memory:", work)).session("s")
    runs = []
    for _ in range(4):
        runs.append(await session.spawn("work"))
        await ended(runs[-1])
    assert [resource.id for resource in await session.resources.list()] == [run.id for run in runs[2:]]
