"""`toolwright doctor`: what may keep an app from working here, with remedies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import typer
from rich import box
from rich.table import Table

from toolwright.app import App
from toolwright.cli.display.output import Screen, print_json
from toolwright.cli.doctor import Finding, examine
from toolwright.cli.exits import BAD_INPUT, DAMAGED, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.project import find_project
from toolwright.cli.input.stores import named_store
from toolwright.errors import ToolwrightError

STYLES = {"ok": "green", "advice": "yellow", "problem": "red", "damage": "bold red"}


def doctor(app: options.AppName = None, db: options.Db = None, as_json: options.Json = False) -> None:
    """Look for what keeps an app from working here: versions, extras, clock, permissions, keys and the store.

    Each problem comes with its remedy. Nothing is changed. Ends with 2 when there is a problem, and with 4 when the
    store is damaged.
    """
    with reported():
        found = asyncio.run(examine(named_store(db), _app(app)))
        if as_json:
            print_json([msgspec.to_builtins(finding) for finding in found])
        else:
            Screen().print(_table(found))
        states = {finding.state for finding in found}
        if "damage" in states:
            raise typer.Exit(DAMAGED)
        if "problem" in states:
            raise typer.Exit(BAD_INPUT)


def _app(named: str | None) -> App | ToolwrightError | None:
    """The app that is named, or that of the project; None where none is, and the error where it cannot be loaded: the
    rest is looked at nevertheless."""
    try:
        project = find_project(Path.cwd())
        if named is None and (project is None or not {"app", "mcp", "tools"} & project.table.keys()):
            return None
        return load_app(named, None)
    except ToolwrightError as error:
        return error


def _table(found: list[Finding]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for finding in found:
        said = f"{finding.said}; {finding.remedy}" if finding.remedy else finding.said
        table.add_row(f"[{STYLES[finding.state]}]{finding.state}[/]", finding.subject, said)
    return table
