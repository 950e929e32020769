"""`toolwright session`: the sessions of a store, as a whole."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from toolwright import jsonx
from toolwright.app import App
from toolwright.cli.display.output import Screen, data_of, echo, print_json
from toolwright.cli.display.styles import new_table, plain
from toolwright.cli.display.time_format import moment
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import app_of_store
from toolwright.cli.input.stores import opened, require_store, store_to_fill
from toolwright.session.archive.format import Exported, Imported
from toolwright.stores.contracts.archives import SessionInfo

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a session.")]
_LAST = 10
"""How many messages are shown."""


def list_(db: options.Db = None, as_json: options.Json = False) -> None:
    """List the sessions of a store, with the number of their records."""
    with reported():
        found = asyncio.run(_list(require_store(db)))
        if as_json:
            print_json(data_of(found))
        elif found:
            Screen().print(_table(found))
        else:
            Screen(stderr=True).print("There are no sessions.")


def show(session_id: Id, db: options.Db = None, as_json: options.Json = False) -> None:
    """Show the contents of a session: its latest messages, keys, resources, attachments and connections."""
    with reported():
        info, found = asyncio.run(_show(require_store(db), session_id))
        if as_json:
            print_json({**data_of(info), **{name: data_of(items) for name, items in found.items()}})
        else:
            Screen().print(_details({**msgspec.to_builtins(info), **msgspec.to_builtins(found)}))


def export(
    session_id: Id,
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The archive to write.")],
    db: options.Db = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an existing file.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write the contents of a session into one archive. Secrets stay sealed in it; calls are not part of it."""
    with reported():
        written = asyncio.run(_export(require_store(db), session_id, file, force))
        if as_json:
            print_json(data_of(written))
        else:
            echo(f"{plain(session_id)} is in {file} ({_counted(written.counts)}; {written.bytes:,} bytes)")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="An archive that was exported.")],
    app: options.AppName = None,
    db: options.Filled = None,
    as_id: Annotated[str | None, typer.Option("--as", metavar="ID", help="Give the session this id instead.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove a session of this id first, with its calls.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Make a session of an archive, all of it or nothing.

    Secrets come with it under its own id only, and where this store's are sealed by the same master key.
    """
    with reported():
        store = store_to_fill(db)
        if not file.is_file():
            raise BadInput(f"There is no archive {str(file)!r}; check the path")
        read = asyncio.run(_import(store, app_of_store(app), file, as_id, replace))
        if as_json:
            print_json(data_of(read))
            return
        echo(f"{plain(read.session)} is there ({_counted(read.counts)})")
        if read.secrets_left_out:
            echo(f"Left out, for they cannot be opened here: {', '.join(read.secrets_left_out)}", err=True)


def delete(
    session_id: Id,
    db: options.Db = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove a session that has nothing unfinished, with its calls and contents."""
    with reported():
        store = require_store(db)
        info = asyncio.run(_find(store, session_id))
        if not yes:
            kept = _counted({name: usage.entries for name, usage in info.usage.items()})
            if as_json or not sys.stdin.isatty():
                raise BadInput(f"Nothing was removed ({info.calls} calls, {kept}); add --yes to remove it")
            if not typer.confirm(f"Remove {plain(session_id)}: {info.calls} calls, {kept}?", err=True):
                raise BadInput("Nothing was removed")
        asyncio.run(_delete(store, session_id))
        if as_json:
            print_json({"session": session_id, "removed": True})
        else:
            echo(f"{plain(session_id)} is removed")


async def _list(store: str) -> list[SessionInfo]:
    async with opened(store) as runtime:
        return await runtime.sessions()


async def _find(store: str, session_id: str) -> SessionInfo:
    found = next((info for info in await _list(store) if info.id == session_id), None)
    if found is None:
        raise BadInput(f"There is no session {session_id!r} in the store; see toolwright session list")
    return found


async def _show(store: str, session_id: str) -> tuple[SessionInfo, dict[str, Sequence[Any]]]:
    info = await _find(store, session_id)
    async with opened(store) as runtime:
        session = runtime.session(session_id)
        count = info.usage["messages"].entries if "messages" in info.usage else 0
        found: dict[str, Sequence[Any]] = {
            "messages": await session.messages.list(after=max(0, count - _LAST)),
            "keys": await session.kv.list(),
            "resources": await session.resources.list(),
            "attachments": await session.attachments.list(),
            "connections": await session.connections(),
        }
    return info, found


async def _export(store: str, session_id: str, file: Path, force: bool) -> Exported:
    async with opened(store) as runtime:
        return await runtime.export_session(session_id, file, replace=force)


async def _import(store: str, app: App, file: Path, as_id: str | None, replace: bool) -> Imported:
    async with opened(store, app, made=True) as runtime:
        return await runtime.import_session(file, as_id=as_id, replace=replace)


async def _delete(store: str, session_id: str) -> None:
    async with opened(store) as runtime:
        await runtime.delete_session(session_id)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', '-')}" for name, count in counts.items() if count) or "nothing"


def _table(found: list[SessionInfo]) -> Table:
    table = new_table()
    table.add_column("session", overflow="fold")
    titled = any(info.title for info in found)
    if titled:
        table.add_column("title", overflow="fold")
    table.add_column("calls", justify="right")
    table.add_column("unfinished", justify="right")
    table.add_column("keeps", overflow="fold")
    table.add_column("bytes", justify="right")
    for info in found:
        kept = _counted({name: usage.entries for name, usage in info.usage.items()})
        size = sum(usage.bytes for usage in info.usage.values())
        title = [Text(plain(info.title or ""))] if titled else []
        table.add_row(Text(plain(info.id)), *title, str(info.calls), str(info.unfinished), kept, f"{size:,}")
    return table


def _details(found: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("session", Text(plain(found["id"])))
    for name in ("title", "locale"):
        if found[name] is not None:
            table.add_row(name, Text(plain(found[name])))
    table.add_row("calls", f"{found['calls']}, {found['unfinished']} of them unfinished")
    for service, usage in found["usage"].items():
        table.add_row(service.replace("_", "-"), f"{usage['entries']}, {usage['bytes']:,} bytes")
    for message in found["messages"]:
        content = message["content"]
        text = content if isinstance(content, str) else jsonx.encode(content).decode()
        # The content of a message is data: markup in it is not interpreted.
        about = Text(f"{moment(message['at'])} {plain(message['sender'])}: {_short(text)}")
        table.add_row(f"message {message['number']}", about)
    for info in found["keys"]:
        table.add_row("key", Text(plain(info["key"])))
    for resource in found["resources"]:
        table.add_row("resource", Text(plain(f"{resource['id']} ({resource['kind']}, {resource['status']})")))
    for item in found["attachments"]:
        table.add_row("attachment", Text(plain(f"{item['name']} ({item['media_type']}, {item['size']:,} bytes)")))
    for connection in found["connections"]:
        table.add_row("connection", Text(plain(f"{connection['provider']} since {moment(connection['connected_at'])}")))
    return table


def _short(text: str) -> str:
    """The beginning of a text, in one line."""
    line = plain(text[:500])
    return line if len(text) <= 200 else line[:199] + "…"
