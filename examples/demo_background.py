"""The demo's fourth act: work that outlives the batch and its worker, and schedules in a night that lacks an hour.

A run is followed while its worker is killed and another goes on. Then two workers fire two schedules, by a clock in a
hurry. The workers are child processes, which end with the act whatever becomes of it.
"""

import asyncio
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo_worker import SPEED, TOOLS, HurriedClock
from toolwright import Runtime, ScheduleOptions
from toolwright.cli.display.styles import look_of

HERE = Path(__file__).parent
PATIENCE = 25
"""Seconds after which a part of the act has failed. A lease is longer: that a worker is dead is known without it."""
PACKAGES = ["json", "email", "asyncio", "encodings", "unittest", "xml"]
MIDDLE = len(PACKAGES) // 2
BERLIN = ZoneInfo("Europe/Berlin")
EVENING = datetime(2025, 3, 30, 0, 57, 40, tzinfo=UTC).timestamp()
"""Shortly before the clocks of Berlin are put forward, from 02:00 to 03:00."""
WHY = {
    (True, 1, 0): "a step that was done, and is not repeated",
    (True, 0, 1): "a step that was still to be done",
    (False, 1, 1): "no step: each worker does it",
}
"""What to say of an effect: whether it was a durable step, how often it happened in the one process and the other."""
SCHEDULES = {"* * * * *": 5, "30 2 * * *": 1}
"""The schedules, and how many of their instants are shown."""

Worker = subprocess.Popen[str]
Fired = tuple[float, str]
"""An instant, and the schedule that it is of."""


def run(console: Console, desk: Path) -> None:
    """Run both parts, each with two workers of its own."""
    console.print("\n[bold]Fourth act: work that outlives the batch, and its worker[/]")
    with workers(desk / "runs.db") as started:
        asyncio.run(survive(console, desk, started))
    console.print("\n[bold]A night in which an hour is missing[/]")
    with workers(desk / "night.db") as started:
        asyncio.run(stay_up(console, desk, started))


@contextmanager
def workers(store: Path) -> Iterator[dict[int, Worker]]:
    """Two workers that are ready to begin, by their process numbers. However this is left, they are stopped."""
    words = [sys.executable, str(HERE / "demo_worker.py"), str(store)]
    with ExitStack() as stack:
        started: dict[int, Worker] = {}
        for _ in range(2):
            # In a session of its own, Ctrl-C is for the demo alone to deal with.
            child = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            stack.callback(stop, child)
            started[child.pid] = child
        for child in started.values():
            if not child.stdout or child.stdout.readline() != "ready\n":
                raise SystemExit(f"The fourth act failed: worker {child.pid} did not start")
        yield started


def begin(started: dict[int, Worker], clock: HurriedClock | None = None) -> None:
    """Let the workers begin, by this clock or the machine's."""
    for child in started.values():
        assert child.stdin is not None
        child.stdin.write(f"{clock.shown!r} {clock.since!r}\n" if clock else "\n")
        child.stdin.flush()


def stop(child: Worker) -> None:
    """End a worker: it goes by itself when its input ends, and is killed when it does not."""
    try:
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=10)
    finally:
        child.kill()
        child.wait()


def ledger(desk: Path) -> list[tuple[int, str]]:
    """What happened so far, each effect with its process."""
    lines = [line.split(" ", 1) for line in (desk / "background.txt").read_text().splitlines()]
    return [(int(process), effect) for process, effect in lines]


# --- a run whose worker is killed


async def survive(console: Console, desk: Path, started: dict[int, Worker]) -> None:
    """Start a run, follow it, kill its worker in the middle, and print what became of it."""
    names = " and ".join(map(str, started))
    console.print(
        f"One run of {len(PACKAGES)} durable steps, and two workers, [bold]processes {names}[/]. "
        "Each effect adds a line to a ledger, as it happens. From a third process, the run is followed:",
        highlight=False,
    )
    killed = 0
    async with (
        asyncio.timeout(PATIENCE),
        Runtime.open(desk / "runs.db", tools=TOOLS, sync="normal", worker=False) as runtime,
    ):
        session = runtime.session("library")
        arguments = {"packages": PACKAGES}
        run = await session.spawn("survey", arguments, title="Survey of the library", signal_on_completion=True)
        begin(started)
        began = time.monotonic()
        async for event in run.follow():
            if (line := told(event)) is not None:
                console.print(Text(f"{time.monotonic() - began:6.1f} s  ") + line)
            if event.type == "progress" and event.payload["current"] == MIDDLE and not killed:
                killed, _ = ledger(desk)[-1]
                (desk / "killed").touch()
                started[killed].kill()
                console.print(f"{time.monotonic() - began:6.1f} s  [bold red]kill -9 {killed}[/]", highlight=False)
        (other,) = set(started) - {killed}
        console.print(ledger_table(ledger(desk), killed, other))
        messages = await session.messages.list()
        times = "once" if len(messages) == 1 else f"{len(messages)} times"
        console.print(f"What the session was told, [bold]{times}[/]:", highlight=False)
        for message in messages:
            console.print(quoted(str(message.content)))
        console.print("The artifacts of the run, among the session's files:")
        for path in (run.record.log_path, run.record.result_path):
            console.print(Text(f"  {path}", style="cyan"))
            console.print(quoted(await session.files.read(path)))


