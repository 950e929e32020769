"""The workers of the demo's fourth act: a program that runs what the store holds, until its input ends.

`demo_background.py` starts several on one store. Each says when it is ready, and is then told which clock to go by: the
machine's, or a hurried one. Every effect writes a line to a ledger, a plain file that the store knows nothing of. Since
the input ends with whoever started it, no worker outlives the demo.
"""

import asyncio
import hashlib
import logging
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolwright import Runtime, ToolContext, tool
from toolwright.clock import Clock, SystemClock, Timer

STDLIB = Path(sysconfig.get_paths()["stdlib"])
SPEED = 100
"""How fast the hurried clock is: a minute takes 0.6 s. The leases of workers shrink with it, to 0.3 s."""


@dataclass(frozen=True, slots=True)
class HurriedClock:
    """A clock that shows `shown` until the machine's shows `since`, and then goes on at its own pace."""

    shown: float
    since: float

    def now(self) -> float:
        return self.shown + max(0.0, time.time() - self.since) * SPEED

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Timer:
        return asyncio.get_running_loop().call_later((when - self.monotonic()) / SPEED, callback, *args)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


def desk() -> Path:
    """Where the files of the demo are."""
    return Path(os.environ["TOOLWRIGHT_DEMO_DESK"])


def note(line: str) -> None:
    """Write down an effect at the moment it happens, and the process that it happens in."""
    with (desk() / "background.txt").open("a") as ledger:
        ledger.write(f"{os.getpid()} {line}\n")


@tool(supports_background=True, on_crash="rerun")
async def survey(ctx: ToolContext, packages: list[str]) -> dict[str, object]:
    """Take the fingerprints of packages of the standard library, each in a durable step."""

    async def take(package: str) -> str:
        note(package)
        found = await asyncio.to_thread(fingerprint, package)
        await ctx.output("stdout", f"{package:<10} {found}  by process {os.getpid()}\n")
        return found

    note("begin")
    found: list[str] = []
    for done, package in enumerate(packages, start=1):
        found.append(await ctx.step(package, take, package))
        await ctx.progress(done, total=len(packages), label=package)
        if done == len(packages) // 2 and not (desk() / "killed").exists():
            await asyncio.Event().wait()  # the kill comes here
    return {"packages": len(packages), "together": hashlib.sha256("".join(found).encode()).hexdigest()[:12]}


@tool(supports_background=True, on_crash="rerun")
async def report(ctx: ToolContext, schedule: str) -> None:
    """Write down for which instant of which schedule this was started."""
    run = await ctx.runs.get(ctx.runs.current or "")
    await ctx.step("note", note, f"{run.record.provenance['instant']} {schedule}")


TOOLS = [survey, report]


def fingerprint(package: str) -> str:
    """A digest of the sources of a package that takes its time, as a slow service would."""
    sources = b"".join(file.read_bytes() for file in sorted((STDLIB / package).rglob("*.py")))
    return hashlib.pbkdf2_hmac("sha256", sources, package.encode(), 700_000).hex()[:12]


async def work(store: str, clock: Clock) -> None:
    """Run what there is to run, until the input ends."""
    # With a hurried clock, leases are renewed more often than a slow disk could keep up with in "full".
    async with Runtime.open(store, tools=TOOLS, clock=clock, sync="normal", worker=True):
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    logging.getLogger("toolwright").addHandler(logging.NullHandler())
    print("ready", flush=True)
    if said := sys.stdin.readline():  # else the demo is gone already
        asyncio.run(work(sys.argv[1], HurriedClock(*map(float, said.split())) if said.strip() else SystemClock()))
