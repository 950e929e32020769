"""Secrets and logs. Owns the filter that removes known secrets from the records of our own loggers.

A traceback has whatever a tool put into its exception, so from the first secret on tracebacks are written as text.
"""

from __future__ import annotations

import logging
import traceback
import weakref
from typing import Protocol

from toolwright.log_fields import FIELDS

ROOMS = (
    "adapters",
    "background",
    "blocking",
    "calls",
    "drivers",
    "effects",
    "events",
    "http",
    "http.access",
    "mcp",
    "runtime.lifespan",
    "runtime",
    "schedules",
    "session",
    "stores",
    "telemetry",
    "tools",
    "turns",
)
LOGGERS = ("toolwright", *(f"toolwright.{room}" for room in ROOMS))


MOST_LOGGED = 64 * 1024
"""Characters of a message, and of a traceback, that are searched for secrets and written."""


class _Stream(Protocol):
    def feed(self, text: str) -> str: ...


class _Redacts(Protocol):
    def text(self, text: str) -> str: ...

    def stream(self) -> _Stream: ...


_known: weakref.WeakSet[_Redacts] = weakref.WeakSet()


class SecretsFilter(logging.Filter):
    """Takes every known secret, of every session, out of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; it is always written."""
        redactors = list(_known)
        if not redactors:
            return True
        if record.exc_info:
            # Not the exception itself: its frames hold the tool's variables, which some handlers write out.
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_info = None
        message = record.getMessage()
        together = _together(record, message)
        for redactor in redactors:
            # Most lines have no secret, and there may be thousands of sessions: so one search tells for all parts.
            if together is not None and redactor.text(together) is together:
                continue
            message = _redacted(redactor, message)
            if record.exc_text:
                record.exc_text = _redacted(redactor, record.exc_text)
            for name in FIELDS:
                if type(value := getattr(record, name, None)) is str:
                    setattr(record, name, _redacted(redactor, value))
            together = _together(record, message)
        record.msg, record.args = message, None
        return True


def _together(record: logging.LogRecord, message: str) -> str | None:
    """All parts of a record that are searched; None where each must be searched on its own."""
    fields = [value for name in FIELDS if type(value := getattr(record, name, None)) is str]
    if any("\n" in value for value in fields):  # base64 may begin in one that is broken into lines
        return None
    together = "\0".join((message, record.exc_text or "", *fields))
    return together if len(together) <= MOST_LOGGED else None


def _redacted(redactor: _Redacts, text: str) -> str:
    """A text without secrets. Of a very long one only the beginning is written, for a record is made on the loop."""
    if len(text) <= MOST_LOGGED:
        return redactor.text(text)
    # The possible beginning of a secret at the cut is held back.
    shown = redactor.stream().feed(text[:MOST_LOGGED])
    return f"{shown}[… {len(text) - MOST_LOGGED} characters omitted …]"


_FILTER = SecretsFilter()


def guard_logs(redactor: _Redacts) -> None:
    """Remove the secrets that this redactor knows from the logs, until `unguard_logs`, or until it is garbage."""
    _known.add(redactor)
    made = [name for name in list(logging.root.manager.loggerDict) if name.startswith("toolwright.")]
    for name in {*LOGGERS, *made}:
        logging.getLogger(name).addFilter(_FILTER)


def unguard_logs(redactor: _Redacts) -> None:
    """Its session is closed."""
    _known.discard(redactor)
