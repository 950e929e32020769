"""`toolwright serve`: an app over HTTP, with its page."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Annotated

import typer

from toolwright.app import App
from toolwright.cli.commands.worker import to_the_end, told_to_stop
from toolwright.cli.display.output import stdout_kept_clean
from toolwright.cli.display.service_log import LogForm, ServiceLog, service_log
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.stores import named_store
from toolwright.cli.run_turns import user_name
from toolwright.extras import how_to_install, missing_libraries
from toolwright.stores.contracts.scheme import without_password
from toolwright.stores.opening import MEMORY

_ACCESS = "Who may reach it"


def serve(
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.KeptIn = None,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="The address to listen on; only this machine, unless it says so."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = 8700,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which clients reach the server, such as that of a proxy. Repeatable.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Pages of another server that may use this one, as in https://desk.example.com. Repeatable.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    proxy: Annotated[
        bool,
        typer.Option(
            "--proxy",
            help="A proxy on this machine is in front, and tells from where requests come (X-Forwarded-For).",
            rich_help_panel=_ACCESS,
        ),
    ] = False,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Run background runs and schedules of the store here, too.")
    ] = True,
    grace: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="How long requests and runs may continue after a stop signal."),
    ] = 30.0,
    driver: options.Driver = None,
    timeout: options.Timeout = None,
    read_only: options.ReadOnly = False,
    approve: options.Approve = None,
    spill_dir: options.SpillDir = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors, and no link.")] = False,
    verbose: options.Verbose = False,
    log: options.Log = LogForm.text,
) -> None:
    """Serve an app over HTTP, with a page to watch it, until SIGTERM or Ctrl-C.

    Every request needs a token, which `toolwright tokens create` makes. On a loopback address, a link is printed that
    logs one browser in, once.

    With a store, everything survives a crash, and any number of servers and workers may share it.
    """
    with service_log(log, "toolwright.http", quiet=quiet, verbose=verbose) as say, reported():
        if missing := missing_libraries("http"):
            raise BadInput(f"A server needs {missing[0]!r}, which is missing; run: {how_to_install(['http'])}")
        used = options.with_policy(
            load_app(app, tools), timeout=timeout, read_only=read_only, approve=approve, spill_dir=spill_dir
        )
        say.trace(used)
        store = named_store(db) or MEMORY
        hosts = [*(allowed_host or []), *([] if host in ("0.0.0.0", "::") else [_in_url(host)])]
        with stdout_kept_clean():
            asyncio.run(
                to_the_end(
                    _serve(used, store, host, port, hosts, allowed_origin or [], proxy, worker, driver, grace, say)
                )
            )


async def _serve(
    app: App,
    store: str,
    host: str,
    port: int,
    hosts: list[str],
    origins: list[str],
    proxy: bool,
    worker: bool,
    driver: str | None,
    grace: float,
    say: ServiceLog,
) -> None:
    from toolwright.http.serve import serve as serve_http
    from toolwright.http.service import create_app

    # In memory nobody else can have left work: its worker begins with the first run.
    background = False if not worker else None if store == MEMORY else True
    service = create_app(app, store, hosts=hosts, origins=origins, worker=background, driver=driver)

    async def started(url: str) -> None:
        where = "in memory" if store == MEMORY else f"from {without_password(store)}"
        say(f"Serving {where} at {url}", "http.started")
        if say.to_people and _is_loopback(host):
            link = await (await service.sign_in.tokens()).link(user_name() or "link", ["admin"])
            say(f"The page, for one browser: {url}/login?link={link}", "http.link")

    with told_to_stop() as stop:
        await serve_http(service, host, port, stop=stop, started=started, grace=grace, proxy=proxy)
    say("Stopped", "http.stopped")


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
