"""What one call, run, turn or message costs a PostgreSQL server: `python -m bench.capacity`.

Counts of the server, before and after: transactions, rows, bytes of WAL, bytes of tables, and processor time of the
connections of the store. But for the last, they do not depend on the machine.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from bench.servers import postgres_server
from tests.postgres_server import PostgresServer
from toolwright import App, Policy, Runtime, ToolCall, tool
from toolwright.testing import FunctionModel

TICK = 100.0
"""Units of processor time in a second, as Linux counts them."""
_COUNTS = (
    "SELECT xact_commit, tup_inserted, tup_updated, tup_deleted"
    " FROM pg_stat_database WHERE datname = current_database()"
)
_SIZE = (
    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = '{}'::regnamespace"
)
_WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'toolwright'"


@tool(parallel=True)
async def act(number: int) -> int:
    return number


@tool(readonly=True)
async def look(number: int) -> int:
    return number


@tool(supports_background=True)
async def work(number: int) -> int:
    return number


def answer(request):
    return [ToolCall("look", {"number": 1}, "c")] if request.number == 0 else "Done."


APP = App(
    tools=[act, look, work],
    model=FunctionModel(answer),
    policy=Policy(on_loop="ignore", background_per_session=10_000, max_concurrency=100, session_concurrency=100),
)


def batches(name: str, size: int, times: int) -> Callable[[Runtime], Awaitable[None]]:
    async def do(runtime: Runtime) -> None:
        for each in range(times):
            calls = [ToolCall(name, {"number": n}, f"{name}-{size}-{each}-{n}") for n in range(size)]
            await runtime.session(f"s{each % 10}").run_batch(calls)

    return do


async def runs(runtime: Runtime) -> None:
    spawned = [await runtime.session(f"s{n % 10}").spawn("work", {"number": n}) for n in range(100)]
    for run in spawned:
        await run.wait()


async def turns(runtime: Runtime) -> None:
    for n in range(100):
        await runtime.session(f"t{n}").ask("Go.")


async def messages(runtime: Runtime) -> None:
    for n in range(200):
        await runtime.session(f"s{n % 10}").messages.append({"text": "Hello."})


WORK: tuple[tuple[str, int, Callable[[Runtime], Awaitable[None]]], ...] = (
    ("call, batches of 100", 2_000, batches("act", 100, 20)),
    ("call, batches of 1", 200, batches("act", 1, 200)),
    ("read-only call, batches of 100", 2_000, batches("look", 100, 20)),
    ("run with one call", 100, runs),
    ("turn with one call", 100, turns),
    ("message", 200, messages),
    ("idle process, 10 s", 1, lambda runtime: asyncio.sleep(10)),
)


def processor_time(server: PostgresServer) -> float:
    """Milliseconds that the connections of the store have computed."""
    total = 0.0
    for (pid,) in server.execute(_BACKENDS):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICK * 1_000
    return total


@contextlib.asynccontextmanager
async def opened(server: PostgresServer, schema: str) -> AsyncIterator[Runtime]:
    async with APP.open(f"{server.url}?schema={schema}", worker=True) as runtime:
        await batches("act", 100, 2)(runtime)  # everything is prepared, and the connections are there
        yield runtime


async def counted(server: PostgresServer, schema: str, do: Callable[[Runtime], Awaitable[None]]) -> list[float]:
    """What some work costs the server, with opening and closing a store."""
    before = list(server.execute(_COUNTS)[0])
    async with opened(server, schema) as runtime:
        size, computed = float(str(server.execute(_SIZE.format(schema))[0][0])), processor_time(server)
        wal = float(str(server.execute(_WAL)[0][0]))
        await do(runtime)
        wal = float(str(server.execute(_WAL)[0][0])) - wal
        computed = processor_time(server) - computed
        connections = len(server.execute(_BACKENDS))
        size = float(str(server.execute(_SIZE.format(schema))[0][0])) - size
    await asyncio.sleep(1.5)  # until the connections have told their counts
    after = list(server.execute(_COUNTS)[0])
    return [
        *(float(str(b)) - float(str(a)) for a, b in zip(before, after, strict=True)),
        wal,
        size,
        computed,
        connections,
    ]


async def nothing(runtime: Runtime) -> None:
    """What opening and closing costs alone."""


async def main() -> None:
    print("| a … costs the server | transactions | rows written | WAL bytes | table bytes | processor ms |")
    print("|---|---|---|---|---|---|")
    with postgres_server() as server:
        await counted(server, "warm", nothing)
        base = await counted(server, "base", nothing)
        for place, (name, count, do) in enumerate(WORK):
            found = await counted(server, f"s{place}", do)
            cost = [(value - empty) / count for value, empty in zip(found[:4], base[:4], strict=True)]
            transactions, rows, wal = cost[0], sum(cost[1:4]), found[4] / count
            print(
                f"| {name} | {transactions:.2f} | {rows:.1f} | {wal:,.0f} | {found[5] / count:,.0f}"
                f" | {found[6] / count:.2f} |",
                flush=True,
            )
        print(f"\nConnections of one process: {found[7]:.0f}")


if __name__ == "__main__":
    asyncio.run(main())
