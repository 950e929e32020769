"""The spans and metrics that are made in less time where the SDK is in use: they are those that the SDK would make.

A generator of ids that is the program's own makes the SDK make every span itself, and take every measurement as it
comes: so each test runs twice, and compares.
"""

import asyncio
import copy
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, AlwaysOnExemplarFilter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import (
    DropAggregation,
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased

from tests.support import fail_after
from toolwright import Policy, RetryPolicy, Rule, Runtime, ToolCall, ToolContext, ToolError, tool
from toolwright.telemetry import Telemetry
from toolwright.telemetry.sdk_internals import LightSpan, misfits
from toolwright.testing import FakeClock

pytestmark = pytest.mark.promise("OBS-01")

PROVIDERS: dict[str, Any] = {"shutdown_on_exit": False, "resource": Resource.create({"service.name": "shop"})}


class OwnIds(RandomIdGenerator):
    """Ids that are the program's own."""


class Made:
    """What one of the two ways has made."""

    def __init__(self, is_light: bool, processors: Sequence[SpanProcessor] = (), **options: Any) -> None:
        self.is_light = is_light
        self.exporter = InMemorySpanExporter()
        ids = RandomIdGenerator() if is_light else OwnIds()
        self.provider = TracerProvider(id_generator=ids, **PROVIDERS, **options)
        for processor in (*processors, SimpleSpanProcessor(self.exporter)):
            self.provider.add_span_processor(processor)
        self.clock = FakeClock()

    def told(self) -> list[dict[str, Any]]:
        """Every field of the spans; ids are told by the order of the spans."""
        spans = self.exporter.get_finished_spans()
        known = {span.context.span_id: number for number, span in enumerate(spans)}
        traces = list(dict.fromkeys(span.context.trace_id for span in spans))
        return [_told(span, known, traces) for span in spans]


def _told(span: Any, known: dict[int, int], traces: list[int]) -> dict[str, Any]:
    assert span.start_time <= span.end_time
    assert all(span.start_time <= event.timestamp <= span.end_time for event in span.events)

    def place(context: Any) -> Any:
        return None if context is None else (known.get(context.span_id), *_flags(context))

    return {
        "name": span.name,
        "trace": traces.index(span.context.trace_id),
        "context": _flags(span.context),
        "get_span_context": span.get_span_context() == span.context,
        "parent": place(span.parent),
        "kind": span.kind,
        "status": (span.status.status_code, span.status.description, span.status.is_ok),
        "attributes": [
            (key, type(value), None if key == "toolwright.batch" and "secret" in span.name else value)
            for key, value in span.attributes.items()
        ],
        "events": [(event.name, list(event.attributes.items())) for event in span.events],
        "links": [(place(link.context), list(link.attributes.items())) for link in span.links],
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
        "resource": span.resource,
        "scope": span.instrumentation_scope,
        "info": str(vars(span)["_instrumentation_info"]),
        "json": sorted(json.loads(span.to_json())),
        "type": isinstance(span, ReadableSpan),
        "copied": [each(span).to_json() == span.to_json() for each in (copy.copy, copy.deepcopy)],
    }


def _flags(context: Any) -> tuple[Any, ...]:
    return int(context.trace_flags), dict(context.trace_state), context.is_remote, context.is_valid


@tool
async def looks() -> None:
    """Look at once."""


@tool
async def later() -> None:
    """Look later."""
    await asyncio.sleep(0)


@tool
def on_thread(word: str) -> str:
    """Look on a thread."""
    return word


@tool
async def breaks() -> None:
    """Break."""
    raise ValueError("the number 4711")


@tool
async def adds(count: int) -> None:
    """Add to the span."""
    span = trace.get_current_span()
    span.update_name("another name")
    span.set_attributes({"gen_ai.tool.name": "overridden", "toolwright.batch": "mine"})
    for number in range(count):
        span.set_attribute(f"page.{number}", [number, "x"])
    span.add_event("seen", {"pages": count})
    span.add_link(trace.SpanContext(7, 8, is_remote=True), {"why": "because"})
    span.record_exception(KeyError("handled"), {"exception.stacktrace": "cut"})
    span.set_status(trace.StatusCode.OK)
    span.set_attribute("", "no key")


@tool
async def sets_status() -> None:
    """Fail, after an error was noted."""
    trace.get_current_span().set_status(trace.StatusCode.ERROR, "its own words")
    raise ToolError("no", code="refused")


@tool
async def reads() -> list[str]:
    """Read what the span has."""
    span: Any = trace.get_current_span()
    assert (span.status.is_unset, list(span.events), list(span.links)) == (True, [], [])
    assert span.is_recording()
    assert span.end_time is None
    assert span.resource.attributes["service.name"] == "shop"
    return list(span.attributes)


@tool
async def ends() -> None:
    """End the span itself."""
    trace.get_current_span().end()
    trace.get_current_span().set_attribute("late", True)


@tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0, jitter=0))
async def flaky(ctx: ToolContext) -> str:
    """Fail twice."""
    if ctx.attempt < 3:
        raise ToolError("not yet", code="later", retry=True)
    return "done"


