"""The event log: every change of a store is told once, with its commit, and in one order.

These cases are for a store whose calls and services are one database. A runtime in memory puts its log together from
two places.
"""

from __future__ import annotations

import asyncio

from toolwright.stores.contracts.event_log import EventLogStore, LoggedEvent
from toolwright.stores.contracts.journal import Ended
from toolwright.stores.contracts.run_store import Report
from toolwright.stores.contracts.sessions import NewMessage, Quota
from toolwright.stores.contracts.store import Store
from toolwright.stores.contracts.waits import WaitKey
from toolwright.testing.conformance import background
from toolwright.testing.conformance.any_text import ODD
from toolwright.testing.conformance.background import PLENTY, begun, refusal, registration
from toolwright.testing.conformance.cases import Database, call, cases, intent, resolved, success, wait
from toolwright.testing.conformance.session_services import WIDE, content, marked, open_services, services_of, writing
from toolwright.testing.conformance.turns import turn

TOLD = ("batch.started", "call.started", "call.finished", "call.waiting", "call.resolved")
"""The kinds of events that calls have here."""


async def told(log: EventLogStore, after: int = 0, limit: int = 1_000) -> list[LoggedEvent]:
    """All events beyond a number, read in pages of this size."""
    found: list[LoggedEvent] = []
    while True:
        page = await log.after(after, limit)
        assert len(page.events) <= limit, "A page has more events than were asked for."
        numbers = [event.number for event in page.events]
        assert numbers == sorted(set(numbers)), "The events of a page are not in the order of their numbers."
        assert all(after < number <= page.last for number in numbers)
        found += page.events
        if page.last <= after:
            assert page.last == after or not page.events
            return found
        after = page.last


async def kinds(log: EventLogStore, after: int = 0) -> list[str]:
    return [event.kind for event in await told(log, after)]


async def last_of(log: EventLogStore) -> int:
    """The number of the newest event."""
    page = await log.after(None, 10)
    assert page.events == [], "Without a number there are no events, only the last number."
    return page.last


async def run_call(store: Store, call_id: str, session: str = "s1") -> None:
    key = call(call_id, session)
    await store.journal.begin([intent(key)])
    await store.journal.start(key, 101.0)
    await store.journal.finish(key, success(key), None, 102.0)


async def a_call_is_told_from_its_batch_to_its_end(database: Database) -> None:
    store = await database.open()
    log = services_of(store).events
    await store.journal.begin([intent(call())])
    await store.journal.start(call(), 101.0)
    await store.waits.open_wait(wait(call()))
    await store.waits.resolve(WaitKey(call(), "event"), resolved())
    await store.journal.finish(call(), success(call()), None, 102.0)
    events = [event for event in await told(log) if event.kind in TOLD]
    assert [event.kind for event in events] == [
        "batch.started",
        "call.started",
        "call.waiting",
        "call.resolved",
        "call.finished",
    ]
    batch, *of_call = events
    assert [list(one) for one in batch.data["calls"]] == [["c1", "book"]]
    assert {(event.session, event.call_id) for event in of_call} == {("s1", "c1")}
    assert (of_call[1].data["what"], of_call[1].data["name"]) == ("event", "")
    assert of_call[-1].data["outcome"]["value"] == "booked"


async def each_call_of_a_batch_has_an_event_of_its_own(database: Database) -> None:
    store = await database.open()
    keys = [call(f"c{number}") for number in range(30)]
    await store.journal.begin([intent(key) for key in keys])
    await store.journal.finish_all([Ended(key, success(key), 101.0, 102.0) for key in keys])
    ended = [event.call_id for event in await told(services_of(store).events) if event.kind == "call.finished"]
    assert ended == [key.call_id for key in keys]


