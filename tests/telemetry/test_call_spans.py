"""Spans of calls: one for each, with the names of the conventions, below the span that was current."""

import asyncio
import logging
import os
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import StatusCode

from tests.calls.running import run, run_one
from tests.support import fail_after
from toolwright import Policy, RetryPolicy, Rule, ToolCall, ToolContext, ToolError, tool
from toolwright.telemetry import Telemetry

pytestmark = pytest.mark.promise("OBS-01")


def seen() -> tuple[str, int]:
    """The span that is current here, and the process."""
    return f"{trace.get_current_span().get_span_context().span_id:016x}", os.getpid()


@tool
async def in_task() -> tuple[str, int]:
    """Look on the loop."""
    await asyncio.sleep(0)
    return seen()


@tool
async def at_once() -> tuple[str, int]:
    """The same, without waiting."""
    return seen()


@tool
def in_thread() -> tuple[str, int]:
    """Look on a thread."""
    return seen()


@tool(isolation="process")
def in_child() -> tuple[str, int]:
    """Look in a child process."""
    return seen()


@tool(isolation="process")
async def in_child_loop() -> tuple[str, int]:
    """Look on the loop of a child process."""
    await asyncio.sleep(0)
    return seen()


EVERYWHERE = [in_task, at_once, in_thread, in_child, in_child_loop]


@pytest.mark.parametrize("looking", EVERYWHERE, ids=lambda each: each.name)
async def test_a_tool_runs_inside_of_the_span_of_its_call_wherever_it_runs(open_runtime, place, traced, looking):
    runtime = await open_runtime(place, looking, telemetry=traced.telemetry())
    with traced.tracer.start_as_current_span("program"):
        outcome = await run_one(runtime.session("s"), looking.name)
    span = traced.one(f"execute_tool {looking.name}")
    assert traced.above(span) == "program"
    id, pid = outcome.value
    assert id == f"{span.context.span_id:016x}"
    assert (pid != os.getpid()) is (looking.mode == "process")


async def test_a_span_has_the_names_of_the_conventions(open_runtime, place, traced):
    runtime = await open_runtime(place, at_once, telemetry=traced.telemetry())
    call = ToolCall(id="c1", name="at_once", source="user")
    await runtime.session("s").run_batch([call], scope="m1")
    span = traced.one("execute_tool at_once")
    about = dict(span.attributes)
    assert about.pop("toolwright.queue_time") >= 0
    assert about.pop("toolwright.batch").startswith("batch_")
    assert about == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "at_once",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "The same, without waiting.",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.conversation.id": "s",
        "toolwright.source": "user",
        "toolwright.scope": "m1",
        "toolwright.status": "success",
        "toolwright.attempts": 1,
    }
    assert span.kind is trace.SpanKind.INTERNAL
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None
    assert span.instrumentation_scope.name == "toolwright"


