"""A turn with telemetry: its spans and metrics go to an OTLP backend, such as Phoenix or a collector.

    pip install '.[otel]' opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
    export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:6006/v1/traces
    python examples/telemetry.py

Without an endpoint, the spans are printed. The model is a script, so that no key is needed.
"""

import asyncio
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from toolwright import App, RetryPolicy, ToolCall, ToolContext, ToolError, tool
from toolwright.telemetry import Telemetry
from toolwright.testing import ScriptedModel

tracer = trace.get_tracer("weather")


@tool(readonly=True, retry=RetryPolicy(attempts=3, base_delay=0.05))
async def forecast(ctx: ToolContext, city: str) -> str:
    """The forecast of a city, from a service that fails at first."""
    with tracer.start_as_current_span("GET /forecast"):
        await asyncio.sleep(0.03)
        if ctx.attempt == 1:
            raise ToolError("the service is busy", code="busy", retry=True)
        return f"Rain in {city}"


@tool(readonly=True, isolation="process")
def average(numbers: list[float]) -> float:
    """The average, in a child process."""
    return sum(numbers) / len(numbers)


MODEL = ScriptedModel(
    [
        [
            ToolCall(id="call_1", name="forecast", arguments={"city": "Bergen"}),
            ToolCall(id="call_2", name="average", arguments={"numbers": [7.0, 9.0, 8.0]}),
        ],
        "Rain in Bergen, and 8 degrees on average.",
    ]
)
app = App(tools=[forecast, average], model=MODEL, telemetry=Telemetry(agent="weather", content=True))


def line(span: ReadableSpan) -> str:
    """A span as one line."""
    return f"{span.name}: {dict(span.attributes or {}).get('toolwright.status', 'ok')}\n"


async def main() -> None:
    """Ask once, inside of a span of the program."""
    async with app.open("weather.db") as runtime:
        with tracer.start_as_current_span("POST /ask"):
            outcome = await runtime.session("anna").ask("How is the weather in Bergen?")
    print(outcome.text)


if __name__ == "__main__":
    exporter: SpanExporter = ConsoleSpanExporter(formatter=line)
    if "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" in os.environ or "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
        exporter = OTLPSpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "weather"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        asyncio.run(main())
    finally:
        provider.shutdown()
