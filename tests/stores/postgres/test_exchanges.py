"""What is sent to the server, and how it finds its rows: few exchanges, and by key."""

import asyncio
from contextlib import ExitStack

import pytest

from tests.postgres_server import PostgresServer, is_listening
from tests.support import fail_after, until
from toolwright.errors import StoreError
from toolwright.stores import prune
from toolwright.stores.contracts.journal import CallKey, Ended, Kept
from toolwright.stores.postgres import life
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.store import PostgresStore
from toolwright.testing.conformance.background import PLENTY, QUOTAS, ending, registration
from toolwright.testing.conformance.cases import call, intent, success


@pytest.fixture
async def store(postgres: PostgresServer):
    with ExitStack() as stack:
        schema = stack.enter_context(postgres.schema())
        store = await PostgresStore.open(f"{postgres.url}?schema={schema}")
        yield store
        await store.close()


@pytest.fixture
def exchanges(monkeypatch):
    """The statements of each exchange with the server, and how each was planned."""
    seen: list[list[str]] = []
    together, alone = PostgresConnection._exchange, PostgresConnection._send

    def exchange(self, statements):
        seen.append([sent.key[0] for sent in statements])
        return together(self, statements)

    def send(self, sent):
        seen.append([sent.key[0]])
        return alone(self, sent)

    monkeypatch.setattr(PostgresConnection, "_exchange", exchange)
    monkeypatch.setattr(PostgresConnection, "_send", send)
    return seen


@pytest.mark.promise("ENG-01")
async def test_outcomes_and_the_next_starts_are_one_exchange_and_one_commit(store, exchanges):
    keys = [call(str(n)) for n in range(16)]
    first, later = keys[:8], keys[8:]
    async with fail_after(60):
        await store.journal.begin([intent(key) for key in keys])
        # The sign of life has a connection of its own: what it sends is not meant.
        store.life.stop()
        exchanges.clear()
        commits = store.commits
        ended = store.journal.finish_all([Ended(key, success(key), 1.0, 2.0) for key in first])
        begun = store.journal.start_all([(key, 2.0) for key in later])
        await asyncio.gather(ended, begun)
    assert store.commits - commits == 1
    (sent,) = exchanges
    assert sent[0] == "BEGIN"
    assert sent[-1] == "COMMIT"


@pytest.mark.promise("ENG-01")
async def test_outcomes_of_several_sessions_are_written_in_one_exchange_all_or_none(store, exchanges):
    keys = [CallKey(session, scope, "c") for session in ("s", "t") for scope in ("", "a")]
    ended = [Ended(key, success(key), 1.0, 2.0) for key in keys]
    async with fail_after(60):
        for key in keys:
            await store.journal.begin([intent(key)])
        store.life.stop()
        with pytest.raises(StoreError):
            await store.journal.finish_all([*ended, Ended(call("unknown"), success(call("unknown")), 1.0, 2.0)])
        exchanges.clear()
        await store.journal.finish_all(ended)
        (_,) = exchanges
        found = [await store.services.history.find_call(key) for key in keys]
    assert [one.call.status for one in found] == ["success"] * len(keys)


@pytest.mark.promise("ENG-01")
async def test_calls_are_found_by_their_keys_among_many_that_are_unfinished(store, postgres):
    """The planner knows nothing of a table that nobody analysed, and must not be able to choose another way."""
    async with fail_after(60):
        for number in range(5):  # the server keeps the plan of the time when the table was small
            keys = [call(f"{number}.{n}") for n in range(8)]
            await store.journal.begin([intent(key) for key in keys])
            await store.journal.start_all([(key, 1.0) for key in keys])
            await store.journal.start(keys[0], 1.0)
            await store.journal.keep(keys[0], Kept("step:a", b"1", 101.0, True))
            await store.journal.finish(keys[0], success(keys[0]), 1.0, 2.0)
            await store.journal.release(keys[1])
            await store.journal.forget(keys[2])
            await store.journal.finish_all([Ended(key, success(key), 1.0, 2.0) for key in keys[3:]])
        plans = await store._writer.read(plans_of_kept_statements)
        require_keys(plans)
        many = [call(f"many{n}") for n in range(1_000)]
        await store.journal.begin([intent(key) for key in many])
        await store.journal.finish_all([Ended(key, success(key), 1.0, 2.0) for key in many])
        # Now it learns that no call is unfinished, and plans again.
        calls = f"{store.address.schema}.calls"
        await asyncio.to_thread(postgres.execute, f"DELETE FROM {calls} WHERE outcome IS NULL")
        await asyncio.to_thread(postgres.execute, f"VACUUM ANALYZE {calls}")
        require_keys(await store._writer.read(plans_of_kept_statements))


