"""A run is in the store before it begins, and is known by its id."""

from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from tests.loop_watch import LoopWatch
from toolwright import RetryPolicy, ToolContext, tool
from toolwright.errors import RunError


@tool(supports_background=True, display_name="Echo it")
async def echo(text: str = "hi", times: int = 1) -> str:
    return text * times


@pytest.mark.promise("PROC-01")
async def test_a_run_of_the_same_id_and_content_is_the_same_run(stage: Stage, place: str | Path):
    ran: list[str] = []

    @tool(supports_background=True)
    async def note(text: str, times: int = 1) -> str:
        ran.append(text)
        return text

    session = (await stage.open(place, note)).session("s")
    first = await session.spawn("note", {"text": "a", "times": 2}, id="mine")
    again = await session.spawn("note", {"times": 2, "text": "a"}, id="mine")
    assert (await stage.until(first.wait())).value == "a"
    late = await session.spawn("note", {"text": "a", "times": 2}, id="mine")
    assert [first.id, again.id, late.id] == ["mine"] * 3
    assert (await late.wait()).value == "a"
    assert ran == ["a"]
    assert len(await session.runs()) == 1


@pytest.mark.promise("PROC-01")
@pytest.mark.parametrize(
    "other",
    [
        {"args": {"text": "b"}},
        {"title": "Another"},
        {"timeout": 5},
        {"disposition": "rerun"},
        {"signal_on_completion": True},
    ],
)
async def test_an_id_that_is_another_runs_is_refused(stage: Stage, place: str | Path, other: dict[str, object]):
    session = (await stage.open(place, echo, worker=False)).session("s")
    await session.spawn("echo", {"text": "a"}, id="mine")
    with pytest.raises(RunError, match="'mine' is that of another run") as caught:
        await session.spawn("echo", **{"args": {"text": "a"}, "id": "mine", **other})
    assert caught.value.code == "conflict"
    assert len(await session.runs()) == 1


@pytest.mark.promise("PROC-01")
async def test_the_id_of_another_sessions_run_is_a_conflict_and_shows_nothing_of_it(stage: Stage, place: str | Path):
    runtime = await stage.open(place, echo, worker=False)
    await runtime.session("s").spawn("echo", {"text": "secret text"}, id="mine")
    with pytest.raises(RunError) as caught:
        await runtime.session("t").spawn("echo", {"text": "secret text"}, id="mine")
    assert caught.value.code == "conflict"
    assert "secret text" not in str(caught.value)


@pytest.mark.promise("PROC-01")
async def test_a_run_shows_where_it_comes_from_and_how_far_it_is(stage: Stage, place: str | Path):
    session = (await stage.open(place, echo)).session("s")
    run = await session.spawn("echo", {"text": "a"}, timeout=60)
    queued = run.record
    assert (queued.session, queued.tool, queued.arguments) == ("s", "echo", {"text": "a"})
    assert (queued.status, queued.status_text, queued.attempts) == ("queued", "Queued", 0)
    assert queued.provenance == {"by": "host"}
    assert queued.lease_until is None
    await stage.until(run.wait())
    done = run.record
    assert (done.status, done.status_text, done.attempts, done.token) == ("completed", "Completed", 1, 1)
    assert done.started_at is not None
    assert done.deadline == done.started_at + 60
    assert done.ended_at is not None
    assert done.lease_until is None
    assert done.worker is not None


@pytest.mark.promise("PROC-01")
async def test_a_run_that_a_call_started_says_which(stage: Stage, place: str | Path):
    @tool
    async def start(ctx: ToolContext) -> str:
        return (await ctx.runs.spawn("echo")).id

    session = (await stage.open(place, echo, start, worker=False)).session("s")
    (outcome,) = await session.run_batch([{"id": "c1", "name": "start"}], scope="turn 1")
    (run,) = await session.runs()
    assert outcome.value == run.id
    assert run.record.provenance == {  # type: ignore[attr-defined]
        "by": "call",
        "scope": "turn 1",
        "call_id": "c1",
        "source": "tool",
    }


@pytest.mark.promise("PROC-01")
@pytest.mark.parametrize("bad", ["", " ", "a/b", "..", ".", "a\nb", "x" * 300, 5, "\ud800"])
async def test_an_id_that_could_not_be_a_folder_is_refused(stage: Stage, bad: object):
    session = (await stage.open(":memory:", echo)).session("s")
    with pytest.raises(RunError, match="id"):
        await session.spawn("echo", id=bad)


