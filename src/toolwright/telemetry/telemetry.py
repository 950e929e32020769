"""`Telemetry`: the tracer of an app. Owns its options, and where its spans and metrics go."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import TypeAlias

from opentelemetry import metrics, trace

from toolwright.errors import ToolwrightError
from toolwright.telemetry.agent_spans import ModelCall, SpanParts, TurnWork
from toolwright.telemetry.call_spans import CallSpans, PlainCalls
from toolwright.telemetry.failures import Failures
from toolwright.telemetry.metrics import Metrics, Workers
from toolwright.telemetry.propagation import Inside, context_of, traceparent
from toolwright.tools.model import ModelRequest
from toolwright.tools.tracing import LinkKind, ModelSpan, OpenCallSpan, Redact, TurnSpan, WorkerCounts

NAME = "toolwright"
"""The instrumentation scope."""


_OpenBatch: TypeAlias = Callable[[str, str], OpenCallSpan | None]


def light_calls(spans: CallSpans) -> _OpenBatch:
    """Makes spans in less time where the SDK is in use, and is one that is known well enough."""
    try:
        from toolwright.telemetry.light_calls import LightCalls
    except ImportError:  # of a name that the SDK no longer has, or does not have yet
        return lambda session, scope: None
    return LightCalls(spans).of_batch


class Telemetry:
    """Makes OpenTelemetry spans and metrics of an app: `App(telemetry=Telemetry())`.

    Each call is a span `execute_tool`, each turn `invoke_agent`, each request to a model `chat`, by the conventions for
    GenAI. They are below the span that is current where they begin, and the code of a tool is inside of the span of its
    call, wherever it runs. It may be a global of a module, like the app.

    Args:
        content: also record what is said: arguments and results of calls, messages and answers of models. Secrets of
            the session are taken out, and long texts are cut.
        agent: the name of the agent, for its turns. A sub-agent has the name of its tool.
        tracer_provider: where spans go; by default the provider that the program has set.
        meter_provider: where metrics go; by default the provider that the program has set.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        agent: str | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        if not isinstance(content, bool):
            raise ToolwrightError(f"content={content!r:.200} is not usable; use True or False")
        if agent is not None and (not isinstance(agent, str) or not agent):
            raise ToolwrightError(f"agent={agent!r:.200} is not usable; use the name of the agent, or None")
        tracer = trace.get_tracer(NAME, version(NAME), tracer_provider)
        measured = Metrics(metrics.get_meter(NAME, version(NAME), meter_provider), Workers.of(meter_provider))
        failures = Failures()
        self._agent = agent
        self._metrics = measured
        self._calls = CallSpans(tracer, measured, failures, content)
        self._light: _OpenBatch | None = None
        self._parts = SpanParts(tracer, measured, failures, content)

    def calls(self, session: str, scope: str) -> OpenCallSpan:
        """Makes the spans of the calls of a batch; for the runtime."""
        try:
            if self._light is None and "opentelemetry.sdk.trace" in sys.modules:
                self._light = light_calls(self._calls)
            opened = None if self._light is None else self._light(session, scope)
        except Exception:  # the program's tracer
            self._parts.failures.say("the start of a batch")
            opened = None
        return PlainCalls(self._calls, session, scope).open if opened is None else opened

    def turn(
        self, session: str, turn_id: str, model: str, agent: str | None, asked_in: str, before: str, why: LinkKind
    ) -> AbstractContextManager[TurnSpan]:
        """The span of the work on a turn; for the runtime."""
        return TurnWork(self._parts, session, turn_id, model, agent or self._agent, asked_in, before, why)

    def model_call(
        self, model: object, request: ModelRequest, redact: Redact | None
    ) -> AbstractContextManager[ModelSpan]:
        """The span of a request to a model; for the runtime."""
        return ModelCall(self._parts, model, request, redact)

    def current(self) -> str:
        """The `traceparent` of the current span; empty if there is none."""
        return traceparent(trace.get_current_span().get_span_context())

    def inside(self, trace: str) -> AbstractContextManager[object]:
        """Be inside of a span of another process, by its `traceparent`; of none, if it is empty."""
        return Inside(context_of(trace))

    def opened(self, worker: WorkerCounts) -> Callable[[], None]:
        """Count what the worker of a runtime does; for the runtime."""
        try:
            return self._metrics.watch(worker)
        except Exception:  # the program's meter
            self._parts.failures.say("the metrics of a worker")
            return lambda: None