def require_keys(plans):
    """Calls that are changed, and those that are looked up, are found by their keys."""
    by_key = {statement: plan for statement, plan in plans.items() if "calls" in plan and "call_id" in statement}
    changed = [statement for statement in by_key if "UPDATE calls" in statement or "DELETE FROM calls" in statement]
    assert len(changed) == 6  # two for a wave, and one for each of start, finish, release and forget
    for statement, plan in by_key.items():
        if not statement.startswith("WITH others"):
            assert "Index Scan using calls_pkey" in plan, statement
            assert "unfinished_calls" not in plan, statement
            assert "calls_of_session" not in plan, statement


def plans_of_kept_statements(connection):
    """The plan of each statement that the server keeps for a connection."""
    found = {}
    for (statement, types), name in [*connection._uses.items()]:
        if isinstance(name, bytes) and statement.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
            values = f" ({', '.join(['NULL'] * len(types))})" if types else ""
            rows = connection.run(f"EXPLAIN EXECUTE {name.decode()}{values}").fetchall()
            found[statement] = "\n".join(row for (row,) in rows)
    return found


@pytest.mark.promise("ENG-01")
async def test_nobody_is_told_that_a_worker_renews_its_leases(store):
    """There may be many workers, and each would wake all of them again and again."""
    other = await PostgresStore.open(store.address.url)
    runs = other.services.runs
    async with fail_after(60):
        position = await store.news(None, 0.0)
        await runs.renew("w1", [], 100.0, 30.0, 5)
        assert await store.news(position, 0.0) == position
        await runs.register([registration()], PLENTY, None)
        assert await store.news(position, 30.0) != position
        await other.close()


@pytest.mark.promise("ENG-01", "EFF-13")
async def test_pruning_takes_few_exchanges_while_nobody_else_can_write(store, exchanges):
    runs, keys = store.services.runs, [call(f"c{number}") for number in range(100)]
    async with fail_after(60):
        await store.journal.begin([intent(key) for key in keys])
        await store.journal.keep(keys[0], Kept("step:a", b"1", 101.0, True))
        await store.journal.finish_all([Ended(key, success(key), 1.0, 2.0) for key in keys])
        await runs.register([registration(f"p{number}") for number in range(100)], PLENTY, None)
        for claimed in await runs.claim("w", ["work"], 100.0, 30.0, 100):
            await runs.finish(ending(claimed.run), QUOTAS)
        store.life.stop()
        exchanges.clear()
        removed = await prune(store.address.url, 10_000.0)
    assert (removed.calls, removed.effects, removed.runs) == (100, 1, 100)
    assert len(exchanges) < 100


@pytest.mark.promise("ENG-01", "EFF-21")
async def test_a_process_that_only_waits_sends_nothing_but_its_sign_of_life(store, postgres, exchanges, monkeypatch):
    monkeypatch.setattr(life, "EVERY", 0.1)
    other = await PostgresStore.open(store.address.url)
    async with fail_after(60):
        position = await store.news(None, 0.0)
        waiting = asyncio.ensure_future(store.news(position, 3_600.0))
        await until(lambda: is_listening(postgres, store))
        await store.life.look()
        exchanges.clear()
        await other.life.look()
        await until(lambda: len(exchanges) >= 6)
        assert not waiting.done()
        assert all(len(sent) == 1 and "owners" in sent[0] for sent in exchanges)
        waiting.cancel()
        await other.close()


@pytest.mark.promise("ENG-02")
async def test_a_sign_of_life_comes_back_in_one_exchange_with_a_new_connection(store, exchanges, postgres):
    former = store.life._connection
    async with fail_after(60):
        exchanges.clear()
        postgres.execute(f"SELECT pg_terminate_backend({former.raw.info.backend_pid})")
        while store.life._connection is former:  # noqa: ASYNC110 - a thread connects again
            await asyncio.sleep(0.01)
        store.life.stop()
    lock = "SELECT pg_advisory_lock_shared($1)"
    came = ["SET synchronous_commit = off", life._ARRIVE, lock, life._RENEW_AND_LOOK]
    assert [sent for sent in exchanges if not {life._ARRIVE, lock}.isdisjoint(sent)] == [came]
