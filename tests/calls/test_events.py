"""What can be watched: a pair of events for every call, what a tool says in between, and slow subscribers."""

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.calls.running import PATIENCE, run, run_one
from tests.support import fail_after
from toolwright import (
    Answer,
    BatchFailed,
    Policy,
    RetryPolicy,
    Rule,
    Runtime,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolwrightError,
    tool,
)
from toolwright.testing import FakeClock


def taken(subscription: Any) -> list[Any]:
    """Every event that is queued."""
    return list(iter(subscription.take, None))


def kinds(events: list[Any], call_id: str | None = None) -> list[str]:
    return [event.kind for event in events if call_id is None or getattr(event, "call_id", None) == call_id]


async def watched(session: Session, *calls: ToolCall, **changes: Any) -> list[Any]:
    with session.subscribe() as events:
        await run(session, *calls, **changes)
        return taken(events)


# --- pairs


@pytest.mark.promise("RUN-10")
async def test_a_call_begins_and_ends_inside_its_batch(open_session):
    @tool
    async def work(n: int) -> int:
        return n

    session = await open_session(work)
    events = await watched(session, ToolCall(id="c1", name="work", arguments={"n": 1}))
    assert kinds(events) == ["batch.started", "call.started", "call.finished", "batch.finished"]
    opened, started, finished, closed = events
    assert {event.session for event in events} == {"s"}
    assert len({event.batch for event in events}) == 1
    assert (opened.calls, opened.parent) == ((("c1", "work"),), None)
    assert (started.call_id, started.tool, started.arguments, started.source, started.parent) == (
        "c1",
        "work",
        {"n": 1},
        "model",
        None,
    )
    assert (finished.call_id, finished.tool, finished.status, finished.attempts) == (
        "c1",
        "work",
        "success",
        1,
    )
    assert (finished.category, finished.code, finished.replayed) == (None, None, False)
    assert closed.statuses == {"success": 1}


