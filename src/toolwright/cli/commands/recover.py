"""`toolwright recover`: finish calls that a crash cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from toolwright.app import App
from toolwright.cli.display.outcome_table import first_line
from toolwright.cli.display.output import Screen, print_json, set_up_log, stdout_kept_clean
from toolwright.cli.display.styles import Name, new_table, place, state_text
from toolwright.cli.exits import exit_code, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.stores import opened, require_store
from toolwright.cli.run_calls import shown_command
from toolwright.session.recovery import Recovered

MEANINGS = {
    "rerun": "run again",
    "run": "run: it had not begun",
    "interrupted": "not run again",
    "given_up": "given up",
    "probed": "asked its probe",
    "asked": "a person must decide",
    "waiting": "went on waiting",
    "left": "left as it is",
}
"""The action for people; --json has the word itself."""


def recover(
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.Db = None,
    session: options.OfSession = None,
    scope: Annotated[str | None, typer.Option(metavar="SCOPE", help="Only calls of this scope.")] = None,
    as_json: options.Json = False,
    timeout: options.Timeout = None,
    approve: options.Approve = None,
    spill_dir: options.SpillDir = None,
    verbose: options.Verbose = False,
) -> None:
    """Finish calls that a crash cut off, each by the crash policy of its tool, and show the action for each.

    Calls that other processes run now are not touched. Calls that wait for a person or an event continue to wait.
    """
    with reported():
        set_up_log(verbose)
        store = require_store(db)
        used = options.with_policy(load_app(app, tools), timeout=timeout, approve=approve, spill_dir=spill_dir)
        with stdout_kept_clean():
            done = asyncio.run(_recover(store, used, session, scope))
        log = Screen(stderr=True)
        if as_json:
            print_json([_data(one) for one in done])
        elif done:
            Screen().print(recovered_table(done))
        else:
            log.print("Nothing was cut off.")
        waiting = sum(one.outcome.status == "pending" for one in done)
        if waiting and not as_json:
            listed = shown_command("approvals", store)
            log.print(f"{waiting} still wait; calls for a person to decide: {listed}", soft_wrap=True, highlight=False)
        raise typer.Exit(exit_code([one.outcome for one in done]))


async def _recover(store: str, app: App, session: str | None, scope: str | None) -> list[Recovered]:
    async with opened(store, app) as runtime:
        return await runtime.recover(session, scope=scope)


def _data(one: Recovered) -> dict[str, Any]:
    return {**one._asdict(), "outcome": one.outcome.to_json()}


def recovered_table(done: Sequence[Recovered]) -> Table:
    """One line for each call: the action, and the outcome it has now."""
    table = new_table(expand=True)
    table.add_column("call", no_wrap=True)
    table.add_column("session", no_wrap=True)
    table.add_column("tool", no_wrap=True, style="cyan")
    table.add_column("what was done", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("what the model reads", ratio=1, no_wrap=True, overflow="ellipsis")
    for one in done:
        table.add_row(
            Name(one.call_id),
            place(one.session, one.scope),
            Name(one.tool),
            MEANINGS.get(one.action, one.action),
            state_text(one.outcome.status),
            first_line(one.outcome),
        )
    return table
