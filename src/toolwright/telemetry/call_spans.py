"""Spans of calls: `execute_tool`. Owns what a span tells of its call; does not own when a call begins or ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry import context, trace

from toolwright.events import CallEmitted, CallFacts, CallNote, CallRetrying, CallWaiting, CallWarning
from toolwright.telemetry import conventions as names
from toolwright.telemetry.content import bounded
from toolwright.telemetry.failures import Failures
from toolwright.telemetry.metrics import Metrics
from toolwright.telemetry.propagation import InChildProcess, span_context, traceparent
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.tracing import LinkKind

Attributes = dict[str, Any]
MOST_TOOLS = 1_000
"""How many tools have their attributes remembered."""
LONGEST_DESCRIPTION = 500
_TYPES = {"mcp": "extension"}


class CallSpans:
    """Makes the spans of calls."""

    def __init__(self, tracer: trace.Tracer, metrics: Metrics, failures: Failures, content: bool) -> None:
        self.tracer = tracer
        self.metrics = metrics
        self.failures = failures
        self.content = content
        self._tools: dict[str, tuple[ToolDefinition, Attributes, Attributes]] = {}

    def open(
        self, session: str, scope: str, call_id: str, name: str, tool: ToolDefinition | None, source: str
    ) -> OneCall | NoCall:
        """The span of a call, below the span that is current."""
        try:
            known, measured = self._about(name, tool)
            about = {**known, names.TOOL_CALL_ID: call_id, names.CONVERSATION: session, names.SOURCE: source}
            if scope:
                about[names.SCOPE] = scope
            return OneCall(self, self.tracer.start_span(f"execute_tool {name}", attributes=about), measured)
        except Exception:  # the program's tracer
            self.failures.say("the start of a call")
            return NO_CALL

    def _about(self, name: str, tool: ToolDefinition | None) -> tuple[Attributes, Attributes]:
        """The attributes of every span of a tool, and those of its metric."""
        if tool is None:  # a name that a model made up
            return {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name[:200]}, {}
        known = self._tools.get(name)
        if known is None or known[0] is not tool:
            if len(self._tools) >= MOST_TOOLS:
                self._tools.clear()
            measured = {names.TOOL_NAME: name, names.TOOL_TYPE: _TYPES.get(tool.kind, "function")}
            about = {names.OPERATION: names.EXECUTE_TOOL, **measured}
            if tool.description:
                about[names.TOOL_DESCRIPTION] = tool.description[:LONGEST_DESCRIPTION]
            known = self._tools[name] = tool, about, measured
        return known[1], known[2]


class OneCall:
    """The span of one call. It is `CallSpan`."""

    __slots__ = ("_measured", "_span", "_spans")

    def __init__(self, spans: CallSpans, span: trace.Span, measured: Attributes) -> None:
        self._spans = spans
        self._span = span
        self._measured = measured

    @property
    def trace(self) -> str:
        """Its `traceparent`."""
        return traceparent(self._span.get_span_context())

    def enter(self) -> None:
        """Make it the current span of the context of the call, which ends with the call."""
        context.attach(trace.set_span_in_context(self._span))

    def in_child(self) -> Callable[[Any], AbstractContextManager[object]] | None:
        """Makes code in a child process be inside of it."""
        try:
            return InChildProcess.of(self._span)
        except Exception:  # the program's propagator
            self._spans.failures.say("the propagation to a child process")
            return None

    def link(self, trace: str, why: LinkKind) -> None:
        """Link it to the first execution of the call."""
        try:
            found = span_context(trace)
            if found is not None:
                self._span.add_link(found, {names.LINK: why})
        except Exception:  # the program's tracer
            self._spans.failures.say("a link")

    def note(self, event: CallNote) -> None:
        """Add an event to it."""
        try:
            if isinstance(event, CallRetrying):
                about: Attributes = {names.ATTEMPT: event.attempt, names.DELAY: event.delay, names.CODE: event.code}
                self._span.add_event(names.RETRYING_EVENT, about)
            elif isinstance(event, CallWaiting):
                self._span.add_event(names.WAITING_EVENT, {names.WAITS_FOR: event.what, names.NAME: event.name})
            elif isinstance(event, CallWarning):
                self._span.add_event(names.WARNING_EVENT, {names.CODE: event.code})
            elif isinstance(event, CallEmitted):
                self._span.add_event(names.EMITTED_EVENT, {names.NAME: event.name})
        except Exception:  # the program's tracer
            self._spans.failures.say("an event of a call")

    def end(self, record: CallFacts) -> None:
        """Tell the outcome, and end it."""
        try:
            self._end(record)
        except Exception:  # the program's tracer
            self._spans.failures.say("the end of a call")

    def _end(self, record: CallFacts) -> None:
        span, spans, code, replayed = self._span, self._spans, record.code, record.replayed
        if record.started_at is not None and not replayed and self._measured:
            measured = self._measured if code is None else {**self._measured, names.ERROR_TYPE: code}
            spans.metrics.tool_duration.record(record.run_time, measured, trace.set_span_in_context(span))
        if not span.is_recording():
            return
        about: Attributes = {
            names.BATCH: record.batch,
            names.STATUS: record.status,
            names.ATTEMPTS: record.attempts,
            names.QUEUE_TIME: record.queue_time,
        }
        if record.parent is not None:
            about[names.PARENT] = record.parent
        if replayed:
            about[names.REPLAYED] = True
        if code is not None:
            about[names.ERROR_TYPE] = code
            about[names.CATEGORY] = record.category
            # Not the message: it may hold content.
            span.set_status(trace.StatusCode.ERROR, code)
        if spans.content:
            about[names.TOOL_ARGUMENTS] = bounded(record.raw_arguments.decode("utf-8", "replace"))
            if record.outcome is not None:
                about[names.TOOL_RESULT] = bounded(record.outcome.text)
        span.set_attributes(about)
        span.end()


class NoCall:
    """In the place of a span that could not be made. It is `CallSpan`."""

    trace = ""

    def enter(self) -> None:
        pass

    def in_child(self) -> None:
        return None

    def link(self, trace: str, why: LinkKind) -> None:
        pass

    def note(self, event: CallNote) -> None:
        pass

    def end(self, record: CallFacts) -> None:
        pass


NO_CALL = NoCall()
