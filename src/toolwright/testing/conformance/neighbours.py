"""Two stores in one place, such as two files of one directory or two schemas of one server: they share nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from toolwright.stores.contracts.journal import Kept
from toolwright.stores.contracts.waits import Refused, Remembered, WaitKey
from toolwright.testing.conformance import background
from toolwright.testing.conformance.background import PLENTY, claim, registration
from toolwright.testing.conformance.cases import CANCELLED, Database, call, intent, resolved, success, wait
from toolwright.testing.conformance.session_services import WIDE, content, open_services, writing
from toolwright.testing.conformance.turns import turn


class NeighbourCase(Struct, frozen=True):
    """One promise of two databases that lie in one place."""

    name: str
    check: Callable[[Database, Database], Coroutine[Any, Any, None]]

    async def run(self, first: Database, second: Database) -> None:
        """Check the promise on two new databases in one place, and close them.

        Raises:
            AssertionError: one of them has something of the other.
        """
        try:
            await self.check(first, second)
        finally:
            try:
                await first.close()
            finally:
                await second.close()

    def __str__(self) -> str:
        return self.name


async def calls_of_one_store_are_unknown_to_the_other(first: Database, second: Database) -> None:
    here, there = await first.open(), await second.open()
    await here.journal.begin([intent(call())])
    await here.journal.keep(call(), Kept("step:a", b"1", 101.0, True))
    assert await there.journal.begin([intent(call())]) == [None]
    assert await there.journal.effects(call()) == []
    assert await here.journal.finish(call(), success(call()), 101.0, 102.0)
    (entry,) = await there.journal.begin([intent(call())])
    assert entry is not None
    assert (entry.owner, entry.outcome) == (there.journal.owner, None)


async def an_owner_that_dies_in_one_store_leaves_those_of_the_other_alone(first: Database, second: Database) -> None:
    here, there = await first.open(), await second.open()
    await here.journal.begin([intent(call())])
    await there.journal.begin([intent(call())])
    await first.kill(here)
    (left,) = await (await first.open()).journal.begin([intent(call())])
    (held,) = await (await second.open()).journal.begin([intent(call())])
    assert left is not None
    assert held is not None
    assert left.cut_off
    assert (held.cut_off, held.owner) == (False, there.journal.owner)
    assert await there.journal.start(call(), 101.0)


async def closing_and_opening_one_store_leaves_the_other_as_it_is(first: Database, second: Database) -> None:
    there = await second.open()
    await there.journal.begin([intent(call())])
    for _ in range(3):
        here = await first.open()
        await here.journal.begin([intent(call())])
        await here.close()
    assert await there.journal.finish(call(), success(call()), 101.0, 102.0)
    assert (await (await second.open()).journal.unfinished()) == []


async def waits_of_one_store_are_not_those_of_the_other(first: Database, second: Database) -> None:
    here, there = await first.open(), await second.open()
    assert here.waits.secret != there.waits.secret
    cursor = (await there.waits.arrivals(None)).cursor
    await here.journal.begin([intent(call())])
    await here.waits.open_wait(wait(call()))
    assert await there.waits.waiting() == []
    assert await there.waits.resolve(WaitKey(call(), "event"), resolved()) == Refused("unknown")
    remember = Remembered("s1", "travel.book", "allow", b"{}", 200.0)
    await here.waits.resolve(WaitKey(call(), "event"), resolved(), remember)
    await here.waits.signal(WaitKey(call(), "signal", "go"), b"1", 200.0)
    await here.waits.cancel_waits("s1", CANCELLED, revoke=True)
    arrived = await there.waits.arrivals(cursor)
    assert (arrived.resolved, arrived.signals) == ([], [])
    assert await there.waits.remembered("s1") == []
    await there.journal.begin([intent(call())])
    assert await there.waits.open_wait(wait(call())) == wait(call())


async def what_sessions_keep_in_one_store_is_not_in_the_other(first: Database, second: Database) -> None:
    here, there = await open_services(first), await open_services(second)
    before = (await there.events.after(None, 1)).last
    await here.kv.set_value("s1", "k", b"1", 100.0, WIDE, None)
    await here.files.write_file("s1", "/a.txt", content(b"text"), writing(), None)
    await here.turns.add(turn(), WIDE)
    assert await there.kv.get_value("s1", "k") is None
    assert await there.files.list_files("s1", "/") == []
    assert await there.turns.list("s1") == []
    assert await there.archives.list_sessions() == []
    assert (await there.events.after(before, 10)).events == []
    assert (await there.turns.add(turn(message=b'"Other"'), WIDE)).message == b'"Other"'


async def a_worker_of_one_store_claims_nothing_of_the_other(first: Database, second: Database) -> None:
    here, there = await background.open_services(first), await background.open_services(second)
    cursor, _ = await there.runs.changed(None)
    await here.runs.register([registration()], PLENTY, None)
    assert not await there.runs.work_waits("w1", ["work"], 100.0)
    assert await claim(there) == []
    assert await there.runs.changed(cursor) == (cursor, [])
    await there.runs.register([registration(session="s2")], PLENTY, None)
    (theirs,), (ours,) = await claim(there), await claim(here)
    assert (theirs.session, theirs.token) == ("s2", 1)
    assert (ours.session, ours.token) == ("s1", 1)
    await here.runs.cancel("p1", "no longer needed", 101.0)
    assert await there.runs.cancelled("w1") == {}


NEIGHBOURS: tuple[NeighbourCase, ...] = tuple(
    NeighbourCase(check.__name__, check)
    for check in (
        calls_of_one_store_are_unknown_to_the_other,
        an_owner_that_dies_in_one_store_leaves_those_of_the_other_alone,
        closing_and_opening_one_store_leaves_the_other_as_it_is,
        waits_of_one_store_are_not_those_of_the_other,
    )
)
SERVICE_NEIGHBOURS: tuple[NeighbourCase, ...] = tuple(
    NeighbourCase(check.__name__, check)
    for check in (
        what_sessions_keep_in_one_store_is_not_in_the_other,
        a_worker_of_one_store_claims_nothing_of_the_other,
    )
)
"""For stores with `services`."""
