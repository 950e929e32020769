"""`toolwright turns`: turns of a store, shown, followed, steered and cancelled from any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from typing import Annotated

import typer

from toolwright.cli.commands.ask import choose_view, exit_code_of
from toolwright.cli.display.output import Screen, echo, print_json
from toolwright.cli.display.styles import plain
from toolwright.cli.display.turn_tables import find_turn, turn_data, turn_details, turn_table
from toolwright.cli.display.turn_views import TurnView
from toolwright.cli.exits import OUTRUN, SUCCEEDED, UNFINISHED, BadInput, complain, reported
from toolwright.cli.input import options
from toolwright.cli.input.stores import opened, require_store
from toolwright.cli.run_calls import shown_command
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.turn_protocols import TurnClient, TurnInfo, TurnOutcome

TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The id of a turn; its beginning is enough.")]
_FRAME = 1 / 10
_LOOK = 1.0
"""Seconds between two looks whether the process of a turn is gone."""


def turns(
    context: typer.Context,
    db: options.Db = None,
    session: options.OfSession = None,
    active: options.Active = False,
    limit: options.AtMost = 20,
    as_json: options.Json = False,
) -> None:
    """List turns, the newest first; the other commands show one, or control it.

    A turn is one message to the model with everything until its answer. One whose process is gone is "cut off":
    `toolwright recover` continues it.
    """
    if context.invoked_subcommand is not None:
        context.obj = options.Before(db, session, as_json)
        return
    with reported():
        found = asyncio.run(_list(require_store(db), session, active, limit))
        if as_json:
            print_json([turn_data(turn) for turn in found])
        elif found:
            Screen().print(turn_table(found, time.time()))
        else:
            Screen(stderr=True).print("No turn is unfinished." if active else "There are no turns.")


def show(
    context: typer.Context,
    turn: TurnId,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Show everything about a turn: its facts, the outcomes of its calls, and the answer."""
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        info, outcomes = asyncio.run(_show(require_store(given.db), turn, given.session))
        if given.as_json:
            print_json({**turn_data(info), "calls": [outcome.to_json() for outcome in outcomes]})
        else:
            Screen().print(*turn_details(info, outcomes, time.time()), sep="\n")


def follow(
    context: typer.Context,
    turn: TurnId,
    after: Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Only events beyond this number.")] = 0,
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.JsonLines = False,
) -> None:
    """Follow a turn of any process until it has ended: its text, its calls, its waits. Ctrl-C leaves it running.

    Ends with 0 when the model has answered, with 1 when it has not, and with 5 when the process of the turn is gone.
    """
    with reported(), ExitStack() as stack:
        given: options.Before = context.obj.then(db, session, as_json)
        store = require_store(given.db)
        outcome = asyncio.run(_follow(store, turn, given, after, choose_view(stack, given.as_json)))
        if outcome is None:
            remedy = shown_command("recover", store)
            complain(f"The process that worked on the turn {turn!r} is gone; continue it with {remedy}", "cut_off")
            raise typer.Exit(UNFINISHED)
        raise typer.Exit(exit_code_of(outcome))


def steer(
    context: typer.Context,
    turn: TurnId,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="The message to the model.")],
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Send a message to a turn that runs: the model reads it at its next call. Ends with 3 when it has ended."""
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        sent, found = asyncio.run(_steer(require_store(given.db), turn, given.session, message))
        if given.as_json:
            print_json({**turn_data(found), "steered": sent})
        else:
            echo(f"{plain(found.id)} is told" if sent else f"{plain(found.id)} has ended already: {found.state}")
        raise typer.Exit(SUCCEEDED if sent else OUTRUN)


def cancel(
    context: typer.Context,
    turn: TurnId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it stands in the outcome.")] = "cancelled by hand",
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Ask a turn of any process to stop. Ends with 3 when it has ended already."""
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        if not reason.strip():
            raise BadInput("--reason is empty; say why, or leave it out")
        asked, found = asyncio.run(_cancel(require_store(given.db), turn, given.session, reason))
        if given.as_json:
            print_json({**turn_data(found), "cancelled": asked})
        elif not asked:
            echo(f"{plain(found.id)} has ended already: {found.state}")
        elif found.ended_at is not None:
            echo(f"{plain(found.id)} is cancelled")
        else:
            echo(f"{plain(found.id)} is to stop; its process is told")
        raise typer.Exit(SUCCEEDED if asked else OUTRUN)


@asynccontextmanager
async def _turn(store: str, word: str, session: str | None) -> AsyncIterator[TurnClient]:
    async with opened(store, worker=False) as runtime:
        yield await runtime.turn(await find_turn(runtime, word, session))


async def _list(store: str, session: str | None, active: bool, limit: int) -> list[TurnInfo]:
    async with opened(store, worker=False) as runtime:
        return await runtime.turns(session, active=active, limit=limit)


async def _show(store: str, word: str, session: str | None) -> tuple[TurnInfo, tuple[ToolOutcome, ...]]:
    async with _turn(store, word, session) as turn:
        info = await turn.info()
        outcomes = () if info.ended_at is None else (await turn).calls
        return info, outcomes


async def _follow(store: str, word: str, given: options.Before, after: int, view: TurnView) -> TurnOutcome | None:
    async with _turn(store, word, given.session) as turn:
        following = asyncio.ensure_future(_show_events(turn, after, view))
        looked = time.monotonic()
        try:
            while not following.done():
                await asyncio.wait({following}, timeout=_FRAME)
                view.tick()
                if time.monotonic() - looked >= _LOOK:
                    looked = time.monotonic()
                    if (await turn.info()).cut_off:
                        view.pause()
                        return None
            await following
        finally:
            following.cancel()
        outcome = await turn
        view.end(outcome)
        return outcome


async def _show_events(turn: TurnClient, after: int, view: TurnView) -> None:
    async with aclosing(turn.follow(after)) as events:
        async for event in events:
            view.show(turn.id, event)


async def _steer(store: str, word: str, session: str | None, message: str) -> tuple[bool, TurnInfo]:
    async with _turn(store, word, session) as turn:
        if (await turn.info()).ended_at is not None:
            return False, await turn.info()
        await turn.steer(message)
        return True, await turn.info()


async def _cancel(store: str, word: str, session: str | None, reason: str) -> tuple[bool, TurnInfo]:
    async with _turn(store, word, session) as turn:
        return await turn.cancel(reason), await turn.info()
