"""Traces in other processes: MCP servers, background runs, and programs that were killed."""

import asyncio
import json
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanContext

from tests.http.client import opened
from tests.support import fail_after
from toolwright import App, Runtime, ToolCall, tool
from toolwright.cli.health import Health
from toolwright.mcp import McpServer
from toolwright.telemetry.propagation import context_of, span_context, traceparent
from toolwright.testing import CrashKit, ScriptedModel, Zygote

pytestmark = pytest.mark.promise("OBS-01")
APP = Path(__file__).with_name("served_app.py")


@tool(readonly=True, supports_background=True)
async def work() -> str:
    """Work."""
    return "worked"


async def test_the_trace_of_a_call_reaches_an_mcp_server_and_the_tool_that_it_serves(traced, tmp_path):
    arguments = ["-m", "toolwright.cli", "mcp", "serve", "--app", f"{APP}:app", "--db", str(tmp_path / "served.db")]
    server = McpServer.stdio("far", sys.executable, arguments, connect_timeout=60.0)
    async with fail_after(100), Runtime.open(tools=[server], telemetry=traced.telemetry()) as runtime:
        with traced.tracer.start_as_current_span("program"):
            outcome = await runtime.session("s").call("far__current")
    span = traced.one("execute_tool far__current")
    assert outcome.ok, outcome.text
    # Nobody records spans in the server, so that it passes on the one that it was given.
    assert outcome.value == traceparent(span.context)
    assert span.attributes["gen_ai.tool.type"] == "extension"


async def test_a_run_is_below_the_span_that_started_it_also_in_another_process(traced, tmp_path):
    place = tmp_path / "agent.db"
    async with fail_after(60):
        async with Runtime.open(place, tools=[work], worker=False, telemetry=traced.telemetry()) as runtime:
            with traced.tracer.start_as_current_span("program"):
                run = await runtime.session("s").spawn("work", id="r1")
            await runtime.session("s").spawn("work", id="r2")
            assert run.record.provenance["trace"].startswith("00-")
        async with Runtime.open(place, tools=[work], worker=True, telemetry=traced.telemetry()) as other:
            for id in ("r1", "r2"):
                await (await other.run(id)).wait()
    spans = {span.attributes["gen_ai.tool.call.id"]: span for span in traced.named("execute_tool work")}
    assert traced.above(spans["r1"]) == "program"
    assert spans["r2"].parent is None


async def test_the_numbers_of_a_worker_are_those_that_prometheus_gets(traced, tmp_path):
    def scrape(url: str) -> dict[str, float]:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    telemetry = traced.telemetry()
    async with fail_after(60):
        with Health("127.0.0.1", 0) as told:
            async with Runtime.open(tmp_path / "a.db", tools=[work], worker=True, telemetry=telemetry) as runtime:
                told.watch(runtime.worker)
                for _ in range(3):
                    await (await runtime.session("s").spawn("work")).wait()
                seen = await asyncio.to_thread(scrape, told.url)
                found = traced.metrics()
    ended = {point.attributes["status"]: point.value for point in found["toolwright.runs.ended"]}
    assert ended["completed"] == 3
    assert ended == {
        name.partition('"')[2].rstrip('"}'): count
        for name, count in seen.items()
        if name.startswith("toolwright_runs_ended_total")
    }
    for name in ("runs.started", "runs.taken_over", "runs.handed_back", "runs.lost", "turns.started"):
        (point,) = found[f"toolwright.{name}"]
        assert point.value == seen[f"toolwright_{name.replace('.', '_')}_total"]
    assert sum(point.value for point in found["toolwright.turns.stopped"]) == 0
    assert found["toolwright.runs.running"][0].value == seen["toolwright_runs_running"]
    assert not traced.metrics().get("toolwright.runs.started")  # the worker is closed


async def test_the_workers_of_two_apps_with_one_provider_are_both_counted(traced, tmp_path):
    async with fail_after(60):
        for place in ("a.db", "b.db"):
            app = App(tools=[work], telemetry=traced.telemetry())
            async with app.open(tmp_path / place, worker=True) as runtime:
                await (await runtime.session("s").spawn("work")).wait()
                (started,) = traced.metrics()["toolwright.runs.started"]
                assert started.value == 1


async def test_what_is_asked_over_http_is_in_the_trace_of_the_client(traced):
    app = App(tools=[work], model=ScriptedModel(["Yes."]), telemetry=traced.telemetry())
    trace = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    async with fail_after(60), opened(app=app) as client:
        calls = {"calls": [{"id": "c1", "name": "work", "arguments": {}}]}
        answer = await client.post("/v1/sessions/s/batches", json=calls, headers={"traceparent": trace})
        assert answer.status_code == 200, answer.text
        answer = await client.post("/v1/sessions/s/turns", json={"message": "Well?"}, headers={"traceparent": trace})
        assert answer.status_code == 200, answer.text
        calls["calls"][0]["id"] = "c2"
        await client.post("/v1/sessions/s/batches", json=calls, headers={"traceparent": "nonsense"})
    first, second = traced.named("execute_tool work")
    assert (first.parent.trace_id, first.parent.span_id) == (0xABC, 0xDEF)
    assert second.parent is None
    assert traced.one("invoke_agent").parent.span_id == 0xDEF


# --- programs that are killed