@pytest.mark.promise("RUN-10")
async def test_every_start_has_one_end_whatever_became_of_the_call(open_runtime):
    clock = FakeClock()

    @tool(timeout=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    @tool
    async def stuck() -> None:
        await asyncio.Event().wait()

    @tool
    async def fail() -> None:
        raise ValueError("oops")

    @tool
    async def work(n: int = 0) -> None: ...

    @tool
    async def answered() -> None: ...

    def answer(call: Any) -> Any:
        return Answer(1) if call.tool.name == "answered" else None

    runtime = await open_runtime(
        hang,
        stuck,
        fail,
        work,
        answered,
        clock=clock,
        before=[answer],
        policy=Policy(rules=[Rule("deny", "fail")]),
    )
    session = runtime.session("s")
    expected = {
        "ok": ("success", None),
        "unknown": ("failure", "not_found"),
        "no-json": ("failure", "invalid_arguments"),
        "invalid": ("failure", "invalid_arguments"),
        "denied": ("failure", "permission_denied"),
        "kind": ("failure", "invalid_arguments"),
        "answer": ("success", None),
        "slow": ("failure", "timeout"),
        "running": ("cancelled", None),
        "waiting": ("cancelled", None),
    }
    with session.subscribe() as subscription:
        batch = session.start_batch(
            [
                ToolCall(id="ok", name="work"),
                ToolCall(id="unknown", name="missing"),
                ToolCall(id="no-json", name="work", arguments="{"),
                ToolCall(id="invalid", name="work", arguments={"n": "x"}),
                ToolCall(id="denied", name="fail"),
                ToolCall(id="kind", name="work", kind="shell"),
                ToolCall(id="answer", name="answered"),
                ToolCall(id="slow", name="hang"),
                ToolCall(id="running", name="stuck"),
                ToolCall(id="waiting", name="work"),
            ]
        )
        await clock.advance(3)
        batch.cancel()
        await clock.advance(3)
        outcomes = await batch
        events = taken(subscription)
    assert {
        outcome.call_id: (outcome.status, outcome.failure and outcome.failure.category) for outcome in outcomes
    } == (expected)
    for call_id, (status, category) in expected.items():
        assert kinds(events, call_id) == ["call.started", "call.finished"], call_id
        started, finished = (event for event in events if getattr(event, "call_id", None) == call_id)
        assert (finished.status, finished.category) == (status, category)
        assert started.tool == finished.tool
        assert (started.session, finished.session) == ("s", "s")
        assert started.batch == finished.batch == batch.id
        assert started.at <= finished.at
    assert kinds(events)[0] == "batch.started"
    assert events[-1].statuses == {"success": 2, "failure": 6, "cancelled": 2}


@pytest.mark.promise("RUN-10")
async def test_a_repeated_id_has_a_pair_for_each_of_its_calls(open_session):
    @tool
    async def work() -> None: ...

    events = await watched(await open_session(work), ToolCall(id="c1", name="work"), ToolCall(id="c1", name="work"))
    assert sorted(kinds(events, "c1")) == ["call.finished", "call.finished", "call.started", "call.started"]


@pytest.mark.promise("RUN-10")
async def test_a_batch_that_raises_ends_like_any_other(open_session):
    @tool
    async def work() -> None:
        raise ToolError("no")

    session = await open_session(work)
    with session.subscribe() as subscription:
        with pytest.raises(BatchFailed):
            await run(session, ToolCall(name="work"), ToolCall(name="work"), continue_on_failure=False)
        events = taken(subscription)
    assert sorted(kinds(events)) == [
        "batch.finished",
        "batch.started",
        "call.finished",
        "call.finished",
        "call.started",
        "call.started",
    ]
    assert events[-1].statuses == {"failure": 1, "cancelled": 1}


@pytest.mark.promise("RUN-10")
async def test_an_empty_batch_is_no_event(open_session):
    assert await watched(await open_session()) == []


@pytest.mark.promise("RUN-10")
async def test_a_nested_batch_lies_between_the_start_and_the_end_of_its_call(open_session):
    @tool
    async def outer(ctx: ToolContext) -> None:
        await ctx.call("inner")

    @tool
    async def inner() -> None: ...

    events = await watched(await open_session(outer, inner), ToolCall(id="c1", name="outer"))
    assert kinds(events) == [
        "batch.started",
        "call.started",
        "batch.started",
        "call.started",
        "call.finished",
        "batch.finished",
        "call.finished",
        "batch.finished",
    ]
    assert (events[2].parent, events[3].parent, events[3].source) == ("c1", "c1", "tool")


@pytest.mark.promise("RUN-10", "RETRY-01")
async def test_a_call_that_is_tried_again_says_so_between_one_start_and_one_end(open_session):
    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0))
    async def flaky() -> None:
        raise ToolError("busy", code="busy", retry=True)

    events = await watched(await open_session(flaky), ToolCall(id="c1", name="flaky"))
    assert kinds(events, "c1") == ["call.started", "call.retrying", "call.retrying", "call.finished"]
    assert [(event.attempt, event.code) for event in events if event.kind == "call.retrying"] == [
        (1, "busy"),
        (2, "busy"),
    ]
    assert events[-2].attempts == 3


@pytest.mark.promise("RUN-10")
async def test_events_say_when_things_happened(open_runtime):
    clock = FakeClock()

    @tool
    async def work(seconds: float) -> None:
        await clock.sleep(seconds)

    runtime = await open_runtime(work, clock=clock)
    await clock.advance(50)
    came, session = clock.now(), runtime.session("s")
    with session.subscribe() as subscription:
        batch = session.start_batch([ToolCall(name="work", arguments={"seconds": seconds}) for seconds in (2, 3)])
        await clock.advance(10)
        await batch
        events = taken(subscription)
    assert [(event.kind, event.at) for event in events] == [
        ("batch.started", pytest.approx(came)),
        ("call.started", pytest.approx(came)),
        ("call.finished", pytest.approx(came + 2)),
        ("call.started", pytest.approx(came + 2)),
        ("call.finished", pytest.approx(came + 5)),
        ("batch.finished", pytest.approx(came + 5)),
    ]
    assert [(event.queue_time, event.run_time) for event in events if event.kind == "call.finished"] == [
        (pytest.approx(0), pytest.approx(2)),
        (pytest.approx(2), pytest.approx(3)),
    ]


