"""`toolwright batch`: every call of a model's answer, at once and in order."""

from __future__ import annotations

import asyncio
import functools
from typing import Annotated

import typer

from toolwright.cli.display.live import live_table
from toolwright.cli.display.outcome_table import outcome_table
from toolwright.cli.display.output import Screen, print_json, set_up_log, stdout_kept_clean
from toolwright.cli.display.timeline import timeline as draw_timeline
from toolwright.cli.exits import reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.payload import read_payload
from toolwright.cli.input.stores import named_store
from toolwright.cli.run_calls import Finished, run_calls


def batch(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="JSON: a list of calls, or a whole response of OpenAI or Anthropic; - reads stdin.",
        ),
    ],
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.KeptIn = None,
    session: options.Session = "cli",
    scope: options.Scope = "",
    as_json: options.Json = False,
    provider: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER", help="The format of the file, where it cannot be detected."),
    ] = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Draw when each call ran and why it waited.")] = False,
    max_concurrency: options.MaxConcurrency = None,
    timeout: options.Timeout = None,
    read_only: options.ReadOnly = False,
    approve: options.Approve = None,
    fail_fast: options.FailFast = False,
    spill_dir: options.SpillDir = None,
    events: options.Events = None,
    verbose: options.Verbose = False,
) -> None:
    """Run a batch of calls and print one result for each, in call order.

    On a terminal: a table that moves while calls run, then the outcomes.

    With --json, or into a pipe: JSON in the shape the calls came in, ready to be sent back.

    With --db: durable. When the batch is run again, calls with an outcome are not; calls that need approval wait for
    it.
    """
    with reported():
        screen, log = Screen(), Screen(stderr=True)
        for_person = screen.is_terminal and not as_json
        set_up_log(verbose)
        payload = read_payload(file, provider)
        used = options.with_policy(
            load_app(app, tools),
            timeout=timeout,
            read_only=read_only,
            approve=approve,
            spill_dir=spill_dir,
            max_concurrency=max_concurrency,
            fail_fast=fail_fast,
        )
        store = named_store(db)
        run = functools.partial(
            run_calls, payload.calls, used, store=store, session=session, scope=scope, events_file=events
        )
        if for_person:
            finished = asyncio.run(run(watch=live_table(screen)))
            screen.print(outcome_table(finished.outcomes))
        else:
            with stdout_kept_clean():
                finished = asyncio.run(run())
            print_json(payload.write_results(finished.outcomes))
        if timeline:
            (screen if for_person else log).print(draw_timeline(finished.records))
        if finished.interrupted:
            log.print(_what_happened(finished), style="yellow")
        raise typer.Exit(finished.exit_code)


def _what_happened(finished: Finished) -> str:
    stopped = [outcome for outcome in finished.outcomes if outcome.status == "cancelled"]
    doubtful = sum(outcome.may_have_run for outcome in stopped)
    left = sum(outcome.status == "pending" for outcome in finished.outcomes)
    over, never = len(finished.outcomes) - len(stopped) - left, len(stopped) - doubtful
    again = f" {left} are left in the store: run it again to continue." if left else ""
    return f"Interrupted: {over} calls were finished, {never} had no effect, {doubtful} may have had an effect.{again}"
