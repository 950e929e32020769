"""Traces on their way to other contexts, processes and stores. Owns `traceparent` as text, and being inside of a span
of another process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from opentelemetry import context, propagate, trace

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def traceparent(span: trace.SpanContext) -> str:
    """A span as text; empty for one that is not valid."""
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def span_context(text: str) -> trace.SpanContext | None:
    """The span that a text names; None for text that names none."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    read = trace.SpanContext(
        int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=trace.TraceFlags(int(found[3], 16) & 3)
    )
    return read if read.is_valid else None


def as_remote(span: trace.SpanContext) -> trace.SpanContext:
    """A span as it is read from its text: without its state."""
    flags = trace.TraceFlags(span.trace_flags & 3)
    return trace.SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=flags)


def context_of(text: str) -> context.Context:
    """The context of the span that a text names; one without a span, where it names none."""
    found = span_context(text)
    if found is None:
        return context.Context()
    return trace.set_span_in_context(trace.NonRecordingSpan(found), context.Context())


class Inside(AbstractContextManager[None]):
    """Inside of a context. It is entered and left in one task or thread, once."""

    __slots__ = ("_context", "_token")

    def __init__(self, entered: context.Context) -> None:
        self._context = entered

    def __enter__(self) -> None:
        self._token = context.attach(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.detach(self._token)


class InChildProcess:
    """Makes code in a child process be inside of a span of its parent, with the baggage of the parent."""

    def __init__(self, carrier: Mapping[str, str]) -> None:
        self._carrier = dict(carrier)

    @classmethod
    def of(cls, span: trace.Span) -> InChildProcess:
        """For a span of this process."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        carrier.setdefault("traceparent", traceparent(span.get_span_context()))
        return cls(carrier)

    def __call__(self, attempt: object) -> AbstractContextManager[None]:
        found = propagate.extract(self._carrier)
        if not trace.get_current_span(found).get_span_context().is_valid:  # another propagator is set
            found = context_of(self._carrier["traceparent"])
        return Inside(found)
