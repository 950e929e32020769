"""`toolwright mcp add`, `list`, `test` and `rm`: a file of MCP servers, in the form that other programs use."""

# ruff: noqa: PT028 - `test` is the name of a command, and not that of a test.

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from toolwright.app import App
from toolwright.cli.display.output import Screen, data_of, echo, print_json, set_up_log
from toolwright.cli.display.styles import new_table, plain
from toolwright.cli.exits import FAILED, BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.project import find_project
from toolwright.cli.input.stores import named_store
from toolwright.extras import how_to_install, missing_libraries
from toolwright.stores.opening import MEMORY
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.remote_tools import RemoteStatus

File = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The file of servers. Without it: the mcp of the nearest pyproject.toml, under \\[tool.toolwright], or "
        "mcp.json.",
    ),
]
Named = Annotated[str, typer.Argument(metavar="NAME", help="The name of the server: its tools are NAME__tool.")]


def add(
    name: Named,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND ARG…]", help="The program of the server; write -- before it."),
    ] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="The address of a server over HTTP.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A variable of the program; '${NAME}' stands for one of the environment, or a secret. Repeatable.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="A header of each request, in the same way. Repeatable."),
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Believe the server which of its tools may be repeated.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of a server of this name.")] = False,
    file: File = None,
) -> None:
    """Write a server into the file of servers. Nothing is started; `toolwright mcp test` does that."""
    with reported():
        from toolwright.mcp.client_settings import ServerSettings
        from toolwright.mcp.servers_file import ServersFile, read_entry

        if bool(command) is bool(url):
            raise BadInput("Give a command or --url, as in: toolwright mcp add git -- uvx mcp-server-git")
        if (url and env) or (command and header):
            raise BadInput("--env is for a command, and --header for --url; leave it out")
        entry: dict[str, Any]
        if command:
            entry = {"command": command[0], "args": command[1:]}
            if env:
                entry["env"] = dict(_pair(item, "=", "--env") for item in env)
        else:
            entry = {"type": "http", "url": url}
            if header:
                entry["headers"] = dict(_pair(item, ":", "--header") for item in header)
        if trusted:
            entry["toolwright"] = {"trusted": True}
        settings, _ = read_entry(name, entry)
        ServerSettings(name=name, **settings)  # refuses what cannot be used, before it is written
        kept = ServersFile.read(_path(file), missing=True)
        if name in kept.servers and not replace:
            raise BadInput(
                f"The file {str(kept.path)!r} has a server {name!r} already; give --replace, or another name"
            )
        kept.servers[name] = entry
        kept.write()
        echo(f"Added {name} to {kept.path}. Try it: toolwright mcp test {name}", err=True)


