"""Spans of calls: `execute_tool`. Owns when a span begins and ends and what is added to it; does not own when a call
does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry import context, trace

from toolwright.events import CallEmitted, CallNote, CallRetrying, CallWaiting, CallWarning
from toolwright.telemetry import conventions as names
from toolwright.telemetry.call_attributes import Attributes, KnownTools, ToolFacts, add_end, at_start
from toolwright.telemetry.failures import Failures
from toolwright.telemetry.metrics import Metrics
from toolwright.telemetry.propagation import InChildProcess, as_remote, span_context, traceparent
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.tracing import LinkKind, TimedCall


class CallSpans:
    """What the spans of calls of one `Telemetry` share."""

    def __init__(self, tracer: trace.Tracer, metrics: Metrics, failures: Failures, content: bool) -> None:
        self.tracer = tracer
        self.metrics = metrics
        self.failures = failures
        self.content = content
        self.tools = KnownTools()


class PlainCalls:
    """Makes the spans of the calls of a batch with the API of OpenTelemetry."""

    def __init__(self, spans: CallSpans, session: str, scope: str) -> None:
        self._spans = spans
        self._session = session
        self._scope = scope

    def open(self, call_id: str, name: str, tool: ToolDefinition | None, source: str) -> OneCall | NoCall:
        """The span of a call."""
        spans = self._spans
        try:
            facts = spans.tools.facts(name, tool)
            about = at_start(facts, call_id, self._session, source, self._scope)
            return OneCall(spans, spans.tracer.start_span(facts.span_name, attributes=about), facts)
        except Exception:  # the program's tracer
            spans.failures.say("the start of a call")
            return NO_CALL


class OneCall:
    """The span of one call. It is `CallSpan`."""

    __slots__ = ("_span", "_spans", "_tool")

    def __init__(self, spans: CallSpans, span: trace.Span, tool: ToolFacts) -> None:
        self._spans = spans
        self._span = span
        self._tool = tool

    @property
    def trace(self) -> str:
        """Its `traceparent`."""
        return traceparent(self._span.get_span_context())

    @property
    def mark(self) -> object:
        """Its context."""
        return self._span.get_span_context()

    def enter(self) -> None:
        """Make it the current span of the context of the call, which ends with the call."""
        context.attach(trace.set_span_in_context(self._span))

    def in_child(self) -> Callable[[Any], AbstractContextManager[object]] | None:
        """Makes code in a child process be inside of it."""
        return in_child(self._span, self._spans.failures)

    def link(self, earlier: object, why: LinkKind) -> None:
        """Link it to the first execution of the call."""
        add_link(self._span, earlier, why, self._spans.failures)

    def note(self, event: CallNote) -> None:
        """Add an event to it."""
        add_event(self._span, event, self._spans.failures)

    def ended(self, record: TimedCall) -> None:
        """Tell the outcome, and end it."""
        span, spans = self._span, self._spans
        try:
            measure(span, self._tool, record, spans.metrics)
            if not span.is_recording():
                return
            code = record.code
            if code is not None:
                # Not the message: it may hold content.
                span.set_status(trace.StatusCode.ERROR, code)
            about: Attributes = {}
            add_end(about, record, spans.content)
            span.set_attributes(about)
            span.end()
        except Exception:  # the program's tracer
            spans.failures.say("the end of a call")


def in_child(span: trace.Span, failures: Failures) -> Callable[[Any], AbstractContextManager[object]] | None:
    """Makes code in a child process be inside of a span."""
    try:
        return InChildProcess.of(span)
    except Exception:  # the program's propagator
        failures.say("the propagation to a child process")
        return None


def add_link(span: trace.Span, earlier: object, why: LinkKind, failures: Failures) -> None:
    """Link a span to an earlier one, by its text or its context."""
    try:
        if isinstance(earlier, trace.SpanContext):
            found = as_remote(earlier) if earlier.is_valid else None
        else:
            found = span_context(str(earlier))
        if found is not None:
            span.add_link(found, {names.LINK: why})
    except Exception:  # the program's tracer
        failures.say("a link")


def add_event(span: trace.Span, event: CallNote, failures: Failures) -> None:
    """Add an event of a call to its span."""
    try:
        if isinstance(event, CallRetrying):
            about: Attributes = {names.ATTEMPT: event.attempt, names.DELAY: event.delay, names.CODE: event.code}
            span.add_event(names.RETRYING_EVENT, about)
        elif isinstance(event, CallWaiting):
            span.add_event(names.WAITING_EVENT, {names.WAITS_FOR: event.what, names.NAME: event.name})
        elif isinstance(event, CallWarning):
            span.add_event(names.WARNING_EVENT, {names.CODE: event.code})
        elif isinstance(event, CallEmitted):
            span.add_event(names.EMITTED_EVENT, {names.NAME: event.name})
    except Exception:  # the program's tracer
        failures.say("an event of a call")


def measure(span: trace.Span, tool: ToolFacts, record: TimedCall, metrics: Metrics) -> None:
    """Measure how long the tool of a call ran, if it did."""
    if record.started is not None and not record.replayed and tool.measured:
        code = record.code
        measured = tool.measured if code is None else {**tool.measured, names.ERROR_TYPE: code}
        metrics.tool_duration.record(record.run_time, measured, trace.set_span_in_context(span))


class NoCall:
    """In the place of a span that could not be made. It is `CallSpan`."""

    trace = mark = ""

    def enter(self) -> None:
        pass

    def in_child(self) -> None:
        return None

    def link(self, earlier: object, why: LinkKind) -> None:
        pass

    def note(self, event: CallNote) -> None:
        pass

    def ended(self, record: TimedCall) -> None:
        pass


NO_CALL = NoCall()