@tool
async def outer(ctx: ToolContext) -> str:
    """Call another."""
    return (await ctx.call("on_thread", word="x")).text


@tool(secret="password")
async def takes_secret(password: str) -> str:
    """Log in. The id of a batch with a secret cannot be guessed, so that it differs."""
    return f"{password}!" * 3


TOOLS = [looks, later, on_thread, breaks, adds, sets_status, reads, ends, flaky, outer, takes_secret]
CALLS: dict[str, list[ToolCall]] = {
    "success": [ToolCall(id="c1", name="looks"), ToolCall(id="c2", name="later"), ToolCall(id="c3", name="looks")],
    "on a thread": [ToolCall(id="c1", name="on_thread", arguments={"word": "x"})],
    "failure": [ToolCall(id="c1", name="breaks"), ToolCall(id="c2", name="breaks")],
    "retry": [ToolCall(id="c1", name="flaky")],
    "nested": [ToolCall(id="c1", name="outer")],
    "not run": [ToolCall(id=name, name=name) for name in ("nothing", "on_thread", "denied")],
    "secret": [ToolCall(id="c1", name="takes_secret", arguments={"password": "hunter2-hunter2"})],
    "added to": [ToolCall(id="c1", name="adds", arguments={"count": 3})],
    "added to much": [ToolCall(id="c1", name="adds", arguments={"count": 300})],
    "own status": [ToolCall(id="c1", name="sets_status")],
    "read": [ToolCall(id="c1", name="reads")],
    "ended by its tool": [ToolCall(id="c1", name="ends")],
}


@tool
async def denied() -> None:
    """Never run."""


async def run(made: Made, calls: list[ToolCall], times: int = 1, **options: Any) -> list[Any]:
    policy = Policy(rules=(Rule("deny", "denied", reason="not here"),))
    telemetry = Telemetry(
        tracer_provider=made.provider, meter_provider=MeterProvider(shutdown_on_exit=False), **options
    )
    opened = Runtime.open(tools=[*TOOLS, denied], telemetry=telemetry, clock=made.clock, policy=policy)
    async with fail_after(60), opened as runtime:
        for _ in range(times):
            outcomes = await runtime.session("s").run_batch(calls, scope="m1" if times > 1 else "")
    return [outcome.text for outcome in outcomes]


async def both(work: Callable[[Made], Awaitable[Any]], **options: Any) -> list[dict[str, Any]]:
    """What both ways tell, which is the same."""
    light, plain = Made(True, **options), Made(False, **options)
    assert await work(light) == await work(plain)
    assert light.told() == plain.told()
    return light.told()


def test_the_sdk_that_is_installed_is_the_one_that_is_known():
    assert misfits() == [], "the SDK has changed: look into toolwright/telemetry/sdk_internals.py"


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("case", CALLS)
async def test_a_span_has_the_fields_that_the_sdk_would_give_it(case, content):
    calls = CALLS[case]
    told = await both(lambda made: run(made, calls, content=content))
    assert len(told) >= len(calls)


