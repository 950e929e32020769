"""Asking the person at the terminal about a call that needs approval. Owns the question and reading the answer."""

from __future__ import annotations

import time
from typing import Literal, NamedTuple

from rich.text import Text

from toolwright import jsonx
from toolwright.calls.suspend.approvals import Approval
from toolwright.cli.display.output import Screen
from toolwright.cli.display.styles import plain, readable
from toolwright.cli.display.time_format import until
from toolwright.cli.input.lines import Lines

_SHOWN = 2_000
"""Characters of the arguments that are shown before the person asks for all of them."""


class Verdict(NamedTuple):
    """The answer of a person."""

    word: Literal["approve", "always", "deny"]
    reason: str | None = None


async def ask_person(request: Approval, screen: Screen, lines: Lines) -> Verdict | None:
    """Show a request and read the decision; None when stdin has ended. Lines typed before the question do not count."""
    arguments = readable(jsonx.encode(request.arguments).decode())
    _show(request, screen, arguments)
    words = "[y]es, [n]o" + ("" if request.cause == "crash" else ", [a]lways for this tool")
    words += ", [v]iew all arguments" if len(arguments) > _SHOWN else ""
    while True:
        lines.forget()
        screen.print(Text(f"{words}, or why not: "), end="")
        line = await lines.next()
        if line is None:
            return None
        match line.strip().lower():
            case "y" | "yes":
                return Verdict("approve")
            case "a" | "always" if request.cause != "crash":
                return Verdict("always")
            case "n" | "no":
                return Verdict("deny")
            case "v" | "view":
                screen.print(Text(arguments), soft_wrap=True)
            case "":
                continue
            case _:
                return Verdict("deny", line.strip())


def _show(request: Approval, screen: Screen, arguments: str) -> None:
    why = [request.reason] if request.cause == "crash" else [request.rule, request.reason]
    said = plain(": ".join(filter(None, why)))
    deadline = "" if request.deadline is None else f" ({until(request.deadline, time.time())})"
    screen.print(
        Text.assemble(
            ("? ", "bold magenta"), (plain(request.tool), "bold cyan"), f" needs your approval{deadline}: {said}"
        ),
        soft_wrap=True,
    )
    subject = request.subject
    if subject is not None and subject.text != request.tool:
        place = "" if subject.directory is None else f" in {subject.directory}"
        screen.print(Text(plain(f"  {subject.kind}{place}: ") + readable(subject.text)), soft_wrap=True)
    if len(arguments) > _SHOWN:
        arguments = f"{arguments[:_SHOWN]}… ({len(arguments)} characters)"
    screen.print(Text(f"  {arguments}", style="dim"), soft_wrap=True)
