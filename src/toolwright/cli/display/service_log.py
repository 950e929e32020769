"""What a server or a worker tells on stderr while it runs: text for people, or lines of JSON for programs.

A line of JSON is one object: `time`, `level`, `logger`, `message`, the fields of `log_fields`, the ids of the current
span where the app has telemetry, and as `error` a traceback. Secrets that the process knows are taken out of every
line, also of those of other libraries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from toolwright.app import App
from toolwright.cli.display.output import echo, instant, print_json_line, set_up_log
from toolwright.cli.display.time_format import moment
from toolwright.cli.exits import errors_told_by
from toolwright.log_fields import FIELDS, log_fields
from toolwright.session.secrets.log_filter import SecretsFilter


class LogForm(StrEnum):
    """How a program tells what it does."""

    text = "text"
    json = "json"


_IDS: Final = (*FIELDS, "trace_id", "span_id")
_MOST: Final = 64 * 1024
"""Characters of one text in a line of JSON."""


class ServiceLog:
    """Tells what a program does that runs for long. Called with a sentence, an action as of `log_fields`, and ids."""

    def __init__(self, logger: str, handler: logging.Handler | None, *, quiet: bool, timed: bool) -> None:
        self._log = logging.getLogger(logger)
        self._handler = handler
        self._quiet = quiet
        self._timed = timed

    @property
    def to_people(self) -> bool:
        """Whether a person reads it, and not a program that keeps it: a link that logs in is for no log."""
        return self._handler is None and not self._quiet

    def trace(self, app: App) -> None:
        """Give each line of JSON the ids of the span in which it is logged, where the app has telemetry."""
        if self._handler is not None and app.telemetry is not None:
            from toolwright.telemetry.log_filter import TraceIds  # needs the extra, which such an app has

            self._handler.addFilter(TraceIds())

    def __call__(
        self,
        line: str,
        action: str,
        *,
        session: str | None = None,
        run_id: str | None = None,
        turn_id: str | None = None,
        tool: str | None = None,
        worker: str | None = None,
    ) -> None:
        """Tell a line, unless only errors are wanted."""
        if self._quiet:
            return
        if self._handler is None:
            echo(f"{moment(time.time())} {line}" if self._timed else line, err=True)
            return
        ids = log_fields(action, session=session, run_id=run_id, turn_id=turn_id, tool=tool, worker=worker)
        self._log.info("%s", line, extra=ids)

    def tell_error(self, message: str, code: str, error: Exception | None) -> None:
        """Tell why the program ends, as a line of JSON."""
        self._log.error("%s", message, exc_info=error, extra=log_fields(f"command.{code}"))


@contextmanager
def service_log(form: LogForm, logger: str, *, quiet: bool, verbose: bool, timed: bool = False) -> Iterator[ServiceLog]:
    """Set the log of the process up in a form. `timed` says the time before each line of text.

    As JSON, the lines of the library are written from level INFO on, and those of other libraries and of tools as
    `logging` is set up, by default from WARNING on.
    """
    if form is LogForm.text:
        set_up_log(verbose, warnings=True)
        yield ServiceLog(logger, None, quiet=quiet, timed=timed)
        return
    handler, ours, root = JsonHandler(), logging.getLogger("toolwright"), logging.getLogger()
    ours.handlers.clear()
    ours.propagate = True
    ours.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    root.addHandler(handler)
    said = ServiceLog(logger, handler, quiet=quiet, timed=timed)
    try:
        with errors_told_by(said.tell_error):
            yield said
    finally:
        root.removeHandler(handler)


class JsonHandler(logging.Handler):
    """Writes each line to stderr as one object."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line. One that cannot be written is told as by every handler of Python, and raises nothing."""
        try:
            _SECRETS.filter(record)
            print_json_line(line_of(record), err=True)
        except Exception:  # an argument of the line may do anything when it is made text
            self.handleError(record)


_SECRETS: Final = SecretsFilter()
_TRACEBACKS: Final = logging.Formatter()


def line_of(record: logging.LogRecord) -> dict[str, str | int | float | None]:
    """The object of one line."""
    line: dict[str, str | int | float | None] = {
        "time": instant(record.created),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": _text(record.getMessage()),
    }
    for name in _IDS:
        value = getattr(record, name, None)
        if isinstance(value, (int, float)):
            line[name] = value
        elif value:
            line[name] = _text(str(value))
    if record.exc_text:
        line["error"] = _text(record.exc_text)
    elif record.exc_info and record.exc_info[0] is not None:
        line["error"] = _text(_TRACEBACKS.formatException(record.exc_info))
    return line


def _text(text: str) -> str:
    return text[:_MOST].encode("utf-8", "replace").decode()
