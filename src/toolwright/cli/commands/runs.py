"""`toolwright runs`: background runs, shown, followed and controlled from the shell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import typer

from toolwright.background.handle import Run
from toolwright.background.output import LogText, render
from toolwright.cli.display.outcome_table import explain
from toolwright.cli.display.output import Screen, echo, instant, print_json, print_json_line, print_text
from toolwright.cli.display.run_progress import follow_runs
from toolwright.cli.display.run_tables import event_data, find_run, lost, run_data, run_details, run_table
from toolwright.cli.display.styles import plain, seconds, state_text
from toolwright.cli.exits import FAILED, OUTRUN, SUCCEEDED, UNFINISHED, BadInput, complain, reported
from toolwright.cli.input import options
from toolwright.cli.input.arguments import read_json
from toolwright.cli.input.stores import opened, require_store
from toolwright.runtime.runtime import Runtime
from toolwright.stores.contracts.background_run import BackgroundRun
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.run_store import Piece

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run; its beginning is enough.")]
_MOST = 10_000
"""Runs that are followed at once, at most."""


def runs(
    context: typer.Context,
    db: options.Db = None,
    session: options.OfSession = None,
    active: options.Active = False,
    limit: options.AtMost = 20,
    as_json: options.Json = False,
) -> None:
    """List background runs, the newest first; the other commands show one, or control it."""
    if context.invoked_subcommand is not None:
        context.obj = options.Before(db, session, as_json)
        return
    with reported():
        found = asyncio.run(_list(require_store(db), session, active, limit))
        if as_json:
            print_json([record.to_json() for record in found])
        elif found:
            Screen().print(run_table(found, time.time()))
        else:
            Screen(stderr=True).print("Nothing runs in the background." if active else "There are no runs.")


def show(
    context: typer.Context,
    run: RunId,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Show everything about a run: its facts, the runs that it started, its events, and its outcome."""
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        tree, events = asyncio.run(_show(require_store(given.db), run, given.session))
        if given.as_json:
            below = [record.to_json() for record in tree[1:]]
            print_json({**run_data(tree[0]), "children": below, "events": [event_data(event) for event in events]})
        else:
            Screen().print(run_details(tree, events, time.time()))


