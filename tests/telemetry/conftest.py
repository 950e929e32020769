"""A tracer whose spans and metrics are in memory."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from toolwright.telemetry import Telemetry


class Traced(NamedTuple):
    """Providers of the SDK, and what they were given."""

    spans_provider: TracerProvider
    metrics_provider: MeterProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def telemetry(self, **options: Any) -> Telemetry:
        return Telemetry(tracer_provider=self.spans_provider, meter_provider=self.metrics_provider, **options)

    @property
    def tracer(self) -> Tracer:
        """Of the program, beside toolwright's."""
        return self.spans_provider.get_tracer("program")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended, in the order of their ends."""
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of a name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The one of a name."""
        found = self.named(name)
        assert len(found) == 1, [span.name for span in self.spans]
        return found[0]

    def above(self, span: ReadableSpan) -> str | None:
        """The name of the span that a span is below of."""
        if span.parent is None:
            return None
        return next(each.name for each in self.spans if each.context.span_id == span.parent.span_id)

    def metrics(self) -> dict[str, list[Any]]:
        """The points of each metric, by its name."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def traced() -> Iterator[Traced]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    spans, metrics = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    yield Traced(spans, metrics, exporter, reader)
    spans.shutdown()
    metrics.shutdown()
