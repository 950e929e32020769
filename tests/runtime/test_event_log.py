"""The event log: what every process on a store did, in one order."""

import asyncio
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.stores import prune
from toolwright.testing import ScriptedModel


@tool(readonly=True)
async def look(city: str) -> str:
    """Look at a city."""
    return f"seen {city}"


@tool
async def pay(amount: int) -> int:
    """Pay."""
    return amount


@tool(approval="required")
async def wipe() -> str:
    """Wipe."""
    return "wiped"


@tool(supports_background=True)
async def count(ctx: ToolContext) -> str:
    """Count to two."""
    ctx.progress(1, 2)
    return "counted"


def calls(*given: tuple[str, str, dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(id=id, name=name, arguments=arguments) for id, name, arguments in given]


async def everything(runtime: Runtime, after: int = 0, limit: int = 1_000) -> list[dict[str, Any]]:
    """All events beyond a number, read in pages."""
    found: list[dict[str, Any]] = []
    while True:
        page = await runtime.event_log(after, limit=limit)
        assert len(page.events) <= limit
        found += [event.to_json() for event in page.events]
        if page.last == after:
            return found
        after = page.last


def short(events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(event["kind"], event.get("call_id")) for event in events]


@pytest.mark.promise("HTTP-02")
async def test_the_events_of_all_processes_have_one_order_and_any_page_size_gives_the_same(file, open_runtime):
    first = await open_runtime(file, look, pay)
    second = await open_runtime(file, look, pay)
    reader = await open_runtime(file)
    ten = calls(*((f"l{number}", "look", {"city": "Rome"}) for number in range(10)))
    await first.session("a").run_batch(ten)
    await second.session("b").run_batch(calls(("p", "pay", {"amount": 3})))
    await asyncio.gather(
        first.session("c").run_batch(calls(("x", "pay", {"amount": 1}))),
        second.session("d").run_batch(calls(("y", "pay", {"amount": 2}))),
    )

    events = await everything(reader)
    numbers = [event["number"] for event in events]
    assert numbers == sorted(set(numbers))
    for limit in (1, 3, 7):
        assert await everything(reader, limit=limit) == events
    for after in numbers:
        assert await everything(reader, after) == [event for event in events if event["number"] > after]

    of_a = [event for event in events if event["session"] == "a"]
    assert of_a[0]["calls"] == [[f"l{number}", "look"] for number in range(10)]
    assert short(of_a[1:]) == [("call.finished", f"l{number}") for number in range(10)]
    assert of_a[3]["outcome"]["value"] == "seen Rome"
    assert of_a[3]["arguments"] == {"city": "Rome"}
    assert short([event for event in events if event["session"] == "b"]) == [
        ("batch.started", None),
        ("call.started", "p"),
        ("call.finished", "p"),
    ]


@pytest.mark.promise("HTTP-02")
async def test_an_event_has_the_same_json_as_for_a_subscriber_in_the_process(file, open_runtime):
    runtime = await open_runtime(file, pay)
    with runtime.subscribe() as subscription:
        await runtime.session("s").run_batch(calls(("p", "pay", {"amount": 3})))
        told = [event.to_json() async for event in until_batch_ends(subscription)]
    (finished,) = [one for one in told if one["kind"] == "call.finished"]
    (logged,) = [one for one in await everything(runtime) if one["kind"] == "call.finished"]
    assert logged.keys() - {"number"} == finished.keys()
    exact = finished.keys() - {"at", "queue_time", "run_time"}
    assert {name: logged[name] for name in exact} == {name: finished[name] for name in exact}


async def until_batch_ends(subscription):
    async for event in subscription:
        yield event
        if event.kind == "batch.finished":
            return


@pytest.mark.promise("HTTP-02")
async def test_waits_and_their_ends_are_events(file, open_runtime):
    runtime = await open_runtime(file, wipe)
    session = runtime.session("s")
    async with fail_after(10):
        with session.subscribe() as subscription:
            batch = session.start_batch(calls(("w", "wipe", {})))
            async for event in subscription:
                if event.kind == "call.waiting":
                    break
        (asked,) = await session.approvals()
        await runtime.approve(asked.key, by="ann")
        await batch
    events = [(event["kind"], event.get("what")) for event in await everything(runtime)]
    assert events == [
        ("batch.started", None),
        ("call.waiting", "approval"),
        ("call.resolved", "approval"),
        ("call.started", None),
        ("call.finished", None),
    ]


@pytest.mark.promise("HTTP-02")
async def test_turns_tell_the_events_that_their_calls_do_not(file, open_runtime):
    model = ScriptedModel([[ToolCall(id="c", name="count")], "Two."])
    runtime = await open_runtime(file, count, model=model)
    async with fail_after(10):
        await runtime.session("s").ask("Count.")
    events = await everything(runtime)
    kinds = [event["kind"] for event in events]
    for kind in ("turn.queued", "turn.started", "call.progress", "turn.text", "turn.ended", "message.added"):
        assert kind in kinds, kinds
    assert kinds.count("call.finished") == kinds.count("turn.ended") == 1
    (progress,) = [event for event in events if event["kind"] == "call.progress"]
    assert (progress["call_id"], progress["current"], progress["total"]) == ("c", 1, 2)
    for limit in (1, 2):
        assert await everything(runtime, limit=limit) == events


@pytest.mark.promise("HTTP-02")
async def test_runs_and_what_a_session_stores_are_events(place, open_runtime):
    runtime = await open_runtime(place, count, worker=True)
    await runtime.event_log()  # in memory, the log begins here
    session = runtime.session("s")
    async with fail_after(10):
        run = await session.spawn("count")
        await run.wait()
        await session.kv.set("k", 1)
        await session.files.write("/a.txt", b"a")
        await session.files.delete("/a.txt")
    events = await everything(runtime)
    told = [(event["kind"], event.get("run") or event.get("key") or event.get("path")) for event in events]
    for expected in (
        ("run.queued", run.id),
        ("run.started", run.id),
        ("run.progress", run.id),
        ("run.completed", run.id),
        ("kv.set", "k"),
        ("file.written", "/a.txt"),
        ("file.removed", "/a.txt"),
    ):
        assert expected in told, told


@pytest.mark.promise("HTTP-02")
async def test_in_memory_the_log_begins_with_the_first_look(open_runtime):
    runtime = await open_runtime(look)
    await runtime.session("s").run_batch(calls(("before", "look", {"city": "Rome"})))
    assert await everything(runtime) == []
    await runtime.session("s").run_batch(calls(("after", "look", {"city": "Oslo"})))
    assert short(await everything(runtime)) == [
        ("batch.started", None),
        ("call.started", "after"),
        ("call.finished", "after"),
        ("batch.finished", None),
    ]


@pytest.mark.promise("HTTP-02", "SES-06")
async def test_a_removed_session_leaves_nothing_but_its_removal(file, open_runtime):
    runtime = await open_runtime(file, pay)
    await runtime.session("gone").run_batch(calls(("p", "pay", {"amount": 3})))
    await runtime.session("gone").kv.set("secret-plan", 1)
    before = (await runtime.event_log()).last
    assert await runtime.delete_session("gone")
    (event,) = await everything(runtime)
    assert (event["kind"], event["session"]) == ("session.removed", "gone")
    assert event["number"] > before


@pytest.mark.promise("HTTP-02", "EFF-13")
async def test_a_number_is_never_given_twice(file):
    given: list[int] = []

    async def work(id: str) -> None:
        async with Runtime.open(file, tools=[pay]) as runtime:
            last = (await runtime.event_log()).last
            await runtime.session("s").run_batch(calls((id, "pay", {"amount": 3})))
            given.extend(event["number"] for event in await everything(runtime, last))

    await work("a")
    await prune(file, float("inf"))
    await work("b")
    # A power cut may lose the events that were shown last: the next number is beyond all of them.
    assert given[3] - given[2] > 100_000
    await prune(file, float("inf"))
    await work("c")
    assert len(given) == 9
    assert given == sorted(set(given))
    async with Runtime.open(file) as runtime:
        page = await runtime.event_log(0)
        assert page.first == given[5]  # the newest is kept


@pytest.mark.promise("HTTP-02")
async def test_events_whose_calls_were_removed_have_no_content(file, open_runtime):
    runtime = await open_runtime(file, pay)
    await runtime.session("s").run_batch(calls(("p", "pay", {"amount": 3})))
    assert "outcome" in (await everything(runtime))[-1]
    await prune(file, float("inf"))
    (last,) = await everything(runtime)  # the newest is kept
    assert (last["kind"], last["call_id"]) == ("call.finished", "p")
    assert "outcome" not in last
