"""What telemetry costs: 100 calls with a span and a metric for each, beside the same batch without.

The spans go through the SDK's simple processor to its exporter in memory, the metrics to its reader in memory.
"The SDK alone" has no calls: it makes as many spans and measurements by hand, as the SDK's documentation says, and
so shows what would be added to each call by using it in that way.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bench.pairing import Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report

LIMITS = {"in memory, on": 1.6, "on a file, on": 1.6, "on a file, not rerun, on": 1.6, "in memory, off": 1.02}
CALLS = 100
SPANS_HELD = 1_000


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure in a fresh process."""
    try:
        found = run_probe("bench.sections.telemetry", quick=quick)
    except ProbeError as error:
        lines = [Line("telemetry", error=str(error))]
    else:
        lines = [Line.paired(name, Pairing.from_json(each), target=LIMITS.get(name)) for name, each in found.items()]
    return Report("telemetry", f"{CALLS} calls with OpenTelemetry beside the same without", lines)


async def measure(effort: Effort) -> dict[str, Any]:
    """Each pairing is between two runtimes of this process, which differ in nothing but their telemetry."""
    from bench.contestant import TOOLS, open_contestant
    from bench.disk import new_file
    from bench.workload import FUNCTIONS
    from toolwright import tool

    found: dict[str, Any] = {}
    async with open_contestant() as plain:
        without = plain.subject(CALLS)
        telemetry, bare = set_up()
        async with open_contestant() as off, open_contestant(telemetry=telemetry) as on:
            found["in memory, off"] = (await pair(without, off.subject(CALLS), effort)).to_json()
            found["in memory, on"] = (await pair(without, on.subject(CALLS), effort)).to_json()
        found["the SDK alone"] = (await pair(without, bare, effort)).to_json()
    cautious = [tool(name=name)(function) for name, function in FUNCTIONS.items()]
    for name, tools in (("on a file, on", TOOLS), ("on a file, not rerun, on", cautious)):
        with new_file() as without_it, new_file() as with_it:
            async with (
                open_contestant(tools, without_it) as plain,
                open_contestant(tools, with_it, telemetry=telemetry) as on,
            ):
                found[name] = (await pair(plain.subject(CALLS), on.subject(CALLS), effort)).to_json()
    return found


def set_up() -> tuple[Any, Subject[int, Sequence[int]]]:
    """Telemetry with exporters in memory, and a subject that uses the SDK as telemetry does."""
    from opentelemetry import context, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from toolwright.telemetry import Telemetry

    spans, metrics = TracerProvider(), MeterProvider([InMemoryMetricReader()])
    spans.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter(max_spans=SPANS_HELD)))
    tracer, histogram = spans.get_tracer("bench"), metrics.get_meter("bench").create_histogram("duration")
    about = {f"attribute.{number}": "a value" for number in range(10)}

    async def run(count: int) -> Sequence[int]:
        for _ in range(count):
            span = tracer.start_span("execute_tool echo", attributes=about)
            token = context.attach(trace.set_span_in_context(span))
            histogram.record(0.001, {"gen_ai.tool.name": "echo", "gen_ai.tool.type": "function"})
            context.detach(token)
            span.end()
        return range(count)

    made = Telemetry(tracer_provider=spans, meter_provider=metrics)
    return made, Subject(calls=CALLS, prepare=lambda: CALLS, run=run, count=len)


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