# --- what a tool says


@pytest.mark.promise("RUN-10")
@pytest.mark.parametrize("mode", ["async", "thread", "process"])
async def test_progress_and_output_come_in_order_between_start_and_end(open_session, mode):
    async def by_itself(ctx: ToolContext) -> str:
        await ctx.progress(1, total=3, label="charged")
        await ctx.output("stdout", "one\n")
        await ctx.progress(2)
        await ctx.output("stderr", "two\n")
        return "done"

    def on_a_thread(ctx: ToolContext) -> str:
        ctx.progress(1, total=3, label="charged")
        ctx.output("stdout", "one\n")
        ctx.progress(2)
        ctx.output("stderr", "two\n")
        return "done"

    function = by_itself if mode == "async" else on_a_thread
    work = tool(name="work", isolation="process" if mode == "process" else "none")(function)
    events = await watched(await open_session(work), ToolCall(id="c1", name="work"))
    assert kinds(events, "c1") == [
        "call.started",
        "call.progress",
        "call.output",
        "call.progress",
        "call.output",
        "call.finished",
    ]
    _, first, one, second, two, _ = (event for event in events if getattr(event, "call_id", None) == "c1")
    assert (first.current, first.total, first.label) == (1, 3, "charged")
    assert (second.current, second.total, second.label) == (2, None, None)
    assert [(event.stream, event.text) for event in (one, two)] == [("stdout", "one\n"), ("stderr", "two\n")]
    assert {(event.session, event.tool) for event in (first, one, second, two)} == {("s", "work")}
    assert {event.batch for event in events} == {events[0].batch}


@pytest.mark.promise("RUN-10")
async def test_what_a_tool_says_after_its_end_is_not_heard(open_session):
    contexts = []

    @tool
    async def work(ctx: ToolContext) -> None:
        contexts.append(ctx)

    session = await open_session(work)
    with session.subscribe() as subscription:
        await run_one(session, "work")
        contexts[0].progress(1)
        contexts[0].output("stdout", "late")
        await asyncio.to_thread(contexts[0].progress, 2)
        await asyncio.sleep(0)
        assert kinds(taken(subscription)) == [
            "batch.started",
            "call.started",
            "call.finished",
            "batch.finished",
        ]


# --- subscribers


@pytest.mark.promise("RUN-10")
async def test_a_slow_subscriber_loses_the_oldest_progress_and_is_told_how_much(open_session):
    @tool
    async def work(ctx: ToolContext) -> None:
        for number in range(1, 101):
            await ctx.progress(number)

    session = await open_session(work)
    with session.subscribe(limit=10) as slow, session.subscribe() as quick:
        await run_one(session, "work")
        left, all_of_them = taken(slow), taken(quick)
    assert len(all_of_them) == 104
    told = [event for event in left if event.kind == "events.dropped"]
    assert [event.count for event in told] == [94]
    assert slow.dropped == 94
    assert kinds([event for event in left if event not in told]) == [
        "batch.started",
        "call.started",
        *["call.progress"] * 6,
        "call.finished",
        "batch.finished",
    ]
    assert [event.current for event in left if event.kind == "call.progress"] == [95, 96, 97, 98, 99, 100]


@pytest.mark.promise("RUN-10")
async def test_a_subscriber_that_is_behind_even_without_progress_loses_the_oldest_events(open_session):
    @tool
    async def work() -> None: ...

    session = await open_session(work, policy=Policy(on_loop="ignore"))
    with session.subscribe(limit=3) as slow:
        for _ in range(3):
            await run_one(session, "work")
        left = taken(slow)
        assert kinds(left) == ["events.dropped", "call.started", "call.finished", "batch.finished"]
        assert left[0].count == 9
        await run_one(session, "work")
        assert (slow.dropped, taken(slow)[0].count) == (10, 1)