async def test_a_nested_call_is_below_the_call_that_made_it(open_runtime, place, traced):
    @tool
    async def middle(ctx: ToolContext) -> str:
        """Call another."""
        return (await ctx.call("in_thread")).text

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Call that one."""
        return (await ctx.call("middle")).text

    runtime = await open_runtime(place, in_thread, middle, outer, telemetry=traced.telemetry())
    assert (await run_one(runtime.session("s"), "outer")).ok
    names = ["execute_tool in_thread", "execute_tool middle", "execute_tool outer"]
    assert [span.name for span in traced.spans] == names
    assert [traced.above(span) for span in traced.spans] == [*names[1:], None]
    assert traced.spans[0].attributes["toolwright.parent.call.id"] == traced.spans[1].attributes["gen_ai.tool.call.id"]


async def test_a_tool_adds_to_the_span_of_its_call_and_has_spans_below_it(open_runtime, traced):
    @tool
    def look() -> None:
        """Say more."""
        trace.get_current_span().set_attribute("pages", 3)
        with traced.tracer.start_as_current_span("page"):
            pass

    runtime = await open_runtime(look, telemetry=traced.telemetry())
    await run_one(runtime.session("s"), "look")
    assert traced.one("execute_tool look").attributes["pages"] == 3
    assert traced.above(traced.one("page")) == "execute_tool look"


async def test_calls_of_one_batch_are_neighbours_and_leave_nothing_current(open_runtime, traced):
    runtime = await open_runtime(at_once, in_task, in_thread, telemetry=traced.telemetry())
    calls = [ToolCall(name=name) for name in ("at_once", "in_task", "in_thread", "at_once")]
    with traced.tracer.start_as_current_span("program") as program:
        await run(runtime.session("s"), *calls)
        assert trace.get_current_span() is program
    assert [traced.above(span) for span in traced.spans[:-1]] == ["program"] * 4
    assert len({span.context.span_id for span in traced.spans}) == 5


async def test_a_call_that_never_ran_has_a_span_with_its_failure_and_no_duration(open_runtime, place, traced):
    @tool
    async def add(a: int) -> int:
        """Add."""
        return a

    policy = Policy(rules=(Rule("deny", "in_task", reason="not here"),))
    runtime = await open_runtime(place, in_task, add, policy=policy, telemetry=traced.telemetry())
    calls = [ToolCall(name="in_task"), ToolCall(name="nothing"), ToolCall(name="add", arguments={"a": "x"})]
    outcomes = await run(runtime.session("s"), *calls)
    told = {span.name: span for span in traced.spans}
    assert set(told) == {"execute_tool in_task", "execute_tool nothing", "execute_tool add"}
    for call, outcome in zip(calls, outcomes, strict=True):
        span = told[f"execute_tool {call.name}"]
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == outcome.failure.code == span.status.description
        assert span.attributes["toolwright.failure.category"] == outcome.failure.category
        assert span.attributes["toolwright.attempts"] == 0
    assert "gen_ai.execute_tool.duration" not in traced.metrics()


async def test_the_attempts_of_a_call_are_events_of_one_span(open_runtime, place, traced):
    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0, jitter=0))
    async def flaky(ctx: ToolContext) -> str:
        """Fail twice."""
        spans.add(seen()[0])
        if ctx.attempt < 3:
            raise ToolError("not yet, says hunter2", code="later", retry=True)
        return "done"

    spans: set[str] = set()
    runtime = await open_runtime(place, flaky, telemetry=traced.telemetry())
    assert (await run_one(runtime.session("s"), "flaky")).value == "done"
    span = traced.one("execute_tool flaky")
    assert spans == {f"{span.context.span_id:016x}"}
    assert [(event.name, dict(event.attributes)) for event in span.events] == [
        ("toolwright.retrying", {"toolwright.attempt": n, "toolwright.delay": 0.0, "toolwright.code": "later"})
        for n in (1, 2)
    ]
    assert span.attributes["toolwright.attempts"] == 3
    assert "hunter2" not in span.to_json()


async def test_a_wait_is_an_event_and_the_call_continues_in_its_span(open_runtime, place, traced):
    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        return seen()[0]

    runtime = await open_runtime(place, pay, telemetry=traced.telemetry())
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="pay")])
        while not (open_requests := await runtime.approvals()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await runtime.approve(open_requests[0].key)
        (outcome,) = await batch
    span = traced.one("execute_tool pay")
    assert outcome.value == f"{span.context.span_id:016x}"
    (event,) = span.events
    assert (event.name, event.attributes["toolwright.waits_for"]) == ("toolwright.waiting", "approval")


async def test_a_failure_of_the_code_is_told_by_its_code_and_not_by_its_text(open_runtime, traced):
    @tool
    async def breaks() -> None:
        """Break."""
        raise ValueError("the number 4711")

    runtime = await open_runtime(breaks, telemetry=traced.telemetry())
    outcome = await run_one(runtime.session("s"), "breaks")
    span = traced.one("execute_tool breaks")
    assert span.attributes["error.type"] == outcome.failure.code
    assert "4711" not in span.to_json()
    (point,) = traced.metrics()["gen_ai.execute_tool.duration"]
    assert (point.count, point.attributes["error.type"]) == (1, outcome.failure.code)


async def test_a_cancelled_call_says_so_and_is_no_error(open_runtime, traced):
    @tool
    async def waits() -> None:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    runtime = await open_runtime(waits, telemetry=traced.telemetry())
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(name="waits")])
        await started.wait()
        batch.cancel("enough")
        await batch
    span = traced.one("execute_tool waits")
    assert (span.attributes["toolwright.status"], span.status.status_code) == ("cancelled", StatusCode.UNSET)


# --- replays


async def test_a_replay_is_a_span_that_is_linked_to_the_first_and_no_second_execution(open_runtime, place, traced):
    runtime = await open_runtime(place, at_once, telemetry=traced.telemetry())
    for _ in range(3):
        await runtime.session("s").run_batch([ToolCall(id="c1", name="at_once")])
    first, second, third = traced.named("execute_tool at_once")
    assert "toolwright.replayed" not in first.attributes
    assert first.links == ()
    for later in (second, third):
        assert later.attributes["toolwright.replayed"] is True
        (link,) = later.links
        assert (link.context.trace_id, link.context.span_id) == (first.context.trace_id, first.context.span_id)
        assert link.attributes["toolwright.link"] == "replay"
    (point,) = traced.metrics()["gen_ai.execute_tool.duration"]
    assert point.count == 1


async def test_a_call_that_shares_an_execution_is_linked_to_it(open_runtime, place, traced):
    @tool
    async def slow() -> str:
        """Wait."""
        started.set()
        await go.wait()
        return "done"

    started, go = asyncio.Event(), asyncio.Event()
    runtime = await open_runtime(place, slow, telemetry=traced.telemetry())
    async with fail_after(10):
        batches = [runtime.session("s").start_batch([ToolCall(id="c1", name="slow")]) for _ in range(2)]
        await started.wait()
        go.set()
        for batch in batches:
            await batch
    ran = [span for span in traced.spans if "toolwright.replayed" not in span.attributes]
    shared = [span for span in traced.spans if "toolwright.replayed" in span.attributes]
    assert (len(ran), len(shared)) == (1, 1)
    (link,) = shared[0].links
    assert link.context.span_id == ran[0].context.span_id


# --- content


async def test_content_is_recorded_only_when_it_is_wanted(open_runtime, place, traced):
    @tool
    async def echo(text: str) -> str:
        """Echo."""
        return f"you said {text}"

    for content in (False, True):
        runtime = await open_runtime(place, echo, telemetry=traced.telemetry(content=content))
        await run_one(runtime.session("s"), "echo", {"text": "hello there"})
        span = traced.spans[-1]
        assert ("hello there" in span.to_json()) is content
        assert span.attributes.get("gen_ai.tool.call.arguments") == ('{"text":"hello there"}' if content else None)
        assert span.attributes.get("gen_ai.tool.call.result") == ("you said hello there" if content else None)


async def test_recorded_content_has_no_secrets_and_is_cut(open_runtime, place, traced):
    @tool(secret="password")
    async def login(password: str, text: str) -> str:
        """Log in."""
        return f"{password} {text} " + "x" * 100_000

    runtime = await open_runtime(place, login, telemetry=traced.telemetry(content=True))
    session = runtime.session("s")
    await session.secrets.set("api_key", "sk-4711-abcdefgh")
    await run_one(session, "login", {"password": "hunter2-hunter2", "text": "sk-4711-abcdefgh"})
    told = traced.one("execute_tool login").to_json()
    assert "hunter2" not in told
    assert "sk-4711" not in told
    assert "[secret:api_key]" in told
    assert len(told) < 40_000


# --- a tracer that breaks


class Breaking(SpanProcessor):
    """A processor of the program's that breaks."""

    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.where == "start":
            raise RuntimeError("broken start")

    def on_end(self, span: Any) -> None:
        if self.where == "end":
            raise RuntimeError("broken end")