SPANS = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from toolwright import App
from toolwright.telemetry import Telemetry
from toolwright.telemetry.propagation import traceparent
from toolwright.testing import FunctionModel

exporter = InMemorySpanExporter()
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(exporter))
telemetry = Telemetry(tracer_provider=provider)

def here():
    return traceparent(trace.get_current_span().get_span_context())

def told():
    return [
        [span.name, traceparent(span.context), span.parent and traceparent(span.parent),
         [[traceparent(link.context), link.attributes["toolwright.link"]] for link in span.links],
         dict(span.attributes)]
        for span in exporter.get_finished_spans()
    ]
"""
CALLS = (
    SPANS
    + """
@tool(on_crash=policy)
async def pay(ctx: ToolContext) -> str:
    note(here())
    if dies:
        die()
    return "paid"

async def main():
    async with App(tools=[pay], telemetry=telemetry).open(store) as runtime:
        if recovers:
            await runtime.recover()
        else:
            calls = [ToolCall(id=f"c{n}", name="pay", arguments={}) for n in range(count)]
            await runtime.session("s").run_batch(calls)
        say(told())
"""
)


@pytest.fixture
def crashes(zygote: Zygote, tmp_path: Path) -> Iterator[CrashKit]:
    with CrashKit(tmp_path, zygote=zygote) as kit:
        yield kit


@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize("recovers", [False, True])
@pytest.mark.parametrize("policy", ["rerun", "fail"])
def test_a_call_that_is_taken_over_after_a_kill_is_linked_to_its_first_attempt(crashes, policy, recovers, count):
    given: dict[str, Any] = {"policy": policy, "count": count}
    ended = crashes.start(CALLS, dies=True, recovers=False, **given).wait()
    assert ended.killed
    (first,) = crashes.ledger  # the span that died with its process
    (spans,) = crashes.run(CALLS, dies=False, recovers=recovers, **given).said
    by_call = {about["gen_ai.tool.call.id"]: (own, links, about) for _, own, _, links, about in spans}
    own, links, about = by_call["c0"]
    assert links == [[first, "takeover"]]
    assert own != first
    assert about["toolwright.status"] == ("success" if policy == "rerun" else "failure")
    # Another process gets the outcome that was recorded, and is linked to the first attempt, too.
    (spans,) = crashes.run(CALLS, dies=False, recovers=False, **given).said
    replays = {about["gen_ai.tool.call.id"]: (links, about) for _, _, _, links, about in spans}
    assert len(replays) == count
    for links, about in replays.values():
        assert about["toolwright.replayed"] is True
        assert [why for _, why in links] == ["replay"]
    assert replays["c0"][0] == [[first, "replay"]]


TURN = (
    SPANS
    + """
@tool(readonly=True)
async def look() -> str:
    note("tool " + here())
    if dies == "tool":
        die()
    return "seen"

async def model(request):
    note("model " + here())
    if dies == "model":
        die()
    return [ToolCall(id="c1", name="look", arguments={})] if request.number == 0 else "Done."

async def main():
    async with App(tools=[look], model=FunctionModel(model), telemetry=telemetry).open(store) as runtime:
        session = runtime.session("s")
        with provider.get_tracer("program").start_as_current_span("program"):
            turn = await session.start_turn("Look.", id="t1")
            outcome = await turn.wait()
        say([outcome.text, told()])
"""
)


@pytest.mark.parametrize("dies", ["model", "tool"])
def test_a_turn_that_is_taken_over_after_a_kill_is_linked_and_in_the_trace_of_its_asker(crashes, dies):
    assert crashes.start(TURN, dies=dies).wait().killed
    before = dict(line.split() for line in crashes.ledger)
    ((text, spans),) = crashes.run(TURN, dies="").said
    assert text == "Done."
    by_name = {name: (own, parent, links) for name, own, parent, links, _ in spans}
    own, parent, links = by_name["invoke_agent"]
    first = span_context(before["model"])
    assert first is not None
    ((linked, why),) = links
    assert why == "takeover"
    # The first work is that in whose trace the model was asked, and the turn stays below the program that asked first.
    assert linked.split("-")[1] == own.split("-")[1] == before["model"].split("-")[1]
    assert linked != own
    assert parent.split("-")[1] == before["model"].split("-")[1]
    if dies == "tool":
        assert by_name["execute_tool look"][2] == [[before["tool"], "takeover"]]


def test_a_trace_is_read_as_it_was_written_and_nonsense_is_none():
    context = SpanContext(0xABC, 0xDEF, is_remote=False)
    read = span_context(traceparent(context))
    assert read is not None
    assert (read.trace_id, read.span_id, read.is_remote) == (0xABC, 0xDEF, True)
    for nonsense in ("", "00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 55, json.dumps({})):
        assert span_context(nonsense) is None
        assert not context_of(nonsense)


async def test_a_removed_session_leaves_no_traces(traced, tmp_path):
    import apsw

    place = tmp_path / "a.db"
    async with Runtime.open(place, tools=[work], telemetry=traced.telemetry()) as runtime:
        await runtime.session("s").run_batch([ToolCall(id=f"c{n}", name="work") for n in range(10)])
        await runtime.delete_session("s")
        (count,) = apsw.Connection(str(place)).execute("SELECT count(*) FROM traces").fetchone()  # type: ignore[misc]
    assert count == 0
