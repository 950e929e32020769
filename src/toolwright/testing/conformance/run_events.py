"""Events and output of runs: events in order and once by key, output with head and tail, and change notices."""

from __future__ import annotations

import asyncio

from toolwright.stores.contracts.background_run import OVER, Progress
from toolwright.stores.contracts.run_store import HEAD, TAIL, Piece, Report
from toolwright.testing.conformance.background import (
    PLENTY,
    QUEUEING,
    TimedServices,
    begun,
    claim,
    current,
    end,
    open_services,
    refusal,
    registration,
    types,
)
from toolwright.testing.conformance.cases import Database, cases

SIZE = 16 * 1024


async def events_are_read_in_order_beyond_a_number(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    numbers = []
    for count in range(4):
        said = b'{"text":"%d"}' % count
        numbers.append(await stores.runs.append("p1", held.token, "status", said, None, 110.0 + count))
        await stores.runs.report([Report(id="p1", token=held.token, at=120.0, pieces=[Piece("stdout", "x")])])
    await begun(stores, "p2")
    events = await other.runs.events("p1", 0, 1_000)
    assert [event.type for event in events] == ["queued", "started", *["status", "output"] * 4]
    assert [event.number for event in events] == sorted({event.number for event in events})
    assert [(event.run, event.number, event.at, event.payload) for event in events[2::2]] == [
        ("p1", number, 110.0 + count, {"text": str(count)}) for count, number in enumerate(numbers)
    ]
    assert await other.runs.events("p1", events[3].number, 1_000) == events[4:]
    assert await other.runs.events("p1", events[3].number, 2) == events[4:6]
    assert await other.runs.events("p1", events[-1].number, 1_000) == []


async def an_event_with_a_key_is_appended_once(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    said = ("p1", held.token, "status", b'{"text":"a"}')
    number = await stores.runs.append(*said, "k1", 110.0)
    assert number is not None
    found = await asyncio.gather(*(one.runs.append(*said, "k1", 120.0) for one in (stores, other)))
    assert found == [number, number]
    for type, payload in (("status", b'{"text":"b"}'), ("waiting", b'{"text":"a"}')):
        assert await refusal(other.runs.append("p1", held.token, type, payload, "k1", 120.0)) == "conflict"
    assert await types(other) == ["queued", "started", "status"]
    for key in ("k2", None, None):
        assert await stores.runs.append(*said, key, 130.0)
    theirs = await begun(stores, "p2")
    assert await stores.runs.append("p2", theirs.token, "status", b'{"text":"b"}', "k1", 130.0)
    assert await types(other) == ["queued", "started", *["status"] * 4]


async def an_appended_event_cannot_end_a_run(database: Database) -> None:
    stores = await open_services(database)
    held = await begun(stores)
    for type in OVER:
        said = stores.runs.append("p1", held.token, type, b'{"summary":"x"}', None, 110.0)
        assert await refusal(said) == "conflict"
    assert await types(stores) == ["queued", "started"]


async def a_run_without_a_worker_takes_no_reports(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.register([registration()], PLENTY, None)
    for id in ("p1", "nobody"):
        assert await stores.runs.append(id, 0, "status", b'{"text":"x"}', None, 110.0) is None
        assert await stores.runs.report([Report(id=id, token=0, at=110.0, status_text="x")]) == [id]
    assert await types(stores) == ["queued"]


async def a_report_writes_status_progress_and_output(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    first = Report(
        id="p1",
        token=held.token,
        at=110.0,
        pieces=[Piece("stdout", "Grüße\n"), Piece("stderr", "oh")],
        progress=Progress(1, 3, "pages", "page one"),
        status_text="Reading",
        tail="Grüße\n[stderr] oh",
    )
    assert await stores.runs.report([first]) == []
    shown = await current(other)
    assert (shown.status, shown.status_text, shown.tail) == ("running", "Reading", "Grüße\n[stderr] oh")
    assert (shown.progress, shown.log_chars) == (first.progress, sum(piece.cost for piece in first.pieces))
    assert await types(other) == ["queued", "started", "output", "output", "progress", "status"]
    assert await stores.runs.report([Report(id="p1", token=held.token, at=120.0)]) == []
    assert await current(other) == shown


async def a_run_waits_and_continues(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    await stores.runs.report([Report(id="p1", token=held.token, at=110.0, waiting=["signal", "go"])])
    assert (await current(other)).status == "waiting"
    event = (await other.runs.events("p1", 0, 10))[-1]
    assert (event.type, event.payload) == ("waiting", {"what": "signal", "name": "go"})
    assert (await stores.runs.renew("w1", [("p1", held.token)], 110.0, 140.0, 5)).lost == []
    await stores.runs.report([Report(id="p1", token=held.token, at=111.0, waiting=[])])
    assert (await current(other)).status == "running"
    assert await types(other) == ["queued", "started", "waiting", "resumed"]
    await stores.runs.report([Report(id="p1", token=held.token, at=112.0, waiting=["event"])])
    assert [run.token for run in await claim(other, "w2", 141.0)] == [2]


async def a_refused_report_does_not_stop_the_others(database: Database) -> None:
    stores = await open_services(database)
    for id in ("p1", "p2", "p3"):
        await begun(stores, id)
    reports = [
        Report(id=id, token=token, at=110.0, status_text="on") for id, token in (("p1", 1), ("p2", 7), ("p3", 1))
    ]
    assert await stores.runs.report(reports) == ["p2"]
    assert [(await current(stores, id)).status_text == "on" for id in ("p1", "p2", "p3")] == [True, False, True]


async def only_the_newest_progress_is_kept(database: Database) -> None:
    stores = await open_services(database)
    held = await begun(stores)
    for count in range(5):
        await stores.runs.report([Report(id="p1", token=held.token, at=110.0, progress=Progress(count))])
    assert (await current(stores)).progress == Progress(4)
    events = [event for event in await stores.runs.events("p1", 0, 100) if event.type == "progress"]
    assert [event.payload["current"] for event in events] == [4]


async def the_beginning_and_the_end_of_long_output_are_kept(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    pieces = [Piece("stdout", f"{number:03}".ljust(SIZE, ".")) for number in range(64)]
    fits = pieces[: HEAD // pieces[0].cost]
    for start in range(0, len(pieces), 4):
        report = Report(id="p1", token=held.token, at=110.0, pieces=pieces[start : start + 4])
        assert await stores.runs.report([report]) == []
        if start + 4 <= len(fits):
            assert await _output(other) == pieces[: start + 4]
    kept = await _output(other)
    last = kept[len(fits) :]
    assert kept[: len(fits)] == fits
    assert last == pieces[-len(last) :]
    assert TAIL - SIZE - 100 < sum(piece.cost for piece in last) <= TAIL
    assert (await current(other)).log_chars == sum(piece.cost for piece in pieces)


async def output_that_a_worker_dropped_is_counted_in_the_one_gap(database: Database) -> None:
    stores = await open_services(database)
    held = await begun(stores)
    pieces = [Piece("stdout", f"{number:03}".ljust(SIZE, ".")) for number in range(12)]
    fits, token = pieces[: HEAD // pieces[0].cost], held.token
    await stores.runs.report([Report(id="p1", token=token, at=110.0, pieces=pieces)])
    assert await _output(stores) == pieces
    last = Piece("stderr", "the end")
    await stores.runs.report([Report(id="p1", token=token, at=111.0, pieces=[last], dropped=5_000)])
    assert await _output(stores) == [*fits, last]
    assert (await current(stores)).log_chars == sum(piece.cost for piece in (*pieces, last)) + 5_000
    more = pieces[:7]  # for which the tail has room now
    await stores.runs.report([Report(id="p1", token=token, at=112.0, pieces=more)])
    assert await _output(stores) == [*fits, last, *more]


async def a_watcher_is_told_of_every_change(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    since, changed = await other.runs.changed(None)
    assert changed == []

    async def told(*ids: str) -> None:
        nonlocal since
        since, changed = await other.runs.changed(since)
        assert sorted(changed) == sorted(ids)
        assert await other.runs.changed(since) == (since, [])

    await told()
    await stores.runs.register([registration("p1")], QUEUEING, None)
    await stores.runs.register([registration("p2")], QUEUEING, None)
    await told("p1", "p2")
    (held,) = await claim(stores)
    await told("p1")
    await stores.runs.report([Report(id="p1", token=held.token, at=110.0, tail="x")])
    await told("p1")
    await stores.runs.append("p1", held.token, "status", b'{"text":"x"}', None, 110.0)
    await told("p1")
    await stores.runs.hand_back("w1", [("p1", held.token)], 110.0)
    await told("p1")
    await other.runs.cancel("p2", "enough", 110.0)
    await told("p2")
    (held,) = await claim(stores)
    await end(stores, held)
    await told("p1", "p2")  # which was held, and may begin
    assert (await other.runs.changed(None))[1] == []


async def _output(stores: TimedServices) -> list[Piece]:
    return [Piece(**event.payload) for event in await stores.runs.events("p1", 0, 1_000) if event.type == "output"]


RUN_EVENTS = cases(
    events_are_read_in_order_beyond_a_number,
    an_event_with_a_key_is_appended_once,
    an_appended_event_cannot_end_a_run,
    a_run_without_a_worker_takes_no_reports,
    a_report_writes_status_progress_and_output,
    a_run_waits_and_continues,
    a_refused_report_does_not_stop_the_others,
    only_the_newest_progress_is_kept,
    the_beginning_and_the_end_of_long_output_are_kept,
    output_that_a_worker_dropped_is_counted_in_the_one_gap,
    a_watcher_is_told_of_every_change,
)