@pytest.mark.parametrize("where", ["start", "end"])
async def test_a_tracer_that_breaks_changes_no_outcome_and_is_logged_once(open_runtime, place, where, caplog):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Breaking(where))
    runtime = await open_runtime(place, at_once, in_thread, in_child, telemetry=Telemetry(tracer_provider=provider))
    with caplog.at_level(logging.ERROR, "toolwright"):
        for name in ("at_once", "in_thread", "in_child"):
            assert (await run_one(runtime.session("s"), name)).ok
    (line,) = [record for record in caplog.records if record.name == "toolwright.telemetry"]
    assert line.action == "telemetry.failed"


async def test_without_a_provider_calls_run_and_nothing_is_told(open_runtime, place):
    runtime = await open_runtime(place, at_once, in_child, telemetry=Telemetry())
    assert (await run_one(runtime.session("s"), "at_once")).ok
    assert (await run_one(runtime.session("s"), "in_child")).value[0] == "0" * 16


async def test_what_a_sampler_leaves_out_is_not_recorded_and_is_still_counted(open_runtime, traced):
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    off = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    telemetry = Telemetry(tracer_provider=off, meter_provider=traced.metrics_provider)
    runtime = await open_runtime(at_once, telemetry=telemetry)
    assert (await run_one(runtime.session("s"), "at_once")).ok
    (point,) = traced.metrics()["gen_ai.execute_tool.duration"]
    assert point.count == 1
    assert dict(point.attributes) == {"gen_ai.tool.name": "at_once", "gen_ai.tool.type": "function"}
