"""`toolwright doctor`: what may be wrong around an app and its store."""

from __future__ import annotations

import asyncio

import typer
from rich.table import Table
from rich.text import Text

from toolwright.app import App
from toolwright.cli.checkup import Finding, check_up
from toolwright.cli.display.output import Screen, print_json, set_up_log
from toolwright.cli.exits import BAD_INPUT, DAMAGED, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.stores import named_store
from toolwright.errors import ToolwrightError

_MARKS = {"ok": ("✓", "green"), "note": ("○", "yellow"), "problem": ("✗", "red"), "damage": ("✗", "red")}


def doctor(
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.Db = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Look at versions, libraries, the app, the store, its keys and the clock, and say what to do about each problem.

    It changes nothing. Ends with 2 when there is a problem, and with 4 when the store is damaged.
    """
    with reported():
        set_up_log(verbose)
        used: App | None = None
        error: str | None = None
        try:
            used = load_app(app, tools)
        except ToolwrightError as refused:
            error = str(refused) if app is not None or tools else None
        findings = asyncio.run(_collect(used, error, named_store(db)))
        states = {finding.state for finding in findings}
        if as_json:
            sound = not states & {"problem", "damage"}
            print_json({"sound": sound, "findings": [finding._asdict() for finding in findings]})
        else:
            Screen().print(_table(findings))
        if "damage" in states:
            raise typer.Exit(DAMAGED)
        if "problem" in states:
            raise typer.Exit(BAD_INPUT)


async def _collect(app: App | None, error: str | None, store: str | None) -> list[Finding]:
    return [finding async for finding in check_up(app, error, store)]


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        mark, colour = _MARKS[finding.state]
        says = finding.says if not finding.remedy else f"{finding.says}; {finding.remedy}"
        table.add_row(Text(mark, style=colour), finding.what, Text(says))
    return table
