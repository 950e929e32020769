"""What files of a session cost: written and read by calls of a durable batch, searched, and listed.

The batches go to a file on this machine's disk, as a program that must not lose them would run; the search is held
against `grep -r` over the same bytes in a directory.
"""

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.pairing import AnySubject, Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report

LIMIT_BATCH = 2
LIMIT_GREP = 1 / 0.3
LIMIT_LISTING = 50
CALLS = 100
CONTENT = 4096
FILES = 1_000
FILE_BYTES = 50 * 1024 * 1024 // FILES
SMALL, LARGE = 100, 10_000


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure all three in a fresh process."""
    try:
        found = {name: Pairing.from_json(each) for name, each in run_probe("bench.sections.files", quick=quick).items()}
    except ProbeError as error:
        return Report("files", "files of a session", [Line("files", error=str(error))])
    lines = [
        Line.paired("write, then read 4 KiB, beside echo of 4 KiB", found["same"], target=LIMIT_BATCH),
        Line.paired("write, then read 4 KiB, beside echo of a word", found["word"]),
        Line.paired("search of 50 MiB beside grep -r", found["grep"], target=LIMIT_GREP, unit="µs/file"),
        Line.paired(f"listing {LARGE:,} beside {SMALL}", found["listing"], target=LIMIT_LISTING, unit="µs/listing"),
    ]
    return Report("files", "files of a session, in a store on the disk", lines)


async def measure(effort: Effort) -> dict[str, Any]:
    """One pairing per question."""
    # A batch on the disk is long: as long as the samples beside it, to see the same weather.
    durable = replace(effort, variant_seconds=0.05, baseline_seconds=0.05)
    async with opened() as (runtime, folder):
        bench = Batches(runtime.session("batches"))
        word = await pair(bench.echo("x"), bench.write_then_read(), durable)
        same = await pair(bench.echo("x" * CONTENT), bench.write_then_read(), durable)
        files = runtime.session("files").files
        return {
            "word": word.to_json(),
            "same": same.to_json(),
            "grep": (await search(files, folder / "copy", effort)).to_json(),
            "listing": (await listing(files, effort)).to_json(),
        }


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[tuple[Any, Path]]:
    """A runtime on a new store, and the folder it is in."""
    # Here, so that the sections load where toolwright does not.
    from toolwright import Policy, Runtime, ToolContext, tool

    @tool(parallel=True, readonly=True)
    async def echo(message: str) -> str:
        return message

    @tool(parallel=True)
    async def write_file(ctx: ToolContext, path: str, content: str) -> str | None:
        return (await ctx.files.write(path, content)).hash

    @tool(parallel=True, readonly=True)
    async def read_file(ctx: ToolContext, path: str) -> str:
        return await ctx.files.read(path)

    # As many at once as there are calls: how many wait for each other is not the question here.
    policy = Policy(max_concurrency=CALLS, session_concurrency=CALLS, runtime_concurrency=CALLS)
    folder = Path(tempfile.mkdtemp(prefix="toolwright-bench-"))
    os.mkdir(folder / "copy")
    try:
        tools = [echo, write_file, read_file]
        async with Runtime.open(folder / "agent.db", tools=tools, policy=policy) as runtime:
            yield runtime, folder
    finally:
        shutil.rmtree(folder)


class Batches:
    """Subjects over one session: no call id is used twice."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._round = 0

    def echo(self, message: str) -> AnySubject:
        """A batch of echoes."""
        return self._subject([lambda number: ("echo", {"message": f"{number} {message}"})])

    def write_then_read(self) -> AnySubject:
        """A batch of writes and one of reads, of files of the same size."""
        return self._subject(
            [
                lambda number: ("write_file", {"path": f"/d/{number}.txt", "content": self._content(number)}),
                lambda number: ("read_file", {"path": f"/d/{number}.txt"}),
            ]
        )

    def _content(self, number: int) -> str:
        return f"{self._round} {number} ".ljust(CONTENT, "x")

    def _subject(self, kinds: list[Callable[[int], tuple[str, dict[str, Any]]]]) -> AnySubject:
        def prepare() -> list[list[dict[str, Any]]]:
            self._round += 1
            return [
                [
                    {"id": f"{self._round}.{kind}.{number}", "name": name, "arguments": arguments}
                    for number in range(CALLS)
                    for name, arguments in [make(number)]
                ]
                for kind, make in enumerate(kinds)
            ]

        async def run(batches: list[Any]) -> list[Any]:
            return [outcome for batch in batches for outcome in await self._session.run_batch(batch)]

        return Subject(CALLS * len(kinds), prepare, run, lambda outcomes: sum(outcome.ok for outcome in outcomes))


async def search(files: Any, copy: Path, effort: Effort) -> Pairing:
    """A word that is nowhere, in a thousand files, here and by grep on the disk."""
    words = random.Random(1)
    alphabet = ["".join(words.choices("abcdefghij", k=words.randint(2, 9))) for _ in range(2_000)]
    for number in range(FILES):
        lines = (" ".join(words.choices(alphabet, k=10)) for _ in range(FILE_BYTES // 65 + 50))
        data = "\n".join(lines).encode()[:FILE_BYTES]
        await files.write(f"/text/{number % 10}/{number}.txt", data)
        (copy / f"{number}.txt").write_bytes(data)

    async def grep() -> int:
        process = await asyncio.create_subprocess_exec(
            "grep", "-r", "needle", str(copy), stdout=asyncio.subprocess.DEVNULL
        )
        return FILES if await process.wait() == 1 else 0

    async def ours() -> int:
        return FILES if await files.grep("needle", "/text") == [] else 0

    return await pair(_plain(FILES, grep), _plain(FILES, ours), effort)


async def listing(files: Any, effort: Effort) -> Pairing:
    """A large directory beside a small one; the quickest of a few listings, for they are short."""
    for size in (SMALL, LARGE):
        for number in range(size):
            await files.write(f"/{size}/{number}.txt", f"{number % 100}")

    async def time(size: int) -> float:
        times = []
        for _ in range(5):
            started = perf_counter()
            listed = await files.list(f"/{size}")
            times.append(perf_counter() - started)
            assert len(listed) == size
        return min(times) * 1e6

    return Pairing.of([(await time(SMALL), await time(LARGE), await time(SMALL)) for _ in range(effort.pairs)])


def _plain(calls: int, run: Callable[[], Any]) -> AnySubject:
    return Subject(calls, lambda: None, lambda _: run(), lambda result: result)


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
