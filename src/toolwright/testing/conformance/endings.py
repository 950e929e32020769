"""Ends of runs: once, with files and a message or not at all; and asking runs to stop."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.stores.contracts.run_store import Report
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing.conformance.background import (
    PLENTY,
    QUEUEING,
    QUOTAS,
    TimedServices,
    begun,
    claim,
    current,
    end,
    ending,
    open_services,
    refusal,
    registration,
    types,
)
from toolwright.testing.conformance.cases import Database, cases

FILES = (("/.background/p1/output.log", b"much"), ("/.background/p1/result.json", b'"fine"'))


async def a_run_ends_once(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    given = ending(held, "abandoned", at=200.5, evidence=b'{"worker":"w1"}')
    assert await stores.runs.finish(given, QUOTAS)
    for again in (given, ending(held, "failed", at=300.0)):
        assert not await other.runs.finish(again, QUOTAS)
    over = await current(other)
    assert (over.status, over.status_text, over.ended_at) == ("abandoned", "Abandoned", 200.5)
    assert (over.outcome, over.lease_until) == (given.outcome, None)
    event = (await other.runs.events("p1", 0, 10))[-1]
    assert (event.type, event.at) == ("abandoned", 200.5)
    assert event.payload == {"summary": "It is fine.", "evidence": {"worker": "w1"}}
    assert await types(other) == ["queued", "started", "abandoned"]


async def the_last_report_of_a_run_is_written_with_its_end(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    last = Report(id="p1", token=held.token, at=199.0, opening_text="Packing")
    taken = replace(ending(held), token=held.token + 1, report=replace(last, token=held.token + 1))
    assert not await stores.runs.finish(taken, QUOTAS)
    assert await types(other) == ["queued", "started"]
    assert await stores.runs.finish(replace(ending(held), report=last), QUOTAS)
    assert await types(other) == ["queued", "started", "status", "completed"]
    status = (await other.runs.events("p1", 0, 10))[2]
    assert (status.payload, status.at) == ({"text": "Packing"}, 199.0)
    assert (await current(other)).status_text == "Completed"


async def a_run_that_several_end_at_once_ends_once(database: Database) -> None:
    owners = [await open_services(database) for _ in range(4)]
    held = await begun(owners[0])
    given = ending(held, tell=b'"over"')
    assert sorted(await asyncio.gather(*(one.runs.finish(given, QUOTAS) for one in owners))) == [False] * 3 + [True]
    assert await types(owners[0]) == ["queued", "started", "completed"]
    assert len(await owners[0].messages.list_messages("s1", 0, 10)) == 1


async def nothing_is_written_after_the_end(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    await end(stores, held)
    over, hold = await current(stores), [("p1", held.token)]
    assert await stores.runs.append("p1", held.token, "status", b'{"text":"x"}', None, 201.0) is None
    assert await stores.runs.report([Report(id="p1", token=held.token, at=201.0, status_text="x")]) == ["p1"]
    assert (await stores.runs.renew("w1", hold, 201.0, 231.0, 5)).lost == ["p1"]
    await stores.runs.hand_back("w1", hold, 201.0)
    assert await other.runs.cancel("p1", "too late", 201.0) == []
    assert await claim(other, "w2", 999.0) == []
    assert await current(other) == over
    assert await types(other) == ["queued", "started", "completed"]


async def an_abandoned_run_is_queued_again_when_a_person_resumes_it(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    assert await refusal(stores.runs.reopen("p1", "ann", PLENTY, 200.0)) == "conflict"
    assert await stores.runs.finish(ending(held, "abandoned"), QUOTAS)
    full = replace(PLENTY, per_session=0)
    assert await refusal(stores.runs.reopen("p1", "ann", full, 201.0)) == "session_limit"
    await other.runs.reopen("p1", "ann", PLENTY, 201.0)
    again = await current(stores)
    assert (again.status, again.outcome, again.ended_at, again.deadline) == ("queued", None, None, None)
    assert await refusal(stores.runs.reopen("p1", "ann", PLENTY, 202.0)) == "conflict"
    event = (await stores.runs.events("p1", 0, 10))[-1]
    assert (event.type, event.payload) == ("reopened", {"by": "ann"})
    (taken,) = await claim(other, "w2", 203.0)
    assert (taken.token, taken.status) == (held.token + 1, "running")
    assert not await stores.runs.finish(ending(held), QUOTAS)


async def files_and_message_are_written_with_the_end(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    assert await stores.runs.finish(ending(held, files=FILES, tell=b'"Run over."'), QUOTAS)
    for path, data in FILES:
        found = await other.files.read_file("s1", path)
        assert found is not None
        assert found[1] == data
    (message,) = await other.messages.list_messages("s1", 0, 10)
    _, sender, content, about, at = message
    assert (sender, content, at) == ("runtime", b'"Run over."', 200.0)
    assert jsonx.decode(about) == {"run_id": "p1", "status": "completed"}


async def an_end_is_written_completely_or_not_at_all(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held, nothing = await begun(stores), Quota(0, 0)
    given = ending(held, files=FILES, tell=b'"over"')
    for quotas in (Quotas(files=nothing), Quotas(messages=nothing), Quotas(files=Quota(9, 5))):
        assert await refusal(stores.runs.finish(given, quotas)) == "quota"
        assert await current(other) == held
        assert await types(other) == ["queued", "started"]
        assert await other.files.list_files("s1", "/") == []
        assert await other.messages.list_messages("s1", 0, 10) == []
    assert await stores.runs.finish(replace(given, files=(), tell=None), Quotas(files=nothing, messages=nothing))


async def a_queued_run_can_be_ended(database: Database) -> None:
    stores = await open_services(database)
    for id in ("queued", "held"):
        await stores.runs.register([registration(id)], QUEUEING, None)
    for id in ("held", "queued"):
        waits = await current(stores, id)
        assert not await stores.runs.finish(ending(replace(waits, token=1), "cancelled"), QUOTAS)
        assert await stores.runs.finish(ending(waits, "cancelled"), QUOTAS)
    assert await claim(stores) == []
    assert [run.status for run in await stores.runs.list("s1")] == ["cancelled"] * 2


async def cancelling_a_run_cancels_all_runs_below_it(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores, "root")
    for id, parent in (("child", "root"), ("done", "root"), ("below", "child")):
        await stores.runs.register([registration(id, parent=parent)], PLENTY, None)
    await stores.runs.register([registration("other")], PLENTY, None)
    await end(stores, await current(stores, "done"))
    asked = await other.runs.cancel("root", "enough", 120.0)
    assert [run.id for run in asked] == ["root", "child", "below"]
    assert asked[0] == replace(held, cancel_reason="enough")
    assert [await _reason(stores, id) for id in ("root", "child", "below", "done", "other")] == [
        "enough",
        "enough",
        "enough",
        None,
        None,
    ]
    event = (await other.runs.events("below", 0, 10))[-1]
    assert (event.type, event.at, event.payload) == ("cancel_asked", 120.0, {"reason": "enough"})
    assert await other.runs.cancel("nobody", "enough", 120.0) == []


async def the_first_reason_to_cancel_is_kept(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await begun(stores)
    await stores.runs.register([registration("child", parent="p1")], PLENTY, None)
    await stores.runs.cancel("child", "first", 110.0)
    asked = await other.runs.cancel("p1", "second", 120.0)
    assert [(run.id, run.cancel_reason) for run in asked] == [("p1", "second"), ("child", "first")]
    assert await types(stores, "child") == ["queued", "cancel_asked"]


async def the_children_of_a_finished_run_continue(database: Database) -> None:
    stores = await open_services(database)
    held = await begun(stores)
    await stores.runs.register([registration("child", parent="p1")], PLENTY, None)
    await end(stores, held)
    assert await stores.runs.cancel("p1", "too late", 210.0) == []
    assert await _reason(stores, "child") is None
    assert [run.id for run in await claim(stores)] == ["child"]


async def _reason(stores: TimedServices, id: str) -> str | None:
    return (await current(stores, id)).cancel_reason


ENDINGS = cases(
    a_run_ends_once,
    the_last_report_of_a_run_is_written_with_its_end,
    a_run_that_several_end_at_once_ends_once,
    nothing_is_written_after_the_end,
    an_abandoned_run_is_queued_again_when_a_person_resumes_it,
    files_and_message_are_written_with_the_end,
    an_end_is_written_completely_or_not_at_all,
    a_queued_run_can_be_ended,
    cancelling_a_run_cancels_all_runs_below_it,
    the_first_reason_to_cancel_is_kept,
    the_children_of_a_finished_run_continue,
)