async def test_most_spans_are_made_in_less_time_and_those_with_own_ids_are_not():
    @tool
    async def which() -> bool:
        """Which way?"""
        return isinstance(trace.get_current_span(), LightSpan)

    for is_light in (True, False):
        made = Made(is_light)
        async with Runtime.open(tools=[which], telemetry=Telemetry(tracer_provider=made.provider)) as runtime:
            assert (await runtime.session("s").call("which")).value is is_light


@pytest.mark.parametrize("case", ["success", "failure", "added to"])
async def test_a_replay_has_the_fields_that_the_sdk_would_give_it(case):
    told = await both(lambda made: run(made, CALLS[case], times=3))
    replays = [span for span in told if ("toolwright.replayed", bool, True) in span["attributes"]]
    assert len(replays) == 2 * len(CALLS[case])
    assert all(span["links"] for span in replays)


@pytest.mark.parametrize("state", [[], [("vendor", "x")]])
@pytest.mark.parametrize("flags", [0, 1, 3])
@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_span_is_below_any_kind_of_parent(is_remote, flags, state):
    above = trace.SpanContext(5, 6, is_remote, trace.TraceFlags(flags), trace.TraceState(state))

    async def work(made: Made) -> Any:
        with trace.use_span(trace.NonRecordingSpan(above)):
            return await run(made, CALLS["success"])

    told = await both(work)
    assert len(told) == (3 if flags & 1 else 0)
    assert all(span["context"][1] == dict(state) and span["parent"] is not None for span in told)


@pytest.mark.parametrize(
    "sampler", [ALWAYS_ON, TraceIdRatioBased(1.0), ParentBased(TraceIdRatioBased(1.0)), ParentBased(ALWAYS_ON)]
)
async def test_a_sampler_is_asked_as_the_sdk_would(sampler):
    assert len(await both(lambda made: run(made, CALLS["success"]), sampler=sampler)) == 3


async def test_each_trace_of_its_own_is_sampled_on_its_own():
    made = Made(True, sampler=TraceIdRatioBased(0.5))
    await run(made, [ToolCall(id=f"c{number}", name="looks") for number in range(200)])
    assert 20 < len(made.told()) < 180  # that it is outside is as likely as 1 in 10**30


@pytest.mark.parametrize("limits", [SpanLimits(max_span_attributes=5), SpanLimits(max_span_attribute_length=3)])
async def test_limits_of_the_program_hold(limits):
    told = await both(lambda made: run(made, CALLS["success"]), span_limits=limits)
    for span in told:
        values = [value for _, kind, value in span["attributes"] if kind is str]
        assert span["dropped"][0] or max(map(len, values)) <= 3


class Watching(SpanProcessor):
    """A processor of the program's that reads and adds, and perhaps breaks."""

    def __init__(self, where: str = "") -> None:
        self.where = where
        self.seen: list[Any] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.where == "start":
            raise RuntimeError("broken start")
        self.seen.append(("start", span.name, dict(span.attributes), parent_context))
        span.set_attribute("program", "added")

    def _on_ending(self, span: Any) -> None:
        self.seen.append(("ending", span.name, dict(span.attributes)))

    def on_end(self, span: Any) -> None:
        self.seen.append(("end", span.name, dict(span.attributes), span.status.status_code))
        if self.where == "end":
            raise RuntimeError("broken end")


@pytest.mark.parametrize("case", ["success", "failure", "retry", "added to", "nested"])
async def test_processors_of_the_program_see_what_the_sdk_would_show_them(case):
    seen: list[Any] = []

    async def work(made: Made) -> Any:
        watching = Watching()
        made.provider.add_span_processor(watching)
        found = await run(made, CALLS[case])
        seen.append(watching.seen)
        return found

    await both(work)
    light, plain = seen
    assert light == plain
    assert [what for what, *_ in light].count("end") >= 1


@pytest.mark.parametrize("where", ["start", "end"])
async def test_a_processor_that_breaks_is_the_same_fault(where, caplog):
    lines: list[Any] = []

    async def work(made: Made) -> Any:
        caplog.clear()
        with caplog.at_level(logging.ERROR, "toolwright"):
            found = await run(made, [*CALLS["success"], *[ToolCall(id="c9", name="breaks")]])
        lines.append([record.getMessage() for record in caplog.records if record.name == "toolwright.telemetry"])
        return found

    await both(work, processors=[Watching(where)])
    assert lines[0] == lines[1]
    assert len(lines[0]) == 1


