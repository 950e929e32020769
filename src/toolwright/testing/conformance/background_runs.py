"""Stored runs: registered once by their id, found, listed, shown and granted."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.background_run import BackgroundRun, Options, Registration
from toolwright.stores.contracts.run_store import Limits, Telling
from toolwright.stores.contracts.sessions import Mark, Quota
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


async def a_run_is_read_as_it_was_registered(database: Database) -> None:
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
    assert await stores.runs.register([given], PLENTY, None) == ["p1"]
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
    assert await other.runs.find("p2") is None
    assert await types(other) == ["queued"]


async def a_tracked_run_is_running_and_no_worker_claims_it(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    tracked = replace(registration(), options=Options(tracked=True))
    one, full = Limits(per_session=1, tracked_per_session=1), Limits(tracked_per_session=1)
    await stores.runs.register([tracked], one, None)
    await stores.runs.register([registration("p2")], one, None)  # it takes no place of others
    assert await refusal(stores.runs.register([replace(tracked, id="p3")], full, None)) == "session_limit"
    assert [run.id for run in await claim(other)] == ["p2"]
    run = await current(stores)
    assert (run.status, run.worker, run.started_at) == ("running", None, run.created_at)
    assert await types(stores) == ["tracked"]
    await end(other, run)
    assert await types(stores) == ["tracked", "completed"]


async def the_host_appends_events_to_a_run_of_any_worker(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.register([registration()], PLENTY, None)
    telling = Telling(b'"a stage passed"', Quota(10, 1_000))
    number = await stores.runs.append("p1", None, "passed", b'{"n":1}', "k", 100.0, telling)
    await claim(stores)
    assert await other.runs.append("p1", None, "passed", b'{"n":1}', "k", 101.0, telling) == number
    (message,) = await stores.messages.list_messages("s1", 0, 10)
    assert message[1:3] == ("runtime", b'"a stage passed"')
    full = Telling(b'"x"', Quota(1, 1_000))
    assert await refusal(other.runs.append("p1", None, "late", b"1", None, 102.0, full)) == "quota"
    assert await types(stores) == ["queued", "passed", "started"]
    await end(stores, await current(stores))
    assert await stores.runs.append("p1", None, "late", b"1", None, 103.0) is None


async def the_same_id_and_content_registered_again_is_the_same_run(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    first = replace(registration(), arguments=b'{"a":1,"b":2}')
    await stores.runs.register([first], PLENTY, None)
    (run,) = await claim(stores)
    again = replace(first, arguments=b'{ "b": 2, "a": 1 }', at=150.0, provenance=b'{"by":"call"}')
    assert await other.runs.register([registration("p2"), again], PLENTY, None) == ["p2", "p1"]
    assert await current(stores) == run
    assert await types(stores) == ["queued", "started"]
    await end(stores, run)
    assert await other.runs.register([again], PLENTY, None) == ["p1"]
    assert (await current(stores)).over


async def the_id_of_another_run_is_a_conflict_and_nothing_is_registered(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.register([registration()], PLENTY, None)
    before = await current(stores)
    others = (
        registration(session="s2"),
        registration(tool="other"),
        registration(options=Options(timeout=1.0)),
        replace(registration(), arguments=b'{"a":1}'),
        replace(registration(), title="Other"),
    )
    for other in others:
        assert await refusal(stores.runs.register([registration("new"), other], PLENTY, None)) == "conflict"
        assert await stores.runs.find("new") is None
    assert await current(stores) == before


async def the_same_id_registered_many_times_at_once_is_one_run(database: Database) -> None:
    owners = [await open_services(database) for _ in range(4)]
    found = await asyncio.gather(*(one.runs.register([registration()], PLENTY, None) for one in owners))
    assert found == [["p1"]] * 4
    assert await types(owners[0]) == ["queued"]


async def a_run_with_a_mark_is_registered_once(database: Database) -> None:
    store = await database.open()
    stores, mark = services_of(store), Mark(call(), "runs.spawn:1")
    await store.journal.begin([intent(call())])
    assert await stores.runs.register([registration("first")], PLENTY, mark) == ["first"]
    assert await stores.runs.register([registration("second")], PLENTY, mark) == ["first"]
    assert await stores.runs.find("second") is None
    other = Mark(call(), "runs.spawn:2")
    assert await stores.runs.register([registration("third")], PLENTY, other) == ["third"]


async def runs_are_listed_newest_first(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id, session, at in (("old", "s1", 100.0), ("new", "s1", 300.0), ("middle", "s2", 200.0), ("over", "s1", 150.0)):
        await stores.runs.register([registration(id, session=session, at=at)], PLENTY, None)
    for id in ("same a", "same b"):
        await stores.runs.register([registration(id, session="s3")], PLENTY, None)
    for run in await claim(stores, now=400.0):
        if run.id == "over":
            await end(stores, run)
    listed = await other.runs.list(None)
    assert [run.id for run in listed] == ["new", "middle", "over", "same b", "same a", "old"]
    assert [run.id for run in await other.runs.list("s1")] == ["new", "over", "old"]
    assert [run.id for run in await other.runs.list("s1", active=True)] == ["new", "old"]
    assert [run.id for run in await other.runs.list("s1", limit=1)] == ["new"]
    assert await other.runs.list("nobody's") == []


async def a_tree_lists_each_run_after_its_parent(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.register([registration("root"), registration("other")], PLENTY, None)
    # The instants are against it: a clock may have been put back.
    family = (("b", "root", 90.0), ("c", "b", 80.0), ("a", "root", 95.0), ("d", "a", 70.0))
    for id, parent, at in family:
        await stores.runs.register([registration(id, parent=parent, at=at)], PLENTY, None)
    found = [run.id for run in await stores.runs.tree("root")]
    assert sorted(found) == ["a", "b", "c", "d", "root"]
    assert found[0] == "root"
    assert all(found.index(parent) < found.index(id) for id, parent, _ in family)
    assert [run.id for run in await stores.runs.tree("b")] == ["b", "c"]
    assert await stores.runs.tree("nobody") == []


async def a_finished_or_cancelled_parent_starts_no_more_runs(database: Database) -> None:
    stores = await open_services(database)
    over = await begun(stores, "over")
    await end(stores, over)
    await stores.runs.register([registration("asked")], PLENTY, None)
    await stores.runs.cancel("asked", "enough", 110.0)
    for parent in ("over", "asked", "nobody"):
        started = stores.runs.register([registration("child", parent=parent)], PLENTY, None)
        assert await refusal(started) == "over"
    assert await stores.runs.find("child") is None


async def a_run_belongs_to_its_session_and_to_granted_sessions(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.register([registration("p1"), registration("p2")], PLENTY, None)
    assert await other.runs.granted("p1", "s1")
    assert not await other.runs.granted("p1", "s2")
    for _ in range(2):
        await stores.runs.grant("p1", "s2")
    assert await other.runs.granted("p1", "s2")
    assert not await other.runs.granted("p1", "s3")
    assert not await other.runs.granted("p2", "s2")
    assert not await other.runs.granted("p3", "s1")


async def a_run_is_shown_among_the_resources_of_its_session(database: Database) -> None:
    stores = await open_services(database)
    run = await begun(stores)
    shown = [(row[0], row[3]) for row in await stores.resources.list_resources("s1", "background_run", None)]
    assert shown == [("p1", "active")]
    await end(stores, run)
    shown = [(row[0], row[3]) for row in await stores.resources.list_resources("s1", "background_run", None)]
    assert shown == [("p1", "completed")]
    full = Limits(resources=Quota(1, 1_000_000))
    assert await stores.runs.register([registration("p2")], full, None) == ["p2"]
    assert await stores.resources.get_resource("s1", "p2") is None
    (run,) = await claim(stores)
    await end(stores, run)


RUNS = cases(
    a_run_is_read_as_it_was_registered,
    a_tracked_run_is_running_and_no_worker_claims_it,
    the_host_appends_events_to_a_run_of_any_worker,
    the_same_id_and_content_registered_again_is_the_same_run,
    the_id_of_another_run_is_a_conflict_and_nothing_is_registered,
    the_same_id_registered_many_times_at_once_is_one_run,
    a_run_with_a_mark_is_registered_once,
    runs_are_listed_newest_first,
    a_tree_lists_each_run_after_its_parent,
    a_finished_or_cancelled_parent_starts_no_more_runs,
    a_run_belongs_to_its_session_and_to_granted_sessions,
    a_run_is_shown_among_the_resources_of_its_session,
)