async def a_change_of_a_session_is_told(database: Database) -> None:
    stores = await open_services(database)
    await stores.kv.set_value("s1", "k", b"1", 100.0, WIDE, None)
    await stores.kv.set_value("s1", "k", b"2", 101.0, WIDE, None)
    await stores.kv.delete_value("s1", "k", None)
    await stores.files.write_file("s1", "/a.txt", content(b"text"), writing(), None)
    await stores.files.delete_file("s1", "/a.txt", False, False, None)
    await stores.messages.append_messages("s1", [NewMessage("user", b'"hello"', b"{}")], 100.0, WIDE, None)
    events = [(event.kind, event.session, dict(event.data)) for event in await told(stores.events)]
    assert [event for event in events if event[2].get("path") != "/"] == [
        ("kv.set", "s1", {"key": "k"}),
        ("kv.set", "s1", {"key": "k"}),
        ("kv.removed", "s1", {"key": "k"}),
        ("file.written", "s1", {"path": "/a.txt"}),
        ("file.removed", "s1", {"path": "/a.txt"}),
        ("message.added", "s1", {"message": 1, "sender": "user"}),
    ]


async def runs_turns_and_schedules_are_told(database: Database) -> None:
    stores = await background.open_services(database)
    run = await begun(stores)
    await stores.runs.report([Report(id=run.id, token=run.token, at=101.0, status_text="half way")])
    await background.end(stores, run)
    await stores.turns.add(turn(), WIDE)
    await stores.schedules.add(background.schedule(), 10, None)
    events = await told(stores.events)
    runs = [event for event in events if event.kind.startswith("run.")]
    assert runs[0].kind == "run.queued"
    assert runs[-1].kind == "run.completed"
    assert {event.data["run"] for event in runs} == {"p1"}
    assert [event.data["run_number"] for event in runs] == sorted({event.data["run_number"] for event in runs})
    assert [event.data for event in events if event.kind == "turn.queued"] == [{"turn": "t1"}]
    assert [event.data for event in events if event.kind == "schedule.added"] == [{"schedule": "h1"}]


async def pages_of_every_size_give_the_same_events(database: Database) -> None:
    first, second = await database.open(), await database.open()
    keys = [call(f"c{number}") for number in range(7)]
    await first.journal.begin([intent(key) for key in keys])
    await services_of(second).kv.set_value("s2", "k", b"1", 100.0, WIDE, None)
    await first.journal.finish_all([Ended(key, success(key), 101.0, 102.0) for key in keys])
    log = services_of(second).events
    events = await told(log)
    assert len(events) >= 9
    for limit in (1, 2, 3, 5):
        assert await told(log, limit=limit) == events
    for event in events:
        assert await told(log, event.number, 2) == [other for other in events if other.number > event.number]


async def a_change_that_is_refused_or_repeated_is_not_told(database: Database) -> None:
    store = await database.open()
    stores = services_of(store)
    mark = await marked(store)
    await stores.kv.set_value("s1", "k", b"1", 100.0, WIDE, mark)
    before = await last_of(stores.events)
    await stores.kv.set_value("s1", "k", b"1", 100.0, WIDE, mark)
    assert await refusal(stores.kv.set_value("s1", "more", b"1", 100.0, Quota(1, 1_000), None))
    assert not await store.journal.finish(call("never"), success(call("never")), 101.0, 102.0)
    assert await told(stores.events, before) == []


async def an_answer_that_is_repeated_is_told_once(database: Database) -> None:
    store = await database.open()
    log = services_of(store).events
    await store.journal.begin([intent(call())])
    for _ in range(2):
        assert await store.journal.finish(call(), success(call()), 101.0, 102.0)
    await store.journal.begin([intent(call())])
    found = await kinds(log)
    assert (found.count("call.finished"), found.count("batch.started")) == (1, 1)


async def the_event_is_there_when_the_change_was_answered(database: Database) -> None:
    store, reader = await database.open(), await database.open()
    log = services_of(reader).events
    last = await last_of(log)
    for number in range(5):
        await run_call(store, f"c{number}")
        events = await told(log, last)
        assert [event.kind for event in events][-1] == "call.finished"
        assert events[-1].call_id == f"c{number}"
        last = events[-1].number


