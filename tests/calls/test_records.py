"""What is kept of each call: exactly one record, with true times, whatever the log does."""

import asyncio
import logging
from typing import Any

import pytest

from tests.calls.running import run, run_one
from toolwright import (
    BatchFailed,
    CallRecord,
    MemoryCallLog,
    Pending,
    Policy,
    RetryPolicy,
    Rule,
    Success,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolwrightError,
    tool,
)
from toolwright.testing import FakeClock


@pytest.mark.promise("RUN-09")
async def test_a_call_leaves_one_record_with_everything_in_it(open_runtime):
    @tool(id="demo.double")
    async def double(n: int) -> int:
        return n * 2

    runtime = await open_runtime(double)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="double", arguments='{"n": 4}')])
    (outcome,) = await batch
    (record,) = runtime.log
    assert (record.session, record.batch, record.call_id) == ("s", batch.id, "c1")
    assert (record.tool, record.tool_id, record.source, record.parent) == (
        "double",
        "demo.double",
        "model",
        None,
    )
    assert (record.arguments, record.attempts, record.status) == ({"n": 4}, 1, "success")
    assert (record.outcome, record.replayed, record.category) == (outcome, False, None)


@pytest.mark.promise("RUN-09")
async def test_instants_and_durations_are_real(open_runtime):
    clock = FakeClock()

    @tool
    async def work(seconds: float) -> None:
        await clock.sleep(seconds)

    runtime = await open_runtime(work, clock=clock)
    await clock.advance(100)
    came = clock.now()
    batch = runtime.session("s").start_batch(
        [
            ToolCall(id="c1", name="work", arguments={"seconds": 3}),
            ToolCall(id="c2", name="work", arguments={"seconds": 4.5}),
        ]
    )
    await clock.advance(10)
    assert [outcome.status for outcome in await batch] == ["success", "success"]
    first, second = runtime.log
    assert (first.queued_at, first.started_at, first.finished_at) == pytest.approx((came, came, came + 3))
    assert (first.queue_time, first.run_time) == pytest.approx((0, 3))
    assert (second.queued_at, second.started_at, second.finished_at) == pytest.approx((came, came + 3, came + 7.5))
    assert (second.queue_time, second.run_time) == pytest.approx((3, 4.5))


@pytest.mark.promise("RUN-09")
async def test_the_time_between_attempts_belongs_to_the_run(open_runtime):
    clock = FakeClock()

    @tool(idempotent=True, retry=RetryPolicy(attempts=3))
    async def flaky() -> None:
        await clock.sleep(1)
        raise ToolError("busy", retry_after=5)

    runtime = await open_runtime(flaky, clock=clock)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(60)
    await batch
    (record,) = runtime.log
    assert (record.attempts, record.run_time) == (3, pytest.approx(13))


@pytest.mark.promise("RUN-09")
async def test_a_call_that_never_ran_has_a_record_without_a_start(open_runtime):
    clock = FakeClock()

    @tool
    async def work() -> None:
        await clock.sleep(5)

    runtime = await open_runtime(work, clock=clock)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(id="c1", name="work"), ToolCall(id="c2", name="work")])
    await clock.advance(2)
    batch.cancel("enough")
    await clock.advance(5)
    await batch
    (record,) = runtime.log.query(call_id="c2")
    assert (record.status, record.attempts, record.started_at, record.run_time) == ("cancelled", 0, None, 0)
    assert record.queue_time == pytest.approx(2)
    assert record.finished_at == pytest.approx(record.queued_at + 2)


