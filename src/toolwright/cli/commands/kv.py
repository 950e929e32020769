"""`toolwright kv`: the named values of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from toolwright import jsonx
from toolwright.cli.display.name_table import key_table
from toolwright.cli.display.output import Screen, data_of, echo, print_json, print_text
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.arguments import read_json
from toolwright.cli.input.stores import require_store, use_session
from toolwright.session.services.keyvalue import KeyValue

T = TypeVar("T")
Of = Annotated[str, typer.Option("--session", metavar="ID", help="The session of the value.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The name of the value.")]


def list_(
    session: Of,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only keys that begin with this.")] = "",
    db: options.Db = None,
    as_json: options.Json = False,
) -> None:
    """List the keys of a session."""
    with reported():
        found = _use(require_store(db), session, lambda kv: kv.list(prefix))
        if as_json:
            print_json(data_of(found))
        elif found:
            Screen().print(key_table("key", found))
        else:
            Screen(stderr=True).print("There are no such keys.")


def get(key: Key, session: Of, db: options.Db = None, as_json: options.Json = False) -> None:
    """Print the value of a key: text as it is, everything else as JSON."""
    with reported():
        missing = object()
        value = _use(require_store(db), session, lambda kv: kv.get(key, missing))
        if value is missing:
            raise BadInput(f"The session {session!r} has no key {key!r}; see toolwright kv list")
        if as_json:
            print_json(value)
        else:
            print_text(value if isinstance(value, str) else jsonx.encode(value).decode())


def set_(
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value as JSON, or - for JSON on stdin.")],
    session: Of,
    db: options.Db = None,
    as_json: options.Json = False,
) -> None:
    """Write the value of a key, replacing the old one."""
    with reported():
        store, found = require_store(db), read_json(value)
        _use(store, session, lambda kv: kv.set(key, found))
        if as_json:
            print_json({"session": session, "key": key, "value": found})
        else:
            echo(f"{key} is set")


def rm(key: Key, session: Of, db: options.Db = None, as_json: options.Json = False) -> None:
    """Remove a key."""
    with reported():
        if not _use(require_store(db), session, lambda kv: kv.delete(key)):
            raise BadInput(f"The session {session!r} has no key {key!r}; see toolwright kv list")
        if as_json:
            print_json({"session": session, "key": key, "removed": True})
        else:
            echo(f"{key} is removed")


def _use(store: str, session: str, what: Callable[[KeyValue], Awaitable[T]]) -> T:
    return use_session(store, session, lambda runtime: what(runtime.session(session).kv))