def logs(
    context: typer.Context,
    run: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow its output until it is finished.")] = False,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Print the output of a run so far: all of it, or its beginning and its end where it is very much.

    With --json: one line of JSON for each piece of it.
    """
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        asyncio.run(_logs(require_store(given.db), run, given, follow))


def follow(
    context: typer.Context,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN…", help="Ids of runs, or their beginnings; without any: all.")
    ] = None,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Follow runs with progress bars until they are finished, with the runs that they start. Ctrl-C leaves them
    running.

    Without a terminal: a line for each event. With --json: the runs, once they are finished.
    """
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        ended = asyncio.run(_follow(require_store(given.db), runs or [], given))
        if given.as_json:
            print_json([run_data(record) for record in ended])
        elif not ended:
            Screen(stderr=True).print("Nothing runs in the background.")
        raise typer.Exit(SUCCEEDED if all(record.status == "completed" for record in ended) else FAILED)


def wait(
    context: typer.Context,
    run: RunId,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Wait at most so long; the run continues.")
    ] = None,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Wait until a run is finished, and print the text that a model would read.

    Ends with 0 when it completed, with 1 when it failed, was cancelled or abandoned, with 5 when it is not over yet.
    """
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        found = asyncio.run(_wait(require_store(given.db), run, given.session, timeout))
        if given.as_json:
            print_json(run_data(found))
        elif found.outcome is not None:
            print_text(found.outcome.text)
        if not found.over:
            complain(f"The run {found.id!r} is {found.status} after {timeout:g} s; it continues")
            raise typer.Exit(UNFINISHED)
        if not given.as_json:
            _say_end(found)
        raise typer.Exit(SUCCEEDED if found.status == "completed" else FAILED)


def cancel(
    context: typer.Context,
    run: RunId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it stands in the outcome.")] = "cancelled by hand",
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Ask a run, and all runs that it started, to stop. Ends with 3 when it was finished already."""
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        asked, found = asyncio.run(_cancel(require_store(given.db), run, given.session, reason))
        if given.as_json:
            print_json({**run_data(found), "cancelled": asked})
        elif not asked:
            echo(f"{plain(found.id)} was finished already: {found.status}")
        elif found.over:
            echo(f"{plain(found.id)} is cancelled")
        elif lost(found, time.time()):
            echo(f"{plain(found.id)} is to stop; its worker is gone, it is cancelled when another takes it up")
        else:
            echo(f"{plain(found.id)} is to stop; its worker is told")
        raise typer.Exit(SUCCEEDED if asked else OUTRUN)


def resume(
    context: typer.Context,
    run: RunId,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who decided; it is stored among its events.")] = None,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Let an abandoned run continue: its finished steps stay finished, and the step that a crash cut off runs again.

    Do this when you know that the step may happen twice. A worker then continues the run.
    """
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        found = asyncio.run(_resume(require_store(given.db), run, given.session, by))
        if given.as_json:
            print_json(run_data(found))
        else:
            echo(f"{plain(found.id)} is queued again")


def signal(
    context: typer.Context,
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that its tool waits for.")],
    payload: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Its input, or - for JSON on stdin; null without it.")
    ] = None,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Send a signal to a run, which its tool takes by `ctx.receive(NAME)`, in the order of sending."""
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        store = require_store(given.db)
        value = None if payload is None else read_json(payload)
        id, number = asyncio.run(_signal(store, run, given.session, name, value))
        if given.as_json:
            print_json({"run_id": id, "name": name, "number": number})
        else:
            echo(f"{plain(name)} is sent to {plain(id)}; it is number {number} of this name")


@asynccontextmanager
async def _run(store: str, word: str, session: str | None) -> AsyncIterator[tuple[Runtime, Run]]:
    id = await find_run(store, word, session)
    async with opened(store, worker=False) as runtime:
        yield runtime, await runtime.run(id)


async def _list(store: str, session: str | None, active: bool, limit: int) -> list[BackgroundRun]:
    async with opened(store, worker=False) as runtime:
        return [run.record for run in await runtime.runs(session, active=active, limit=limit)]


async def _show(store: str, word: str, session: str | None) -> tuple[list[BackgroundRun], list[RunEvent]]:
    async with _run(store, word, session) as (_, run):
        below = [child.record for child in await run.children()]
        events = [event async for event in run.events() if event.type != "output"]
        return [await run.refresh(), *below], events


async def _logs(store: str, word: str, given: options.Before, follow: bool) -> None:
    async with _run(store, word, given.session) as (_, run):
        if given.as_json:
            async for event in run.follow() if follow else run.events():
                if event.type == "output":
                    print_json_line({"number": event.number, "at": instant(event.at), **event.payload})
            return
        if not follow:
            if log := await run.log():
                print_text(log)
            return
        pieces, last = [], 0
        async for event in run.events():
            last = event.number
            if event.type == "output":
                pieces.append(Piece(**event.payload))
        _write(render(pieces, (await run.refresh()).log_chars))
        text = LogText()
        text.of(pieces)  # so that the next text continues in the same line, of the same stream
        async for event in run.follow(last):
            if event.type == "output":
                _write(text.of([Piece(**event.payload)]))
        if not text.at_line_start:
            _write("\n")
        _say_end(await run.refresh())


def _write(text: str) -> None:
    if text:
        print_text(text, nl=False)


async def _follow(store: str, words: Sequence[str], given: options.Before) -> list[BackgroundRun]:
    ids = [await find_run(store, word, given.session) for word in words]
    console = Screen()
    async with opened(store, worker=False) as runtime:

        async def named() -> list[Run]:
            found = [await runtime.run(id) for id in ids]
            return [one for run in found for one in (run, *await run.children())]

        async def active() -> list[Run]:
            return await runtime.runs(given.session, active=True, limit=_MOST)

        for_person = console.is_terminal and not given.as_json
        told = None if for_person else (lambda line: echo(line, err=given.as_json))
        ended = await follow_runs(named if ids else active, console, told=told)
        return [await run.refresh() for run in ended]


async def _wait(store: str, word: str, session: str | None, timeout: float | None) -> BackgroundRun:
    async with _run(store, word, session) as (_, run):
        with suppress(TimeoutError):
            await run.wait(timeout)
        return run.record


async def _cancel(store: str, word: str, session: str | None, reason: str) -> tuple[bool, BackgroundRun]:
    if not reason.strip():
        raise BadInput("--reason is empty; say why, or leave it out")
    async with _run(store, word, session) as (_, run):
        return await run.cancel(reason), run.record


async def _resume(store: str, word: str, session: str | None, by: str | None) -> BackgroundRun:
    async with _run(store, word, session) as (_, run):
        await run.resume(by=by)
        return run.record


async def _signal(store: str, word: str, session: str | None, name: str, value: object) -> tuple[str, int]:
    async with _run(store, word, session) as (_, run):
        return run.id, await run.signal(name, value)


def _say_end(run: BackgroundRun) -> None:
    if run.outcome is None:
        return
    line = state_text(run.status)
    if run.started_at is not None and run.ended_at is not None:
        line.append(f" in {seconds(max(0.0, run.ended_at - run.started_at))}", style="not bold")
    if why := explain(run.outcome):
        line.append(f": {plain(why)}", style="not bold")
    Screen(stderr=True).print(line, soft_wrap=True)
