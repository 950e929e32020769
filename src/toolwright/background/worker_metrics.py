"""The counters of a worker for Prometheus. Owns their names; serving them needs `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolwright.background.worker import Worker
from toolwright.stores.contracts.background_run import OVER


class WorkerMetrics:
    """The counters of a worker in the form that Prometheus collects, read on request, also while its loop is
    blocked."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Any]:
        """Return the metrics; called by the Prometheus registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state = self._worker.state()
        counts = state["runs"]
        for name, about in (
            ("started", "Runs that this worker began or went on with"),
            ("taken_over", "Runs among these that another worker had begun"),
            ("handed_back", "Runs that it left to other workers when it stopped"),
            ("lost", "Runs that became another worker's meanwhile"),
        ):
            yield CounterMetricFamily(f"toolwright_runs_{name}", about, value=counts[name])
        ended = CounterMetricFamily("toolwright_runs_ended", "Runs that ended here, by status", labels=["status"])
        for status in OVER:
            ended.add_metric([status], counts[status])
        yield ended
        yield GaugeMetricFamily("toolwright_runs_running", "Runs that it runs now", value=state["running"])
        turns = state["turns"]
        about = "Times that it began to work on a turn, or continued one"
        yield CounterMetricFamily("toolwright_turns_started", about, value=turns["started"])
        about = "Times that a turn ended here, waited for something outside, or was left to others, by status"
        stopped = CounterMetricFamily("toolwright_turns_stopped", about, labels=["status"])
        for status, count in turns.items():
            if status != "started":
                stopped.add_metric([status], count)
        yield stopped
        about = "Turns that it works on now"
        yield GaugeMetricFamily("toolwright_turns_running", about, value=state["turns_running"])
        yield GaugeMetricFamily("toolwright_worker_capacity", "Runs that it runs at most", value=state["capacity"])
        yield GaugeMetricFamily("toolwright_worker_stopping", "1 while it stops", value=float(state["stopping"]))
        if state["silent_for"] is not None:
            about = "Seconds since it last renewed its leases"
            yield GaugeMetricFamily("toolwright_worker_seconds_since_renewal", about, value=state["silent_for"])
