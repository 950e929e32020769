"""A change was committed, and its answer never came: it is not made again, and its caller is told of the first."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.postgres_server import PostgresServer
from tests.support import fail_after
from tests.tcp_proxy import TcpProxy
from toolwright import Pending, Runtime, ToolCall, ToolContext, tool


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@tool(supports_background=True)
async def work() -> str:
    return "done"


async def message(runtime: Runtime) -> Callable[[], Awaitable[Any]]:
    return lambda: runtime.session("s").messages.append("once")


async def signalling(runtime: Runtime) -> Callable[[], Awaitable[Any]]:
    run = await runtime.session("s").spawn("work")
    return lambda: run.signal("go", "once")


async def starting(runtime: Runtime) -> Callable[[], Awaitable[Any]]:
    return lambda: runtime.session("s").spawn("work")


async def scheduling(runtime: Runtime) -> Callable[[], Awaitable[Any]]:
    return lambda: runtime.session("s").schedule("work", cron="0 0 1 1 *")


async def resolving(runtime: Runtime) -> Callable[[], Awaitable[Any]]:
    keys: asyncio.Queue[str] = asyncio.Queue()

    @tool
    async def order(ctx: ToolContext) -> Pending:
        keys.put_nowait(ctx.completion_key())
        return Pending()

    session = runtime.session("s", tools=[order])
    batch = session.start_batch([ToolCall(id="c", name="order")])
    key = await keys.get()

    async def resolve() -> None:
        assert (await runtime.resolve(key, "once")).first
        (outcome,) = await batch
        assert outcome.value == "once"

    return resolve


CHANGES: dict[str, tuple[Callable[[Runtime], Awaitable[Callable[[], Awaitable[Any]]]], str]] = {
    "message": (message, "messages"),
    "signal": (signalling, "signals"),
    "run": (starting, "processes"),
    "schedule": (scheduling, "schedules"),
    "resolution": (resolving, "waits"),
}


@pytest.mark.promise("ENG-02", "EFF-08", "WAIT-07")
@pytest.mark.parametrize("fault", ["connection cut", "database killed"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_whose_answer_was_lost_is_made_once(server, change, fault):
    prepare, table = CHANGES[change]
    schema = f"{change}_{fault.split()[0]}"
    with TcpProxy(server.port) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}"
        async with fail_after(60), Runtime.open(url, tools=[work], worker=False) as runtime:
            make = await prepare(runtime)
            count = f"SELECT count(*) FROM {schema}.{table}"
            ((before,),) = server.execute(count)
            proxy.lose_answer()
            made = asyncio.ensure_future(make())
            assert await asyncio.to_thread(proxy.wait_lost, 20)
            if fault == "database killed":
                await asyncio.to_thread(server.stop, signal.SIGKILL)
                await asyncio.to_thread(server.start)
            proxy.drop()
            proxy.mend()
            await made
            ((after,),) = server.execute(count)
            assert after == (1 if change == "resolution" else before + 1)  # a wait has a row from its beginning


@pytest.mark.promise("ENG-02", "EFF-08")
async def test_a_process_that_was_forgotten_in_the_meantime_makes_a_change_once(server):
    with TcpProxy(server.port) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema=forgotten"
        async with fail_after(60), Runtime.open(url, worker=False) as runtime:
            messages = runtime.session("s").messages
            # As others do when it was away for weeks, and as a replica is that was behind when it was promoted.
            server.execute("DELETE FROM forgotten.commits")
            proxy.drop()
            proxy.mend()
            await messages.append("first")
            proxy.lose_answer()
            second = asyncio.ensure_future(messages.append("second"))
            assert await asyncio.to_thread(proxy.wait_lost, 20)
            proxy.drop()
            proxy.mend()
            await second
            assert [message.content for message in await messages.list()] == ["first", "second"]
