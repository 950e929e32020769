"""Runs that happen elsewhere: listed, awaited and followed like others, and reported on by their host."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from tests.loop_watch import LoopWatch
from tests.support import fail_after
from toolwright import Failure, Image, Policy, Rule, Runtime, ToolContext, tool
from toolwright.errors import RunError, RunRefused, ToolwrightError


@tool(supports_background=True)
async def deploy(where: str = "") -> str:
    """A tool that has the name of tracked work."""
    return "a worker ran it"


@pytest.mark.promise("PROC-13")
async def test_a_tracked_run_is_reported_on_and_finished_once(stage: Stage, place: str | Path):
    session = (await stage.open(place, deploy)).session("s")
    run = await session.track("deploy", {"where": "prod"}, title="Deploy 1.2", signal_on_completion=True)
    assert (run.status, run.record.tool, run.record.arguments) == ("running", "deploy", {"where": "prod"})
    assert await run.report(status="Building", progress=1, total=3, label="image", unit="steps", output="pulled\n")
    assert await run.report(output="pushed\n", stream="stderr", status="Pushing")
    assert await run.append("checked_by_qa", {"by": "ann"}, key="qa") == await run.append(
        "checked_by_qa", {"by": "ann"}, key="qa"
    )
    await stage.pass_time(120)  # a worker of the same tool looks for work all the time
    (listed,) = await session.runs(active=True)
    assert (listed.status, listed.record.status_text, listed.record.worker) == ("running", "Pushing", None)
    shown = listed.to_json()
    assert (shown["tracked"], shown["progress"]) == (
        True,
        {"current": 1, "total": 3, "unit": "steps", "label": "image"},
    )
    waiting = asyncio.ensure_future(run.wait())
    other = await session.run(run.id)
    assert await other.finish({"url": "https://shop"}, summary="1.2 is live")
    assert not await run.finish("again")
    assert not await run.fail("too late")
    assert not await run.report(status="too late")
    assert not await run.cancel()
    async with fail_after(5):
        outcome = await stage.until(waiting)
        types = [event.type async for event in run.follow()]
    assert (outcome.status, outcome.value, run.status) == ("success", {"url": "https://shop"}, "completed")
    assert types == ["tracked", "status", "output", "progress", "status", "output", "checked_by_qa", "completed"]
    assert await session.files.read(run.record.log_path) == "[stdout] pulled\n[stderr] pushed\n"
    (resource,) = await session.resources.list(kind="background_run")
    assert (resource.status, resource.metadata["summary"]) == ("completed", "1.2 is live")
    (message,) = await session.messages.list()
    assert (message.sender, message.metadata) == ("runtime", {"run_id": run.id, "status": "completed"})
    assert "- work: deploy" in message.content
    with pytest.raises(RunError, match="takes no events: it is finished"):
        await run.append("late")


@pytest.mark.promise("PROC-13")
async def test_a_tracked_run_fails_or_is_cancelled_by_its_host(stage: Stage, place: str | Path):
    session = (await stage.open(place)).session("s")
    failed, named, cancelled = [await session.track("job", {"number": number}) for number in range(3)]
    assert await failed.fail("no disk left")
    assert await named.fail(Failure(message="no quota", category="resource_limit", code="quota"))
    assert await cancelled.cancel("not today")
    assert failed.outcome is not None
    assert named.outcome is not None
    assert cancelled.outcome is not None
    assert failed.outcome.failure is not None
    assert failed.outcome.failure.message == "no disk left"
    assert failed.outcome.may_have_run
    assert named.outcome.failure is not None
    assert named.outcome.failure.code == "quota"
    assert (cancelled.status, cancelled.outcome.reason) == ("cancelled", "not today")
    assert not await cancelled.finish(1)
    with pytest.raises(RunError, match="takes no signals: it is finished"):
        await cancelled.signal("x")
    left = await session.track("job")
    with pytest.raises(RunError, match="takes no signals: it happens elsewhere"):
        await left.signal("x")
    await left.finish()


@pytest.mark.promise("PROC-13")
async def test_another_process_reports_by_the_id_of_the_run(stage: Stage, file: Path):
    first = await stage.open(file)
    run = await first.session("s").track("deploy", id="deploy-7")
    again = await first.session("s").track("deploy", id="deploy-7")
    assert again.id == run.id
    with pytest.raises(RunError, match="is that of another"):
        await first.session("s").track("release", id="deploy-7")
    second: Runtime = await stage.open(file, worker=True)
    following = asyncio.ensure_future(_types(run))
    await (await second.run("deploy-7")).report(status="Half done")
    await stage.close(first)
    following.cancel()
    handle = await second.run("deploy-7")
    assert (handle.status, handle.record.status_text) == ("running", "Half done")
    assert await handle.finish(7)
    assert (await stage.until((await second.session("s").run("deploy-7")).wait())).value == 7


async def _types(run: Any) -> list[str]:
    return [event.type async for event in run.follow()]


@pytest.mark.promise("PROC-13")
async def test_an_event_of_the_host_tells_the_session_once(stage: Stage, place: str | Path):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work() -> str:
        """Work."""
        await go.wait()
        return "done"

    session = (await stage.open(place, work)).session("s")
    await session.secrets.set("token", "correct horse")
    run = await session.spawn("work")
    for _ in range(2):
        await run.append("stage_passed", {"stage": "correct horse"}, key="build", tell=True)
    await stage.status(run, "running")
    await run.append("stage_passed", "tests", tell=True)
    first, second = await session.messages.list()
    assert first.sender == "runtime"
    assert first.metadata == {"run_id": run.id, "event": "stage_passed"}
    assert "[secret:token]" in first.content
    assert '- event: "tests"' in second.content
    with pytest.raises(RunError, match="only a run that was started by track"):
        await run.finish("by the host")
    for name in ("completed", "output", "Not A Name", ""):
        with pytest.raises(RunError, match="cannot be appended"):
            await run.append(name)
    with pytest.raises(RunError, match="may have 262144; use a smaller payload"):
        await run.append("large", "x" * 300_000)
    with pytest.raises(RunError, match="key 'build'"):
        await run.append("stage_passed", "other", key="build")
    go.set()
    assert (await stage.until(run.wait())).value == "done"
    events = [event.payload async for event in run.events() if event.type == "stage_passed"]
    assert events == [{"stage": "[secret:token]"}, "tests"]


@pytest.mark.promise("PROC-13", "PROC-06")
async def test_tracked_runs_take_no_place_of_others_and_have_a_limit(stage: Stage, place: str | Path):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work() -> str:
        """Work."""
        await go.wait()
        return "done"

    policy = Policy(background_per_session=1, tracked_per_session=2, on_background_limit="queue")
    session = (await stage.open(place, work, policy=policy)).session("s")
    tracked = [await session.track("job") for _ in range(2)]
    with pytest.raises(RunError, match="Maximum 2 unfinished tracked runs") as refused:
        await session.track("job")
    assert refused.value.code == "session_limit"
    running, held = await session.spawn("work"), await session.spawn("work")
    await stage.status(running, "running")
    await tracked[0].finish()
    await stage.pass_time(5)
    assert (await held.refresh()).status == "queued"  # the end of a tracked run leaves no place to it
    go.set()
    assert (await stage.until(held.wait())).value == "done"
    await session.track("job")


@pytest.mark.promise("PROC-13", "AUTH-02")
async def test_a_tool_that_tracks_work_is_under_the_rules_of_its_call(stage: Stage, place: str | Path):
    @tool(readonly=True)
    async def start(ctx: ToolContext, name: str) -> str:
        """Start."""
        run = await ctx.runs.track(name, {"n": 1})
        await run.report(status="Begun")
        return run.id

    policy = Policy(rules=[Rule("deny", "deploy", source="tool"), Rule("ask", "release")])
    session = (await stage.open(place, start, policy=policy)).session("s")
    assert "may not run" in (await session.call("start", name="deploy")).text
    asked = (await session.call("start", name="release")).text
    assert "nobody can be asked" in asked
    (outcome,) = await session.run_batch([{"name": "start", "arguments": {"name": "job"}}], read_only=True)
    assert outcome.status == "failure"
    assert await session.runs() == []
    with pytest.raises(RunRefused):
        await session.track("release")
    id = (await session.call("start", name="job")).value
    run = await session.run(id)
    assert (run.record.status_text, run.record.provenance["by"]) == ("Begun", "call")


@pytest.mark.promise("PROC-13", "PROC-03")
async def test_a_session_that_was_granted_a_tracked_run_does_not_report_on_it(stage: Stage, place: str | Path):
    runtime = await stage.open(place)
    run = await runtime.session("s").track("job")
    await run.grant("t")
    theirs = await runtime.session("t").run(run.id)
    for attempt in (theirs.report(status="x"), theirs.finish(1), theirs.fail("x"), theirs.append("x")):
        with pytest.raises(RunError, match="belongs to another session") as refused:
            await attempt
        assert refused.value.code == "not_own"
    assert await theirs.cancel("enough")


@pytest.mark.promise("PROC-13")
async def test_a_run_that_tracked_work_takes_it_along_when_it_is_cancelled(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def release(ctx: ToolContext) -> None:
        """Release."""
        await ctx.runs.track("deploy", id="below")
        await asyncio.Event().wait()

    session = (await stage.open(place, release)).session("s")
    run = await session.spawn("release")

    async def there() -> bool:
        return len(await session.runs()) == 2

    await stage.until_so(there)
    assert [child.id for child in await run.children()] == ["below"]
    await run.cancel("stop all")
    await stage.until(run.wait())
    assert (await (await session.run("below")).refresh()).status == "cancelled"


@pytest.mark.promise("PROC-13")
@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("a b", {}, "name 'a b' of a tracked run"),
        (3, {}, "name 3 of a tracked run"),
        ("job", {"input": [1]}, "object expected"),
        ("job", {"title": 3}, "title 3"),
        ("job", {"id": "../x"}, "id '../x'"),
    ],
)
async def test_what_cannot_be_tracked_is_refused(stage: Stage, name: Any, given: dict[str, Any], says: str):
    session = (await stage.open(":memory:")).session("s")
    with pytest.raises(RunError, match=says):
        await session.track(name, **given)


@pytest.mark.promise("PROC-07")
async def test_progress_may_have_no_number(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        """Work."""
        await ctx.progress(label="warming up", total=3)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.until(run.wait())
    assert run.to_json()["progress"] == {"total": 3, "label": "warming up"}
    tracked = await session.track("job")
    await tracked.report(label="elsewhere")
    assert tracked.to_json()["progress"] == {"label": "elsewhere"}
    with pytest.raises(RunError, match="progress 'half' of a run"):
        await tracked.report(progress="half")  # type: ignore[arg-type]
    await tracked.finish()


@pytest.mark.promise("PROC-13", "SES-03")
async def test_no_part_of_a_report_on_a_tracked_run_shows_a_secret(stage: Stage, place: str | Path):
    session = (await stage.open(place)).session("s")
    secret = "correct-horse-battery"
    await session.secrets.set("key", secret)
    run = await session.track("deploy", signal_on_completion=True)
    await run.report(status=secret, progress=1, label=secret, unit=secret, output=secret, stream=secret)
    # Output comes in pieces of any length: a secret may begin in one and end in the next.
    await run.report(output=f"first {secret[:10]}")
    await run.report(output=f"{secret[10:]} last\n")
    await run.append("checked", {secret: secret}, tell=True)
    texts = [str(run.to_json()), await run.log(), str([event.payload async for event in run.events()])]
    await run.finish({"token": secret}, summary=f"with {secret}")
    other = await session.track("deploy")
    await other.report(output=secret[:10])
    await other.report(output=secret[10:])
    await other.fail(Failure(message=secret, data={"token": secret}))
    gone = await session.track("deploy")
    await gone.report(output=secret[:10])
    await gone.report(output=secret[10:])
    await gone.cancel(secret)
    texts += [str((await each.refresh()).to_json()) for each in (run, other, gone)]
    texts += [await session.files.read(each.to_json()["log_path"]) for each in (run, other, gone)]
    texts += [str(await session.messages.list()), str(await session.resources.list())]
    assert [text for text in texts if secret in text] == []
    assert "first [secret:key] last" in await run.log()


@pytest.mark.promise("PROC-13", "SES-03")
@pytest.mark.parametrize("given", [{"id": "correct-horse-battery"}, {"name": "correct-horse-battery"}])
async def test_a_secret_is_no_name_and_no_id_of_a_run(stage: Stage, given: dict[str, Any]):
    session = (await stage.open(":memory:", deploy)).session("s")
    await session.secrets.set("key", "correct-horse-battery")
    with pytest.raises(RunError, match="holds the value of a secret"):
        await session.track(**{"name": "deploy", **given})
    if "id" in given:
        with pytest.raises(RunError, match="holds the value of a secret"):
            await session.spawn("deploy", **given)


@pytest.mark.promise("PROC-13", "SAFE-01")
async def test_a_large_end_of_a_tracked_run_does_not_hold_up_the_loop(stage: Stage, loop_watch: LoopWatch):
    session = (await stage.open(":memory:")).session("s")
    await session.secrets.set("key", "correct-horse-battery")
    large, many, lines = "x" * 7_000_000, [[1, 2, 3, 4]] * 30_000, "line\n" * 3_000_000
    long, wide, told, failed = [await session.track("job", {"number": number}) for number in range(4)]
    loop_watch.restart()
    assert await long.finish(large)
    assert await wide.finish(many)
    assert await told.report(output=lines)
    assert await failed.fail(large * 2)
    assert long.outcome is not None
    assert failed.outcome is not None
    assert (len(long.outcome.value), len(long.outcome.text) < 60_000) == (7_000_000, True)
    assert len(failed.outcome.text) < 60_000
    for value in ("x" * 9_000_000, [[]] * 51_000):
        with pytest.raises(RunError, match="is too large"):
            await told.finish(value)


@pytest.mark.promise("PROC-13", "OUT-11")
async def test_a_tracked_run_may_end_with_an_image(stage: Stage, place: str | Path):
    session = (await stage.open(place)).session("s")
    run = await session.track("render")
    picture = Image.from_bytes(b"pixels of a picture")
    assert await run.finish({"preview": picture})
    outcome = await run.wait()
    assert outcome.images == (picture,)
    assert outcome.value == {"preview": "[image: image/png, 19 bytes]"}


@pytest.mark.promise("PROC-13")
@pytest.mark.parametrize("name", ["status", "label", "unit", "output", "stream"])
async def test_a_report_that_is_no_text_is_refused_by_its_name(stage: Stage, name: str):
    session = (await stage.open(":memory:")).session("s")
    given: dict[str, Any] = {name: 3}
    with pytest.raises(ToolwrightError, match=f"The {name} 3 is not usable; use text"):
        await (await session.track("job")).report(**given)
