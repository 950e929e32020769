"""What goes to stdout and stderr. Owns how wide it is, and keeping stdout for the command's own output."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from toolwright import jsonx
from toolwright.cli.states import ENDLESS, readable
from toolwright.clock import rfc3339


class Screen(Console):
    """Where tables and lines in colour are printed: as wide as a terminal, and else as wide as what they hold.

    Where `COLUMNS` is set, somebody wants that width.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        self._endless = not self.is_terminal and not os.environ.get("COLUMNS", "").isdigit()
        if self._endless:
            self.width = ENDLESS

    def print(self, *objects: Any, **options: Any) -> None:
        """Print tables and text. Without an edge, no table is stretched to it, and no line has spaces at its end."""
        if not self._endless:
            super().print(*objects, **options)
            return
        for one in objects:
            if isinstance(one, Table):
                one.expand, one.box = False, None  # a rule would be as long as the longest line
        with self.capture() as captured:
            super().print(*objects, **options)
        typer.echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False, err=self.stderr)

    def on_broken_pipe(self) -> NoReturn:
        """Let the command end as it does whoever wrote; rich would end it as if a call had failed."""
        raise BrokenPipeError


def print_json(value: Any) -> None:
    """Print a value as JSON: indented for a person on a terminal, one line for a program."""
    data = jsonx.encode(value)
    typer.echo(msgspec.json.format(data, indent=2) if sys.stdout.isatty() else data)


_INSTANTS = frozenset(
    [
        "at",
        "instant",
        "deadline",
        "lease_until",
        "first_at",
        "last_at",
        "created_at",
        "updated_at",
        "queued_at",
        "started_at",
        "finished_at",
        "ended_at",
        "requested_at",
        "decided_at",
    ]
)
"""Fields of our values that hold seconds since the epoch."""


def data_of(value: Any) -> Any:
    """A value of ours as plain data, with instants as RFC 3339 text. Data of a tool or a model stays as it is."""
    if isinstance(value, msgspec.Struct):
        return {name: _field(name, getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _field(name, getattr(value, name)) for name in value._fields}
    if isinstance(value, (list, tuple)):
        return [data_of(item) for item in value]
    return msgspec.to_builtins(value)


def _field(name: str, value: Any) -> Any:
    if name in _INSTANTS and isinstance(value, (int, float)):
        return instant(value)
    return data_of(value)


def instant(seconds: float | None) -> str | None:
    """An instant as RFC 3339 text; as a number where it is beyond every calendar, for a file may hold any number."""
    try:
        return rfc3339(seconds)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


def print_text(text: str) -> None:
    """Print text, with an end of line only if it has none: as it is, but on a terminal nothing that could steer it."""
    text = readable(text) if sys.stdout.isatty() else text
    typer.echo(text.encode("utf-8", "replace"), nl=not text.endswith("\n"))


class StderrHandler(logging.Handler):
    """Writes to whatever stderr is at the moment: a live table puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


def set_up_log(verbose: bool, *, warnings: bool = False) -> None:
    """Show the library's log on stderr, or its warnings, or keep it away from a person who reads outcomes."""
    log = logging.getLogger("toolwright")
    log.handlers.clear()
    log.propagate = False
    if verbose:
        log.setLevel(logging.DEBUG)
    log.addHandler(StderrHandler() if verbose or warnings else logging.NullHandler())
    if warnings and not verbose:
        log.setLevel(logging.WARNING)


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Send what tools print, and what the programs they start print, to stderr."""
    sys.stdout.flush()
    kept: int | None = None
    if sys.stdout is sys.__stdout__:
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)
