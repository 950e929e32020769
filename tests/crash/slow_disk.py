"""A disk whose syncs take their time, for several real processes on one file. Owns the delay and what is measured.

As a program it shows how evenly processes get their turns, and how large the log grows:

    python -m tests.crash.slow_disk --processes 8 --sync-ms 20 --seconds 10
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw

from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError
from toolwright.stores.sqlite.store import SqliteStore

NAME = "slow-disk"


class SlowVFS(apsw.VFS):
    """SQLite's own way to files, with syncs that take at least some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(NAME, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> "SlowFile":
        return SlowFile(name, flags, self.seconds)


class SlowFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], seconds: float) -> None:
        self._seconds = seconds
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        time.sleep(self._seconds)


async def work(path: str, sync_ms: float, sync: Any, calls: int, seconds: float) -> dict[str, Any]:
    """Run batches, one after the other, for some seconds; say how many, how long each took, and what went wrong."""

    @tool(readonly=True, on_crash="rerun")
    async def look() -> str:
        return "x" * 200

    vfs = SlowVFS(sync_ms / 1000) if sync_ms else None
    store = SqliteStore(path, sync=sync, vfs=None if vfs is None else NAME)
    took, errors, number = list[float](), list[str](), 0
    async with Runtime.open(store, tools=[look]) as runtime:
        session = runtime.session(f"s{os.getpid()}")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            number += 1
            try:
                await session.run_batch(
                    [ToolCall(id=f"{number}-{one}", name="look") for one in range(calls)], scope=f"b{number}"
                )
            except StoreError as error:
                errors.append(str(error))
            else:
                took.append(time.monotonic() - began)
    return {"batches": len(took), "longest": max(took, default=seconds), "errors": errors}


def measure(
    folder: Path, processes: int, *, sync_ms: float = 0.0, sync: str = "full", calls: int = 1, seconds: float = 3.0
) -> dict[str, Any]:
    """Let processes work on one file at the same time."""
    path = folder / "agent.db"
    given = json.dumps([str(path), sync_ms, sync, calls, seconds])
    command = [sys.executable, "-m", "tests.crash.slow_disk", "--work", given]
    programs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    largest = 0
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        log = path.with_name(path.name + "-wal")
        while any(program.poll() is None for program in programs):
            largest = max(largest, log.stat().st_size if log.exists() else 0)
            time.sleep(0.02)
        said = [json.loads(program.communicate()[0]) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait()
            for pipe in (program.stdin, program.stdout):
                assert pipe is not None
                pipe.close()
    counts = [one["batches"] for one in said]
    return {
        "processes": processes,
        "batches": sum(counts),
        "slowest": min(counts),
        "fastest": max(counts),
        "longest": max(one["longest"] for one in said),
        "errors": [error for one in said for error in one["errors"]],
        "largest_log": largest,
        "file": path.stat().st_size,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sync-ms", type=float, default=0.0)
    parser.add_argument("--sync", default="full")
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    if asked.work is not None:
        print(json.dumps(asyncio.run(work(*json.loads(asked.work)))))
        return
    sums = dict[int, list[int]]()
    for _ in range(asked.rounds):
        for processes in asked.processes:
            with tempfile.TemporaryDirectory() as folder:
                seen = measure(
                    Path(folder),
                    processes,
                    sync_ms=asked.sync_ms,
                    sync=asked.sync,
                    calls=asked.calls,
                    seconds=asked.seconds,
                )
            sums.setdefault(processes, []).append(seen["batches"])
            errors = seen.pop("errors")
            print({**seen, "errors": len(errors)}, *errors[:1], flush=True)
    first = statistics.median(sums[asked.processes[0]])
    print({processes: round(statistics.median(found) / first, 2) for processes, found in sums.items()})


if __name__ == "__main__":
    main()