@pytest.mark.promise("PROC-05")
async def test_a_run_has_an_id_a_title_and_paths_from_the_start(stage: Stage, place: str | Path):
    session = (await stage.open(place, echo, worker=False)).session("s")
    run = await session.spawn("echo")
    assert run.id.startswith("bg_")
    assert len(run.id) == 3 + 32
    assert run.id[15] == "7"  # of the seventh version of UUIDs
    shown = run.to_json()
    assert shown["title"] == "Echo it"
    assert shown["log_path"] == f"/.background/{run.id}/output.log"
    assert shown["result_path"] == f"/.background/{run.id}/result.json"
    assert (await session.spawn("echo", title="  My \n run ")).to_json()["title"] == "My run"


@pytest.mark.promise("PROC-05")
@pytest.mark.parametrize(
    ("name", "args", "told"),
    [
        (None, {}, "Missing required parameter: tool"),
        ("  ", {}, "Missing required parameter: tool"),
        ("echo", [], "Missing required parameter: args (object expected)"),
        ("echo", "text", "Missing required parameter: args (object expected)"),
        ("ghost", {}, "Unknown tool: ghost"),
        ("spawn_background", {}, "spawn_background cannot target itself recursively"),
        ("plain", {}, "Tool does not support background execution: plain"),
    ],
)
async def test_what_cannot_run_in_the_background_is_refused_in_these_words(
    stage: Stage, place: str | Path, name: object, args: object, told: str
):
    @tool
    async def plain() -> None: ...

    session = (await stage.open(place, echo, plain)).session("s")
    with pytest.raises(RunError) as caught:
        await session.spawn(name, args)  # type: ignore[arg-type]
    assert str(caught.value) == told
    assert await session.runs() == []


@pytest.mark.promise("PROC-05")
@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": True},
        {"timeout": "5"},
        {"disposition": "hope"},
        {"disposition": ["rerun"]},
        {"signal_on_completion": 1},
        {"title": 5},
        {"title": "\ud800"},
        {"args": {"text": object}},
        {"args": {"text": "\ud800"}},
    ],
    ids=repr,
)
async def test_options_that_mean_nothing_are_refused(stage: Stage, options: dict[str, object]):
    session = (await stage.open(":memory:", echo)).session("s")
    with pytest.raises(RunError):
        await session.spawn("echo", **options)  # type: ignore[arg-type]
    assert await session.runs() == []


@pytest.mark.promise("PROC-05")
async def test_a_tool_that_starts_a_run_gets_the_refusal_as_a_failure(stage: Stage, place: str | Path):
    @tool
    async def start(ctx: ToolContext) -> str:
        return (await ctx.runs.spawn("ghost")).id

    session = (await stage.open(place, start)).session("s")
    outcome = await session.call("start")
    assert outcome.failure is not None
    assert (outcome.failure.category, outcome.failure.message) == ("not_found", "Unknown tool: ghost")


@pytest.mark.promise("PROC-01")
async def test_a_call_that_is_run_again_finds_the_run_it_started(stage: Stage, file: Path):
    """Its spawn is an effect of the call: a second attempt gets the same run."""
    seen: list[str] = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, on=(OSError,)))
    async def start(ctx: ToolContext) -> str:
        seen.append((await ctx.runs.spawn("echo", {"text": "once"})).id)
        if ctx.attempt == 1:
            raise OSError("cut off")
        return seen[-1]

    session = (await stage.open(file, echo, start, worker=False)).session("s")
    outcome = await stage.until(session.call("start"))
    assert outcome.value == seen[0] == seen[1]
    assert len(await session.runs()) == 1


@pytest.mark.promise("PROC-05", "SES-03")
async def test_a_tool_that_takes_a_secret_is_not_started_with_one_that_would_be_kept(stage: Stage, place: str | Path):
    @tool(secret="pin", supports_background=True)
    async def unlock(pin: str) -> str:
        return "ok"

    session = (await stage.open(place, unlock)).session("s")
    for start in (
        session.spawn("unlock", {"pin": "pin-8841"}),
        session.schedule("unlock", {"pin": "pin-8841"}, cron="* * * * *"),
        session.on("topic", "unlock", {"pin": "pin-8841"}),
    ):
        with pytest.raises(RunError, match="takes a secret as 'pin'"):
            await start
    assert await session.runs() == []


