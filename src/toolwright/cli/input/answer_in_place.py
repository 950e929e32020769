"""Asking the person at the terminal a question of a tool. Owns showing it and reading the answer; does not own whether
the answer fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from rich.text import Text

from toolwright import jsonx
from toolwright.calls.suspend.questions import Question, answer_check
from toolwright.cli.display.output import Screen
from toolwright.cli.display.request_tables import wanted_answer
from toolwright.cli.display.styles import plain, readable
from toolwright.cli.display.time_format import until
from toolwright.cli.input.lines import Lines

_SHOWN = 4_000
"""Characters of a question's text that are shown."""


class Reply(NamedTuple):
    """The reply of a person: an answer, or none with the reason."""

    declined: bool
    value: object = None
    reason: str | None = None


async def ask_in_place(question: Question, screen: Screen, lines: Lines) -> Reply | None:
    """Show a question and read the answer; None when stdin has ended. Lines typed before it was asked do not count."""
    deadline = "" if question.deadline is None else f" ({until(question.deadline, time.time())})"
    screen.print(
        Text.assemble(("? ", "bold magenta"), (plain(question.tool), "bold cyan"), f" asks you{deadline}:"),
        soft_wrap=True,
    )
    message = readable(question.message)
    shown = message if len(message) <= _SHOWN else f"{message[:_SHOWN]}… ({len(message)} characters)"
    # Each line has our margin: no line of the text can look like one of ours.
    screen.print(Text("\n".join(f"  │ {line}" for line in shown.split("\n"))), soft_wrap=True)
    screen.print(Text(f"  {wanted_answer(question)}", style="dim"), soft_wrap=True)
    check = answer_check(question.name, question.schema)
    while True:
        lines.forget()
        screen.print(Text("your answer, or /decline and why: "), end="")
        line = await lines.next()
        if line is None:
            return None
        said = line.strip()
        word, _, reason = said.partition(" ")
        if word == "/decline":
            return Reply(True, reason=reason.strip() or None)
        if not said:
            continue
        value, problem = _read(said, check)
        if problem is None:
            return Reply(False, value)
        screen.print(Text(readable(problem), style="yellow"), soft_wrap=True)


def _read(said: str, check: Callable[[bytes], str | None]) -> tuple[object, str | None]:
    """What was typed, as JSON, or as the text that it is where that fits; and why neither can be taken."""
    try:
        value = jsonx.decode(said)
    except (jsonx.DecodeError, RecursionError):
        return said, check(jsonx.encode(said))
    problem = check(jsonx.encode(value))
    if problem is not None and check(jsonx.encode(said)) is None:
        return said, None
    return value, problem
