"""Output to stdout and stderr. Owns its width, removing control characters, and a clean stdout.

Names, texts and messages come from tools, models and stores. Every command prints through here, and nowhere else.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, TextIO

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from toolwright import jsonx
from toolwright.cli.display.styles import ENDLESS, readable
from toolwright.clock import rfc3339


class Screen(Console):
    """Prints tables and coloured lines: as wide as a terminal, or as wide as their content if there is none.

    Where `COLUMNS` is set, somebody wants that width.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        self._endless = not self.is_terminal and not os.environ.get("COLUMNS", "").isdigit()
        if self._endless:
            self.width = ENDLESS

    def print(self, *objects: object, **options: Any) -> None:
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

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The text that rich prints, without control characters of the content; those of rich itself stay."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(readable(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Let the command end with its own exit code; rich would end it as if a call had failed."""
        raise BrokenPipeError


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines without control characters."""
    typer.echo(readable(text).encode("utf-8", "replace"), err=err, nl=nl)


def echo_error(message: str) -> None:
    """Print an error to stderr."""
    typer.secho("Error: ", fg=typer.colors.RED, bold=True, nl=False, err=True)
    echo(message, err=True)


def print_json(value: object) -> None:
    """Print a value as JSON: indented for a person on a terminal, one line for a program."""
    data = safe_json(value)
    typer.echo(msgspec.json.format(data, indent=2) if sys.stdout.isatty() else data)


_INSTANTS = {
    *("at", "instant", "deadline", "lease_until", "first_at", "last_at", "created_at", "updated_at", "queued_at"),
    *("started_at", "finished_at", "ended_at", "requested_at", "asked_at", "decided_at"),
}
"""Fields of our values that hold seconds since the epoch."""


def data_of(value: object) -> Any:
    """A value of ours as plain data, with instants as RFC 3339 text. Data of a tool or a model stays as it is."""
    if isinstance(value, msgspec.Struct):
        return {name: _field(name, getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _field(name, getattr(value, name)) for name in value._fields}
    if isinstance(value, (list, tuple)):
        return [data_of(item) for item in value]
    return msgspec.to_builtins(value)


def _field(name: str, value: object) -> object:
    if name in _INSTANTS and isinstance(value, (int, float)):
        return instant(value)
    return data_of(value)


def instant(seconds: float | None) -> str | None:
    """An instant as RFC 3339 text; as a number where it is beyond every calendar, for a file may hold any number."""
    try:
        return rfc3339(seconds)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


def print_json_line(value: object, *, err: bool = False) -> None:
    """Print a value as one line of JSON."""
    typer.echo(safe_json(value), err=err)


def safe_json(value: object) -> bytes:
    """JSON in which every character that cannot be seen is escaped. It means the same."""
    data = jsonx.encode(value)
    text = data.decode()
    if text.isprintable():
        return data
    return "".join(character if character.isprintable() else _escaped(character) for character in text).encode()


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def print_text(text: str, *, nl: bool = True) -> None:
    """Print text, with an end of line only if it has none: as it is, but on a terminal nothing that could steer it."""
    text = readable(text) if sys.stdout.isatty() else text
    typer.echo(text.encode("utf-8", "replace"), nl=nl and not text.endswith("\n"))


class StderrHandler(logging.Handler):
    """Writes to whatever stderr is at the moment: a live table puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(self.format(record), err=True)


def set_up_log(verbose: bool, *, warnings: bool = False) -> None:
    """Show the library's log on stderr, or its warnings only, or hide it from a person who reads outcomes."""
    log = logging.getLogger("toolwright")
    log.handlers.clear()
    log.propagate = False
    if verbose:
        log.setLevel(logging.DEBUG)
    log.addHandler(StderrHandler() if verbose or warnings else logging.NullHandler())
    if warnings and not verbose:
        log.setLevel(logging.WARNING)


@contextmanager
def own_stdout() -> Iterator[TextIO]:
    """stdout for the command alone: the output of tools, and of the programs they start, goes to stderr."""
    sys.stdout.flush()
    ours = sys.stdout
    if ours is sys.__stdout__:
        ours = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    with stdout_kept_clean():
        yield ours


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Send the output of tools, and of the programs they start, to stderr."""
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