def told(event: Any) -> Text | None:
    """An event of the run in a line, or None where it would say little."""
    said = event.payload
    if event.type == "started":
        taken = said["attempt"] > 1
        return Text(f"taken over by another worker, attempt {said['attempt']}" if taken else "started", style="bold")
    if event.type == "progress":
        done, total = int(said["current"]), int(said["total"])
        return Text.assemble(("━━━━" * done, "green"), ("┈┈┈┈" * (total - done), "dim"), f" {done} of {total}")
    if event.type == "output":
        return Text(said["text"].rstrip().replace("\n", f"\n{'':10}"), style="dim")
    if event.last:
        look = look_of("success" if event.type == "completed" else "failure")
        return Text.assemble((look.sign, look.style), f" {event.type}")
    return Text(event.type) if event.type == "queued" else None


def ledger_table(lines: list[tuple[int, str]], killed: int, other: int) -> Table:
    """A line for each effect: how often it happened in the one process, and how often in the other."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("effect", f"ledger: {killed} + {other}", "why"):
        table.add_column(title, no_wrap=True)
    counts = Counter(lines)
    for effect in dict.fromkeys(effect for _, effect in lines):
        times = counts[killed, effect], counts[other, effect]
        why = WHY.get((effect in PACKAGES, *times), Text("not as it should be", style="bold red"))
        table.add_row(effect, Text("{} + {}".format(*times), style="bold" if sum(times) == 1 else "yellow"), why)
    return table


def quoted(text: str) -> Text:
    """Text set in a little, as it is."""
    return Text("\n".join(f"  │ {line}" for line in text.splitlines()), style="dim")


# --- schedules by a hurried clock


async def stay_up(console: Console, desk: Path, started: dict[int, Worker]) -> None:
    """Let two workers fire two schedules while the clocks are put forward, and print each instant as it comes."""
    names = " and ".join(map(str, started))
    console.print(
        f"Two schedules in Europe/Berlin, and two workers that compete for them, [bold]processes {names}[/]. "
        f"By their clock, {SPEED} times as fast as yours, it is {shown(EVENING, '%H:%M:%S on %d %B %Y')}.\n",
        highlight=False,
    )
    # Here it stands still: however slow this machine is, the night does not begin before it has its schedules.
    clock = HurriedClock(EVENING, math.inf)
    async with (
        asyncio.timeout(PATIENCE),
        Runtime.open(desk / "night.db", tools=TOOLS, clock=clock, sync="normal", worker=False) as runtime,
    ):
        session = runtime.session("night")
        # And no instant is passed over.
        handles = {}
        for cron in SCHEDULES:
            rules: ScheduleOptions = {"timezone": "Europe/Berlin", "misfire": "all", "overlap": "queue", "cron": cron}
            handles[cron] = await session.schedule("report", {"schedule": cron}, **rules)
        begin(started, HurriedClock(EVENING, time.time()))
        console.print(Text(f"  {'Berlin':<12}{'UTC':<8}{'schedule':<14}{'ran':<9}in process", style="bold"))
        seen: dict[Fired, list[int]] = {}
        while len(seen) < sum(SCHEDULES.values()):
            await asyncio.sleep(0.05)
            for cron, handle in handles.items():
                for one in (await handle.history())[::-1][: SCHEDULES[cron]]:
                    if (one.instant, cron) not in seen and (await session.run(one.run)).record.over:
                        seen[one.instant, cron] = ran = ran_for(desk, one.instant, cron)
                        console.print(instant_line(one.instant, cron, ran))
        for handle in handles.values():
            await handle.cancel()
    console.print(verdict(desk, seen), highlight=False)


def verdict(desk: Path, seen: Iterable[Fired]) -> str:
    """Whether each instant was worked for once, now that all is over."""
    wrong = [shown(instant, "%H:%M") for instant, cron in seen if len(ran_for(desk, instant, cron)) != 1]
    if wrong:
        return f"\n[bold red]Not worked for once: {', '.join(wrong)}[/]"
    return (
        "\n[bold]Each instant was worked for once[/], whichever worker was first. After 01:59 came 03:00: what goes by "
        "the minute went on, and what was due at 02:30, a time that this night did not have, came as the clocks were "
        "put forward."
    )


def ran_for(desk: Path, instant: float, cron: str) -> list[int]:
    """The processes that worked for an instant, by the ledger: one for each time."""
    effect = f"{datetime.fromtimestamp(instant, UTC):%Y-%m-%dT%H:%M:%SZ} {cron}"
    return [process for process, line in ledger(desk) if line == effect]


def instant_line(instant: float, cron: str, ran: list[int]) -> Text:
    """A line for an instant that came."""
    times = ("once", "green") if len(ran) == 1 else (f"{len(ran)} times", "bold red")
    return Text.assemble(
        f"  {shown(instant, '%H:%M %Z'):<12}{datetime.fromtimestamp(instant, UTC):%H:%M}   {cron:<14}",
        (f"{times[0]:<9}", times[1]),
        ", ".join(map(str, ran)),
    )


def shown(instant: float, form: str) -> str:
    """An instant, as a clock in Berlin shows it."""
    return datetime.fromtimestamp(instant, BERLIN).strftime(form)
