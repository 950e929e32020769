"""`toolwright approvals answer` and `decline`: a person's answers to the questions of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from toolwright.app import App
from toolwright.calls.suspend.approvals import Approval
from toolwright.cli.commands.approvals import Ids, Yes, choose_all, confirm_numbers, finish
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import app_of_store
from toolwright.cli.input.arguments import read_json
from toolwright.cli.input.pick_request import Chosen
from toolwright.cli.input.stores import opened, require_store
from toolwright.cli.run_turns import this_terminal, user_name
from toolwright.errors import KeyRefused
from toolwright.session.open_waits import Resolved


def answer(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a call, a number of the list, or a key.")],
    value: Annotated[
        str | None, typer.Argument(metavar="JSON", help="The answer as JSON, or - for JSON on stdin.")
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="The answer is this text, as it is.")] = None,
    db: options.Db = None,
    session: options.OfSession = None,
    app: options.AppName = None,
    yes: Yes = False,
    as_json: options.Json = False,
) -> None:
    """Answer a question of a tool. The first answer counts; one that does not fit leaves the question open.

    The call continues where it waits; if no process runs it any more, when its batch is run again or by `recover`.
    """
    with reported():
        if (value is None) == (text is None):
            raise BadInput("Give one answer: JSON, as in '{\"size\": 3}', or --text")
        given = context.obj.then(db, session, as_json)
        found = text if value is None else read_json(value)
        store, chosen = _choose("answer", [id], given, yes)
        ends = asyncio.run(_answer(store, app_of_store(app), chosen[0], found))
        finish(chosen, ends, as_json=given.as_json, taken="answered", refused="declined")


def decline(
    context: typer.Context,
    ids: Ids,
    db: options.Db = None,
    session: options.OfSession = None,
    app: options.AppName = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; the tool reads it.")] = None,
    yes: Yes = False,
    as_json: options.Json = False,
) -> None:
    """Decline to answer questions of tools. The first decision counts."""
    with reported():
        given = context.obj.then(db, session, as_json)
        store, chosen = _choose("decline", ids, given, yes)
        ends = asyncio.run(_decline(store, app_of_store(app), chosen, reason))
        finish(chosen, ends, as_json=given.as_json, taken="answered", refused="declined")


def _choose(verb: str, words: Sequence[str], given: options.Before, yes: bool) -> tuple[str, list[Chosen]]:
    store = require_store(given.db)
    chosen = asyncio.run(choose_all(store, words, given.session, ("question",)))
    for one in chosen:
        if isinstance(one.request, Approval):
            raise BadInput(f"{one.call_id!r} asks for approval: toolwright approvals approve, or deny")
    if not yes:
        confirm_numbers(verb, [one for one in chosen if one.by_number])
    return store, chosen


async def _answer(store: str, app: App, one: Chosen, value: object) -> list[Resolved | KeyRefused]:
    async with opened(store, app) as runtime:
        try:
            return [await runtime.answer(one.key, value, by=user_name(), via=this_terminal())]
        except KeyRefused as refused:
            return [refused]


async def _decline(store: str, app: App, chosen: Sequence[Chosen], reason: str | None) -> list[Resolved | KeyRefused]:
    ends: list[Resolved | KeyRefused] = []
    async with opened(store, app) as runtime:
        for one in chosen:
            try:
                ends.append(await runtime.decline(one.key, reason, by=user_name(), via=this_terminal()))
            except KeyRefused as refused:  # the others have a right to be decided, and to be told of
                ends.append(refused)
    return ends
