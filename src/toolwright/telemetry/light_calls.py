"""Spans of calls where the tracer is the SDK's: the same as those of `call_spans.py`, in less time. Owns how they tell
of their calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from operator import attrgetter
from time import time_ns
from typing import Any, TypeAlias

from opentelemetry import trace

from toolwright.events import CallNote
from toolwright.telemetry import conventions as names
from toolwright.telemetry.call_attributes import Attributes, ToolFacts, add_end, at_start
from toolwright.telemetry.call_spans import (
    NO_CALL,
    CallSpans,
    NoCall,
    add_event,
    add_link,
    in_child,
    measure,
)
from toolwright.telemetry.propagation import traceparent
from toolwright.telemetry.sdk_internals import (
    HeldHistogram,
    HeldValues,
    LightSpan,
    Origin,
    origin_of,
    start,
)
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.tracing import LinkKind, OpenCallSpan, TimedCall


class LightCalls:
    """Chooses for each batch how the spans of its calls are made."""

    def __init__(self, spans: CallSpans) -> None:
        self._spans = spans
        self._histogram: HeldHistogram | None = None

    def of_batch(self, session: str, scope: str) -> OpenCallSpan | None:
        """Makes the spans of a batch; None where the SDK must make them."""
        origin = origin_of(self._spans.tracer)
        if origin is None:
            return None
        if self._histogram is None:
            self._histogram = HeldHistogram.of(self._spans.metrics.tool_duration)
        held = self._histogram if self._histogram is not None and self._histogram.can_hold() else None
        return LightBatch(self._spans, session, scope, origin, held).open


CALL_ID, ATTEMPTS, QUEUE_TIME = names.TOOL_CALL_ID, names.ATTEMPTS, names.QUEUE_TIME

Template: TypeAlias = tuple[str, Attributes, HeldValues | None]
"""What successful calls of one tool and one batch share: their source, their attributes in the order in which these are
told, and where their durations go."""


class LightBatch:
    """Makes the spans of the calls of one batch."""

    __slots__ = ("content", "histogram", "known", "origin", "scope", "session", "spans", "templates")

    def __init__(
        self, spans: CallSpans, session: str, scope: str, origin: Origin, histogram: HeldHistogram | None
    ) -> None:
        self.spans = spans
        self.session = session
        self.scope = scope
        self.origin = origin
        self.content = spans.content
        self.histogram = histogram
        self.known = spans.tools.known
        self.templates: dict[ToolFacts, Template] = {}

    def open(self, call_id: str, name: str, tool: ToolDefinition | None, source: str) -> LightCall | NoCall:
        """The span of a call."""
        try:
            facts = self.known.get(name)
            if facts is None or facts.definition is not tool:
                facts = self.spans.tools.facts(name, tool)
            call: LightCall = start(LightCall, self.origin, facts.span_name)
            call._batch = self
            call._tool = facts
            call._call_id = call_id
            call._source = source
            if self.origin.is_watched:
                self.origin.tell_start(call)
            return call
        except Exception:  # the program's tracer
            self.spans.failures.say("the start of a call")
            return NO_CALL

    def template(self, call: LightCall, record: TimedCall) -> Template:
        """Make the one of the tool of a call."""
        about = call.at_start()
        about |= {names.BATCH: record.batch, names.STATUS: "success", names.ATTEMPTS: 0, names.QUEUE_TIME: 0.0}
        held = None if self.histogram is None else self.histogram.values(call._tool.measured)
        made = self.templates[call._tool] = call._source, about, held
        return made


class LightCall(LightSpan):
    """The span of one call. It is `CallSpan`."""

    _batch: LightBatch
    _tool: ToolFacts
    _call_id: str
    _source: str

    @property
    def trace(self) -> str:
        """Its `traceparent`."""
        return traceparent(self._context)

    mark = property(attrgetter("_context"))
    """What `link` knows it by."""

    def at_start(self) -> Attributes:
        batch = self._batch
        return at_start(self._tool, self._call_id, batch.session, self._source, batch.scope)

    def in_child(self) -> Callable[[Any], AbstractContextManager[object]] | None:
        """Makes code in a child process be inside of it."""
        return in_child(self, self._batch.spans.failures)

    def link(self, earlier: object, why: LinkKind) -> None:
        """Link it to the first execution of the call."""
        add_link(self, earlier, why, self._batch.spans.failures)

    def note(self, event: CallNote) -> None:
        """Add an event to it."""
        add_event(self, event, self._batch.spans.failures)

    def ended(self, record: TimedCall) -> None:
        """Tell the outcome, and end it."""
        batch = self._batch
        try:
            if self._end_time is not None:  # the tool has ended it
                measure(self, self._tool, record, batch.spans.metrics)
                return
            now = self._end_time = time_ns()
            outcome, started, finished = record.outcome, record.started, record.finished
            if (
                outcome is None
                or outcome.status != "success"
                or outcome.replayed
                or started is None
                or finished is None
                or record.parent is not None
                or self._touched
                or batch.content
            ):
                self._end_otherwise(record)
                return
            template = batch.templates.get(self._tool)
            if template is None or template[0] != self._source:
                template = batch.template(self, record)
            about = template[1].copy()
            about[CALL_ID] = self._call_id
            about[ATTEMPTS] = record.attempts
            about[QUEUE_TIME] = started - record.queued
            held = template[2]
            if held is not None:
                held.add(finished - started, now, self._context)
            else:
                measure(self, self._tool, record, batch.spans.metrics)
            self.finish(about, None)
        except Exception:  # the program's tracer
            batch.spans.failures.say("the end of a call")

    def _end_otherwise(self, record: TimedCall) -> None:
        spans, code = self._batch.spans, record.code
        measure(self, self._tool, record, spans.metrics)
        # Not the message: it may hold content.
        status = None if code is None else trace.Status(trace.StatusCode.ERROR, code)
        about: Attributes = {} if self._touched else self.at_start()
        add_end(about, record, spans.content)
        if self._touched:
            self.finish_touched(about, status)
        else:
            self.finish(about, status)
