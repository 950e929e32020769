"""The clock that leases go by is that of the server: machines that share a store may have others."""

import asyncio
import time

import pytest

from tests.support import fail_after
from toolwright.clock import SystemClock
from toolwright.stores.postgres.life import LEASE as SIGN
from toolwright.stores.postgres.store import PostgresStore
from toolwright.testing.conformance.background import LEASE, PLENTY, registration


class WrongClock(SystemClock):
    """The clock of a machine that was set by an hour."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self._by = by

    def now(self) -> float:
        return super().now() + self._by

    def monotonic(self) -> float:
        return super().monotonic() + self._by


@pytest.mark.promise("ENG-02", "PROC-04")
@pytest.mark.parametrize("by", [3600.0, -3600.0], ids=["ahead", "behind"])
async def test_a_machine_whose_clock_is_wrong_takes_no_run_of_another_one(postgres, monkeypatch, by):
    real = time.time
    with postgres.schema() as schema:
        url = f"{postgres.url}?schema={schema}"
        async with fail_after(20):
            right = await PostgresStore.open(url)
            await right.services.runs.register([registration("held"), registration("queued")], PLENTY, None)
            (held,) = await right.services.runs.claim("w1", ["work"], 100.0, LEASE, 1)
            monkeypatch.setattr(time, "time", lambda: real() + by)
            wrong = await PostgresStore.open(url, clock=WrongClock(by))
            taken = await wrong.services.runs.claim("w2", ["work"], 100.0, LEASE, 9)
            monkeypatch.undo()
            again = await right.services.runs.claim("w1", ["work"], 100.0, LEASE, 9)
            await wrong.close()
            await right.close()
    assert held.run.id == "held"
    assert [claimed.run.id for claimed in taken] == ["queued"], "its lease lasts, by the clock of the server"
    assert again == [], "nor does the other one take a run of that machine"


@pytest.mark.promise("ENG-02")
@pytest.mark.parametrize("by", [3600.0, -3600.0], ids=["ahead", "behind"])
async def test_the_sign_of_life_of_a_machine_whose_clock_is_wrong_lasts_as_long_as_that_of_others(
    postgres, monkeypatch, by
):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + by)
    with postgres.schema() as schema:
        left = f"SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM {schema}.owners"
        async with fail_after(20):
            store = await PostgresStore.open(f"{postgres.url}?schema={schema}", clock=WrongClock(by))
            ((seconds,),) = await asyncio.to_thread(postgres.execute, left)
            await store.close()
    assert 0 < seconds <= SIGN
