"""`toolwright schedules`: tools that start at an instant or again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from toolwright.app import App
from toolwright.cli.display.output import Screen, echo, print_json
from toolwright.cli.display.run_tables import short_ids, the_one
from toolwright.cli.display.styles import Name, new_table, plain
from toolwright.cli.display.time_format import length, moment
from toolwright.cli.exits import OUTRUN, SUCCEEDED, BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import app_of_store
from toolwright.cli.input.spawn_arguments import Start, read_start
from toolwright.cli.input.stores import opened, require_store
from toolwright.clock import rfc3339
from toolwright.errors import ScheduleError
from toolwright.schedules.schedules import ScheduleHandle
from toolwright.schedules.time_zones import find_zone
from toolwright.stores.contracts.schedule import Fired, Schedule
from toolwright.stores.opening import inspect_store

Result = TypeVar("Result")
Id = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The id of a schedule; its beginning is enough.")]
Count = Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, max=1_000, help="So many.")]

_OPTIONS = {"cron_expression": "--cron", "scheduled_at": "--at"}


def list_(
    db: options.Db = None,
    session: options.OfSession = None,
    active: options.Active = False,
    as_json: options.Json = False,
) -> None:
    """List the schedules of a store, the oldest first, with their next instants."""
    with reported():
        found = asyncio.run(_list(require_store(db), session, active))
        if as_json:
            print_json([handle.to_json() for handle in found])
        elif found:
            Screen().print(_table([handle.schedule for handle in found], time.time()))
        else:
            Screen(stderr=True).print("There are no schedules.")


def add(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="The tool to start; it must support the background.")],
    arguments: options.Arguments = None,
    cron: Annotated[str | None, typer.Option(metavar="FIELDS", help="Five fields, as in '*/10 * * * *'.")] = None,
    at: Annotated[str | None, typer.Option(metavar="INSTANT", help="Once, as in 2030-01-31T09:00:00Z.")] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The zone of --cron, as in Europe/Berlin; UTC without it.")
    ] = None,
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.Filled = None,
    session: options.Owner = "cli",
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The title of its runs, for people.")] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time for each run.")] = None,
    misfire: Annotated[
        Literal["skip", "once", "all"], typer.Option(help="The handling of instants at which no worker ran.")
    ] = "once",
    overlap: Annotated[
        Literal["skip", "queue", "allow"], typer.Option(help="The handling of an instant while a run is not finished.")
    ] = "skip",
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="An id of your choice: added again, it is the same one.")
    ] = None,
    tell: Annotated[
        bool, typer.Option("--tell", help="Append a message to the session when a run is finished.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Start a tool at an instant, or again and again, and print the id of the schedule. A worker starts it."""
    with reported():
        start = read_start(db, app, tools, session, name, arguments)
        said: dict[str, Any] = {
            "cron": cron,
            "at": at,
            "timezone": timezone,
            "title": title,
            "timeout": timeout,
            "misfire": misfire,
            "overlap": overlap,
            "id": id,
            "signal_on_completion": tell,
        }
        found = asyncio.run(_add(start, said))
        if as_json:
            print_json(found.to_json())
        else:
            echo(found.id)
            echo(f"It is due next at {_local(found, found.next_at)}", err=True)


def next_(id: Id, count: Count = 5, db: options.Db = None, as_json: options.Json = False) -> None:
    """Show the next instants of a schedule, in its zone."""

    async def upcoming(handle: ScheduleHandle) -> list[float]:
        return handle.upcoming(count)

    with reported():
        schedule, found = _with(db, id, upcoming)
        if as_json:
            print_json([rfc3339(instant) for instant in found])
        elif not found:
            Screen(stderr=True).print(f"None: it is {schedule.state}.")
        for instant in [] if as_json else found:
            echo(_local(schedule, instant))


def history(id: Id, count: Count = 20, db: options.Db = None, as_json: options.Json = False) -> None:
    """Show the runs and skipped instants of a schedule, the newest first."""
    with reported():
        schedule, found = _with(db, id, lambda handle: handle.history(count))
        if as_json:
            print_json([{**one._asdict(), "instant": rfc3339(one.instant), "at": rfc3339(one.at)} for one in found])
        elif found:
            Screen().print(_history(schedule, found))
        else:
            Screen(stderr=True).print("Nothing yet.")


def pause(id: Id, db: options.Db = None, as_json: options.Json = False) -> None:
    """Let a schedule start nothing until it is resumed. Ends with 3 when it was not active."""
    with reported():
        _change(db, id, as_json, lambda handle: handle.pause(), "paused")


def resume(id: Id, db: options.Db = None, as_json: options.Json = False) -> None:
    """Let a schedule continue with its next instant from now. Ends with 3 when it was not paused."""
    with reported():
        _change(db, id, as_json, lambda handle: handle.resume(), "active again")


