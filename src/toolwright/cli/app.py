"""The `toolwright` command. Owns its parts and the help around them; each command has a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import toolwright
from toolwright.cli.commands import (
    approvals,
    batches,
    db,
    db_copy,
    files,
    kv,
    mcp_serve,
    mcp_servers,
    questions,
    runs,
    schedules,
    secrets,
    session,
    tokens,
    turns,
)
from toolwright.cli.commands.ask import ask
from toolwright.cli.commands.batch import batch
from toolwright.cli.commands.call import call
from toolwright.cli.commands.chat import chat
from toolwright.cli.commands.doctor import doctor
from toolwright.cli.commands.recover import recover
from toolwright.cli.commands.resolve import resolve
from toolwright.cli.commands.serve import serve
from toolwright.cli.commands.spawn import spawn
from toolwright.cli.commands.tools import tools
from toolwright.cli.commands.worker import worker
from toolwright.cli.display.output import echo, print_json
from toolwright.cli.exits import MEANINGS, reported

EXIT_CODES = [f"[bold]{code}[/bold] {meaning}" for code, meaning in MEANINGS.items()]
EPILOG = f"Exit codes: {'; '.join(EXIT_CODES)}."
COMMANDS: list[Callable[..., None]] = [ask, chat, tools, call, batch, recover, resolve, spawn, worker, serve, doctor]
LISTS: dict[Callable[..., None], list[Callable[..., None]]] = {
    turns.turns: [turns.show, turns.follow, turns.steer, turns.cancel],
    batches.batches: [batches.show],
    runs.runs: [runs.show, runs.logs, runs.follow, runs.wait, runs.cancel, runs.resume, runs.signal],
    approvals.approvals: [approvals.approve, approvals.deny, questions.answer, questions.decline],
}
"""Commands that list things, and act on one of them."""
GROUPS: dict[str, tuple[str, list[Callable[..., None]]]] = {
    "session": (
        "List the sessions of a store, look into one, take it to another store, or remove it.",
        [session.list_, session.show, session.export, session.import_, session.delete],
    ),
    "files": ("List, print, write and fetch the files of a session.", [files.ls, files.cat, files.put, files.get]),
    "schedules": (
        "Start tools at an instant or repeatedly, and manage the schedules.",
        [
            schedules.list_,
            schedules.add,
            schedules.next_,
            schedules.history,
            schedules.pause,
            schedules.resume,
            schedules.run_now,
            schedules.rm,
        ],
    ),
    "mcp": (
        "Serve tools to MCP clients, and keep a file of MCP servers whose tools are used.",
        [mcp_serve.serve, mcp_servers.add, mcp_servers.list_, mcp_servers.test, mcp_servers.rm],
    ),
    "kv": ("Read and write the named values of a session.", [kv.list_, kv.get, kv.set_, kv.rm]),
    "tokens": (
        "Make, list and revoke the tokens by which the HTTP service of a store knows its callers.",
        [tokens.create, tokens.list_, tokens.revoke],
    ),
    "secrets": (
        "Set, list and remove the secrets of a session. Their values are never printed.",
        [secrets.set_, secrets.list_, secrets.rm],
    ),
}
"""Commands that come under a common name."""
SETTINGS: dict[Callable[..., None], dict[str, Any]] = {secrets.set_: secrets.NOT_REPEATED}
CARE: list[Callable[..., None]] = [db.stats, db.check, db.prune, db.migrate, db_copy.copy]


class _Command(TyperCommand):
    """A command whose help shows no type for options that take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


class _Group(TyperGroup):
    """The same for a group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


def _untyped(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""  # some versions of typer show <bool> otherwise, also for --help
    return params


app = typer.Typer(
    name="toolwright",
    cls=_Group,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n\n".join(["Exit codes:", *EXIT_CODES]),
)


def _group(name: str, says: str, verbs: list[Callable[..., None]], *, alone: bool) -> typer.Typer:
    group = typer.Typer(cls=_Group, rich_markup_mode="rich", no_args_is_help=not alone)
    app.add_typer(group, name=name, help=says, epilog=EPILOG, invoke_without_command=alone)
    for verb in verbs:
        # Some verbs are names that Python has already, and are written with a line behind.
        name_of_verb = verb.__name__.rstrip("_").replace("_", "-")
        group.command(name_of_verb, cls=_Command, epilog=EPILOG, context_settings=SETTINGS.get(verb))(verb)
    return group


for command in COMMANDS:
    app.command(cls=_Command, epilog=EPILOG)(command)
for lists, verbs in LISTS.items():
    _group(lists.__name__, getdoc(lists) or "", verbs, alone=True).callback()(lists)
for name, (says, verbs) in GROUPS.items():
    _group(name, says, verbs, alone=False)
_group("db", "Count, check, prune, migrate or copy the records of a store.", CARE, alone=False)


@app.callback(invoke_without_command=True)
def show_version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print it as JSON.")] = False,
) -> None:
    """Run an AI agent and its tools: talk with it, call a tool, run a whole batch, and manage the stored records."""
    if not version:
        return
    with reported():
        if as_json:
            print_json({"version": toolwright.__version__})
        else:
            echo(f"toolwright {toolwright.__version__}")
        raise typer.Exit()
