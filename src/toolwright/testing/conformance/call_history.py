"""The history of calls: in pages, the newest first, with the state that each call has now.

These cases are for a store whose calls and services are one database.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolwright.stores.contracts.call_history import CallFilters, CallHistory, Place
from toolwright.stores.contracts.inspection import PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey, Ended, Intent, Kept
from toolwright.stores.contracts.waits import Resolution, WaitKey
from toolwright.testing.conformance.any_text import ODD
from toolwright.testing.conformance.cases import Database, call, cases, intent, success, wait
from toolwright.testing.conformance.session_services import services_of
from toolwright.tools.outcome import Failure

EVERY = CallFilters()


def batch(name: str, ids: Sequence[str], *, at: float = 100.0, session: str = "s1", tool: str = "book") -> list[Intent]:
    """The intents of a batch."""
    return [
        replace(intent(call(id, session), position=position, queued_at=at), batch=name, tool=tool)
        for position, id in enumerate(ids)
    ]


async def listed(history: CallHistory, filters: CallFilters = EVERY, limit: int = 100) -> list[PastCall]:
    """All calls, read in pages of this size."""
    found: list[PastCall] = []
    before: Place | None = None
    while True:
        page = await history.list_calls(filters, before, limit)
        assert len(page) <= limit, "A page has more calls than were asked for."
        found += [one.call for one in page]
        before = page.rest or (page[-1].place if page else None)
        if before is None:
            return found


async def batches_of(history: CallHistory, session: str, limit: int = 100) -> list[PastBatch]:
    found: list[PastBatch] = []
    before: Place | None = None
    while True:
        page = await history.list_batches(session, before, limit)
        assert len(page) <= limit, "A page has more batches than were asked for."
        if not page:
            return found
        found += page
        before = (page[-1].first_at, page[-1].batch)


def ids_of(calls: Sequence[PastCall]) -> list[str]:
    return [one.key.call_id for one in calls]


async def a_call_is_shown_as_it_was_written(database: Database) -> None:
    store, reader = await database.open(), await database.open()
    given = replace(intent(call(), position=0, arguments=b'{"city":"Rome"}'), parent="c0")
    await store.journal.begin([given])
    history = services_of(reader).history
    (found,) = await listed(history)
    assert (found.key, found.batch, found.tool, found.arguments) == (call(), "batch", "book", b'{"city":"Rome"}')
    assert (found.source, found.parent, found.queued_at) == ("model", "c0", 100.0)
    assert (found.status, found.started_at, found.outcome) == ("running", None, None)
    await store.journal.start(call(), 101.0)
    await store.journal.finish(call(), success(call()), None, 102.0)
    (found,) = await listed(history)
    assert (found.status, found.started_at, found.finished_at) == ("success", 101.0, 102.0)
    assert found.outcome == success(call())
    detail = await history.find_call(call())
    assert detail is not None
    assert detail.call == found
    assert await history.find_call(call("other")) is None
    assert await history.find_call(call(session="s2")) is None


async def pages_of_every_size_give_each_call_once_the_newest_first(database: Database) -> None:
    store = await database.open()
    history = services_of(store).history
    for number in range(4):
        intents = batch(f"b{number}", [f"c{number}-{place}" for place in range(5)], at=100.0 + number)
        await store.journal.begin(intents)
        ended = [Ended(one.key, success(one.key), 200.0, 201.0 + number) for one in intents]
        await store.journal.finish_all(ended[: 5 - number])
    every = await listed(history)
    assert len(set(ids_of(every))) == len(every) == 20
    done = [one for one in every if one.outcome is not None]
    assert [one.batch for one in done] == sorted((one.batch for one in done), reverse=True)
    for limit in (1, 3, 7, 20):
        assert await listed(history, limit=limit) == every


async def calls_are_found_by_session_tool_batch_and_status(database: Database) -> None:
    store = await database.open()
    history = services_of(store).history
    await store.journal.begin(batch("b1", ["a", "b", "c"]))
    await store.journal.begin(batch("b2", ["d"], tool="fly"))
    await store.journal.begin(batch("b1", ["e"], session="s2"))
    await store.journal.finish(call("a"), success(call("a")), 101.0, 102.0)
    failed = replace(success(call("b")), status="failure", failure=Failure(message="no"))
    await store.journal.finish(call("b"), failed, 101.0, 102.0)
    await store.waits.open_wait(wait(call("c")))

    async def found(**filters: str) -> list[str]:
        return sorted(ids_of(await listed(history, CallFilters(**filters), 1)))

    assert await found(session="s1") == ["a", "b", "c", "d"]
    assert await found(tool="fly") == ["d"]
    assert await found(batch="b1") == ["a", "b", "c", "e"]
    assert await found(batch="b1", session="s2") == ["e"]
    assert await found(status="success") == ["a"]
    assert await found(status="failure") == ["b"]
    assert await found(status="waiting") == ["c"]
    assert await found(status="running") == ["d", "e"]
    assert await found(status="running", session="s2") == ["e"]
    assert await found(status="cut off") == []
    assert await found(session="s3") == []
    assert await found(text="FLY") == ["d"]
    assert await found(text="s2") == ["e"]
    assert await found(text="b1", status="success") == ["a"]
    assert await found(text="%") == await found(text="_") == await found(text="!") == []
    assert await history.find_sessions("S") == ["s1", "s2"]
    assert await history.find_sessions("2") == ["s2"]
    assert await history.find_sessions("%") == []


async def an_unfinished_call_has_the_state_that_it_has_now(database: Database) -> None:
    owner, reader = await database.open(), await database.open()
    history = services_of(reader).history
    await owner.journal.begin(batch("b1", ["runs", "waits", "resolved"]))
    await owner.waits.open_wait(wait(call("waits"), "event", "paid"))
    await owner.waits.open_wait(wait(call("resolved"), "completion"))
    await reader.waits.resolve(WaitKey(call("resolved"), "completion"), Resolution("ok", 200.0, b"1"))

    async def states() -> dict[str, str]:
        return {one.key.call_id: one.status for one in await history.batch_calls("b1")}

    assert await states() == {"runs": "running", "waits": "waiting", "resolved": "waiting"}
    found = {one.key.call_id: one for one in await listed(history)}
    assert (found["waits"].waits_for, found["waits"].resolved) == (("event:paid",), False)
    assert found["resolved"].resolved
    await database.kill(owner)
    assert await states() == {"runs": "cut off", "waits": "waiting", "resolved": "waiting"}
    assert [one.cut_off for one in await history.batch_calls("b1")] == [True] * 3
    await reader.journal.begin(batch("b1", ["runs"]))
    assert (await states())["runs"] == "running"


async def steps_and_waits_are_shown_in_the_order_in_which_they_began(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    failure = Failure(message="no")
    for kept in (
        Kept("step:late", b"1", 103.0),
        Kept("step:early", b"1", 101.0, True, b"2"),
        Kept("sleep:middle", b"1", 102.0, True, failure=failure),
    ):
        await store.journal.keep(call(), kept)
    await store.waits.open_wait(wait(call(), "event", "second", 105.0))
    await store.waits.open_wait(replace(wait(call(), "approval", opened_at=104.0), deadline=900.0))
    no = Resolution("error", 106.0, reason="too late", by="ann")
    await store.waits.resolve(WaitKey(call(), "approval"), no)
    detail = await services_of(store).history.find_call(call())
    assert detail is not None
    assert [(step.kind, step.name, step.at, step.done, step.failed) for step in detail.steps] == [
        ("step", "early", 101.0, True, False),
        ("sleep", "middle", 102.0, True, True),
        ("step", "late", 103.0, False, False),
    ]
    first, second = detail.waits
    assert (first.kind, first.deadline, first.open, first.status) == ("approval", 900.0, False, "error")
    assert (first.resolved_at, first.by, first.reason) == (106.0, "ann", "too late")
    assert (second.name, second.opened_at, second.open, second.status) == ("second", 105.0, True, None)


async def batches_are_counted_and_listed_with_the_newest_first(database: Database) -> None:
    store = await database.open()
    history = services_of(store).history
    for number in range(5):
        intents = batch(f"b{number}", [f"c{number}-{place}" for place in range(3)], at=100.0 + number)
        await store.journal.begin(intents)
        first = intents[0].key
        await store.journal.finish(first, success(first), 150.0, 160.0 + number)
    await store.journal.begin(batch("b9", ["c"], session="s2", at=500.0))
    found = await batches_of(history, "s1")
    assert [one.batch for one in found] == ["b4", "b3", "b2", "b1", "b0"]
    assert {one.session for one in found} == {"s1"}
    assert [dict(one.statuses) for one in found] == [{"success": 1, "unfinished": 2}] * 5
    assert (found[0].calls, found[0].first_at, found[0].last_at) == (3, 104.0, 164.0)
    for limit in (1, 2, 4):
        assert await batches_of(history, "s1", limit) == found
    assert await batches_of(history, "s3") == []


async def the_calls_of_a_batch_are_in_their_order(database: Database) -> None:
    store = await database.open()
    history = services_of(store).history
    order = ["z", "a", "m", "b"]
    await store.journal.begin(batch("b1", order))
    await store.journal.begin(batch("b1", ["other"], session="s2", at=200.0))
    assert await store.journal.finish(call("m"), success(call("m")), 101.0, 102.0)
    assert ids_of(await history.batch_calls("b1", "s1")) == order
    assert ids_of(await history.batch_calls("b1")) == [*order, "other"]
    assert await history.batch_calls("b1", "s3") == await history.batch_calls("b2") == []


async def a_forgotten_call_is_in_no_list(database: Database) -> None:
    store = await database.open()
    history = services_of(store).history
    await store.journal.begin(batch("b1", ["a", "b"]))
    assert await store.journal.forget(call("a"))
    assert ids_of(await listed(history)) == ids_of(await history.batch_calls("b1")) == ["b"]
    assert await history.find_call(call("a")) is None


async def odd_text_is_found_and_shown_as_it_is(database: Database) -> None:
    store = await database.open()
    history = services_of(store).history
    key = CallKey(ODD, ODD, ODD)
    given = replace(intent(key), batch=ODD, tool=ODD, parent=ODD)
    await store.journal.begin([given])
    await store.journal.begin(batch("a", ["a"], session="a"))
    await store.journal.keep(key, Kept(f"step:{ODD}", b"1", 101.0, True))
    await store.waits.open_wait(wait(key, "event", ODD))
    for filters in (CallFilters(session=ODD), CallFilters(tool=ODD), CallFilters(batch=ODD)):
        (found,) = await listed(history, filters)
        assert (found.key, found.batch, found.tool, found.parent) == (key, ODD, ODD, ODD)
        assert found.waits_for == (f"event:{ODD}",)
    detail = await history.find_call(key)
    assert detail is not None
    assert [step.name for step in detail.steps] == [one.name for one in detail.waits] == [ODD]
    (counted,) = await batches_of(history, ODD)
    assert (counted.batch, counted.scope, counted.calls) == (ODD, ODD, 1)
    assert ids_of(await history.batch_calls(ODD)) == [ODD]


HISTORY = cases(
    a_call_is_shown_as_it_was_written,
    pages_of_every_size_give_each_call_once_the_newest_first,
    calls_are_found_by_session_tool_batch_and_status,
    an_unfinished_call_has_the_state_that_it_has_now,
    steps_and_waits_are_shown_in_the_order_in_which_they_began,
    batches_are_counted_and_listed_with_the_newest_first,
    the_calls_of_a_batch_are_in_their_order,
    a_forgotten_call_is_in_no_list,
    odd_text_is_found_and_shown_as_it_is,
)
