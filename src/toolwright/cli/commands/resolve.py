"""`toolwright resolve`: complete a wait of a call."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer

from toolwright import jsonx
from toolwright.app import App
from toolwright.cli.display.output import echo, print_json
from toolwright.cli.display.time_format import moment
from toolwright.cli.exits import OUTRUN, SUCCEEDED, BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import app_of_store
from toolwright.cli.input.arguments import read_json
from toolwright.cli.input.stores import opened, require_store
from toolwright.errors import KeyRefused
from toolwright.runtime.runtime import Runtime
from toolwright.session.open_waits import Resolved


def resolve(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key that the tool was given.")],
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="The result as JSON, or - for JSON on stdin; null without it.")
    ] = None,
    app: options.AppName = None,
    db: options.Db = None,
    error: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="CODE MESSAGE", help="It failed: a short word for programs, and the text for the model."),
    ] = None,
    cancel: Annotated[str | None, typer.Option(metavar="REASON", help="It will not come.")] = None,
    as_json: options.Json = False,
) -> None:
    """Complete a call, or an event that it waits for, by its key. The first answer counts.

    The call continues where it waits; if no process runs it any more, when its batch is run again or by `recover`.
    """
    with reported():
        if sum(given is not None for given in (value, error, cancel)) > 1:
            raise BadInput("It has one end: give a value, --error or --cancel")
        store = require_store(db)
        found = None if value is None else read_json(value)
        stands = asyncio.run(_settle(store, app_of_store(app), key, found, error, cancel))
        if as_json:
            print_json(msgspec.to_builtins(stands))
        else:
            echo(_told(stands))
        raise typer.Exit(SUCCEEDED if stands.first else OUTRUN)


async def _settle(
    store: str, app: App, key: str, value: object, error: tuple[str, str] | None, cancel: str | None
) -> Resolved:
    async with opened(store, app) as runtime:
        try:
            return await _resolve(runtime, key, value, error, cancel)
        except KeyRefused as refused:
            if refused.why != "kind":
                raise
            raise BadInput(
                "The key is not that of a completion or an event; approvals and questions are decided with toolwright "
                "approvals, and signals are sent with runtime.signal"
            ) from None


async def _resolve(
    runtime: Runtime, key: str, value: object, error: tuple[str, str] | None, cancel: str | None
) -> Resolved:
    if error is not None:
        return await runtime.reject(key, code=error[0], message=error[1])
    if cancel is not None:
        return await runtime.cancel(key, reason=cancel)
    return await runtime.resolve(key, value)


def _told(stands: Resolved) -> str:
    if stands.status == "ok":
        what = f"resolved with {jsonx.encode(stands.value).decode():.200}"
    elif stands.failure is not None:
        what = f"an error, {stands.failure.code}: {stands.failure.message}"
    else:
        what = f"{stands.status}{f': {stands.reason}' if stands.reason else ''}"
    return f"It is {what}" if stands.first else f"Somebody else was first: it was {what} ({moment(stands.at)})"
