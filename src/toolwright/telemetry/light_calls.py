"""Spans of calls where the tracer is the SDK's: the same as those of `call_spans.py`, in less time. Owns how they tell
of their calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import time_ns
from typing import Any

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
    make_current,
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


class LightBatch:
    """Makes the spans of the calls of one batch."""

    __slots__ = ("histogram", "origin", "scope", "session", "spans", "templates")

    def __init__(
        self, spans: CallSpans, session: str, scope: str, origin: Origin, histogram: HeldHistogram | None
    ) -> None:
        self.spans = spans
        self.session = session
        self.scope = scope
        self.origin = origin
        self.histogram = histogram
        self.templates: dict[tuple[ToolFacts, str], tuple[Attributes, HeldValues | None]] = {}
        """By tool and source: the attributes of a success, and where its duration goes."""

    def open(self, call_id: str, name: str, tool: ToolDefinition | None, source: str) -> LightCall | NoCall:
        """The span of a call."""
        try:
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

    def template(self, call: LightCall, record: TimedCall) -> tuple[Attributes, HeldValues | None]:
        """What the spans of successful calls of a tool share in this batch, in the order in which it is told."""
        key = call._tool, call._source
        known = self.templates.get(key)
        if known is None:
            about = call.at_start()
            about |= {names.BATCH: record.batch, names.STATUS: "success", names.ATTEMPTS: 0, names.QUEUE_TIME: 0.0}
            held = None if self.histogram is None else self.histogram.values(call._tool.measured)
            known = self.templates[key] = about, held
        return known


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

    @property
    def mark(self) -> object:
        """Its context."""
        return self._context

    def at_start(self) -> Attributes:
        batch = self._batch
        return at_start(self._tool, self._call_id, batch.session, self._source, batch.scope)

    def enter(self) -> None:
        """Make it the current span of the context of the call, which ends with the call."""
        make_current(self)

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
        try:
            if self._end_time is None:
                now = self._end_time = time_ns()
                outcome, started, finished = record.outcome, record.started, record.finished
                if (
                    outcome is not None
                    and outcome.status == "success"
                    and not outcome.replayed
                    and started is not None
                    and finished is not None
                    and not self._touched
                    and record.parent is None
                    and not self._batch.spans.content
                ):
                    template, held = self._batch.template(self, record)
                    about = template.copy()
                    about[names.TOOL_CALL_ID] = self._call_id
                    about[names.ATTEMPTS] = record.attempts
                    about[names.QUEUE_TIME] = started - record.queued
                    if held is not None:
                        held.add(finished - started, now, self._context)
                    else:
                        measure(self, self._tool, record, self._batch.spans.metrics)
                    self.finish(about, None)
                else:
                    self._end_otherwise(record)
            else:  # the tool has ended it
                measure(self, self._tool, record, self._batch.spans.metrics)
        except Exception:  # the program's tracer
            self._batch.spans.failures.say("the end of a call")

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