@pytest.mark.promise("RUN-09")
async def test_every_kind_of_ending_leaves_exactly_one_record(open_runtime):
    clock = FakeClock()

    @tool(timeout=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    @tool
    async def fail() -> None:
        raise ValueError("oops")

    @tool
    async def work(n: int = 0) -> None: ...

    @tool
    async def forbidden() -> None: ...

    runtime = await open_runtime(
        hang, fail, work, forbidden, clock=clock, policy=Policy(rules=[Rule("deny", "forbidden")])
    )
    calls = [
        ToolCall(id="c1", name="work"),
        ToolCall(id="c2", name="missing"),
        ToolCall(id="c3", name="work", arguments="{"),
        ToolCall(id="c4", name="work", arguments={"n": "x"}),
        ToolCall(id="c5", name="forbidden"),
        ToolCall(id="c6", name="fail"),
        ToolCall(id="c1", name="work"),
        ToolCall(id="c7", name="work", kind="shell"),
        ToolCall(id="c8", name="hang"),
        ToolCall(id="c9", name="work"),
    ]
    batch = runtime.session("s").start_batch(calls)
    await clock.advance(0.5)
    batch.cancel()
    await clock.advance(5)
    outcomes = await batch
    assert [(record.call_id, record.status) for record in runtime.log] == [
        (outcome.call_id, outcome.status) for outcome in outcomes
    ]
    assert [record.status for record in runtime.log] == [
        "success",
        *["failure"] * 7,
        "cancelled",
        "cancelled",
    ]
    assert all(record.finished_at is not None for record in runtime.log)


@pytest.mark.promise("RUN-09")
async def test_a_batch_that_raises_leaves_a_record_of_every_call(open_runtime):
    @tool
    async def work(fail: bool) -> None:
        if fail:
            raise ToolError("no")

    runtime = await open_runtime(work)
    calls = [ToolCall(name="work", arguments={"fail": fail}) for fail in (False, True, False)]
    with pytest.raises(BatchFailed):
        await run(runtime.session("s"), *calls, continue_on_failure=False)
    assert [record.status for record in runtime.log] == ["success", "failure", "cancelled"]


@pytest.mark.promise("RUN-09")
async def test_a_record_is_opened_before_the_tool_runs_and_closed_after_it(open_runtime):
    seen: list[Any] = []

    class Log:
        def open(self, record: CallRecord) -> None:
            seen.append(("open", record.status, record.outcome, record.finished_at))

        def close(self, record: CallRecord) -> None:
            seen.append(("close", record.status, record.outcome.value if record.outcome else None))

    @tool
    async def work() -> str:
        seen.append("run")
        return "done"

    await run_one((await open_runtime(work, call_log=Log())).session("s"), "work")
    assert seen == [("open", "running", None, None), "run", ("close", "success", "done")]


@pytest.mark.promise("RUN-09")
@pytest.mark.parametrize("broken", ["open", "close", "both"])
async def test_a_log_that_raises_is_reported_and_changes_nothing(open_runtime, broken, caplog):
    class Log:
        def open(self, record: CallRecord) -> None:
            if broken != "close":
                raise OSError("disk full")

        def close(self, record: CallRecord) -> None:
            if broken != "open":
                raise OSError("disk full")

    ran = []

    @tool
    async def work(n: int) -> int:
        ran.append(n)
        return n

    runtime = await open_runtime(work, call_log=Log())
    outcomes = await run(runtime.session("s"), *(ToolCall(name="work", arguments={"n": n}) for n in (1, 2)))
    assert ([outcome.value for outcome in outcomes], ran) == ([1, 2], [1, 2])
    assert "disk full" in caplog.text
    assert any(record.levelno >= logging.ERROR for record in caplog.records)


@pytest.mark.promise("RUN-09")
async def test_text_that_was_not_json_is_recorded_as_it_was_written(open_runtime):
    runtime = await open_runtime(Tool.from_schema(name="raw", handler=lambda args: None))
    texts: list[Any] = ['{"path": "a', "[1, 2]", "nonsense", '{"a": "\ud800"}', b"\xff\x00"]
    await run(runtime.session("s"), *(ToolCall(name="raw", arguments=text) for text in texts))
    assert [record.arguments for record in runtime.log] == [
        '{"path": "a',
        "[1, 2]",
        "nonsense",
        '{"a": "\\ud800"}',
        "\\xff\x00",
    ]


@pytest.mark.promise("RUN-09", "OUT-05")
async def test_a_record_keeps_the_full_value_up_to_its_own_limit(open_runtime):
    @tool
    async def write(size: int) -> str:
        return "x" * size

    runtime = await open_runtime(write, policy=Policy(max_bytes=256, record_bytes=1000))
    session = runtime.session("s")
    for size in (998, 999):  # two quotation marks more in JSON
        outcome = await run_one(session, "write", {"size": size})
        assert outcome.value == "x" * size
        assert len(outcome.text) <= 256
    kept, cut = runtime.log
    assert kept.outcome.value == "x" * 998
    assert (cut.outcome.value, cut.status) == (None, "success")
    assert cut.outcome.text == outcome.text


@pytest.mark.promise("RUN-09", "OUT-03")
async def test_the_record_has_the_private_detail_of_a_failure(open_runtime):
    @tool
    async def work() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise RuntimeError("outer") from error

    runtime = await open_runtime(work)
    await run_one(runtime.session("s"), "work")
    (record,) = runtime.log.query(category="internal")
    assert record.outcome.failure.detail == "RuntimeError: outer\ncaused by KeyError: 'inner'"


@pytest.mark.promise("RUN-09")
async def test_records_say_what_a_call_waited_for(open_runtime):
    @tool
    async def alone() -> None: ...

    runtime = await open_runtime(alone)
    await run(runtime.session("s"), ToolCall(id="c1", name="alone"), ToolCall(id="c2", name="alone"))
    first, second = runtime.log
    assert (first.waited_for, second.waited_for) == ((), ("c1",))


@pytest.mark.promise("RUN-09")
async def test_a_record_says_what_a_call_waited_for_before_it_was_completed_from_outside(open_runtime):
    keys = []

    @tool
    async def book(ctx: ToolContext) -> Pending:
        keys.append(ctx.completion_key())
        return Pending()

    runtime = await open_runtime(book)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="book"), ToolCall(id="c2", name="book")])
    assert [outcome.status for outcome in await batch.quiet()] == ["pending", "pending"]
    for key in keys:
        await runtime.resolve(key, "done")
    assert [outcome.value for outcome in await batch] == ["done", "done"]
    first, second = runtime.log
    assert (first.waited_for, second.waited_for) == ((), ("c1",))


