"""`toolwright batches`: the batches of a store, and the calls of one."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from toolwright.cli.display.history import batch_data, batch_table, call_data, call_table, find_batch
from toolwright.cli.display.output import Screen, print_json
from toolwright.cli.display.styles import plain
from toolwright.cli.display.time_format import moment
from toolwright.cli.exits import reported
from toolwright.cli.input import options
from toolwright.cli.input.stores import require_store
from toolwright.stores.contracts.inspection import PastBatch, PastCall
from toolwright.stores.opening import inspect_store

_ALL = 1 << 40


def batches(
    context: typer.Context,
    db: options.Db = None,
    session: options.OfSession = None,
    limit: options.AtMost = 20,
    as_json: options.Json = False,
) -> None:
    """List the batches of a store, the newest first; `batches show` shows one.

    Those with unfinished calls were cut off, wait for something, or run now.
    """
    if context.invoked_subcommand is not None:
        context.obj = options.Before(db, session, as_json)
        return
    with reported():
        store = require_store(db)
        found = asyncio.run(inspect_store(store).batches(session, limit=limit))
        if as_json:
            print_json([batch_data(batch) for batch in found])
        elif found:
            Screen().print(batch_table(found))
        else:
            Screen(stderr=True).print("There are no batches.")


def show(
    context: typer.Context,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="The id of a batch; its beginning is enough.")],
    db: options.Db = None,
    session: options.OfSession = None,
    as_json: options.Json = False,
) -> None:
    """Show the calls of a batch: the state, arguments, outcome and waits of each."""
    with reported():
        given: options.Before = context.obj.then(db, session, as_json)
        one, found = asyncio.run(_read(require_store(given.db), batch, given.session))
        if given.as_json:
            print_json({**batch_data(one), "calls": [call_data(call) for call in found]})
            return
        console = Screen()
        scope = f", scope {one.scope}" if one.scope else ""
        console.print(Text(one.batch, style="bold"), soft_wrap=True)
        console.print(
            Text(plain(f"session {one.session}{scope}, begun {moment(one.first_at)}"), style="dim"), soft_wrap=True
        )
        console.print(call_table(found))


async def _read(store: str, word: str, session: str | None) -> tuple[PastBatch, list[PastCall]]:
    inspector = inspect_store(store)
    one = find_batch(await inspector.batches(session, limit=_ALL), word)
    found = await inspector.calls(batch=one.batch, session=one.session)
    return one, [call for call in found if call.key.scope == one.scope]
