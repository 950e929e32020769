"""`toolwright secrets`: the secrets of a session. A value comes from a prompt or stdin, and is never printed."""

from __future__ import annotations

import getpass
import sys
import warnings
from typing import Annotated

import typer

from toolwright.cli.display.name_table import key_table
from toolwright.cli.display.output import Screen, echo, instant, print_json
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import app_of_store
from toolwright.cli.input.stores import require_store, use_session
from toolwright.errors import SecretsError
from toolwright.runtime.runtime import Runtime
from toolwright.session.secrets.encodings import LONGEST
from toolwright.tools.service_protocols import KeyInfo

Of = Annotated[str, typer.Option("--session", metavar="ID", help="The session that has the secrets.")]
NOT_REPEATED = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For `set`: the usual complaint about an argument too many would print it, and it may be the value."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name that tools ask for it by.")]


def set_(
    context: typer.Context,
    name: Name,
    session: Of,
    app: options.AppName = None,
    db: options.Db = None,
    as_json: options.Json = False,
) -> None:
    """Write a secret, replacing the old one. Its value is asked for, or read from stdin.

    One line ending at the end of stdin is removed.
    """
    with reported():
        if context.args or "=" in name:  # `token=value` is how others take one
            raise BadInput(
                "Only a name and the options that --help lists are taken from the command line: other programs and the "
                "shell history can see it; type the value when you are asked, or give it on "
                "stdin. If this was one, choose another"
            )
        store = require_store(db)
        given = _asked(name) if sys.stdin.isatty() else _from_stdin(name)
        use_session(store, session, lambda runtime: _set(runtime, session, name, given), app_of_store(app))
        if as_json:
            print_json({"session": session, "name": name, "set": True})
        else:
            echo(f"{name} is set")


def list_(session: Of, db: options.Db = None, as_json: options.Json = False) -> None:
    """List the names of a session's secrets."""
    with reported():
        found = use_session(require_store(db), session, lambda runtime: runtime.session(session).secrets.list())
        if as_json:
            print_json([_shown(info) for info in found])
        elif found:
            Screen().print(key_table("name", found))
        else:
            Screen(stderr=True).print("There are no secrets.")


def rm(name: Name, session: Of, db: options.Db = None, as_json: options.Json = False) -> None:
    """Remove a secret."""
    with reported():
        removed = use_session(require_store(db), session, lambda runtime: runtime.session(session).secrets.delete(name))
        if not removed:
            raise BadInput(f"The session {session!r} has no secret {name!r}; see toolwright secrets list")
        if as_json:
            print_json({"session": session, "name": name, "removed": True})
        else:
            echo(f"{name} is removed")


def _asked(name: str) -> str:
    """Text typed at a terminal that does not show it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # It would continue, and show the typed text.
            return getpass.getpass(f"Value of {name}: ", stream=sys.stderr)
    except EOFError:
        raise BadInput("No value was given; nothing was set") from None
    except getpass.GetPassWarning:
        raise BadInput("This terminal would show the value; give it on stdin") from None


def _from_stdin(name: str) -> str:
    """The text on stdin, without the line ending that `echo` and editors add."""
    data = sys.stdin.buffer.read(LONGEST + len(b"\r\n") + 1)
    if len(data) > LONGEST + len(b"\r\n"):
        raise BadInput(f"The value of secret {name!r} on stdin is too long; use at most {LONGEST} bytes")
    try:
        value = data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"The value of secret {name!r} on stdin is not text in UTF-8; encode it first") from None
    return value.removesuffix("\r\n" if value.endswith("\r\n") else "\n")


async def _set(runtime: Runtime, session: str, name: str, value: str) -> None:
    """Write a secret, unless its master key is another than that of all the others."""
    await _require_key(runtime, session, name)
    await runtime.session(session).secrets.set(name, value)


async def _require_key(runtime: Runtime, session: str, name: str) -> None:
    """Refuse a master key that opens nothing in the store: the program that has the right one could not open more.

    The secret itself does not count: if its key is lost, it is repaired by setting it again.
    """
    refusal: SecretsError | None = None
    for info in await runtime.sessions():
        for known in await runtime.session(info.id).secrets.list() if "secrets" in info.usage else ():
            if (info.id, known.key) != (session, name):
                try:
                    await runtime.session(info.id).secrets.get(known.key)
                except SecretsError as error:
                    refusal = refusal or error
                else:
                    return
    if refusal is not None:
        raise BadInput(f"Nothing was set, for the master key opens no secret of the store. {refusal}")


def _shown(info: KeyInfo) -> dict[str, object]:
    return {"name": info.key, "created_at": instant(info.created_at), "updated_at": instant(info.updated_at)}
