"""`toolwright tokens`: who may use the HTTP service of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from toolwright.cli.display.output import Screen, echo, print_json, print_text
from toolwright.cli.display.styles import Name, new_table, plain
from toolwright.cli.display.time_format import duration_of, moment
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.stores import opened, require_store, store_to_fill
from toolwright.cli.run_turns import user_name
from toolwright.http.access.tokens import TokenInfo, Tokens
from toolwright.runtime.runtime import tokens_of

T = TypeVar("T")
PAGE = 1_000


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses it; decisions made with it show this name.")],
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="read|run|approve|admin",
            help="What it may do: look, start and stop work, decide for a person, or everything. Repeatable.",
        ),
    ],
    session: Annotated[
        list[str] | None,
        typer.Option(
            "--session",
            metavar="PATTERN",
            help="Only in sessions whose ids match, as in 'team-*'. Repeatable. Without it: in every session.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="For how long it is valid: 30d, 12h, 90m. Without it: until revoked."),
    ] = None,
    db: options.Filled = None,
    as_json: options.Json = False,
) -> None:
    """Make a token and print it. It is printed this once: the store has only a hash of it.

    It is sent with each request, as in: curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8700/v1/sessions
    """
    with reported():
        life = None if expires is None else duration_of(expires, "--expires")

        async def make(tokens: Tokens) -> tuple[TokenInfo, str]:
            until = None if life is None else tokens.clock.now() + life
            made = await tokens.create(name, scope, session or ("*",), expires_at=until, by=user_name())
            return made.info, made.value

        info, value = _use(store_to_fill(db), make, made=True)
        if as_json:
            print_json({"token": info.to_json(), "value": value})
            return
        print_text(value)
        echo(f"The token {info.id} of {info.name} is made. Keep its value: it is not shown again.", err=True)


def list_(
    every: Annotated[bool, typer.Option("--all", help="Those that are revoked or expired, too.")] = False,
    db: options.Db = None,
    as_json: options.Json = False,
) -> None:
    """List the tokens, without their values."""
    with reported():
        found = [one for one in _use(require_store(db), _all) if every or one.state == "valid"]
        if as_json:
            print_json([one.to_json() for one in found])
        elif found:
            Screen().print(_table(found))
        else:
            Screen(stderr=True).print("There are no tokens.")


def revoke(
    token: Annotated[
        str, typer.Argument(metavar="ID|NAME", help="The id of the token, or its name if no other has it.")
    ],
    db: options.Db = None,
    as_json: options.Json = False,
) -> None:
    """Revoke a token: from now on every server on the store refuses it, with the logins that were made with it."""
    with reported():

        async def end(tokens: Tokens) -> TokenInfo:
            found = await _all(tokens)
            meant = [one for one in found if one.id == token]
            meant = meant or [one for one in found if one.name == token and one.state == "valid"]
            if not meant:
                raise BadInput(f"There is no token {token!r}; see toolwright tokens list")
            if len(meant) > 1:
                ids = ", ".join(one.id for one in meant)
                raise BadInput(f"Several tokens have the name {token!r}; revoke one by its id: {ids}")
            revoked = await tokens.revoke(meant[0].id)
            assert revoked is not None
            return revoked

        info = _use(require_store(db), end)
        if as_json:
            print_json(info.to_json())
        else:
            echo(f"The token {info.id} of {info.name} is revoked")


def _use(store: str, what: Callable[[Tokens], Awaitable[T]], *, made: bool = False) -> T:
    async def work() -> T:
        async with opened(store, made=made) as runtime:
            return await what(Tokens(tokens_of(runtime), runtime.clock))

    return asyncio.run(work())


async def _all(tokens: Tokens) -> list[TokenInfo]:
    found: list[TokenInfo] = []
    while len(page := await tokens.list(found[-1].id if found else None, PAGE)) == PAGE:
        found += page
    return found + page


def _table(found: Sequence[TokenInfo]) -> Table:
    table = new_table()
    for column in ("id", "name", "may", "in sessions", "created", "by", "expires", "state"):
        table.add_column(column, overflow="fold")
    for info in found:
        table.add_row(
            info.id,
            Name(info.name),
            ", ".join(info.scopes),
            Text(plain(", ".join(info.sessions))),
            moment(info.created_at),
            Text(plain(info.created_by or "-")),
            moment(info.expires_at),
            info.state,
        )
    return table
