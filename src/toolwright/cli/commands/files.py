"""`toolwright files`: the files of a session."""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from toolwright.cli.directory_transfer import Written, get_tree, look_through, put_tree
from toolwright.cli.display.output import Screen, data_of, echo, print_json
from toolwright.cli.display.styles import new_table, plain
from toolwright.cli.display.time_format import moment
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.file_transfer import STREAM, read_pieces, write_path, write_stdout
from toolwright.cli.input import options
from toolwright.cli.input.stores import require_store, use_session
from toolwright.session.services.files import Files
from toolwright.session.services.paths import clean_path
from toolwright.tools.service_protocols import FileInfo

T = TypeVar("T")
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="A directory, with all that is in it.")]
Of = Annotated[str, typer.Option("--session", metavar="ID", help="The session that has the files.")]
At = Annotated[str, typer.Argument(metavar="PATH", help="A file of the session, such as /notes/a.txt.")]


def ls(
    session: Of,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A directory of the session, or a file.")] = "/",
    db: options.Db = None,
    as_json: options.Json = False,
) -> None:
    """List a directory of a session."""
    with reported():
        found = _use(require_store(db), session, lambda files: _list(files, path))
        if as_json:
            print_json(data_of(found))
        elif found:
            Screen().print(_table(found))
        else:
            Screen(stderr=True).print("There are no files.")


def cat(path: At, session: Of, db: options.Db = None, as_json: options.Json = False) -> None:
    """Print a file of a session as it is; on a terminal, only if it is text.

    With --json it is one value, text under "content" and everything else in base64.
    """
    with reported():
        store = require_store(db)
        if as_json:
            print_json(_use(store, session, lambda files: _read(files, path)))
        else:
            _use(store, session, lambda files: write_stdout(files.stream(path), path))


def put(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A file or directory of this machine, or - for stdin.")],
    session: Of,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="Where it goes in the session: a file, or a directory that is there or ends with a slash. "
            "Without it: the root.",
        ),
    ] = None,
    recursive: Recursive = False,
    db: options.Db = None,
    as_json: options.Json = False,
) -> None:
    """Write a file of a session, replacing the old one: all of it or nothing.

    A directory is merged into the existing one, one file after the other.
    """
    with reported():
        store = require_store(db)
        if path is None and source == STREAM:
            raise BadInput(
                "The content of stdin has no name; give the target path, as in toolwright files put - /notes/a.txt"
            )
        name = Path(source).resolve().name
        if os.path.isdir(source):
            _put_directory(store, session, source, name, path or "/", recursive, as_json)
            return
        written = _use(store, session, lambda files: _put(files, source, name, path or "/"))
        if as_json:
            print_json({"session": session, **data_of(written)})
        else:
            echo(f"{written.path} is written ({written.size:,} bytes)")


def get(
    path: At,
    session: Of,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TO",
            help="A file or directory of this machine, or - for stdout. Without it: here, under its own name.",
        ),
    ] = None,
    recursive: Recursive = False,
    db: options.Db = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an existing file.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write a file of a session to a file of this machine, or to stdout."""
    with reported():
        store = require_store(db)
        if target == STREAM:
            if as_json:
                raise BadInput("Both the file and the JSON would be on stdout; leave out - or --json")
            _use(store, session, lambda files: write_stdout(files.stream(path), path))
            return
        place = Path(target or ".")
        if os.path.isdir(place):
            # The root has no name of its own.
            place = place / (PurePosixPath(path).name or "root")
        if recursive:
            _get_directory(store, session, path, place, force, as_json)
            return
        if os.path.isdir(place):
            raise BadInput(f"{str(place)!r} is a directory; choose another name")
        size = _use(store, session, lambda files: write_path(files.stream(path), place, force=force))
        if as_json:
            print_json({"session": session, "path": path, "to": str(place), "size": size})
        else:
            echo(f"{place} is written ({size:,} bytes)")


async def _list(files: Files, path: str) -> list[FileInfo]:
    found = await files.stat(path)
    return [found] if found is not None and not found.directory else await files.list(path)


async def _read(files: Files, path: str) -> dict[str, Any]:
    content = await files.read_bytes(path)
    try:
        return {"path": path, "size": len(content), "content": content.decode()}
    except UnicodeDecodeError:
        return {"path": path, "size": len(content), "base64": base64.b64encode(content).decode("ascii")}


async def _put(files: Files, source: str, name: str, path: str) -> FileInfo:
    place = await _place(files, path, name)
    if source == STREAM and place != path:
        raise BadInput(f"The content of stdin has no name, and {path!r} is a directory; name a file in it")
    return await files.write_stream(place, read_pieces(source))


async def _place(files: Files, path: str, name: str) -> str:
    """Where something of a name goes: into a directory, or under the name that was given."""
    found = await files.stat(path)
    return f"{path}/{name}" if path.endswith("/") or (found is not None and found.directory) else path


def _put_directory(store: str, session: str, source: str, name: str, path: str, recursive: bool, as_json: bool) -> None:
    if not recursive:
        raise BadInput(f"{source!r} is a directory; add --recursive to put all that is in it")
    found = look_through(source, store)

    async def put_all(files: Files) -> tuple[str, Written]:
        place = clean_path(await _place(files, path, name))
        return place, await put_tree(files, source, found, place)

    place, written = _use(store, session, put_all)
    _tell(session, {"path": place}, place, written, as_json)


def _get_directory(store: str, session: str, path: str, place: Path, force: bool, as_json: bool) -> None:
    top = _use(store, session, lambda files: files.list(path))
    written = _use(store, session, lambda files: get_tree(files, top, place, force=force))
    _tell(session, {"path": path, "to": str(place)}, str(place), written, as_json)


def _tell(session: str, where: dict[str, str], place: str, written: Written, as_json: bool) -> None:
    if as_json:
        counts = {"files": written.files, "size": written.size, "left_out": written.left_out}
        print_json({"session": session, **where, **counts})
        return
    echo(f"{place} is written ({written.files} files, {written.size:,} bytes)")
    if written.left_out:
        echo(f"Left out, for they are links, devices or the store itself: {', '.join(written.left_out)}", err=True)


def _use(store: str, session: str, what: Callable[[Files], Awaitable[T]]) -> T:
    return use_session(store, session, lambda runtime: what(runtime.session(session).files))


def _table(found: list[FileInfo]) -> Table:
    table = new_table()
    table.add_column("name", overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("updated")
    table.add_column("")
    for info in found:
        name, size = (f"{info.name}/", "") if info.directory else (info.name, f"{info.size:,}")
        table.add_row(Text(plain(name)), size, moment(info.updated_at), "read-only" if info.readonly else "")
    return table