def list_(
    file: File = None,
    db: options.KeptIn = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not connect to them.")] = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """List the servers of the file: whether each can be reached, its tools, and those that have changed since they were
    pinned."""
    with reported():
        set_up_log(verbose)
        entries = _entries(file)
        found = {} if offline else asyncio.run(_look(entries, named_store(db) or MEMORY))
        if as_json:
            print_json([_told(name, entry, found.get(name)) for name, entry in entries.items()])
            return
        if not entries:
            Screen(stderr=True).print("There are no servers. Add one: toolwright mcp add git -- uvx mcp-server-git")
            return
        table = new_table()
        for column in ("server", "reached by", "state", "tools", "changed since pinned"):
            table.add_column(column, overflow="fold")
        for name, entry in entries.items():
            status = found.get(name)
            state = "not asked" if status is None else status[0].state if status[0].error is None else status[0].error
            count = "" if status is None else str(len(status[0].tools))
            differing = [] if status is None else _changed(entry, status[0])
            reached = entry.get("url") or " ".join([str(entry.get("command")), *map(str, entry.get("args", []))])
            table.add_row(*(Text(plain(text)) for text in (name, reached, state, count, ", ".join(differing))))
        Screen().print(table)


def test(
    name: Named,
    pin: Annotated[
        bool,
        typer.Option(
            "--pin", help="Write the hashes of its tools into the file: a tool that changes is left out then."
        ),
    ] = False,
    file: File = None,
    db: options.KeptIn = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Connect to a server and show its tools as a model reads them; exit with 1 when it cannot be reached."""
    with reported():
        from toolwright.mcp.servers_file import ServersFile

        set_up_log(verbose)
        entry = _require(_entries(file), name)
        status, tools = asyncio.run(_look({name: entry}, named_store(db) or MEMORY))[name]
        if as_json:
            print_json(_told(name, entry, (status, tools)))
        elif status.state == "connected":
            _show(status, tools, _changed(entry, status))
        if status.state != "connected":
            if not as_json:
                echo(f"{name} cannot be reached: {plain(status.error or 'it does not answer')}", err=True)
            raise typer.Exit(FAILED)
        if pin:
            kept = ServersFile.read(_path(file))
            own = kept.servers[name].setdefault("toolwright", {})
            own["pins"] = dict(sorted(status.pins.items()))
            kept.write()
            echo(f"Pinned {len(status.pins)} tools of {name} in {kept.path}", err=True)


def rm(name: Named, file: File = None) -> None:
    """Take a server out of the file."""
    with reported():
        from toolwright.mcp.servers_file import ServersFile

        kept = ServersFile.read(_path(file))
        _require(kept.servers, name)
        del kept.servers[name]
        kept.write()
        echo(f"Removed {name} from {kept.path}", err=True)


def _path(file: str | None) -> Path:
    from toolwright.mcp.servers_file import DEFAULT

    if file is not None:
        return Path(file)
    project = find_project(Path.cwd())
    named = None if project is None else project.mcp()
    return Path(DEFAULT) if named is None else Path(named)


def _entries(file: str | None) -> dict[str, Any]:
    from toolwright.mcp.servers_file import ServersFile, read_entry

    entries = ServersFile.read(_path(file)).servers
    for name, entry in entries.items():
        read_entry(name, entry)
    return entries


def _require(entries: dict[str, Any], name: str) -> Any:
    if name not in entries:
        known = f"it has {', '.join(sorted(entries))}" if entries else "it has none"
        raise BadInput(f"The file of servers has no {name!r}; {known}")
    return entries[name]


def _pair(text: str, between: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(between)
    if not found or not name.strip():
        raise BadInput(f"{option} {text!r} is not usable; write NAME{between}VALUE")
    return name.strip(), value.strip() if between == ":" else value


Looked = dict[str, tuple[RemoteStatus, list[ToolDefinition]]]


async def _look(entries: dict[str, Any], store: str) -> Looked:
    """Connect to servers, and see how it stands with each, without their pins."""
    from toolwright.mcp import McpServer

    if missing := missing_libraries("mcp"):
        raise BadInput(f"MCP servers need {missing[0]!r}, which is missing; run: {how_to_install(['mcp'])}")
    unpinned = {
        name: {**entry, "toolwright": {k: v for k, v in entry.get("toolwright", {}).items() if k != "pins"}}
        for name, entry in entries.items()
    }
    servers = [McpServer.from_entry(name, entry) for name, entry in unpinned.items()]
    async with App(tools=servers).open(store, worker=False) as runtime:
        definitions = runtime.tools.definitions()
        return {
            status.name: (status, [each for each in definitions if each.id.startswith(f"mcp.{status.name}.")])
            for status in runtime.servers()
        }


def _changed(entry: Any, status: RemoteStatus) -> list[str]:
    """The tools that are not as they were pinned, new ones among them."""
    pins = entry.get("toolwright", {}).get("pins")
    if pins is None:
        return []
    return sorted(name for name, pin in status.pins.items() if pins.get(name) != pin)


def _told(name: str, entry: Any, looked: tuple[RemoteStatus, list[ToolDefinition]] | None) -> dict[str, Any]:
    told: dict[str, Any] = {"name": name, "transport": "http" if "url" in entry else "stdio"}
    if looked is not None:
        status, tools = looked
        told |= {key: value for key, value in data_of(status).items() if key != "name"}
        told["changed"] = _changed(entry, status)
        told["tools"] = [{"name": each.name, "description": each.description} for each in tools]
    return told


def _show(status: RemoteStatus, tools: list[ToolDefinition], differing: list[str]) -> None:
    echo(f"{status.name}: connected, protocol {status.protocol}, {len(tools)} tools", err=True)
    table = new_table(expand=not sys.stdout.isatty())
    for column in ("tool", "description"):
        table.add_column(column, overflow="fold")
    for each in tools:
        table.add_row(Text(plain(each.name)), Text(plain(each.description)))
    Screen().print(table)
    for name in differing:
        echo(f"Changed since it was pinned: {plain(name)}", err=True)
    for name, why in status.left_out.items():
        echo(f"Left out: {plain(name)}: {plain(why)}", err=True)
