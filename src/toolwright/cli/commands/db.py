"""`toolwright db`: maintain a store."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.table import Table

from toolwright.cli.display.output import Screen, echo, print_json
from toolwright.cli.display.time_format import moment, read_moment
from toolwright.cli.exits import DAMAGED, BadInput, complain, is_damage, reported
from toolwright.cli.input import options
from toolwright.cli.input.stores import require_store
from toolwright.errors import StoreError
from toolwright.stores.contracts.inspection import Pruned, Stats
from toolwright.stores.contracts.scheme import without_password
from toolwright.stores.opening import inspect_store


def stats(db: options.Db = None, as_json: options.Json = False) -> None:
    """Count the records of a store."""
    with reported():
        store = require_store(db)
        found = asyncio.run(inspect_store(store).stats())
        if as_json:
            print_json(msgspec.to_builtins(found))
        else:
            Screen().print(_stats_table(store, found))


def check(db: options.Db = None, as_json: options.Json = False) -> None:
    """Look for damage in a store. Ends with 4 when there is some."""
    with reported():
        store = require_store(db)
        try:
            told = asyncio.run(inspect_store(store).check())
        except StoreError as error:
            if not is_damage(error):
                raise
            told = [str(error)]
        if as_json:
            print_json({"sound": not told, "problems": told})
        elif not told:
            echo(f"{without_password(store)} is sound.")
        else:
            for line in told:
                complain(line)
        if told:
            raise typer.Exit(DAMAGED)


def prune(
    before: Annotated[
        str,
        typer.Option(
            metavar="WHEN", help="Remove work that finished before this: 30d, 12h, or a date such as 2026-01-31."
        ),
    ],
    db: options.Db = None,
    session: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only calls of this session. Repeatable.")
    ] = None,
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Make the file smaller, too.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the number of records that would be removed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove old finished calls, turns and background runs with their records. A call that is removed would run again.

    Unfinished work and the records that it needs stay, and so does the history of each session.
    """
    with reported():
        store, instant = require_store(db), read_moment(before, "--before")
        planned = asyncio.run(inspect_store(store).prune(instant, sessions=session, dry_run=True))
        if not as_json:
            echo(f"{'Would remove' if dry_run else 'To remove'}: {_pruned(planned)}", err=not dry_run)
        something = bool(planned.calls or planned.runs or planned.turns or planned.firings or vacuum)
        if not dry_run and not yes and something:
            if as_json or not sys.stdin.isatty():
                raise BadInput("Nothing was removed; add --yes to remove it, or --dry-run to only count it")
            if not typer.confirm(f"Remove the work that finished before {moment(instant)}?", err=True):
                raise BadInput("Nothing was removed")
        removed = planned
        if not dry_run and something:
            removed = asyncio.run(inspect_store(store).prune(instant, sessions=session, vacuum=vacuum))
        if as_json:
            print_json({"before": instant, "dry_run": dry_run, **msgspec.to_builtins(removed)})
        elif not dry_run and not something:
            echo("Nothing was removed.")
        elif not dry_run:
            echo(f"Removed: {_pruned(removed)}; the file is {removed.bytes:,} bytes smaller")


def migrate(db: options.Db = None, as_json: options.Json = False) -> None:
    """Bring the store of an older version up to date, all of it or nothing; opening it with a runtime does the same."""
    with reported():
        store = require_store(db)
        was, now = asyncio.run(inspect_store(store).migrate())
        if as_json:
            print_json({"before": was, "after": now})
        elif was == now:
            echo(f"{without_password(store)} is up to date, at version {now}.")
        else:
            echo(f"{without_password(store)} went from version {was} to {now}.")


def _pruned(counts: Pruned) -> str:
    kept = f"; {counts.spared} old ones stay, as something unfinished needs them" if counts.spared else ""
    runs = f", {counts.runs} background runs" if counts.runs else ""
    turns = f", {counts.turns} turns" if counts.turns else ""
    fired = f", {counts.firings} firings of schedules" if counts.firings else ""
    more = f"{runs}{turns}{fired}{kept}"
    return f"{counts.calls} calls, {counts.effects} effects, {counts.waits} waits, {counts.signals} signals{more}"


def _stats_table(store: str, found: Stats) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    calls = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in sorted(found.calls.items()))
    runs = ", ".join(f"{count} {status}" for status, count in sorted(found.runs.items()))
    turns = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in sorted(found.turns.items()))
    rows = {
        "store": store,
        "size": f"{found.file_bytes:,} bytes, {found.free_bytes:,} of them free, {found.log_bytes:,} in its log",
        "sessions": str(found.sessions),
        "calls": calls or "none",
        "background runs": runs or "none",
        "turns": turns or "none",
        "effects": str(found.effects),
        "waits": f"{found.waits}, {found.open_waits} of them open",
        "signals": str(found.signals),
        "oldest call": moment(found.oldest),
        "oldest unfinished": moment(found.oldest_unfinished),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
