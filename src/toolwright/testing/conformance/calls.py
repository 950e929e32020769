"""Calls of one owner: begun, finished, forgotten, and released."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import Ended, Intent, Kept
from toolwright.stores.contracts.waits import Refused
from toolwright.testing.conformance.cases import Database, call, cases, intent, resolved, success, wait
from toolwright.tools.outcome import Attachment, Failure, Image, ToolOutcome

EVERYTHING = ToolOutcome(
    call_id="c1",
    tool="book",
    status="failure",
    payload='{"n":[1,2.5,null,"ü\\u0000"]}'.encode(),
    attempts=3,
    decided_by="rule 7",
    failure=Failure(
        message="The flight is full ✈",
        category="unavailable",
        code="full",
        retry=True,
        retry_after=1.5,
        attempts=3,
        detail="a stack",
    ),
    raw_output="raw\ntext",
    images=(Image("aW1hZ2U="),),
    attachments=(Attachment("ticket.pdf", "cGRm", "application/pdf"),),
    provider="airline",
    reason="why",
    may_have_run=True,
    spilled_to="/tmp/more",
    model_text="short",
    given_text="not so short",
)


async def a_new_call_has_no_entry(database: Database) -> None:
    store = await database.open()
    assert await store.journal.begin([intent(call("c1")), intent(call("c2"), position=1)]) == [None, None]
    assert await store.journal.begin([]) == []


async def a_finished_call_replays_its_outcome_to_every_owner(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    assert await store.journal.start(call(), 101.0)
    assert await store.journal.finish(call(), success(call()), 101.0, 102.0)
    await store.close()
    for _ in range(2):
        store = await database.open()
        (entry,) = await store.journal.begin([intent(call(), queued_at=500.0)])
        assert entry is not None
        assert entry.outcome == success(call())
        assert (entry.started_at, entry.finished_at) == (101.0, 102.0)
        assert (entry.cut_off, entry.pending) == (False, False)
        assert entry.intent.queued_at == 100.0


async def an_outcome_is_read_as_it_was_written(database: Database) -> None:
    store, reader = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    await store.journal.finish(call(), EVERYTHING, None, 102.25)
    (entry,) = await reader.journal.begin([intent(call())])
    assert entry is not None
    assert entry.outcome == EVERYTHING
    assert entry.started_at is None


async def an_intent_is_read_as_it_was_written(database: Database) -> None:
    key = call("ид-☃", "sé", "scope/1")
    given = Intent(key, "b1", 7, "book", "travel.book", b'{"to":"K\xc3\xb6ln\\u0000"}', "host", "parent", 100.125)
    given = replace(given, authority=b'{"policies":[{"read_only":true}]}')
    store = await database.open()
    await store.journal.begin([given])
    (entry,) = await store.journal.begin([given])
    assert entry is not None
    assert entry.intent == given
    assert isinstance(entry.intent.arguments, bytes)


async def the_authority_of_a_batch_is_stored_for_its_recovery(database: Database) -> None:
    first, second = await database.open(), await database.open()
    for many in (1, 20):
        given = [
            replace(intent(call(f"c{n}", f"s{many}"), position=n), rerun=True, authority=b"%d" % many)
            for n in range(many)
        ]
        await first.journal.begin(given)
        if many > 1:
            await first.journal.finish(given[0].key, success(given[0].key), None, 102.0)
    await first.close()
    left = {entry.intent.key: entry.intent.authority for entry in await second.journal.unfinished()}
    assert left == {call("c0", "s1"): b"1", **{call(f"c{n}", "s20"): b"20" for n in range(1, 20)}}


async def the_trace_of_the_first_execution_is_stored(database: Database) -> None:
    store = await database.open()
    keys = [call(f"c{number}") for number in range(10)]
    await store.journal.begin([replace(intent(key), trace=f"first {key.call_id}") for key in keys])
    await store.journal.finish(keys[0], success(keys[0]), None, 102.0)
    await store.close()
    for _ in range(2):
        store = await database.open()
        entries = await store.journal.begin([replace(intent(key), trace="second") for key in keys])
        assert [entry is not None and entry.intent.trace for entry in entries] == [
            f"first {key.call_id}" for key in keys
        ]
        await store.close()
    # Without a trace of one's own, nobody asks for the first one.
    store = await database.open()
    other = call("other")
    await store.journal.begin([intent(other)])
    await store.journal.finish(other, success(other), None, 102.0)
    (entry,) = await store.journal.begin([replace(intent(other), trace="second")])
    assert entry is not None
    assert entry.intent.trace is None


async def the_same_id_in_another_session_or_scope_is_another_call(database: Database) -> None:
    store = await database.open()
    keys = [call("c1"), call("c1", "s2"), call("c1", "s1", "other")]
    for key in keys:
        assert await store.journal.begin([intent(key)]) == [None]
    await store.journal.finish(keys[0], success(keys[0]), None, 102.0)
    entries = [(await store.journal.begin([intent(key)]))[0] for key in keys]
    assert [entry is not None and entry.outcome is not None for entry in entries] == [True, False, False]


async def a_finished_call_is_never_written_to_again(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    await store.journal.finish(call(), success(call()), 101.0, 102.0)
    assert not await store.journal.start(call(), 900.0)
    assert not await store.journal.finish(call(), success(call(), b'"twice"'), 900.0, 901.0)
    assert not await store.journal.forget(call())
    assert not await store.journal.release(call())
    assert not await store.journal.keep(call(), Kept("step:late", b"null", 900.0))
    (entry,) = await store.journal.begin([intent(call())])
    assert entry is not None
    assert entry.outcome == success(call())
    assert (entry.started_at, entry.finished_at) == (101.0, 102.0)


async def an_outcome_that_its_owner_writes_twice_is_stored_once(database: Database) -> None:
    """As after a fault in between, when it is not known whether the first one was written."""
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    assert await store.journal.finish(call(), success(call()), 101.0, 102.0)
    assert await store.journal.finish(call(), success(call()), 101.0, 902.0)
    assert not await other.journal.finish(call(), success(call()), 101.0, 902.0)
    (entry,) = await store.journal.begin([intent(call())])
    assert entry is not None
    assert (entry.outcome, entry.finished_at) == (success(call()), 102.0)


async def a_call_without_an_intent_cannot_be_written(database: Database) -> None:
    journal = (await database.open()).journal
    assert not await journal.start(call(), 101.0)
    assert not await journal.finish(call(), success(call()), 101.0, 102.0)
    assert not await journal.forget(call())
    assert not await journal.release(call())
    assert not await journal.reopen(call())
    assert not await journal.keep(call(), Kept("step:a", b"null", 101.0))
    assert await journal.effects(call()) == []
    assert await journal.begin([intent(call())]) == [None]


async def a_forgotten_call_is_a_new_call(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("c2"), position=1)])
    await store.journal.keep(call("c1"), Kept("step:a", b"null", 101.0))
    assert await store.journal.forget(call("c1"))
    assert await store.journal.effects(call("c1")) == []
    fresh, other = await store.journal.begin([intent(call("c1")), intent(call("c2"))])
    assert fresh is None
    assert other is not None
    assert await store.journal.effects(call("c1")) == []


async def a_call_that_ended_without_a_connection_is_reopened_by_one_owner(database: Database) -> None:
    first, second = await database.open(), await database.open()
    wanting = ToolOutcome(call_id="c1", tool="book", status="connection_required", provider="airline")
    await first.journal.begin([intent(call("c1")), intent(call("c2"), position=1)])
    await first.journal.start(call("c1"), 101.0)
    await first.journal.keep(call("c1"), Kept("step:a", b"null", 101.0, True))
    assert not await first.journal.reopen(call("c1"))
    await first.journal.finish(call("c1"), wanting, 101.0, 102.0)
    await first.journal.finish(call("c2"), success(call("c2")), 101.0, 102.0)
    assert not await second.journal.reopen(call("c2"))
    assert not await second.journal.reopen(call("c3"))
    assert await second.journal.reopen(call("c1"))
    assert not await first.journal.reopen(call("c1"))
    assert not await first.journal.finish(call("c1"), wanting, 101.0, 102.0)
    assert [kept.label for kept in await second.journal.effects(call("c1"))] == ["step:a"]
    await database.kill(second)
    (entry,) = await first.journal.unfinished()
    assert (entry.intent.key, entry.started_at, entry.finished_at) == (call("c1"), None, None)
    (taken,) = await first.journal.begin([intent(call("c1"))])
    assert taken is not None
    assert taken.cut_off
    assert await first.journal.finish(call("c1"), success(call("c1")), 103.0, 104.0)


async def a_call_that_its_owner_runs_is_not_cut_off(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    (entry,) = await store.journal.begin([intent(call())])
    assert entry is not None
    assert (entry.outcome, entry.owner, entry.cut_off) == (None, store.journal.owner, False)


async def writes_are_done_and_answered_in_the_order_of_their_requests(database: Database) -> None:
    journal = (await database.open()).journal
    begun = asyncio.ensure_future(journal.begin([intent(call())]))
    started = asyncio.ensure_future(journal.start(call(), 101.0))
    kept = asyncio.ensure_future(journal.keep(call(), Kept("step:a", b"null", 101.0)))
    effects = asyncio.ensure_future(journal.effects(call()))
    finished = asyncio.ensure_future(journal.finish(call(), success(call()), 101.0, 102.0))
    again = asyncio.ensure_future(journal.begin([intent(call())]))
    jobs: list[asyncio.Future[Any]] = [begun, started, kept, effects, finished, again]
    answered: list[asyncio.Future[Any]] = []
    for job in jobs:
        job.add_done_callback(answered.append)
    await asyncio.gather(*jobs)
    await asyncio.sleep(0)
    assert begun.result() == [None]
    assert started.result()
    assert kept.result()
    assert len(effects.result()) == 1
    assert finished.result()
    (entry,) = again.result()
    assert entry is not None
    assert entry.outcome == success(call())
    assert answered == jobs


async def many_calls_at_once_are_all_written(database: Database) -> None:
    store = await database.open()
    keys = [call(f"c{number}", f"s{number % 7}") for number in range(200)]
    await asyncio.gather(*(store.journal.begin([intent(key)]) for key in keys))
    await asyncio.gather(*(store.journal.finish(key, success(key), None, 102.0) for key in keys))
    reader = await database.open()
    for key in keys:
        (entry,) = await reader.journal.begin([intent(key)])
        assert entry is not None
        assert entry.outcome == success(key)


async def calls_are_finished_together_or_not_at_all(database: Database) -> None:
    store = await database.open()
    keys = [call("c1"), call("c2", "s2"), call("c3")]
    await store.journal.begin([intent(key) for key in keys[:2]])
    with suppress(StoreError):
        await store.journal.finish_all([Ended(key, success(key), 101.0, 102.0) for key in keys])
        raise AssertionError("a call that nobody began was finished")
    again = await store.journal.begin([intent(key) for key in keys])
    assert [entry and entry.outcome for entry in again] == [None, None, None]
    await store.journal.finish_all([Ended(key, success(key), 103.0, 104.0) for key in keys])
    await store.journal.finish_all([])
    reader = await database.open()
    for key in keys:
        (entry,) = await reader.journal.begin([intent(key)])
        assert entry is not None
        assert (entry.outcome, entry.started_at, entry.finished_at) == (success(key), 103.0, 104.0)


async def waits_of_calls_that_are_finished_together_cannot_be_resolved(database: Database) -> None:
    store = await database.open()
    keys = [call("c1"), call("c2")]
    await store.journal.begin([intent(key) for key in keys])
    waits = [wait(key) for key in keys]
    for each in waits:
        await store.waits.open_wait(each)
    await store.journal.finish_all([Ended(key, success(key), 101.0, 102.0, waited=True) for key in keys])
    assert [await store.waits.resolve(each.key, resolved()) for each in waits] == [Refused("over")] * 2
    assert await store.waits.waiting() == []


async def a_refused_call_is_written_together_with_its_outcome(database: Database) -> None:
    store, other = await database.open(), await database.open()
    refused, ran = call("refused"), call("ran")
    entries = await store.journal.begin([intent(ran)], [refused])
    assert entries == [None, None]
    assert await store.journal.unfinished() == []  # a lookup does not begin a call
    ended = [
        Ended(ran, success(ran), 101.0, 102.0),
        Ended(refused, success(refused), None, 102.0, intent=intent(refused, position=1)),
    ]
    await store.journal.finish_all(ended)
    known, also = await other.journal.begin([], [refused, ran])
    assert known is not None
    assert also is not None
    assert (known.intent.position, known.started_at, known.outcome) == (1, None, success(refused))
    assert also.outcome == success(ran)


async def a_refused_call_does_not_replace_a_running_call(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await other.journal.begin([intent(call())])
    (entry,) = await store.journal.begin([], [call()])
    assert entry is not None
    assert (entry.outcome, entry.owner, entry.cut_off) == (None, other.journal.owner, False)
    await store.journal.finish_all([Ended(call(), success(call(), b"1"), None, 102.0, intent=intent(call()))])
    assert await other.journal.finish(call(), success(call(), b"2"), 101.0, 102.0)
    (entry,) = await store.journal.begin([intent(call())])
    assert entry is not None
    assert entry.outcome == success(call(), b"2")


async def a_call_that_is_only_looked_up_stays_as_it_is(database: Database) -> None:
    former, store = await database.open(), await database.open()
    await former.journal.begin([intent(call())])
    await database.kill(former)
    for _ in range(2):
        (entry,) = await store.journal.begin([], [call()])
        assert entry is not None
        assert (entry.outcome, entry.owner, entry.cut_off) == (None, former.journal.owner, False)
    assert not await store.journal.start(call(), 101.0)
    (entry,) = await store.journal.begin([intent(call())])
    assert entry is not None
    assert (entry.owner, entry.cut_off) == (store.journal.owner, True)


async def a_new_call_may_start_with_its_intent(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call("c1"))])
    starting = [
        replace(intent(call(id), position=position), starts_at=101.0) for position, id in enumerate(["c1", "c2"])
    ]
    (known, new) = await store.journal.begin(starting)
    assert (known is not None, new) == (True, None)
    await database.kill(store)
    heir = await database.open()
    entries = await heir.journal.begin([intent(call("c1")), intent(call("c2"), position=1)])
    # What was known is left as it was.
    assert [entry.started_at for entry in entries if entry is not None] == [None, 101.0]
    assert all(entry.intent.starts_at is None for entry in entries if entry is not None)


async def calls_are_started_together_or_not_at_all(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call(id), position=position) for position, id in enumerate(["c1", "c2"])])
    await store.journal.finish(call("c2"), success(call("c2")), None, 102.0)
    refused: StoreError | None = None
    try:
        await store.journal.start_all([(call("c1"), 101.0), (call("c2"), 101.0)])
    except StoreError as error:
        refused = error
    assert refused is not None
    await store.journal.begin([intent(call("c3"))])
    await store.journal.start_all([(call("c3"), 103.0)])
    await database.kill(store)
    heir = await database.open()
    entries = await heir.journal.begin(
        [intent(call(id), position=position) for position, id in enumerate(["c1", "c3"])]
    )
    assert [entry.started_at for entry in entries if entry is not None] == [None, 103.0]


CALLS = cases(
    a_new_call_has_no_entry,
    a_finished_call_replays_its_outcome_to_every_owner,
    an_outcome_is_read_as_it_was_written,
    an_intent_is_read_as_it_was_written,
    the_authority_of_a_batch_is_stored_for_its_recovery,
    the_trace_of_the_first_execution_is_stored,
    the_same_id_in_another_session_or_scope_is_another_call,
    a_finished_call_is_never_written_to_again,
    an_outcome_that_its_owner_writes_twice_is_stored_once,
    a_call_without_an_intent_cannot_be_written,
    a_forgotten_call_is_a_new_call,
    a_call_that_ended_without_a_connection_is_reopened_by_one_owner,
    a_call_that_its_owner_runs_is_not_cut_off,
    writes_are_done_and_answered_in_the_order_of_their_requests,
    many_calls_at_once_are_all_written,
    a_new_call_may_start_with_its_intent,
    calls_are_started_together_or_not_at_all,
    calls_are_finished_together_or_not_at_all,
    waits_of_calls_that_are_finished_together_cannot_be_resolved,
    a_refused_call_is_written_together_with_its_outcome,
    a_refused_call_does_not_replace_a_running_call,
    a_call_that_is_only_looked_up_stays_as_it_is,
)
