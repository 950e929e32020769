"""Trace ids in log lines. Owns the filter that adds them; handlers and their form are the program's."""

from __future__ import annotations

import logging

from opentelemetry import trace


class TraceIds(logging.Filter):
    """Adds `trace_id` and `span_id` to every line of a handler or logger, empty where no span is current: give it to
    `handler.addFilter`, and name them in the format of the handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the ids; every line passes."""
        found = trace.get_current_span().get_span_context()
        record.trace_id = f"{found.trace_id:032x}" if found.is_valid else ""
        record.span_id = f"{found.span_id:016x}" if found.is_valid else ""
        return True
