"""The counters of a service for Prometheus: its requests, and the work of its runtime. Owns their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

from toolwright.background.worker_metrics import WorkerMetrics
from toolwright.calls.record import MemoryCallLog
from toolwright.http.operations import RequestCounts
from toolwright.runtime.runtime import Runtime

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(runtime: Runtime, counts: RequestCounts, ready: bool) -> bytes:
    """All metrics of this process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_ServiceMetrics(runtime, counts, ready))
    if runtime.worker is not None:
        registry.register(WorkerMetrics(runtime.worker))
    return generate_latest(registry)


class _ServiceMetrics:
    def __init__(self, runtime: Runtime, counts: RequestCounts, ready: bool) -> None:
        self._runtime = runtime
        self._counts = counts
        self._ready = ready

    def collect(self) -> Iterator[Any]:
        """Return the metrics; called by the Prometheus registry."""
        counts = self._counts
        about = "Requests that were answered, by operation and status"
        requests = CounterMetricFamily("toolwright_http_requests", about, labels=["operation", "status"])
        for (operation, status), count in sorted(counts.answered.items()):
            requests.add_metric([operation, str(status)], count)
        yield requests
        about = "Seconds until an answer was sent, streams excepted, by operation"
        seconds = SummaryMetricFamily("toolwright_http_request_seconds", about, labels=["operation"])
        for operation, (count, total) in sorted(counts.seconds.items()):
            seconds.add_metric([operation], count, total)
        yield seconds
        about = "Requests that are worked on now, open streams among them"
        yield GaugeMetricFamily("toolwright_http_requests_open", about, value=counts.open)
        yield GaugeMetricFamily(
            "toolwright_http_ready", "1 while requests are to be sent here", value=float(self._ready)
        )
        log = self._runtime.log
        if isinstance(log, MemoryCallLog):
            yield GaugeMetricFamily("toolwright_calls_remembered", "Calls in the log of this process", value=len(log))
