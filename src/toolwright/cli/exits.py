"""How a command ends. Owns the exit codes, and turning an error into one line on stderr and its code.

| code | meaning                                                                  |
|------|--------------------------------------------------------------------------|
| 0    | every call succeeded, or the command did its work                        |
| 1    | a call, run or turn failed or was cancelled, or a call of a batch waits  |
|      | for something                                                            |
| 2    | the command was used wrongly, its input is bad, or tools, a store or a   |
|      | key cannot be used                                                       |
| 3    | somebody else decided or resolved it first; nothing was changed          |
| 4    | the store is damaged                                                     |
| 5    | the run or turn has not finished yet                                     |
| 70   | toolwright itself failed; the traceback is on stderr                     |
| 130  | interrupted by Ctrl-C; the results until then were printed               |
| 141  | the program that reads the output has closed it                          |
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import typer

from toolwright.cli.display.output import echo, echo_error, safe_json
from toolwright.errors import StoreDamaged, ToolwrightError
from toolwright.tools.outcome import ToolOutcome

SUCCEEDED = 0
FAILED = 1
BAD_INPUT = 2
OUTRUN = 3
DAMAGED = 4
UNFINISHED = 5
BROKEN = 70
INTERRUPTED = 130
UNREAD = 141

MEANINGS = {
    SUCCEEDED: "every call succeeded, or the command did its work",
    FAILED: "a call, run or turn failed or was cancelled, or a call of a batch waits for something",
    BAD_INPUT: "wrong usage, bad input, or tools, a store or a key that cannot be used",
    OUTRUN: "somebody else decided or resolved it first",
    DAMAGED: "the store is damaged",
    UNFINISHED: "the run or turn has not finished yet",
    BROKEN: "toolwright itself failed",
    INTERRUPTED: "interrupted by Ctrl-C",
    UNREAD: "the program that reads the output has closed it",
}


class BadInput(ToolwrightError):
    """The input of the command cannot be used; the message names it and the remedy."""


def exit_code(outcomes: Iterable[ToolOutcome], *, interrupted: bool = False) -> int:
    """The exit code for the outcomes of a batch."""
    if interrupted:
        return INTERRUPTED
    return SUCCEEDED if all(outcome.ok for outcome in outcomes) else FAILED


def is_damage(error: Exception) -> bool:
    """True when an error says that a store is damaged."""
    return isinstance(error, StoreDamaged)


TellError = Callable[[str, str, Exception | None], None]
"""Tells an error: its message, its code, and the exception of one that nobody expected."""
_in_json = False
_told_by: TellError | None = None


def tell_errors_in_json(context: typer.Context, wanted: bool) -> bool:
    """Print errors of the command as JSON, or as text. Called by the option --json, whose value it returns."""
    global _in_json
    above = context.parent
    _in_json = wanted or (above is not None and bool(above.params.get("as_json")))
    return wanted


def error_json(message: str, code: str) -> str:
    """An error of a command as one line of JSON."""
    return safe_json({"error": {"code": code, "message": message}}).decode()


@contextmanager
def errors_told_by(tell: TellError) -> Iterator[None]:
    """Tell errors of the command in another way than as a line of text."""
    global _told_by
    before, _told_by = _told_by, tell
    try:
        yield
    finally:
        _told_by = before


def complain(message: str, code: str = "bad_input", error: Exception | None = None) -> None:
    """Print an error to stderr, if somebody reads it: the exit code says it too. With --json, it is JSON.

    `error` is one that nobody expected, whose traceback is printed too.
    """
    with suppress(BrokenPipeError):
        if _told_by is not None:
            _told_by(message, code, error)
            return
        if error is not None:
            echo("".join(traceback.format_exception(error)), err=True, nl=False)
        if _in_json:
            echo(error_json(message, code), err=True)
        else:
            echo_error(message)


@contextmanager
def reported() -> Iterator[None]:
    """Turn any error inside into a message and an exit code.

    Raises:
        typer.Exit: with the code.
    """
    try:
        yield
    except typer.Exit:
        raise
    except ToolwrightError as error:
        damage = is_damage(error)
        complain(str(error), "damaged" if damage else getattr(error, "code", None) or "bad_input")
        raise typer.Exit(DAMAGED if damage else BAD_INPUT) from None
    except BrokenPipeError:
        # Python flushes stdout once more when it ends, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(UNREAD) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:  # the edge of the process: a fault of ours must not look like a failed call
        if (word := _undecoded(error)) is not None:
            complain(f"The text {word!r:.200} is not UTF-8; write it in UTF-8")
            raise typer.Exit(BAD_INPUT) from None
        complain(
            f"toolwright failed with {type(error).__name__}: {error}; please report it with the lines above",
            "internal_error",
            error,
        )
        raise typer.Exit(BROKEN) from None


def _undecoded(error: Exception) -> str | None:
    """The text of an error that is about bytes which are not UTF-8, as Python reads them from a command line."""
    if not isinstance(error, UnicodeEncodeError) or not "\udc80" <= error.object[error.start] <= "\udcff":
        return None
    return error.object
