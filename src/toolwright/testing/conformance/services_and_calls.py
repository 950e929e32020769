"""Session services and calls in one database: only the owner of a call changes anything for it.

These cases are for a store whose calls and services are one database. A runtime in memory keeps them apart.
"""

from __future__ import annotations

from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import Kept
from toolwright.stores.contracts.sessions import Mark
from toolwright.testing.conformance.archives import fill
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, call, cases, intent, success, wait
from toolwright.testing.conformance.controllers import raised
from toolwright.testing.conformance.session_services import WIDE, marked, services_of

SEALED = b'{"toolwright.sealed":'
"""The beginning of the JSON of a step's result that is sealed."""


async def a_change_under_the_mark_of_anothers_call_is_refused(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    mark = await marked(former)
    await services_of(former).kv.set_value("s1", "before", b"1", 100.0, WIDE, mark)
    await database.kill(former)
    await heir.journal.begin([intent(call())])
    late = Mark(call(), "change:2")
    await raised(StoreError, services_of(former).kv.set_value("s1", "late", b"1", 100.0, WIDE, late))
    assert await services_of(heir).kv.get_value("s1", "late") is None
    await services_of(heir).kv.set_value("s1", "late", b"2", 100.0, WIDE, late)
    # The heir is told what the change of its predecessor gave, and changes nothing.
    await services_of(heir).kv.delete_value("s1", "before", None)
    await services_of(heir).kv.set_value("s1", "before", b"1", 100.0, WIDE, mark)
    assert await services_of(heir).kv.get_value("s1", "before") is None


async def a_call_that_is_finished_or_unknown_changes_nothing(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    await store.journal.finish(call(), success(call()), 101.0, 102.0)
    for mark in (Mark(call(), "late:1"), Mark(call("never"), "change:1")):
        await raised(StoreError, services_of(store).kv.set_value("s1", "k", b"1", 100.0, WIDE, mark))
    assert await services_of(store).kv.get_value("s1", "k") is None


async def a_session_with_unfinished_calls_is_not_removed(database: Database) -> None:
    store = await database.open()
    services = services_of(store)
    await services.kv.set_value("s1", "k", b"1", 100.0, WIDE, None)
    await store.journal.begin([intent(call())])
    await store.waits.open_wait(wait(call()))
    (found,) = await services.archives.list_sessions()
    assert await services.archives.list_sessions(found.id) == [found]
    assert (found.calls, found.unfinished) == (1, 1)
    assert await refusal(services.archives.delete_session("s1")) == "unfinished"
    assert await refusal(services.archives.fill_session("s1", fill, True)) == "unfinished"
    await store.journal.finish(call(), success(call()), 101.0, 102.0)
    assert await services.archives.delete_session("s1")
    assert await services.archives.list_sessions() == []
    assert await store.journal.begin([intent(call())]) == [None]
    assert await store.waits.open_wait(wait(call())) == wait(call())


async def sealed_results_of_steps_are_sealed_anew(database: Database) -> None:
    store = await database.open()
    secrets = services_of(store).secrets
    keys = [call("c1"), call("c2"), call("c1", "s2")]
    for key in keys:
        await store.journal.begin([intent(key)])
        await store.journal.keep(key, Kept("step:a", b"", 100.0, True, SEALED + b"1}"))
        await store.journal.keep(key, Kept("step:plain", b"", 100.0, True, b"1"))
        await store.journal.keep(key, Kept("sleep:a", b"", 100.0, True, SEALED + b"1}"))
    first = await secrets.sealed_steps_after(("", "", "", ""), 2)
    assert first == [((*key, "step:a"), SEALED + b"1}") for key in keys[:2]]
    assert await secrets.sealed_steps_after(first[-1][0], 2) == [((*keys[2], "step:a"), SEALED + b"1}")]
    changes = [(step, old, SEALED + b"2}") for step, old in first]
    changes.append(((*keys[2], "step:a"), SEALED + b"other}", SEALED + b"2}"))
    assert await secrets.rewrap_steps(changes) == 2
    kept = {each.label: each.payload for each in await store.journal.effects(keys[0])}
    assert kept == {"step:a": SEALED + b"2}", "step:plain": b"1", "sleep:a": SEALED + b"1}"}


SERVICES_AND_CALLS = cases(
    a_change_under_the_mark_of_anothers_call_is_refused,
    a_call_that_is_finished_or_unknown_changes_nothing,
    a_session_with_unfinished_calls_is_not_removed,
    sealed_results_of_steps_are_sealed_anew,
)
