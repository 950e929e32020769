"""`toolwright call`: one tool, once."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from toolwright.cli.display.outcome_table import explain
from toolwright.cli.display.output import Screen, print_json, print_text, set_up_log, stdout_kept_clean
from toolwright.cli.display.styles import seconds, state_text
from toolwright.cli.exits import reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import known_tools, load_app
from toolwright.cli.input.arguments import read_arguments
from toolwright.cli.input.sources import require_tool
from toolwright.cli.input.stores import named_store
from toolwright.cli.run_calls import Finished, run_calls
from toolwright.tools.call import ToolCall


def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool to call.")],
    arguments: options.Arguments = None,
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.KeptIn = None,
    session: options.Session = "cli",
    scope: options.Scope = "",
    call_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="The id of the call: with a store, it runs once, and again gives its outcome.",
            rich_help_panel="Store",
        ),
    ] = None,
    as_json: options.Json = False,
    timeout: options.Timeout = None,
    read_only: options.ReadOnly = False,
    approve: options.Approve = None,
    spill_dir: options.SpillDir = None,
    events: options.Events = None,
    verbose: options.Verbose = False,
) -> None:
    """Call one tool and print the text that a model would read.

    The text goes to stdout as it is, and how it went to stderr.

    With --json the whole outcome goes to stdout. With --db the call waits for approvals and events.
    """
    with reported():
        console = Screen(stderr=True)
        set_up_log(verbose)
        used = options.with_policy(
            load_app(app, tools), timeout=timeout, read_only=read_only, approve=approve, spill_dir=spill_dir
        )
        store = named_store(db)
        tool = require_tool(known_tools(used, store), name)
        one = ToolCall(name=name, arguments=read_arguments(arguments or (), tool), id=call_id, source="user")
        with stdout_kept_clean():
            finished = asyncio.run(
                run_calls([one], used, store=store, session=session, scope=scope, events_file=events)
            )
        if as_json:
            print_json(finished.outcomes[0].to_json())
        else:
            print_text(finished.outcomes[0].text)
            console.print(_status(finished), soft_wrap=True)
        raise typer.Exit(finished.exit_code)


def _status(finished: Finished) -> Text:
    outcome, record = finished.outcomes[0], finished.records[0]
    line = state_text(outcome.status)
    if outcome.replayed:
        line.append(", replayed: it was done before", style="not bold")
    elif outcome.attempts:
        attempts = f", {outcome.attempts} attempts" if outcome.attempts > 1 else ""
        line.append(f" in {seconds(record.run_time)}{attempts}", style="not bold")
    if said := explain(outcome):
        line.append(f": {said}", style="not bold")
    return line
