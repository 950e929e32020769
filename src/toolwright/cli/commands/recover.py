"""`toolwright recover`: finish calls, and continue turns, that a crash cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from toolwright.app import App
from toolwright.cli.display.outcome_table import first_line
from toolwright.cli.display.output import Screen, print_json, set_up_log, stdout_kept_clean
from toolwright.cli.display.styles import Name, new_table, place, plain, state_text
from toolwright.cli.exits import FAILED, complain, exit_code, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.stores import opened, require_store
from toolwright.cli.run_calls import shown_command
from toolwright.errors import ToolwrightError, TurnError
from toolwright.session.recovery import Recovered
from toolwright.tools.turn_protocols import TurnClient, TurnOutcome

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

    Turns that a crash cut off continue until they have ended or wait; this needs an app with their model.

    Calls and turns that other processes run now are not touched. Those that wait for a person or an event continue to
    wait.
    """
    with reported():
        set_up_log(verbose)
        store = require_store(db)
        used = options.with_policy(load_app(app, tools), timeout=timeout, approve=approve, spill_dir=spill_dir)
        with stdout_kept_clean():
            done, turns = asyncio.run(_recover(store, used, session, scope))
        log = Screen(stderr=True)
        if as_json:
            print_json([*map(_data, done), *map(_turn_data, turns)])
        else:
            if done:
                Screen().print(recovered_table(done))
            if turns:
                Screen().print(turns_table(turns))
            if not done and not turns:
                log.print("Nothing was cut off.")
        waiting = sum(one.outcome.status == "pending" for one in done)
        waiting += sum(turn.status == "waiting" for _, turn in turns if isinstance(turn, TurnOutcome))
        if waiting and not as_json:
            listed = shown_command("approvals", store)
            log.print(f"{waiting} still wait; calls for a person to decide: {listed}", soft_wrap=True, highlight=False)
        for id, error in turns:
            if isinstance(error, TurnError):
                complain(str(error), "not_continued")
            elif isinstance(error, ToolwrightError):
                complain(f"The turn {id!r} was not continued: {error}", "not_continued")
        answered = all(isinstance(turn, TurnOutcome) and turn.ok for _, turn in turns)
        raise typer.Exit(exit_code([one.outcome for one in done]) if answered else FAILED)


ContinuedTurn = tuple[str, TurnOutcome | ToolwrightError]
"""The id of a turn, and how it ended or waits, or why it cannot continue here."""


async def _recover(
    store: str, app: App, session: str | None, scope: str | None
) -> tuple[list[Recovered], list[ContinuedTurn]]:
    async with opened(store, app) as runtime:
        turns = [] if scope is not None else await runtime.recover_turns(session)
        done = [one for one in await runtime.recover(session, scope=scope) if one.turn is None]
        return done, [(turn.id, await _end_of(turn)) for turn in turns]


async def _end_of(turn: TurnClient) -> TurnOutcome | ToolwrightError:
    try:
        return await turn
    except ToolwrightError as error:  # such as a model that is not here
        return error


def _turn_data(turn: ContinuedTurn) -> dict[str, Any]:
    id, end = turn
    if isinstance(end, TurnOutcome):
        return {"turn_id": id, "action": "continued", "outcome": end.to_json()}
    return {"turn_id": id, "action": "left", "reason": str(end)}


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


def turns_table(turns: Sequence[ContinuedTurn]) -> Table:
    """One line for each turn: how it ended, or that it waits, and its text."""
    table = new_table(expand=True)
    table.add_column("turn", no_wrap=True)
    table.add_column("session", no_wrap=True)
    table.add_column("what was done", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("text of the model", ratio=1, no_wrap=True, overflow="ellipsis")
    for id, end in turns:
        if isinstance(end, TurnOutcome):
            said = end.text or end.reason or ""
            table.add_row(Name(id, room=48), Name(end.session), "continued", state_text(end.status), Text(plain(said)))
        else:
            table.add_row(Name(id, room=48), "", MEANINGS["left"], "", Text(plain(str(end))))
    return table
