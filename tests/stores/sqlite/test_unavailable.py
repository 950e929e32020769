"""A store that does not answer: nothing is known to be written, and its owner repeats the verb."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from tests.support import fail_after
from toolwright import Runtime, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.errors import StoreUnavailable
from toolwright.stores import SqliteStore
from toolwright.stores.contracts.journal import Kept
from toolwright.testing.conformance.cases import call, intent, success
from toolwright.testing.conformance.repeated_verbs import WANTING
from toolwright.testing.sqlite_store import run_on_connection

VERBS = {
    "start": lambda journal: journal.start(call(), 101.0),
    "keep": lambda journal: journal.keep(call(), Kept("step:a", b"1", 101.0, True)),
    "finish": lambda journal: journal.finish(call(), success(call()), 101.0, 102.0),
    "forget": lambda journal: journal.forget(call()),
    "release": lambda journal: journal.release(call()),
    "reopen": lambda journal: journal.reopen(call()),
}


@asynccontextmanager
async def held(store: SqliteStore) -> AsyncIterator[None]:
    """Another program holds the file for longer than the store waits."""

    def give_up_at_once(connection: apsw.Connection) -> None:
        connection.set_busy_timeout(1)

    await run_on_connection(store, give_up_at_once, writes=False)
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.promise("EFF-18", "EFF-07")
@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_that_found_the_store_away_is_repeated_by_its_owner(name, tmp_path: Path):
    store = SqliteStore(tmp_path / "agent.db", sync="normal")
    async with fail_after(20):
        await store.journal.begin([intent(call())])
        if name == "reopen":
            await store.journal.finish(call(), WANTING, 101.0, 102.0)
        async with held(store):
            with pytest.raises(StoreUnavailable, match="another program holds it"):
                await VERBS[name](store.journal)
        assert await VERBS[name](store.journal)
        await store.close()


@pytest.mark.promise("EFF-18", "EFF-07")
async def test_a_batch_that_found_the_store_away_is_begun_again_by_its_owner(tmp_path: Path):
    store = SqliteStore(tmp_path / "agent.db", sync="normal")
    async with fail_after(20):
        async with held(store):
            with pytest.raises(StoreUnavailable):
                await store.journal.begin([intent(call())])
        assert await store.journal.begin([intent(call())]) == [None]
        await store.close()


class LosesAnswers(MemoryStore):
    """Writes everything. The first answer to each verb in `lost` is lost on its way."""

    def __init__(self, database: MemoryDatabase, *lost: str) -> None:
        super().__init__(database)
        self.lost = list(lost)

    def _answer(self, verb: str) -> None:
        if verb in self.lost:
            self.lost.remove(verb)
            raise StoreUnavailable("The connection was lost before the answer came; try again")

    async def begin(self, intents, refused=()):
        entries = await super().begin(intents, refused)
        self._answer("begin")
        return entries

    async def finish_all(self, ended):
        await super().finish_all(ended)
        self._answer("finish_all")


@pytest.mark.promise("EFF-18", "EFF-11")
async def test_an_outcome_whose_acknowledgement_was_lost_is_told_and_stands():
    ran = []

    @tool
    async def pay(sum: int) -> str:
        ran.append(sum)
        return "paid"

    calls = [{"id": f"c{number}", "name": "pay", "arguments": {"sum": number}} for number in range(3)]
    rows = MemoryDatabase()
    async with fail_after(20):
        async with Runtime.open(LosesAnswers(rows, "finish_all"), tools=[pay]) as runtime:
            told = await runtime.session("s1").run_batch(calls, scope="m1")
            assert [outcome.value for outcome in told] == ["paid"] * 3
        async with Runtime.open(MemoryStore(rows), tools=[pay]) as runtime:
            again = await runtime.session("s1").run_batch(calls, scope="m1")
    assert all(outcome.replayed for outcome in again)
    assert sorted(ran) == [0, 1, 2]


@pytest.mark.promise("EFF-18", "EFF-07")
async def test_a_batch_whose_beginning_was_not_acknowledged_runs_once_when_it_comes_again():
    ran = []

    @tool
    async def pay(sum: int) -> str:
        ran.append(sum)
        return "paid"

    calls = [{"id": "c1", "name": "pay", "arguments": {"sum": 1}}]
    async with fail_after(20), Runtime.open(LosesAnswers(MemoryDatabase(), "begin"), tools=[pay]) as runtime:
        session = runtime.session("s1")
        with pytest.raises(StoreUnavailable):
            await session.run_batch(calls, scope="m1")
        assert ran == []
        (outcome,) = await session.run_batch(calls, scope="m1")
    assert (outcome.value, ran) == ("paid", [1])