async def a_reader_misses_nothing_of_many_writers(database: Database) -> None:
    stores = [await database.open() for _ in range(3)]
    log = services_of(await database.open()).events
    begin = await last_of(log)
    seen: list[LoggedEvent] = []
    working = asyncio.Event()

    async def write(owner: int) -> None:
        for number in range(8):
            await run_call(stores[owner], f"{owner}-{number}", f"s{owner}")
            await services_of(stores[owner]).kv.set_value("shared", f"{owner}", b"1", 100.0, WIDE, None)

    async def read() -> None:
        last = begin
        while True:
            over = working.is_set()
            page = await log.after(last, 3)
            seen.extend(page.events)
            last = page.last
            if over and not page.events:
                return
            await asyncio.sleep(0)

    reading = asyncio.ensure_future(read())
    await asyncio.gather(*(write(owner) for owner in range(3)))
    working.set()
    await reading
    numbers = [event.number for event in seen]
    assert numbers == sorted(set(numbers)), "A number was shown after a greater one."
    assert seen == await told(log, begin), "A reader that looked again and again missed events."
    ended = {event.call_id for event in seen if event.kind == "call.finished"}
    assert ended == {f"{owner}-{number}" for owner in range(3) for number in range(8)}


async def numbers_are_not_given_twice_when_the_store_is_opened_again(database: Database) -> None:
    last = 0
    for number in range(3):
        store = await database.open()
        log = services_of(store).events
        await run_call(store, f"c{number}")
        new = [event.number for event in await told(log, last)]
        assert new
        assert min(new) > last
        last = max(new)
        await store.close()


async def the_events_of_a_removed_session_are_gone_and_its_removal_is_told(database: Database) -> None:
    store = await database.open()
    stores = services_of(store)
    await run_call(store, "c1")
    await run_call(store, "c1", "s2")
    before = await last_of(stores.events)
    assert await stores.archives.delete_session("s1")
    assert [(event.session, event.kind) for event in await told(stores.events, before)] == [("s1", "session.removed")]
    assert [event.kind for event in await told(stores.events) if event.session == "s1"] == ["session.removed"]
    assert "call.finished" in [event.kind for event in await told(stores.events) if event.session == "s2"]
    await run_call(store, "c2")
    assert await last_of(stores.events) > before + 1


async def the_first_number_tells_what_is_left(database: Database) -> None:
    stores = await open_services(database)
    assert (await stores.events.after(0, 10)).events == []
    await stores.kv.set_value("s1", "k", b"1", 100.0, WIDE, None)
    await stores.kv.set_value("s1", "k", b"2", 100.0, WIDE, None)
    page = await stores.events.after(0, 1)
    assert page.first == page.events[0].number
    assert (await stores.events.after(page.last, 1)).first == page.first
    beyond = await stores.events.after(page.last + 10**9, 10)
    assert beyond.events == []


async def odd_text_is_told_as_it_is(database: Database) -> None:
    store = await database.open()
    stores = services_of(store)
    keys = [call(f"{ODD}{number}", ODD, ODD) for number in range(3)]
    await store.journal.begin([intent(key) for key in keys])
    await store.waits.open_wait(wait(keys[0], name=ODD))
    await store.journal.finish_all([Ended(key, success(key), 101.0, 102.0, True) for key in keys])
    await stores.turns.add(turn(ODD, ODD), WIDE)
    await background.services_of(store).runs.register([registration(ODD, session=ODD)], PLENTY, None)
    events = [event for event in await told(stores.events) if event.session == ODD]
    assert [event.call_id for event in events if event.kind == "call.finished"] == [key.call_id for key in keys]
    (waiting,) = [event for event in events if event.kind == "call.waiting"]
    assert (waiting.call_id, waiting.data["scope"], waiting.data["name"]) == (keys[0].call_id, ODD, ODD)
    assert [event.data["turn"] for event in events if event.kind == "turn.queued"] == [ODD]
    assert [event.data["run"] for event in events if event.kind == "run.queued"] == [ODD]


EVENT_LOG = cases(
    a_call_is_told_from_its_batch_to_its_end,
    each_call_of_a_batch_has_an_event_of_its_own,
    a_change_of_a_session_is_told,
    runs_turns_and_schedules_are_told,
    pages_of_every_size_give_the_same_events,
    a_change_that_is_refused_or_repeated_is_not_told,
    an_answer_that_is_repeated_is_told_once,
    the_event_is_there_when_the_change_was_answered,
    a_reader_misses_nothing_of_many_writers,
    numbers_are_not_given_twice_when_the_store_is_opened_again,
    the_events_of_a_removed_session_are_gone_and_its_removal_is_told,
    the_first_number_tells_what_is_left,
    odd_text_is_told_as_it_is,
)
