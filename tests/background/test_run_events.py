"""What is told of a run: declared types, checked payloads, rising numbers, nothing after the end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from tests.support import fail_after
from toolwright import ToolContext, tool
from toolwright.errors import RunError, ServiceError, ToolDefinitionError
from toolwright.events import CallEmitted
from toolwright.stores.contracts.run_events import TYPES
from toolwright.tools.definition import RESERVED_EVENTS


async def follow(run: Any, after: int = 0) -> list[Any]:
    return [event async for event in run.follow(after)]


@pytest.mark.promise("PROC-02")
async def test_what_happens_to_a_run_is_told_in_order_from_queued_to_its_end(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.progress(1, 2, "half", unit="files")
        await ctx.output("stdout", "hello\n")
        return "done"

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    events = await stage.until(follow(run))
    assert [event.type for event in events] == ["queued", "started", "status", "output", "progress", "completed"]
    numbers = [event.number for event in events]
    assert numbers == sorted(set(numbers))
    assert [event.run for event in events] == [run.id] * 6
    assert [event.last for event in events] == [False] * 5 + [True]
    assert events[1].payload == {"worker": run.record.worker, "attempt": 1, "taken_over_from": None}
    assert events[2].payload == {"text": "Running"}
    assert events[3].payload == {"stream": "stdout", "text": "hello\n"}
    assert events[4].payload == {"current": 1, "total": 2, "unit": "files", "label": "half"}
    assert events[5].payload == {"summary": "done"}


@pytest.mark.promise("PROC-02")
async def test_what_a_run_says_it_does_stands_before_or_after_its_output_as_it_was_said(
    stage: Stage, place: str | Path
):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.output("stdout", "hello\n")
        await ctx.status("Packing")
        return "done"

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    told = [(event.type, event.payload.get("text")) for event in await stage.until(follow(run))]
    assert told[2:-1] == [("status", "Running"), ("output", "hello\n"), ("status", "Packing")]


@pytest.mark.promise("PROC-02")
async def test_a_tool_tells_of_what_it_declares(stage: Stage, place: str | Path):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    @tool(supports_background=True, events={"stage": schema, "count": int, "mark": dict[str, int]})
    async def work(ctx: ToolContext) -> None:
        await ctx.output("stdout", "before")
        await ctx.emit("stage", {"name": "one"})
        await ctx.emit("count", 3)
        await ctx.emit("mark", {"a": 1}, key="once")
        await ctx.emit("mark", {"a": 1}, key="once")

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    events = await stage.until(follow(run))
    own = [(event.type, event.payload) for event in events if event.type in ("stage", "count", "mark", "output")]
    assert own == [
        ("output", {"stream": "stdout", "text": "before"}),
        ("stage", {"name": "one"}),
        ("count", 3),
        ("mark", {"a": 1}),
    ]


@pytest.mark.promise("PROC-02")
@pytest.mark.parametrize(
    ("name", "payload", "told"),
    [
        ("stage", {"name": 5}, "does not fit its schema"),
        ("stage", None, "does not fit its schema"),
        ("stage", {"name": object()}, "is not usable"),
        ("stage", {"name": "x" * 70_000}, "may have 65536"),
        ("ghost", {}, "has no event 'ghost'; it declares 'stage'"),
        (5, {}, "has no event 5"),
        ("completed", {"summary": "x"}, "has no event 'completed'"),
    ],
)
@pytest.mark.parametrize("background", [True, False])
async def test_an_event_that_is_not_as_declared_is_refused(
    stage: Stage, name: Any, payload: Any, told: str, background: bool
):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    refused: list[str] = []

    @tool(supports_background=True, events={"stage": schema})
    async def work(ctx: ToolContext) -> None:
        try:
            await ctx.emit(name, payload)
        except ServiceError as error:
            refused.append(str(error))

    session = (await stage.open(":memory:", work)).session("s")
    if background:
        run = await session.spawn("work")
        events = await stage.until(follow(run))
        assert [event.type for event in events] == ["queued", "started", "status", "completed"]
    else:
        await session.call("work")
    (refusal,) = refused
    assert told in refusal


@pytest.mark.promise("PROC-02")
async def test_a_key_that_was_used_for_something_else_is_a_conflict(stage: Stage, place: str | Path):
    caught: list[RunError] = []

    @tool(supports_background=True, events={"count": int})
    async def work(ctx: ToolContext) -> None:
        await ctx.emit("count", 1, key="k")
        try:
            await ctx.emit("count", 2, key="k")
        except RunError as error:
            caught.append(error)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    events = await stage.until(follow(run))
    assert [event.payload for event in events if event.type == "count"] == [1]
    assert [error.code for error in caught] == ["conflict"]


@pytest.mark.promise("PROC-02")
async def test_in_the_foreground_an_event_goes_to_whoever_watches(stage: Stage, place: str | Path):
    @tool(events={"count": int})
    async def work(ctx: ToolContext) -> None:
        await ctx.emit("count", 7)

    session = (await stage.open(place, work)).session("s")
    events = session.subscribe()
    await session.call("work")
    events.close()
    (told,) = [event async for event in events if isinstance(event, CallEmitted)]
    assert (told.name, told.payload, told.to_json()["kind"]) == ("count", 7, "call.emitted")


def test_no_tool_declares_an_event_that_every_run_has():
    assert frozenset(TYPES) == RESERVED_EVENTS
    for name in (*RESERVED_EVENTS, "", "Upper", "a b", "x" * 65, 5):
        with pytest.raises(ToolDefinitionError, match="event"):

            @tool(events={name: int})  # type: ignore[dict-item]
            async def work() -> None: ...


def test_events_that_are_no_schemas_are_refused():
    with pytest.raises(ToolDefinitionError):

        @tool(events={"stage": {"type": "nonsense"}})
        async def work() -> None: ...

    with pytest.raises(ToolDefinitionError, match="events"):

        @tool(events=["stage"])  # type: ignore[call-overload]
        async def other() -> None: ...


@pytest.mark.promise("PROC-02")
async def test_nothing_follows_the_end(stage: Stage, file: Path):
    """A tool that goes on after its run was cancelled can tell of nothing more."""
    going, stopped = asyncio.Event(), asyncio.Event()
    refused: list[BaseException] = []

    @tool(supports_background=True, events={"count": int})
    async def work(ctx: ToolContext) -> None:
        going.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await stopped.wait()
        await ctx.output("stdout", "late")
        await ctx.progress(9)
        try:
            await ctx.emit("count", 1)
        except BaseException as error:
            refused.append(error)
            raise

    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work")
    await stage.until(going.wait())
    await run.cancel("enough")
    outcome = await stage.until(run.wait())
    assert (outcome.status, outcome.reason) == ("cancelled", "enough")
    before = [event.type async for event in run.follow()]
    assert before[-1] == "cancelled"
    stopped.set()
    async with fail_after(5):
        while not refused:
            await stage.pass_time(0.5, 0.25)
    await stage.pass_time(1, 0.25)
    assert [event.type async for event in run.follow()] == before
    assert (await run.refresh()).progress is None
    assert await run.log() == ""


@pytest.mark.promise("PROC-07")
async def test_only_the_latest_progress_is_kept(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        for current in range(10):
            await ctx.progress(current, 10)
            await stage.clock.sleep(1)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    told = [event.payload["current"] for event in await stage.until(follow(run)) if event.type == "progress"]
    assert told == sorted(told)
    assert len(told) >= 5, "a follower sees it move"
    assert [event.payload["current"] async for event in run.follow() if event.type == "progress"] == [9]


@pytest.mark.promise("PROC-07")
@pytest.mark.parametrize("garbage", ["text", float("nan"), float("inf"), None, 10**400, object, True], ids=repr)
async def test_progress_and_output_that_are_garbage_spoil_nothing(stage: Stage, place: str | Path, garbage: Any):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.progress(garbage, garbage, garbage, unit=garbage)
        await ctx.output(garbage, garbage)
        await ctx.output("\ud800 \n x", "\ud800 lone")
        return "fine"

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    assert (await stage.until(run.wait())).value == "fine"
    (found,) = await session.runs()
    assert found.record.progress is None
    assert "\\ud800 lone" in await found.log()


class Share(float):
    """A number of a subclass, such as those of NumPy."""


class Count(int):
    """The same of a whole number."""


@pytest.mark.promise("PROC-07")
@pytest.mark.parametrize("number", [Share(0.5), Count(3)], ids=["float", "int"])
async def test_progress_by_a_number_of_a_subclass_is_that_number(stage: Stage, place: str | Path, number: Any):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.progress(number, number)
        await stage.clock.sleep(1)
        return "done"

    @tool(supports_background=True)
    async def other() -> str:
        return "done beside it"

    session = (await stage.open(place, work, other)).session("s")
    runs = [await session.spawn("work"), await session.spawn("other")]
    assert [(await stage.until(run.wait())).value for run in runs] == ["done", "done beside it"]
    progress = runs[0].record.progress
    assert (progress.current, progress.total) == (float(number), float(number))
    tracked = await session.track("deploy")
    assert await tracked.report(progress=number, total=number)
    progress = tracked.record.progress
    assert (progress.current, progress.total) == (float(number), float(number))


@pytest.mark.promise("PROC-03")
async def test_a_follower_begins_where_it_left_off(stage: Stage, place: str | Path):
    @tool(supports_background=True, events={"count": int})
    async def work(ctx: ToolContext) -> None:
        for number in range(700):
            await ctx.emit("count", number)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.until(run.wait())
    every = await follow(run)
    assert [event.payload for event in every if event.type == "count"] == list(range(700))
    for at in (0, 3, 499, 500, 501, len(every) - 1, len(every)):
        after = every[at - 1].number if at else 0
        assert await follow(run, after) == every[at:]
    assert await follow(run, 10**9) == []
