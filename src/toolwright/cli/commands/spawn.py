"""`toolwright spawn`: one tool, in the background."""

from __future__ import annotations

import asyncio
import shlex
from typing import Annotated, Any, Literal

import typer

from toolwright.cli.display.output import echo, print_json
from toolwright.cli.exits import reported
from toolwright.cli.input import options
from toolwright.cli.input.spawn_arguments import Start, read_start
from toolwright.cli.input.stores import opened
from toolwright.cli.run_calls import shown_command
from toolwright.stores.contracts.background_run import BackgroundRun
from toolwright.stores.opening import inspect_store


def spawn(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="The tool to run; it must support the background.")],
    arguments: options.Arguments = None,
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.Filled = None,
    session: options.Owner = "cli",
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The title of the run, for people.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time for the whole run, from when it first starts.")
    ] = None,
    when_lost: Annotated[
        Literal["resume", "rerun", "abandon"],
        typer.Option(
            help="The handling when its worker is gone: continue by the crash policy of its tool, start again, or end."
        ),
    ] = "resume",
    tell: Annotated[bool, typer.Option("--tell", help="Append a message to the session when it is finished.")] = False,
    queue: Annotated[
        bool, typer.Option("--queue", help="Let it wait when too many are active, instead of refusing it.")
    ] = False,
    run_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of the run: asked for again, it is the same run.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Start a tool in the background, and print the id of its run. A worker runs it; `toolwright runs` shows it."""
    with reported():
        start = read_start(db, app, tools, session, name, arguments)
        said: dict[str, Any] = {
            "title": title,
            "timeout": timeout,
            "disposition": when_lost,
            "signal_on_completion": tell,
            "id": run_id,
        }
        start = start._replace(app=options.with_policy(start.app, queue=queue))
        run, served = asyncio.run(_spawn(start, said))
        if as_json:
            print_json(run.to_json())
            return
        echo(run.id)
        if not served and not run.over:
            echo(f"It waits for a worker: {shown_command('worker', start.store)}{_how(app, tools)}", err=True)


def _how(app: str | None, tools: list[str] | None) -> str:
    """The options by which a worker has the same tools."""
    given = ["--app", app] if app else [word for source in tools or () for word in ("--tools", source)]
    return f" {shlex.join(given)}" if given else ""


async def _spawn(start: Start, said: dict[str, Any]) -> tuple[BackgroundRun, bool]:
    async with opened(start.store, start.app, made=True, worker=False) as runtime:
        run = await runtime.session(start.session).spawn(start.name, start.arguments, **said)
        found = await runtime.run(run.id)
    return found.record, bool(await inspect_store(start.store).workers())