# --- questions to the log


async def some_records(open_runtime: Any) -> Any:
    clock = FakeClock()

    @tool(id="demo.work")
    async def work(seconds: float, fail: bool = False) -> Success:
        await clock.sleep(seconds)
        if fail:
            raise ToolError("no", category="external")
        return Success(seconds)

    runtime = await open_runtime(work, clock=clock)

    async def call(session: str, call_id: str, source: Any = "model", **arguments: Any) -> None:
        one = ToolCall(id=call_id, name="work", arguments=arguments, source=source)
        batch = runtime.session(session).start_batch([one])
        await clock.advance(20)
        await batch

    await call("a", "1", seconds=1)
    await call("a", "2", seconds=2, fail=True)
    await call("b", "3", seconds=3, source="user")
    await call("b", "4", seconds=4, source="user")
    return runtime.log


@pytest.mark.promise("RUN-09")
@pytest.mark.parametrize(
    ("question", "ids"),
    [
        ({}, ["1", "2", "3", "4"]),
        ({"session": "a"}, ["1", "2"]),
        ({"call_id": "3"}, ["3"]),
        ({"tool": "work"}, ["1", "2", "3", "4"]),
        ({"tool": "demo.work"}, ["1", "2", "3", "4"]),
        ({"tool": "other"}, []),
        ({"status": "failure"}, ["2"]),
        ({"category": "external"}, ["2"]),
        ({"source": "user"}, ["3", "4"]),
        ({"session": "b", "status": "success", "limit": 1}, ["4"]),
        ({"limit": 2}, ["3", "4"]),
        ({"limit": 0}, []),
    ],
    ids=str,
)
async def test_records_can_be_asked_for(open_runtime, question, ids):
    log = await some_records(open_runtime)
    assert [record.call_id for record in log.query(**question)] == ids


@pytest.mark.promise("RUN-09")
async def test_records_can_be_asked_for_by_time_and_batch(open_runtime):
    log = await some_records(open_runtime)
    second, third = log.query(call_id="2")[0], log.query(call_id="3")[0]
    assert [record.call_id for record in log.query(since=second.queued_at, until=third.queued_at)] == ["2"]
    assert log.query(batch=third.batch) == [third]


@pytest.mark.promise("RUN-09")
async def test_the_log_counts_and_times_calls(open_runtime):
    log = await some_records(open_runtime)
    counted = log.statistics()
    assert (counted.calls, counted.attempts) == (4, 4)
    assert counted.by_status == {"success": 3, "failure": 1}
    assert counted.failures == {"external": 1}
    assert counted.by_tool == {"work": 4}
    assert (counted.run_time.p50, counted.run_time.p95, counted.run_time.p99) == pytest.approx((2, 4, 4))
    assert log.statistics(session="a").calls == 2
    empty = log.statistics(session="nobody")
    assert (empty.calls, empty.run_time.p99) == (0, 0.0)


@pytest.mark.promise("RUN-09")
async def test_the_log_keeps_the_newest_records(open_runtime):
    @tool
    async def work() -> None: ...

    runtime = await open_runtime(work, call_log=MemoryCallLog(limit=2))
    await run(runtime.session("s"), *(ToolCall(id=name, name="work") for name in "abc"))
    assert [record.call_id for record in runtime.log] == ["b", "c"]
    with pytest.raises(ToolwrightError, match="use a whole number, 1 or more"):
        MemoryCallLog(limit=0)


@pytest.mark.promise("RUN-13")
async def test_a_nested_call_has_a_record_of_its_own_inside_its_parents_time(open_runtime):
    clock = FakeClock()

    @tool
    async def outer(ctx: ToolContext) -> None:
        await clock.sleep(1)
        await ctx.call("inner")
        await clock.sleep(1)

    @tool
    async def inner() -> None:
        await clock.sleep(3)

    runtime = await open_runtime(outer, inner, clock=clock)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="outer")])
    await clock.advance(60)
    await batch
    above, below = runtime.log
    assert (above.run_time, below.run_time) == pytest.approx((5, 3))
    assert below.started_at == pytest.approx(above.started_at + 1)
    assert below.parent == "c1"
