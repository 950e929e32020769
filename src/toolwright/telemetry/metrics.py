"""The metrics. Owns the instruments, and the numbers of workers in the form of OpenTelemetry; a worker owns its counts,
and its `/metrics` for Prometheus has the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from toolwright.telemetry import conventions as names
from toolwright.tools.tracing import WorkerCounts

Numbers = Iterable[tuple[float, dict[str, str]]]
"""Values, each with its attributes."""


_ACTIONS = ("started", "taken_over", "handed_back", "lost")
"""What a worker does with runs; its other counts are of runs that ended."""


def _one(kind: str, action: str, state: Mapping[str, Any]) -> Numbers:
    return [(state[kind][action], {})]


class Metrics:
    """The instruments of one `Telemetry`."""

    def __init__(self, meter: Meter, workers: Workers) -> None:
        seconds = {"unit": "s", "explicit_bucket_boundaries_advisory": names.SECONDS}
        make: Any = meter.create_histogram
        self.tool_duration = make(names.TOOL_DURATION, description="How long tools run", **seconds)
        self.agent_duration = make(names.AGENT_DURATION, description="How long turns are worked on", **seconds)
        self.model_duration = make(names.MODEL_DURATION, description="How long models take to answer", **seconds)
        self.tokens = make(
            names.TOKEN_USAGE,
            unit="{token}",
            description="The tokens of requests to models and of their answers",
            explicit_bucket_boundaries_advisory=names.TOKENS,
        )
        self._meter = meter
        self._workers = workers

    def watch(self, worker: WorkerCounts) -> Callable[[], None]:
        """Count what a worker does, until what is returned is called."""
        return self._workers.watch(self._meter, worker)


class Workers:
    """The workers whose numbers go to one provider. It reads each observable instrument from one place, whichever
    `Telemetry` a worker belongs to."""

    def __init__(self) -> None:
        self._workers: list[WorkerCounts] = []
        self._is_observed = False
        self._lock = Lock()

    @classmethod
    def of(cls, provider: MeterProvider | None) -> Workers:
        """Those of a provider; of the one that the program has set or will set, if it is None."""
        return _of_global if provider is None else _of_given.setdefault(provider, cls())

    def watch(self, meter: Meter, worker: WorkerCounts) -> Callable[[], None]:
        """Count what a worker does, until what is returned is called."""
        with self._lock:
            if not self._is_observed:
                self._is_observed = True
                self._observe(meter)
        self._workers.append(worker)
        return lambda: self._workers.remove(worker)

    def _observe(self, meter: Meter) -> None:
        for action in _ACTIONS:
            self._counter(meter, f"toolwright.runs.{action}", partial(_one, "runs", action))
        self._counter(
            meter,
            "toolwright.runs.ended",
            lambda state: [
                (count, {"status": status}) for status, count in state["runs"].items() if status not in _ACTIONS
            ],
        )
        self._counter(meter, "toolwright.turns.started", partial(_one, "turns", "started"))
        self._counter(
            meter,
            "toolwright.turns.stopped",
            lambda state: [
                (count, {"status": status}) for status, count in state["turns"].items() if status != "started"
            ],
        )
        gauge = meter.create_observable_up_down_counter
        gauge("toolwright.runs.running", [self._reading(lambda state: [(state["running"], {})])])
        gauge("toolwright.turns.running", [self._reading(lambda state: [(state["turns_running"], {})])])

    def _counter(self, meter: Meter, name: str, read: Callable[[Any], Numbers]) -> None:
        meter.create_observable_counter(name, [self._reading(read)])

    def _reading(self, read: Callable[[Any], Numbers]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            states = [state for worker in list(self._workers) if (state := worker()) is not None]
            return [
                Observation(value, {"worker": str(state["worker"]), **about})
                for state in states
                for value, about in read(state)
            ]

        return observe


_of_global = Workers()
_of_given: WeakKeyDictionary[MeterProvider, Workers] = WeakKeyDictionary()
