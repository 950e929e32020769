"""A process that waits for others asks its store when something came, and not from time to time."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolContext, tool
from toolwright.background import worker
from toolwright.clock import SystemClock
from toolwright.effects.store_news import StoreNews
from toolwright.errors import StoreError
from toolwright.stores import SqliteStore
from toolwright.stores.contracts.sessions import Quota

QUOTA = Quota(100, 10_000)


@tool
async def bill(ctx: ToolContext) -> str:
    """Wait until the bill is paid."""
    paid: str = await ctx.wait(ctx.event_key("paid"))
    return paid


@pytest.mark.promise("WAIT-02", "EFF-21")
async def test_a_resolution_of_another_process_wakes_a_call_that_looked_at_the_store_only_when_told(tmp_path):
    store = SqliteStore(tmp_path / "agent.db", sync="normal")
    looks: list[object] = []
    arrivals = store.waits.arrivals

    async def counted(since):
        looks.append(since)
        return await arrivals(since)

    store.waits.arrivals = counted  # type: ignore[method-assign]
    async with (
        fail_after(30),
        Runtime.open(store, tools=[bill]) as runtime,
        Runtime.open(tmp_path / "agent.db", tools=[bill], sync="normal") as other,
    ):
        session = runtime.session("s")
        with session.subscribe() as subscription:
            batch = session.start_batch([{"id": "c1", "name": "bill", "arguments": {}}])
            async for event in subscription:
                if event.kind == "call.waiting":
                    break
        (wait,) = await other.session("s").waits()
        await other.resolve(wait.key, "yes")
        (outcome,) = await batch
    assert outcome.value == "yes"
    # Where to look from, the first look, and one for each of the few writes that came meanwhile.
    assert 2 <= len(looks) <= 12


@pytest.mark.promise("EFF-21")
async def test_a_listener_is_told_once_soon_and_then_of_every_write_of_another_process(tmp_path):
    here, there = (SqliteStore(tmp_path / "agent.db", sync="normal") for _ in range(2))
    news = StoreNews(here, SystemClock())
    told = asyncio.Queue()
    async with fail_after(30):
        listening = news.listen(lambda: told.put_nowait("told"))
        await told.get()
        while not told.empty():
            told.get_nowait()
        for number in range(3):
            await there.services.kv.set_value("s", f"k{number}", b"1", 100.0, QUOTA, None)
            await told.get()
        listening.stop()
        await news.close()
        await asyncio.gather(here.close(), there.close())


@pytest.mark.promise("EFF-21")
async def test_a_bell_misses_nothing_between_two_waits(tmp_path):
    here, there = (SqliteStore(tmp_path / "agent.db", sync="normal") for _ in range(2))
    news = StoreNews(here, SystemClock())
    async with fail_after(30):
        with news.bell() as bell:
            for number in range(5):
                await there.services.kv.set_value("s", "k", b"%d" % number, 100.0, QUOTA, None)
                while await here.services.kv.get_value("s", "k") != b"%d" % number:
                    await bell.wait(3600.0)
        await news.close()
        await asyncio.gather(here.close(), there.close())


@tool(supports_background=True)
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.mark.promise("EFF-21")
async def test_a_worker_begins_the_runs_of_another_process_as_soon_as_it_is_told(tmp_path, monkeypatch):
    for pause in ("LOOK", "LONGEST_LOOK", "RENEW", "RENEW_IDLE"):  # by itself it would look after an hour
        monkeypatch.setattr(worker, pause, 3600.0)
    file = tmp_path / "agent.db"
    async with (
        fail_after(30),
        Runtime.open(file, tools=[double], sync="normal", worker=True),
        Runtime.open(file, tools=[double], sync="normal", worker=False) as starts,
    ):
        for number in range(3):
            run = await starts.session("s").spawn("double", {"number": number})
            assert (await run.wait()).value == 2 * number


@pytest.mark.promise("EFF-12")
async def test_waiting_for_news_ends_with_the_store(tmp_path):
    store = SqliteStore(tmp_path / "agent.db", sync="normal")
    async with fail_after(30):
        position = await store.news(None, 0.0)
        waiting = asyncio.ensure_future(store.news(position, 3600.0))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreError, match="is closed"):
            await waiting
        with pytest.raises(StoreError, match="is closed"):
            await store.news(position, 1.0)