@pytest.mark.promise("PROC-05", "CRON-01")
async def test_arguments_that_can_never_fit_are_refused_when_they_are_given(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def repeat(times: int) -> int:
        return times

    session = (await stage.open(place, repeat)).session("s")
    for args, place_of_problem in (({}, "times"), ({"times": "often"}, "times"), ({"times": 1, "more": 2}, "more")):
        told = rf"The arguments do not fit tool 'repeat':\n\$\.{place_of_problem}: "
        with pytest.raises(RunError, match=told):
            await session.spawn("repeat", args)
        with pytest.raises(RunError, match=told):
            await session.schedule("repeat", args, cron="* * * * *")
    assert await session.runs() == []
    assert await session.schedules() == []


@pytest.mark.promise("PROC-05", "SAFE-01")
@pytest.mark.parametrize("large", ["x" * 1_100_000, [[]] * 10_001, [1] * 50_001], ids=["bytes", "lists", "items"])
async def test_arguments_that_are_too_large_for_a_call_are_not_stored_for_later(
    stage: Stage, large: Any, loop_watch: LoopWatch
):
    @tool(supports_background=True)
    async def take(what: Any) -> None:
        pass

    session, args = (await stage.open(":memory:", take)).session("s"), {"what": large}
    loop_watch.restart()
    for start in (
        lambda: session.spawn("take", args),
        lambda: session.schedule("take", args, cron="* * * * *"),
        lambda: session.on("something", "take", args),
        lambda: session.track("take", args),
    ):
        with pytest.raises(RunError, match="The arguments have more than 1048576 bytes"):
            await start()
    assert (await session.runs(), await session.schedules(), await session.triggers()) == ([], [], [])


@pytest.mark.promise("SES-03")
async def test_a_program_that_has_not_used_a_secret_yet_does_not_schedule_it(stage: Stage, file: Path):
    await (await stage.open(file, echo)).session("s").secrets.set("key", "correct-horse-battery")
    session = (await stage.open(file, echo)).session("s")
    with pytest.raises(RunError, match="hold the value of a secret"):
        await session.schedule("echo", {"text": "correct-horse-battery"}, cron="* * * * *")


@pytest.mark.promise("SES-03")
async def test_a_title_that_holds_a_secret_is_refused_for_schedules_and_triggers_too(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def work() -> None: ...

    session = (await stage.open(place, work)).session("s")
    await session.secrets.set("k", "correct horse battery")
    for start in (
        session.schedule("work", cron="* * * * *", title="with correct horse battery"),
        session.on("topic", "work", title="with correct horse battery"),
    ):
        with pytest.raises(RunError, match="The title holds the value of a secret"):
            await start


class Word(str):
    """Text of a subclass, such as those of libraries that read YAML or TOML."""


@pytest.mark.promise("PROC-01", "CRON-01")
@pytest.mark.parametrize("by", ["program", "tool"])
async def test_words_of_a_subclass_of_text_name_runs_and_schedules(stage: Stage, place: str | Path, by: str):
    policies: Any = {"misfire": Word("all"), "overlap": Word("queue")}

    @tool(supports_background=True)
    async def start(ctx: ToolContext) -> list[str]:
        run = await ctx.runs.spawn(Word("echo"), id=Word("r"), title=Word("t"), disposition=Word("rerun"))  # type: ignore[arg-type]
        schedule = await ctx.schedules.add(Word("echo"), id=Word("n"), cron=Word("0 3 * * *"), **policies)
        return [run.id, schedule.id]

    session = (await stage.open(place, echo, start)).session(Word("s"))
    if by == "program":
        await session.spawn(Word("echo"), id=Word("r"), title=Word("t"), disposition=Word("rerun"))  # type: ignore[arg-type]
        await session.schedule(Word("echo"), id=Word("n"), cron=Word("0 3 * * *"), **policies)
    else:
        outcome = await stage.until((await session.spawn("start")).wait())
        assert outcome.value == ["r", "n"]
    run = await session.run(Word("r"))
    assert (await stage.until(run.wait())).value == "hi"
    schedule: Any = await session.scheduled(Word("n"))
    assert (schedule.schedule.misfire, schedule.schedule.overlap) == ("all", "queue")