async def test_a_span_that_is_used_after_its_end_stays_as_it_was(caplog):
    kept: list[Any] = []

    @tool
    async def keeps() -> None:
        """Keep the span."""
        kept.append(trace.get_current_span())

    made = Made(True)
    async with Runtime.open(tools=[keeps], telemetry=Telemetry(tracer_provider=made.provider)) as runtime:
        await runtime.session("s").call("keeps")
    before, span = made.told(), kept[0]
    span.set_attribute("late", True)
    span.add_event("late")
    span.set_status(trace.StatusCode.ERROR)
    span.end()
    assert made.told() == before
    assert not span.is_recording()
    assert dict(span.attributes) == dict(made.exporter.get_finished_spans()[0].attributes)
    assert {record.name for record in caplog.records} == {"opentelemetry.sdk.trace"}


# --- metrics

DURATION = "gen_ai.execute_tool.duration"
DELTA = {Histogram: AggregationTemporality.DELTA}
TIMES = [0.005, 0.01, 0.011, 3.0, 0.5, 0.02, 100.0, 0.0, 0.015, 700.0]


def points(data: MetricsData | None) -> list[Any]:
    """The points of the durations of tools."""
    if data is None:
        return []
    return [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == DURATION
        for point in metric.data.data_points
    ]


def told_of(point: Any, spans: Sequence[Any]) -> dict[str, Any]:
    """Every field of a point; instants are compared only with each other."""
    assert point.start_time_unix_nano < point.time_unix_nano
    calls = {span.context.span_id: (span.attributes["gen_ai.tool.call.id"], span) for span in spans}
    for exemplar in point.exemplars:
        _, span = calls[exemplar.span_id]
        assert exemplar.trace_id == span.context.trace_id
        assert span.start_time <= exemplar.time_unix_nano <= span.end_time + 1_000_000_000
    found = {
        "attributes": dict(point.attributes),
        "count": point.count,
        "sum": pytest.approx(point.sum),
        "range": (point.min, point.max),
        "exemplars": [
            (exemplar.value, calls[exemplar.span_id][0], dict(exemplar.filtered_attributes or {}))
            for exemplar in point.exemplars
        ],
    }
    if hasattr(point, "bucket_counts"):
        found |= {"buckets": tuple(point.bucket_counts), "bounds": tuple(point.explicit_bounds)}
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"exemplar_filter": AlwaysOffExemplarFilter()},
        {"exemplar_filter": AlwaysOnExemplarFilter()},
        {"views": [View(instrument_name=DURATION, attribute_keys={"gen_ai.tool.type"})]},
        {"views": [View(instrument_name=DURATION, aggregation=ExplicitBucketHistogramAggregation([1, 2], False))]},
        {"views": [View(instrument_name=DURATION, aggregation=ExponentialBucketHistogramAggregation())]},
        {"views": [View(instrument_name=DURATION, aggregation=DropAggregation())]},
        {"views": [View(instrument_name=DURATION, name=DURATION, aggregation_cardinality_limit=1)]},
    ],
    ids=["plain", "no exemplars", "all exemplars", "fewer", "own buckets", "exponential", "dropped", "few sets"],
)
async def test_the_sdk_collects_what_it_would_have_collected(options):
    async def work(made: Made) -> Any:
        @tool
        async def takes(seconds: float, fails: bool = False) -> None:
            """Take some time."""
            await made.clock.advance(seconds)
            if fails:
                raise ToolError("no", code="refused")

        @tool
        async def other() -> None:
            """Take none."""

        readers = [InMemoryMetricReader(), InMemoryMetricReader(preferred_temporality=DELTA)]
        provider = MeterProvider(readers, shutdown_on_exit=False, **options)
        telemetry = Telemetry(tracer_provider=made.provider, meter_provider=provider)
        again = Telemetry(tracer_provider=made.provider, meter_provider=provider)  # has the same instruments
        found: list[Any] = []
        async with (
            fail_after(60),
            Runtime.open(tools=[takes, other], telemetry=telemetry, clock=made.clock) as runtime,
            Runtime.open(tools=[takes, other], telemetry=again, clock=made.clock) as second,
        ):
            session, number = runtime.session("s"), 0
            for part in (TIMES[:4], TIMES[4:], [], [0.3]):
                for seconds in part:
                    number += 1
                    about = {"seconds": seconds, "fails": number % 4 == 0}
                    for each in (session, second.session("t")):
                        await each.run_batch([ToolCall(id=f"{each.id} {number}", name="takes", arguments=about)])
                    await session.run_batch([ToolCall(id=f"o{number}", name="other")])
                for reader in readers:
                    spans = made.exporter.get_finished_spans()
                    told = [told_of(point, spans) for point in points(reader.get_metrics_data())]
                    found.append(sorted(told, key=lambda point: sorted(point["attributes"].items())))
            await session.run_batch([ToolCall(id="o1", name="other")])  # a replay
        return found

    await both(work)


