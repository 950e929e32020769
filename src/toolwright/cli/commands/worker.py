"""`toolwright worker`: runs queued background work until it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import typer

from toolwright.app import App
from toolwright.background.worker import WorkerAction
from toolwright.cli.display.output import stdout_kept_clean
from toolwright.cli.display.service_log import LogForm, ServiceLog, service_log
from toolwright.cli.display.styles import plain, seconds, short
from toolwright.cli.exits import SUCCEEDED, BadInput, reported
from toolwright.cli.health import Health
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app
from toolwright.cli.input.stores import opened, store_to_fill
from toolwright.stores.contracts.background_run import BackgroundRun
from toolwright.stores.contracts.scheme import without_password
from toolwright.stores.opening import inspect_store
from toolwright.tools.registry import Catalogue
from toolwright.tools.turn_protocols import TurnAction

_SAME = 0.25
"""Seconds within which signals are one: a supervisor may send it to the program and to its group."""
_LINGER = 2.0
"""Seconds that tasks and threads of tools get to end, once their runs are handed over."""
_TOLD: dict[WorkerAction, str] = {
    "started": "started",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "abandoned": "abandoned, as its worker was gone,",
    "handed_back": "handed over to other workers",
    "lost": "became another worker's",
}
_TURN_TOLD: dict[TurnAction, str] = {
    "out_of_budget": "out of budget",
    "waiting": "waits for something outside",
    "handed_back": "handed over to other workers",
}


def worker(
    app: options.AppName = None,
    tools: options.Tools = None,
    db: options.Filled = None,
    capacity: Annotated[int | None, typer.Option(metavar="N", min=1, help="Run at most so many at once.")] = None,
    grace: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="How long active runs and turns may continue after a stop signal."),
    ] = 30.0,
    health_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65_535,
            help="Answer /healthz and /metrics over HTTP on this port; 0 takes a free one.",
        ),
    ] = None,
    health_host: Annotated[
        str, typer.Option(metavar="HOST", help="The address for --health-port; only this machine, unless it says so.")
    ] = "127.0.0.1",
    driver: options.Driver = None,
    timeout: options.Timeout = None,
    read_only: options.ReadOnly = False,
    approve: options.Approve = None,
    spill_dir: options.SpillDir = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors, and not the runs.")] = False,
    verbose: options.Verbose = False,
    log: options.Log = LogForm.text,
) -> None:
    """Run queued and scheduled background work until SIGTERM or Ctrl-C.

    Then it starts nothing more, gives active runs and turns their grace time, hands the rest over to other workers, and
    ends with 0. A second signal ends it at once: other workers take over its runs and turns.

    Any number of workers may share a store, and may be killed and started again at any time.
    """
    told = service_log(log, "toolwright.background", quiet=quiet, verbose=verbose, timed=True)
    with told as say, reported(), ExitStack() as stack:
        store, found = store_to_fill(db), load_app(app, tools)
        say.trace(found)
        used = options.with_policy(
            found,
            timeout=timeout,
            read_only=read_only,
            approve=approve,
            spill_dir=spill_dir,
            capacity=capacity,
        )
        if used.model is None and (used.policy is None or used.policy.background_tools == "marked"):
            _require_background(used.catalogue())
        health = None if health_port is None else stack.enter_context(Health(health_host, health_port))
        stack.enter_context(stdout_kept_clean())
        # A worker may be started before the program that first writes to the store.
        made = not asyncio.run(inspect_store(store).exists())
        asyncio.run(to_the_end(_work(store, made, used, driver, grace, health, say)))


def _require_background(registry: Catalogue) -> None:
    if not any(tool.definition.hints.supports_background for tool in registry.snapshot().values()):
        raise BadInput(
            "None of the tools can run in the background, and there is no model to run turns with; a worker would have "
            "nothing to do: write @tool(supports_background=True) above one that can, or App(model=...)"
        )


async def to_the_end(work: Coroutine[None, None, None]) -> None:
    """Do the work, and end the process even if a tool left something that does not end.

    Raises:
        typer.Exit: with the code of the command, where the process can end as usual.
    """
    before, pool, code = set(threading.enumerate()), ThreadPoolExecutor(), SUCCEEDED
    asyncio.get_running_loop().set_default_executor(pool)
    try:
        with reported():
            await work
    except typer.Exit as end:
        code = end.exit_code
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if await _any_goes_on(tasks) or _any_thread_goes_on(before, pool):
        # asyncio and Python would wait for it without end, and the operator would have to kill the worker.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    raise typer.Exit(code)


async def _any_goes_on(tasks: set[asyncio.Task[Any]]) -> bool:
    for task in tasks:
        task.cancel()
    return bool(tasks and (await asyncio.wait(tasks, timeout=_LINGER))[1])


def _any_thread_goes_on(before: set[threading.Thread], pool: ThreadPoolExecutor) -> bool:
    """True when a thread that Python would wait for has begun since, and does not end."""
    pool.shutdown(wait=False, cancel_futures=True)
    deadline = time.monotonic() + _LINGER
    threads = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return any(thread.is_alive() for thread in threads)


async def _work(
    store: str, made: bool, app: App, driver: str | None, grace: float, health: Health | None, say: ServiceLog
) -> None:
    with told_to_stop() as stop:
        told = asyncio.ensure_future(stop.wait())
        manager = opened(store, app, made=made, worker=True, driver=driver)
        opening = asyncio.ensure_future(manager.__aenter__())
        first: set[asyncio.Future[Any]] = {opening, told}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            # It was told to stop while its app opens, which may take long, or for ever.
            opening.cancel()
            await asyncio.wait({opening}, timeout=_LINGER)
            say("Stopped before its app was open", "worker.stopped")
            return
        runtime = opening.result()
        try:
            worker = runtime.worker
            assert worker is not None
            worker.counts.listen(_Teller(say))
            worker.counts.listen_to_turns(_TurnTeller(say))
            if health is not None:
                health.watch(worker)
                say(f"Health and metrics: {health.url}/healthz, {health.url}/metrics", "worker.health")
            begun = f"{worker.name} runs up to {worker.capacity} at once from {without_password(store)}"
            say(begun, "worker.started", worker=worker.name)
            last: set[asyncio.Future[Any]] = {told, worker.lost}
            await asyncio.wait(last, return_when=asyncio.FIRST_COMPLETED)
            if worker.lost.done():
                # Nothing that it runs can be recorded: a supervisor must see that, and start another.
                raise worker.lost.result()
            draining = asyncio.ensure_future(runtime.drain(grace))
            running = worker.running + worker.counts.turns_running
            await asyncio.sleep(0)  # it stops before it prints so
            if running:
                left = f"{running} may end within {seconds(grace)}; a second signal ends them at once"
                say(f"Stopping: {left}", "worker.stopping")
            await draining
        finally:
            told.cancel()
            closing = asyncio.ensure_future(manager.__aexit__(None, None, None))
            await asyncio.wait({closing}, timeout=max(grace, _LINGER))
            if not closing.done():
                late = f"The app did not close within {seconds(max(grace, _LINGER))}: the worker ends without it"
                say(late, "worker.not_closed")
        if closing.done():
            closing.result()
    say("Stopped", "worker.stopped")


class _Teller:
    """Prints the work of a worker, a line for each start and end."""

    def __init__(self, say: ServiceLog) -> None:
        self._say = say
        self._began: dict[str, float] = {}

    def __call__(self, deed: WorkerAction, run: BackgroundRun) -> None:
        told = _TOLD.get(deed)
        if told is None:
            return
        if deed == "started":
            self._began[run.id] = time.monotonic()
            told += f", attempt {run.attempts}" if run.attempts > 1 else ""
        else:
            began = self._began.pop(run.id, None)
            told += f" after {seconds(time.monotonic() - began)}" if began is not None else ""
        line = f"{plain(run.id)} {short(run.title, 40)} ({plain(run.tool)}) {told}"
        self._say(line, f"run.{deed}", session=run.session, run_id=run.id, tool=run.tool)


class _TurnTeller:
    """Prints the turns of a worker, a line when it begins to work on one and a line when it stops."""

    def __init__(self, say: ServiceLog) -> None:
        self._say = say
        self._began: dict[str, float] = {}

    def __call__(self, action: TurnAction, turn: str, session: str) -> None:
        told = _TURN_TOLD.get(action, action)
        if action == "started":
            self._began[turn] = time.monotonic()
        else:
            told += f" after {seconds(time.monotonic() - self._began.pop(turn))}"
        line = f"{plain(turn)} of session {short(session, 40)} {told}"
        self._say(line, f"turn.{action}", session=session, turn_id=turn)


@contextmanager
def told_to_stop() -> Iterator[asyncio.Event]:
    """An event that the first SIGTERM or Ctrl-C sets; the second ends the program as it would without us."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    first: list[float] = []

    def handle(number: int, frame: object) -> None:
        # Also while a tool blocks the loop: this runs between two steps of other code.
        first.append(time.monotonic())
        if first[-1] - first[0] > _SAME:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        loop.call_soon_threadsafe(stop.set)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
