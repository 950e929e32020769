"""Stored runs: registered once by their id, found, listed, shown and granted."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.background_run import BackgroundRun, Options, Registration
from toolwright.stores.contracts.run_store import Limits, Telling
from toolwright.stores.contracts.sessions import Mark, Room
from toolwright.testing.conformance.background import (
    PLENTY,
    begun,
    claim,
    current,
    end,
    open_services,
    refusal,
    registration,
    services_of,
    types,
)
from toolwright.testing.conformance.cases import Database, call, cases, intent


async def a_process_comes_back_as_it_was_registered(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    options = Options(timeout=60.0, disposition="rerun", signal_on_completion=True, artifacts=False)
    given = Registration(
        id="p1",
        session="s1",
        tool="work",
        arguments='{"city":"Zürich","n":[1,2.5,null]}'.encode(),
        title="Wörk ✓",
        options=options,
        at=100.25,
        schedule="h1",
        provenance=b'{"by":"host"}',
    )
    assert await stores.processes.register([given], PLENTY, None) == ["p1"]
    found = await current(other)
    assert found == BackgroundRun(
        id="p1",
        session="s1",
        tool="work",
        arguments={"city": "Zürich", "n": [1, 2.5, None]},
        title="Wörk ✓",
        options=options,
        status="queued",
        status_text=found.status_text,
        created_at=100.25,
        schedule="h1",
        provenance={"by": "host"},
    )
    assert await other.processes.find("p2") is None
    assert await types(other) == ["queued"]


async def what_happens_elsewhere_is_running_and_nobody_claims_it(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    tracked = replace(registration(), options=Options(tracked=True))
    one, full = Limits(per_session=1, tracked_per_session=1), Limits(tracked_per_session=1)
    await stores.processes.register([tracked], one, None)
    await stores.processes.register([registration("p2")], one, None)  # it takes no place of others
    assert await refusal(stores.processes.register([replace(tracked, id="p3")], full, None)) == "session_limit"
    assert [process.id for process in await claim(other)] == ["p2"]
    process = await current(stores)
    assert (process.status, process.worker, process.started_at) == ("running", None, process.created_at)
    assert await types(stores) == ["tracked"]
    await end(other, process)
    assert await types(stores) == ["tracked", "completed"]


async def what_the_host_appends_is_kept_whoever_runs_the_process(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.processes.register([registration()], PLENTY, None)
    telling = Telling(b'"a stage passed"', Room(10, 1_000))
    number = await stores.processes.append("p1", None, "passed", b'{"n":1}', "k", 100.0, telling)
    await claim(stores)
    assert await other.processes.append("p1", None, "passed", b'{"n":1}', "k", 101.0, telling) == number
    (message,) = await stores.messages.list_messages("s1", 0, 10)
    assert message[1:3] == ("runtime", b'"a stage passed"')
    no_room = Telling(b'"x"', Room(1, 1_000))
    assert await refusal(other.processes.append("p1", None, "late", b"1", None, 102.0, no_room)) == "quota"
    assert await types(stores) == ["queued", "passed", "started"]
    await end(stores, await current(stores))
    assert await stores.processes.append("p1", None, "late", b"1", None, 103.0) is None


async def what_has_the_same_id_and_content_is_the_same_process(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    first = replace(registration(), arguments=b'{"a":1,"b":2}')
    await stores.processes.register([first], PLENTY, None)
    (process,) = await claim(stores)
    again = replace(first, arguments=b'{ "b": 2, "a": 1 }', at=150.0, provenance=b'{"by":"call"}')
    assert await other.processes.register([registration("p2"), again], PLENTY, None) == ["p2", "p1"]
    assert await current(stores) == process
    assert await types(stores) == ["queued", "started"]
    await end(stores, process)
    assert await other.processes.register([again], PLENTY, None) == ["p1"]
    assert (await current(stores)).over


async def the_id_of_another_process_is_a_conflict_and_nothing_is_entered(database: Database) -> None:
    stores = await open_services(database)
    await stores.processes.register([registration()], PLENTY, None)
    before = await current(stores)
    others = (
        registration(session="s2"),
        registration(tool="other"),
        registration(options=Options(timeout=1.0)),
        replace(registration(), arguments=b'{"a":1}'),
        replace(registration(), title="Other"),
    )
    for other in others:
        assert await refusal(stores.processes.register([registration("new"), other], PLENTY, None)) == "conflict"
        assert await stores.processes.find("new") is None
    assert await current(stores) == before


async def of_many_who_register_the_same_id_one_enters_it(database: Database) -> None:
    owners = [await open_services(database) for _ in range(4)]
    found = await asyncio.gather(*(one.processes.register([registration()], PLENTY, None) for one in owners))
    assert found == [["p1"]] * 4
    assert await types(owners[0]) == ["queued"]


async def what_a_call_registers_under_a_mark_is_registered_once(database: Database) -> None:
    store = await database.open()
    stores, mark = services_of(store), Mark(call(), "runs.spawn:1")
    await store.journal.begin([intent(call())])
    assert await stores.processes.register([registration("first")], PLENTY, mark) == ["first"]
    assert await stores.processes.register([registration("second")], PLENTY, mark) == ["first"]
    assert await stores.processes.find("second") is None
    other = Mark(call(), "runs.spawn:2")
    assert await stores.processes.register([registration("third")], PLENTY, other) == ["third"]


async def processes_are_listed_newest_first(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id, session, at in (("old", "s1", 100.0), ("new", "s1", 300.0), ("middle", "s2", 200.0), ("over", "s1", 150.0)):
        await stores.processes.register([registration(id, session=session, at=at)], PLENTY, None)
    for id in ("same a", "same b"):
        await stores.processes.register([registration(id, session="s3")], PLENTY, None)
    for process in await claim(stores, now=400.0):
        if process.id == "over":
            await end(stores, process)
    listed = await other.processes.list(None)
    assert [process.id for process in listed] == ["new", "middle", "over", "same b", "same a", "old"]
    assert [process.id for process in await other.processes.list("s1")] == ["new", "over", "old"]
    assert [process.id for process in await other.processes.list("s1", active=True)] == ["new", "old"]
    assert [process.id for process in await other.processes.list("s1", limit=1)] == ["new"]
    assert await other.processes.list("nobody's") == []


async def a_tree_has_each_process_after_its_parent(database: Database) -> None:
    stores = await open_services(database)
    await stores.processes.register([registration("root"), registration("other")], PLENTY, None)
    # The instants are against it: a clock may have been put back.
    family = (("b", "root", 90.0), ("c", "b", 80.0), ("a", "root", 95.0), ("d", "a", 70.0))
    for id, parent, at in family:
        await stores.processes.register([registration(id, parent=parent, at=at)], PLENTY, None)
    found = [process.id for process in await stores.processes.tree("root")]
    assert sorted(found) == ["a", "b", "c", "d", "root"]
    assert found[0] == "root"
    assert all(found.index(parent) < found.index(id) for id, parent, _ in family)
    assert [process.id for process in await stores.processes.tree("b")] == ["b", "c"]
    assert await stores.processes.tree("nobody") == []


async def a_parent_that_is_over_or_to_be_cancelled_starts_no_more(database: Database) -> None:
    stores = await open_services(database)
    over = await begun(stores, "over")
    await end(stores, over)
    await stores.processes.register([registration("asked")], PLENTY, None)
    await stores.processes.cancel("asked", "enough", 110.0)
    for parent in ("over", "asked", "nobody"):
        started = stores.processes.register([registration("child", parent=parent)], PLENTY, None)
        assert await refusal(started) == "over"
    assert await stores.processes.find("child") is None


async def a_process_is_its_sessions_and_of_those_it_was_granted_to(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.processes.register([registration("p1"), registration("p2")], PLENTY, None)
    assert await other.processes.granted("p1", "s1")
    assert not await other.processes.granted("p1", "s2")
    for _ in range(2):
        await stores.processes.grant("p1", "s2")
    assert await other.processes.granted("p1", "s2")
    assert not await other.processes.granted("p1", "s3")
    assert not await other.processes.granted("p2", "s2")
    assert not await other.processes.granted("p3", "s1")


async def a_process_is_shown_among_the_resources_of_its_session(database: Database) -> None:
    stores = await open_services(database)
    process = await begun(stores)
    shown = [(row[0], row[3]) for row in await stores.resources.list_resources("s1", "background_run", None)]
    assert shown == [("p1", "active")]
    await end(stores, process)
    shown = [(row[0], row[3]) for row in await stores.resources.list_resources("s1", "background_run", None)]
    assert shown == [("p1", "completed")]
    full = Limits(resources=Room(1, 1_000_000))
    assert await stores.processes.register([registration("p2")], full, None) == ["p2"]
    assert await stores.resources.get_resource("s1", "p2") is None
    (process,) = await claim(stores)
    await end(stores, process)


PROCESSES = cases(
    a_process_comes_back_as_it_was_registered,
    what_happens_elsewhere_is_running_and_nobody_claims_it,
    what_the_host_appends_is_kept_whoever_runs_the_process,
    what_has_the_same_id_and_content_is_the_same_process,
    the_id_of_another_process_is_a_conflict_and_nothing_is_entered,
    of_many_who_register_the_same_id_one_enters_it,
    what_a_call_registers_under_a_mark_is_registered_once,
    processes_are_listed_newest_first,
    a_tree_has_each_process_after_its_parent,
    a_parent_that_is_over_or_to_be_cancelled_starts_no_more,
    a_process_is_its_sessions_and_of_those_it_was_granted_to,
    a_process_is_shown_among_the_resources_of_its_session,
)
