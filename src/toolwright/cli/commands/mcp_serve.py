"""`toolwright mcp serve`: the tools of an app for MCP clients."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwright.app import App
from toolwright.calls.policy import Policy, Rule
from toolwright.cli.commands.worker import told_to_stop
from toolwright.cli.display.output import echo, set_up_log
from toolwright.cli.exits import SUCCEEDED, BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.stores import named_store
from toolwright.extras import how_to_install, missing_libraries
from toolwright.runtime.runtime import Runtime, tokens_of
from toolwright.stores.opening import MEMORY

if TYPE_CHECKING:
    from toolwright.mcp.server_sessions import ChooseSession

_CLIENTS = "Clients"


def serve(
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.KeptIn = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve over streamable HTTP at /mcp of this address, which must be of this machine; without it, over "
            "stdin and stdout.",
        ),
    ] = None,
    tokens: Annotated[
        bool,
        typer.Option(
            "--tokens",
            help="With --http: ask clients for a token of the store, which toolwright tokens create --scope run makes.",
            rich_help_panel=_CLIENTS,
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --tokens: a name by which clients reach the server, such as that of a proxy. Repeatable.",
            rich_help_panel=_CLIENTS,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The session of all calls. Without it: mcp.", rich_help_panel=_CLIENTS),
    ] = None,
    per_connection: Annotated[
        bool,
        typer.Option(
            "--per-connection",
            help="A session for each connection, in place of one for all.",
            rich_help_panel=_CLIENTS,
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOL", help="Offer only this tool; a name or a pattern. Repeatable.", rich_help_panel=_CLIENTS
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Refuse tools that may change something.", rich_help_panel=_CLIENTS),
    ] = False,
    ask_about: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOL",
            help="Ask a person before this tool runs; a name or a pattern. Repeatable.",
            rich_help_panel=_CLIENTS,
        ),
    ] = None,
    approvals: Annotated[
        str,
        typer.Option(
            metavar="client|inbox",
            help="Who approves calls: the person behind the client, if it can ask; or only toolwright approvals.",
            rich_help_panel=_CLIENTS,
        ),
    ] = "client",
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="How long a call waits for a person whom its client cannot ask.",
            rich_help_panel=_CLIENTS,
        ),
    ] = 50.0,
    name: Annotated[str, typer.Option(metavar="TEXT", help="The name of the server, for its clients.")] = "toolwright",
    verbose: options.Verbose = False,
) -> None:
    """Serve the tools of an app to an MCP client over stdin and stdout, or to many over HTTP.

    With a store, calls survive a crash of the server: a client that gives the same idempotency key again gets the
    outcome of its call, and tasks continue. It ends when its client closes stdin, or by SIGTERM or Ctrl-C.
    """
    with reported():
        set_up_log(verbose, warnings=True)
        if missing := missing_libraries("mcp"):
            raise BadInput(f"An MCP server needs {missing[0]!r}, which is missing; run: {how_to_install(['mcp'])}")
        if session is not None and per_connection:
            raise BadInput("--session and --per-connection are both given; leave out one of them")
        store = named_store(db) or MEMORY
        if tokens and (http is None or per_connection or store == MEMORY):
            raise BadInput("--tokens needs --http and a store, and no --per-connection; a token has its session")
        if allowed_host and not tokens:
            raise BadInput("--allowed-host needs --tokens: a server that is reached from elsewhere must ask who it is")
        rules = [Rule("ask", tools=tuple(ask_about), name="--ask-about")] if ask_about else []
        bounds = Policy(read_only=read_only, rules=rules) if read_only or rules else None
        found, asked = load_app(app, tools), (allowed_host or []) if tokens else None
        asyncio.run(_serve(found, store, http, asked, session, per_connection, only, bounds, approvals, wait, name))


async def _serve(
    app: App,
    store: str,
    http: str | None,
    token_hosts: list[str] | None,
    session: str | None,
    per_connection: bool,
    only: list[str] | None,
    bounds: Policy | None,
    approvals: str,
    wait: float,
    name: str,
) -> None:
    from toolwright import mcp
    from toolwright.mcp.serve import loopback_address, serve_http, serve_stdio
    from toolwright.mcp.server_sessions import open_served

    if http is not None:
        loopback_address(http)
    runtime = await open_served(app, store)
    try:
        _warn_of_unknown(runtime, {"--only": only or (), "--ask-about": _asked_about(bounds)})
        more: dict[str, Any] = {}
        choose: str | ChooseSession | None = mcp.per_connection if per_connection else session
        if http is not None and token_hosts is not None:
            from toolwright.http.access.tokens import Tokens
            from toolwright.http.mcp_tokens import app_options, session_by_token

            more = app_options(Tokens(tokens_of(runtime), runtime.clock), f"http://{http}", token_hosts)
            choose = session_by_token(session)
        served = mcp.server(
            runtime,
            session=choose,
            policy=bounds,
            name=name,
            tools=only,
            approvals=approvals,
            wait=wait,
        )
        with told_to_stop() as stop:
            if http is not None:
                await serve_http(served, http, lambda url: echo(f"Serving {name} at {url}", err=True), stop, **more)
                return
            serving, told = asyncio.ensure_future(serve_stdio(served)), asyncio.ensure_future(stop.wait())
            await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if not serving.done():
                # A thread reads stdin and cannot be stopped; the process ends without it.
                await runtime.close()
                sys.stderr.flush()
                os._exit(SUCCEEDED)
            serving.result()
    finally:
        await runtime.close()


def _asked_about(bounds: Policy | None) -> list[str]:
    return [] if bounds is None else [pattern for rule in bounds.rules for pattern in rule.tools]


def _warn_of_unknown(runtime: Runtime, given: dict[str, Sequence[str]]) -> None:
    """Tell of names that no tool has: one that is written wrongly would bound nothing. Tools may still come later."""
    names = [name for each in runtime.tools.definitions() for name in (each.name, each.id)]
    for option, patterns in given.items():
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                echo(f"Warning: {option} {pattern!r} names no tool that is here; see: toolwright tools", err=True)