@pytest.mark.promise("RUN-10")
async def test_one_who_iterates_is_told_of_what_was_dropped_before_anything_else(open_session):
    @tool
    async def work() -> None: ...

    session = await open_session(work, policy=Policy(on_loop="ignore"))
    with session.subscribe(limit=3) as slow:
        for _ in range(2):
            await run_one(session, "work")
    async with fail_after(PATIENCE):
        read = [event async for event in slow]
    assert kinds(read) == ["events.dropped", "call.started", "call.finished", "batch.finished"]
    assert read[0].count == 5


@pytest.mark.promise("RUN-10")
async def test_one_who_iterates_while_a_tool_runs_reads_everything_in_order(open_session):
    @tool
    async def outer(ctx: ToolContext) -> None:
        for number in (1, 2):
            await ctx.progress(number)
            await asyncio.sleep(0)
            await ctx.call("inner")
            await asyncio.sleep(0)

    @tool
    async def inner() -> None: ...

    session = await open_session(outer, inner)
    subscription = session.subscribe()

    async def read() -> list[str]:
        return [event.kind async for event in subscription]

    async with fail_after(PATIENCE):
        reading = asyncio.create_task(read())
        await run_one(session, "outer")
        subscription.close()
        nested = ["call.progress", "batch.started", "call.started", "call.finished", "batch.finished"]
        expected = ["batch.started", "call.started", *nested, *nested, "call.finished", "batch.finished"]
        assert await reading == expected


@pytest.mark.promise("RUN-10")
async def test_a_subscriber_that_never_reads_delays_no_tool(open_session):
    @tool
    async def work(ctx: ToolContext) -> int:
        for number in range(10_000):
            await ctx.output("stdout", f"{number}\n")
        return 1

    session = await open_session(work)
    with session.subscribe(limit=1) as slow:
        assert (await run_one(session, "work")).value == 1
        assert (slow.dropped, kinds(taken(slow))) == (10_003, ["events.dropped", "batch.finished"])


@pytest.mark.promise("RUN-10")
async def test_a_subscription_can_be_iterated_and_ends_when_it_is_closed(open_session):
    @tool
    async def work() -> None: ...

    session = await open_session(work)
    seen = []
    subscription = session.subscribe()

    async def read() -> None:
        async for event in subscription:
            seen.append(event.kind)

    async with fail_after(PATIENCE):
        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await run_one(session, "work")
        subscription.close()
        await reading
    assert seen == ["batch.started", "call.started", "call.finished", "batch.finished"]
    await run_one(session, "work")
    assert subscription.take() is None


@pytest.mark.promise("RUN-10")
async def test_closing_the_runtime_ends_every_iteration(open_runtime):
    runtime = await open_runtime()
    subscription = runtime.subscribe()

    async def read() -> list[Any]:
        return [event async for event in subscription]

    async with fail_after(PATIENCE):
        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await runtime.close()
        assert await reading == []


@pytest.mark.promise("RUN-10")
async def test_one_session_or_all_of_them_can_be_watched(open_runtime):
    @tool
    async def work() -> None: ...

    runtime = await open_runtime(work)
    one, other = runtime.session("one"), runtime.session("other")
    with one.subscribe() as of_one, runtime.subscribe() as of_all:
        later = runtime.session("later")
        for session in (one, other, later):
            await run_one(session, "work")
        assert {event.session for event in taken(of_one)} == {"one"}
        seen = taken(of_all)
    assert {event.session for event in seen} == {"one", "other", "later"}
    assert len(seen) == 12


@pytest.mark.promise("RUN-10")
async def test_a_subscription_without_room_is_refused(open_session):
    session = await open_session()
    with pytest.raises(ToolwrightError, match="limit of a subscription 0 is not usable; use a whole number, 1 or more"):
        session.subscribe(limit=0)


@pytest.mark.promise("RUN-10")
async def test_arguments_that_a_hook_replaced_are_the_ones_shown(open_session):
    from toolwright import ReplaceArguments

    @tool
    async def work(path: str) -> None: ...

    session = await open_session(work, before=[lambda call: ReplaceArguments({"path": "***"})])
    events = await watched(session, ToolCall(name="work", arguments={"path": "secret"}))
    assert [event.arguments for event in events if event.kind == "call.started"] == [{"path": "***"}]