async def test_no_duration_is_lost_or_counted_twice_while_threads_run_calls_and_others_collect():
    made, reader = Made(True), InMemoryMetricReader(preferred_temporality=DELTA)
    telemetry = Telemetry(tracer_provider=made.provider, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    threads, batches, size = 4, 12, 100
    counted, stopped = [0], threading.Event()

    def collect() -> None:
        counted[0] += sum(point.count for point in points(reader.get_metrics_data()))

    def collector() -> None:
        while not stopped.is_set():
            collect()

    async def work(name: str) -> None:
        async with Runtime.open(tools=[looks], telemetry=telemetry) as runtime:
            for _ in range(batches):
                await runtime.session(name).run_batch([ToolCall(name="looks") for _ in range(size)])

    running = [threading.Thread(target=asyncio.run, args=(work(f"s{number}"),)) for number in range(threads)]
    collecting = threading.Thread(target=collector)
    for thread in (collecting, *running):
        thread.start()
    for thread in running:
        await asyncio.to_thread(thread.join)
    stopped.set()
    await asyncio.to_thread(collecting.join)
    collect()
    assert counted[0] == threads * batches * size
    assert len(made.exporter.get_finished_spans()) == threads * batches * size


class Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        self.data.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        pass


@pytest.mark.parametrize("end", ["force_flush", "shutdown"])
async def test_a_flush_and_a_shutdown_export_every_duration(end):
    made, kept = Made(True), Kept()
    reader = PeriodicExportingMetricReader(kept, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    telemetry = Telemetry(tracer_provider=made.provider, meter_provider=provider)
    async with Runtime.open(tools=[looks], telemetry=telemetry) as runtime:
        await runtime.session("s").run_batch([ToolCall(name="looks") for _ in range(1234)])
    assert kept.data == []
    await asyncio.to_thread(getattr(provider, end))
    assert [point.count for point in points(kept.data[-1])] == [1234]
    if end == "force_flush":
        provider.shutdown()


async def test_a_reader_that_comes_later_gets_what_is_measured_later():
    made, first = Made(True), InMemoryMetricReader()
    provider = MeterProvider([first], shutdown_on_exit=False)
    telemetry = Telemetry(tracer_provider=made.provider, meter_provider=provider)
    async with Runtime.open(tools=[looks], telemetry=telemetry) as runtime:
        await runtime.session("s").call("looks")
        assert [point.count for point in points(first.get_metrics_data())] == [1]
        second = InMemoryMetricReader()
        provider.add_metric_reader(second)
        await runtime.session("s").call("looks")
    assert [point.count for point in points(first.get_metrics_data())] == [2]
    assert [point.count for point in points(second.get_metrics_data())] == [1]


async def test_providers_that_are_set_after_the_telemetry_was_made_are_used():
    program = """
import asyncio
from toolwright import App, ToolCall, tool
from toolwright.telemetry import Telemetry

@tool
async def which() -> str:
    "Which way?"
    return type(trace.get_current_span()).__name__

app = App(tools=[which], telemetry=Telemetry())

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

async def main():
    async with app.open() as runtime:
        for _ in range(3):
            print((await runtime.session("s").call("which")).value)
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    print([(metric.name, metric.data.data_points[0].count) for metric in scope.metrics])

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["LightCall"] * 3 + [f"[('{DURATION}', 3)]"]