def rm(id: Id, db: options.Db = None, as_json: options.Json = False) -> None:
    """End a schedule; runs that it started continue. Ends with 3 when it was finished already."""
    with reported():
        _change(db, id, as_json, lambda handle: handle.cancel(), "removed")


def run_now(id: Id, app: options.AppName = None, db: options.Db = None, as_json: options.Json = False) -> None:
    """Start a run of a schedule beside its instants, and print the id of the run."""
    with reported():
        schedule, run = _with(db, id, lambda handle: handle.run_now(), app_of_store(app))
        if as_json:
            print_json({"schedule_id": schedule.id, "run_id": run})
        else:
            echo(run)


def _change(
    db: str | None, id: str, as_json: bool, change: Callable[[ScheduleHandle], Awaitable[bool]], told: str
) -> None:
    schedule, done = _with(db, id, change)
    if as_json:
        print_json({**schedule.to_json(), "changed": done})
    else:
        echo(f"{schedule.id} is {told if done else schedule.state + ' already'}")
    raise typer.Exit(SUCCEEDED if done else OUTRUN)


def _with(
    db: str | None, word: str, do: Callable[[ScheduleHandle], Awaitable[Result]], app: App | None = None
) -> tuple[Schedule, Result]:
    """Do something with the schedule that a word means; return the schedule afterwards, and the result."""

    async def work(store: str) -> tuple[Schedule, Result]:
        async with _schedule(store, word, app) as handle:
            done = await do(handle)
            return await handle.refresh(), done

    return asyncio.run(work(require_store(db)))


@asynccontextmanager
async def _schedule(store: str, word: str, app: App | None) -> AsyncIterator[ScheduleHandle]:
    id = the_one("schedule", await inspect_store(store).find_schedules(word), word, None)
    async with opened(store, app, worker=False) as runtime:
        yield await runtime.scheduled(id)


async def _list(store: str, session: str | None, active: bool) -> list[ScheduleHandle]:
    async with opened(store, worker=False) as runtime:
        return await runtime.schedules(session, active=active)


async def _add(start: Start, said: dict[str, Any]) -> Schedule:
    async with opened(start.store, start.app, made=True, worker=False) as runtime:
        try:
            added = await runtime.session(start.session).schedule(start.name, start.arguments, **said)
        except ScheduleError as error:
            raise BadInput(_in_options(str(error.__cause__ or error))) from None
        return (await runtime.scheduled(added.id)).schedule


def _in_options(message: str) -> str:
    """A refusal after the options that it is about: it has the names that a model writes, but somebody typed these."""
    meant = ", ".join(option for name, option in _OPTIONS.items() if name in message)
    return f"{meant}: {message}" if meant else message


def _table(found: Sequence[Schedule], now: float) -> Table:
    table = new_table(expand=True)
    names = short_ids([schedule.id for schedule in found])
    # The id and state of a schedule are never cut; of the other columns the widest is wrapped first.
    table.add_column("schedule", no_wrap=True, style="cyan", min_width=max(map(len, names.values())))
    table.add_column("session", overflow="fold")
    table.add_column("title", overflow="fold")
    table.add_column("tool", overflow="fold")
    table.add_column("when", overflow="fold")
    table.add_column("state", no_wrap=True, min_width=9)
    table.add_column("next", no_wrap=True, justify="right", min_width=7)
    for schedule in found:
        due = schedule.next_at if schedule.state == "active" else None
        table.add_row(
            Text(names[schedule.id]),
            Name(schedule.session, room=12),
            Name(schedule.title, room=40),
            Name(schedule.tool, room=16),
            Text(_when(schedule)),
            Text(schedule.state, style={"active": "green", "paused": "yellow"}.get(schedule.state, "dim")),
            "-" if due is None else f"in {length(due - now)}",
        )
    return table


def _history(schedule: Schedule, found: Sequence[Fired]) -> Table:
    table = new_table()
    for name in ("instant", "what", "run"):
        table.add_column(name, no_wrap=True)
    for one in found:
        table.add_row(_local(schedule, one.instant), one.what, plain(one.run or "-"))
    return table


def _when(schedule: Schedule) -> str:
    timing = schedule.timing
    if timing.cron is None:
        return f"at {moment(timing.at)[:16]}"
    return timing.cron + ("" if timing.timezone == "UTC" else f" {timing.timezone}")


def _local(schedule: Schedule, instant: float | None) -> str:
    """An instant on the clocks of the zone of a schedule."""
    if instant is None:
        return "-"
    return datetime.fromtimestamp(instant, find_zone(schedule.timing.timezone)).isoformat(" ", "seconds")