# --- the file of events


async def lines_of(open_runtime: Any, path: Any, *tools: Any, calls: list[ToolCall]) -> list[Any]:
    runtime = await open_runtime(*tools, events_file=path)
    await run(runtime.session("s"), *calls)
    async with fail_after(PATIENCE):
        await runtime.close()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.promise("RUN-10")
async def test_events_can_be_written_to_a_file_one_line_each(open_runtime, tmp_path):
    @tool
    async def work(ctx: ToolContext, n: int) -> None:
        await ctx.progress(1, label="ü\n")

    lines = await lines_of(
        open_runtime,
        tmp_path / "events.jsonl",
        work,
        calls=[ToolCall(id="c1", name="work", arguments={"n": 1})],
    )
    assert [line["kind"] for line in lines] == [
        "batch.started",
        "call.started",
        "call.progress",
        "call.finished",
        "batch.finished",
    ]
    assert {line["session"] for line in lines} == {"s"}
    assert lines[1]["arguments"] == {"n": 1}
    assert (lines[2]["label"], lines[3]["status"]) == ("ü\n", "success")


@pytest.mark.promise("RUN-10")
async def test_whatever_a_tool_says_the_file_of_events_goes_on(open_runtime, tmp_path):
    @tool
    async def work(ctx: ToolContext) -> None:
        await ctx.output("stdout", "caf\udce9")
        await ctx.progress(float("nan"), label="\ud800")
        await ctx.progress(object())  # type: ignore[arg-type]

    lines = await lines_of(open_runtime, tmp_path / "events.jsonl", work, calls=[ToolCall(id="c1", name="work")])
    assert [line["kind"] for line in lines][-2:] == ["call.finished", "batch.finished"]


# --- nothing private


@pytest.mark.promise("OUT-03", "RUN-10")
async def test_the_message_of_an_internal_error_is_in_no_event(open_runtime, tmp_path):
    @tool
    async def work() -> None:
        raise RuntimeError("password=hunter2") from ValueError("token=hunter2")

    @tool
    async def careful() -> None:
        raise ToolError("no", detail="password=hunter2")

    bad_dump = Tool.from_schema(name="unserialisable", handler=lambda args: {"password=hunter2": object()})
    path = tmp_path / "events.jsonl"
    runtime = await open_runtime(work, careful, bad_dump, events_file=path)
    session = runtime.session("s")
    events = await watched(session, *(ToolCall(name=name) for name in ("work", "careful", "unserialisable")))
    await runtime.close()
    assert "hunter2" not in path.read_text()
    assert [event.kind for event in events].count("call.finished") == 3
    for event in events:
        assert "hunter2" not in repr(event)
        assert "hunter2" not in str(event)
        assert "hunter2" not in json.dumps(event.to_json())


@pytest.mark.promise("RUN-10")
async def test_reports_that_cannot_be_used_fail_nothing_and_are_told_to_the_log_once_for_each_call(caplog):
    @tool
    async def babble(ctx: ToolContext) -> str:
        for bad in ("hunter2", float("nan"), 10**400, True, [1]):
            ctx.progress(bad)  # type: ignore[arg-type]
        ctx.progress(1, label=5)  # type: ignore[arg-type]
        ctx.status(["hunter2"])  # type: ignore[arg-type]
        ctx.output("stdout", b"hunter2")  # type: ignore[arg-type]
        return "done"

    @tool
    async def speak(ctx: ToolContext) -> str:
        ctx.progress(10**15, 2.5, "label", "files")
        ctx.status("Working")
        ctx.output("stdout", "text")
        return "done"

    async with Runtime.open(tools=[babble, speak]) as runtime:
        with caplog.at_level(logging.WARNING, logger="toolwright"):
            assert (await runtime.session("s").call("speak")).value == "done"
            assert caplog.records == []
            assert (await runtime.session("s").call("babble")).value == "done"
        (record,) = caplog.records
        assert "ctx.progress" in record.getMessage()
        assert "'babble'" in record.getMessage()
        assert "hunter2" not in caplog.text
