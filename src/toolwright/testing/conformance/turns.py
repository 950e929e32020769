"""Turns: queued in order, worked on by one owner at a time, advanced whole or not at all, steered, cancelled, followed.

`TURNS` are for every store of turns. `STORED_TURNS` are for those that have the events and the history of a turn in the
same database, and `TURN_OWNERS` for those that several processes use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from msgspec.structs import replace

from toolwright.errors import TurnError
from toolwright.stores.contracts.sessions import NewMessage, Quota
from toolwright.stores.contracts.turns import (
    Advance,
    EventChunk,
    NewTurn,
    Steering,
    TurnRecord,
    TurnSteered,
    TurnStore,
    written_caller,
)
from toolwright.testing.conformance.any_text import NEAR, ODD
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, call, cases
from toolwright.testing.conformance.controllers import raised
from toolwright.testing.conformance.session_services import WIDE, open_services
from toolwright.tools.turn_protocols import TurnState

END = b'{"status":"answered"}'
STOPPED = b'{"status":"cancelled"}'


def turn(id: str = "t1", session: str = "s1", *, at: float = 100.0, anywhere: bool = False, **given: object) -> NewTurn:
    values: dict[str, Any] = {"message": b'"Hello"', "options": b'{"model":"m"}'} | given
    return NewTurn(id=id, session=session, at=at, anywhere=anywhere, **values)


def advanced(record: TurnRecord, number: int = 1, state: TurnState = "running", **given: object) -> Advance:
    """The next state of a claimed turn."""
    values: dict[str, Any] = {"at": 110.0, "progress": b'{"model_calls":1}'} | given
    return Advance(id=record.id, token=record.token, number=number, state=state, **values)


def ended(record: TurnRecord, number: int = 1, **given: object) -> Advance:
    """The end of a claimed turn."""
    return advanced(record, number, "answered", outcome=END, **given)


def said(text: str) -> NewMessage:
    return NewMessage("assistant", b'"%s"' % text.encode(), b"{}")


async def open_turns(database: Database) -> TurnStore:
    """Open the turns of a database as one more owner."""
    return (await open_services(database)).turns


async def claimed(turns: TurnStore, session: str = "s1", at: float = 105.0) -> TurnRecord:
    """The first unfinished turn of a session, which this owner may have."""
    record = await turns.claim(session, at, WIDE)
    assert record is not None, f"no turn of {session!r} can be claimed"
    return record


async def texts(turns: TurnStore, session: str = "s1") -> list[bytes]:
    """The contents of the history of a session."""
    return [content for _, _, content, _, _ in await turns.history(session, 0, 1_000)]


async def code_of(verb: Awaitable[Any]) -> str:
    """The code with which a verb on turns is refused."""
    return (await raised(TurnError, verb)).code


# --- the queue


async def the_first_turn_of_a_session_begins_when_it_is_added(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    assert (record.id, record.session, record.number, record.state) == ("t1", "s1", 1, "running")
    assert (record.message, record.options) == (b'"Hello"', b'{"model":"m"}')
    assert (record.created_at, record.started_at, record.ended_at, record.token) == (100.0, 100.0, None, 1)
    assert (record.answer, record.outcome, record.cancel_reason, record.events) == (None, None, None, 0)
    assert await turns.find("t1") == record
    assert await turns.find("t2") is None
    ((number, sender, content, about, _),) = await turns.history("s1", 0, 10)
    assert (number, sender, content, about) == (1, "user", b'"Hello"', b'{"turn":"t1"}')


async def turns_of_a_session_are_worked_on_in_the_order_in_which_they_were_added(database: Database) -> None:
    turns = await open_turns(database)
    added = [await turns.add(turn(id, message=b'"%s"' % id.encode(), at=100.0), WIDE) for id in ("c", "a", "b")]
    assert [(each.number, each.state) for each in added] == [(1, "running"), (2, "queued"), (3, "queued")]
    assert await texts(turns) == [b'"c"']
    record = added[0]
    for id in ("c", "a", "b"):
        assert record.id == id
        assert await turns.advance(ended(record, messages=[said(f"to {id}")]), WIDE)
        if id != "b":
            record = await claimed(turns)
            assert (record.state, record.started_at) == ("running", 105.0)
    assert await turns.claim("s1", 120.0, WIDE) is None
    assert await texts(turns) == [b'"c"', b'"to c"', b'"a"', b'"to a"', b'"b"', b'"to b"']


async def turns_of_other_sessions_have_their_own_queue(database: Database) -> None:
    turns = await open_turns(database)
    records = [await turns.add(turn(f"t{n}", f"s{n}"), WIDE) for n in range(5)]
    assert [(each.number, each.state) for each in records] == [(1, "running")] * 5
    assert await texts(turns, "s3") == [b'"Hello"']
    assert await turns.claim("s9", 105.0, WIDE) is None


async def turns_that_are_added_at_once_have_numbers_of_their_own(database: Database) -> None:
    stores = [await open_turns(database) for _ in range(3)]
    added = await asyncio.gather(*(stores[n % 3].add(turn(f"t{n}"), WIDE) for n in range(30)))
    assert sorted(each.number for each in added) == list(range(1, 31))
    assert [each.state for each in added].count("running") == 1
    assert len(await texts(stores[0])) == 1


async def a_turn_that_is_added_again_is_the_same_turn(database: Database) -> None:
    turns = await open_turns(database)
    first, second = await turns.add(turn("t1"), WIDE), await turns.add(turn("t2"), WIDE)
    assert await turns.add(turn("t1", at=150.0), WIDE) == first
    assert await turns.add(turn("t2", at=150.0), WIDE) == second
    await turns.advance(ended(first), WIDE)
    again = await turns.add(turn("t1", at=160.0), WIDE)
    assert (again.state, again.outcome) == ("answered", END)
    assert len(await texts(turns)) == 1


async def the_id_of_another_turn_is_refused(database: Database) -> None:
    turns = await open_turns(database)
    await turns.add(turn("t1"), WIDE)
    assert await code_of(turns.add(turn("t1", message=b'"Other"'), WIDE)) == "conflict"
    assert await code_of(turns.add(turn("t1", session="s2"), WIDE)) == "conflict"
    assert [each.id for each in await turns.list(None)] == ["t1"]


async def a_turn_for_any_worker_waits_for_one(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(anywhere=True), WIDE)
    assert (record.state, record.owner, record.token) == ("queued", None, 0)
    assert await texts(turns) == []
    assert await turns.ready(anywhere=False) == []
    assert await turns.ready(anywhere=True) == ["s1"]
    record = await claimed(turns)
    assert (record.state, record.started_at, record.token) == ("running", 105.0, 1)
    assert record.owner is not None
    assert await turns.ready(anywhere=True) == []
    assert await texts(turns) == [b'"Hello"']


async def a_turn_for_any_worker_is_ready_once_it_is_the_first(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn("t1"), WIDE)
    await turns.add(turn("t2", anywhere=True), WIDE)
    assert await turns.ready(anywhere=True) == []
    await turns.advance(ended(record), WIDE)
    assert await turns.ready(anywhere=True) == ["s1"]


async def as_many_sessions_are_ready_as_are_asked_for(database: Database) -> None:
    turns = await open_turns(database)
    for n in range(10):
        await turns.add(turn(f"t{n}", f"s{n}", at=100.0 + n, anywhere=True), WIDE)
    assert await turns.ready(anywhere=True, limit=3) == ["s0", "s1", "s2"]
    assert len(await turns.ready(anywhere=True)) == 10


async def turns_are_listed_with_the_newest_first(database: Database) -> None:
    turns = await open_turns(database)
    records = [await turns.add(turn(f"t{n}", f"s{n % 2}", at=100.0 + n), WIDE) for n in range(6)]
    await turns.advance(ended(records[0]), WIDE)
    assert [each.id for each in await turns.list(None)] == ["t5", "t4", "t3", "t2", "t1", "t0"]
    assert [each.id for each in await turns.list("s0")] == ["t4", "t2", "t0"]
    assert [each.id for each in await turns.list("s0", active=True)] == ["t4", "t2"]
    assert [each.id for each in await turns.list("s0", before=3)] == ["t2", "t0"]
    assert [each.id for each in await turns.list("s0", before=3, active=True, limit=5)] == ["t2"]
    assert [each.id for each in await turns.list("s0", before=2, limit=1)] == ["t0"]
    assert await turns.list("s0", before=1) == []
    assert [each.id for each in await turns.list(None, limit=2)] == ["t5", "t4"]
    assert await turns.list("s9") == []


async def turns_are_found_by_the_beginning_of_their_id(database: Database) -> None:
    turns = await open_turns(database)
    for n, id in enumerate(("ab", "abc", "abd", "b", "a%", f"ab{ODD}")):
        await turns.add(turn(id, f"s{n % 2}", at=100.0 + n), WIDE)
    assert [each.id for each in await turns.list(None, prefix="ab")] == [f"ab{ODD}", "abd", "abc", "ab"]
    assert [each.id for each in await turns.list("s0", prefix="ab")] == ["abd", "ab"]
    assert [each.id for each in await turns.list(None, prefix="ab", limit=1)] == [f"ab{ODD}"]
    assert [each.id for each in await turns.list(None, prefix="a%")] == ["a%"]
    assert await turns.list(None, prefix="abcd") == []


async def a_turn_without_room_for_its_message_is_not_queued(database: Database) -> None:
    turns = await open_turns(database)
    tight = Quota(1, 10_000)
    record = await turns.add(turn("t1"), tight)
    await turns.advance(ended(record), tight)
    assert await refusal(turns.add(turn("t2"), tight)) == "quota"
    assert [each.id for each in await turns.list("s1")] == ["t1"]
    assert (await turns.add(turn("t2"), WIDE)).state == "running"


# --- claims


async def a_newer_claim_of_the_same_owner_is_the_only_one_that_may_write(database: Database) -> None:
    turns = await open_turns(database)
    first = await turns.add(turn(), WIDE)
    second = await claimed(turns)
    assert (second.id, second.token, second.started_at) == ("t1", 2, 100.0)
    assert not await turns.advance(advanced(first, messages=[said("stale")]), WIDE)
    assert not await turns.advance(ended(first), WIDE)
    assert await turns.advance(ended(second, messages=[said("fresh")]), WIDE)
    assert await texts(turns) == [b'"Hello"', b'"fresh"']


async def a_turn_that_is_claimed_again_is_as_it_was_written(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    given = advanced(record, progress=b'{"model_calls":2}', answer=b'{"calls":[]}', messages=[said("one")])
    assert await turns.advance(given, WIDE)
    again = await claimed(turns)
    assert (again.state, again.progress, again.answer) == ("running", b'{"model_calls":2}', b'{"calls":[]}')
    assert await texts(turns) == [b'"Hello"', b'"one"']


# --- advancing


async def an_advance_writes_the_whole_state_of_a_turn(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    assert await turns.advance(advanced(record, 1, "waiting", answer=b"{}", messages=[said("a")]), WIDE)
    found = await turns.find("t1")
    assert found is not None
    assert (found.state, found.progress, found.answer, found.ended_at) == (
        "waiting",
        b'{"model_calls":1}',
        b"{}",
        None,
    )
    assert await turns.advance(ended(record, 2, at=130.0, messages=[said("b"), said("c")]), WIDE)
    found = await turns.find("t1")
    assert found is not None
    assert (found.state, found.answer, found.outcome, found.ended_at) == ("answered", None, END, 130.0)
    assert await texts(turns) == [b'"Hello"', b'"a"', b'"b"', b'"c"']


async def a_turn_that_has_ended_stays_as_it_is(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    assert await turns.advance(ended(record), WIDE)
    assert not await turns.advance(advanced(record, 2, "failed", outcome=b"{}", messages=[said("late")]), WIDE)
    assert not await turns.advance(advanced(replace(record, id="t9")), WIDE)
    found = await turns.find("t1")
    assert found is not None
    assert (found.state, found.outcome) == ("answered", END)
    assert await texts(turns) == [b'"Hello"']


async def an_advance_that_is_repeated_is_written_once(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    for given in (
        advanced(record, 1, messages=[said("a"), said("b")], answer=b"{}"),
        advanced(record, 2, "waiting", messages=[said("c")]),
        ended(record, 3, messages=[said("d")]),
    ):
        assert await turns.advance(given, WIDE)
        assert await turns.advance(given, WIDE)
    assert await texts(turns) == [b'"Hello"', b'"a"', b'"b"', b'"c"', b'"d"']


async def advances_are_written_in_the_order_in_which_they_were_asked_for(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    # `advance` may be asked for without waiting for the one before it.
    asked = [turns.advance(advanced(record, n, messages=[said(f"{n}")]), WIDE) for n in range(1, 20)]
    assert await asyncio.gather(*asked) == [True] * 19
    assert await texts(turns) == [b'"Hello"', *(b'"%d"' % n for n in range(1, 20))]


async def a_history_is_read_on_from_a_number(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    await turns.advance(ended(record, messages=[said("a"), said("b")]), WIDE)
    record = await turns.add(turn("t2"), WIDE)
    await turns.advance(advanced(record, messages=[said("c"), said("d"), said("e")]), WIDE)
    told = [b'"Hello"', b'"a"', b'"b"', b'"Hello"', b'"c"', b'"d"', b'"e"']
    for after in range(9):
        for limit in (1, 2, 3, 100):
            rows = await turns.history("s1", after, limit)
            assert [(row[0], row[2]) for row in rows] == list(enumerate(told, 1))[after : after + limit]


# --- steering and cancelling


async def a_steering_message_is_read_in_order_and_after_a_number(database: Database) -> None:
    turns = await open_turns(database)
    await turns.add(turn(), WIDE)
    assert await turns.signals("t1", 0) == (None, [])
    assert await turns.signalled() == {}
    for n in range(1, 4):
        assert await turns.steer("t1", f"message {n}", 100.0 + n)
    assert await turns.steer("t1", "message 1", 109.0)  # the same words, said once more
    first = await turns.signals("t1", 0)
    expected = [Steering(1, "message 1"), Steering(2, "message 2"), Steering(3, "message 3"), Steering(4, "message 1")]
    assert first == (None, expected)
    assert (await turns.signals("t1", 2)).steering == expected[2:]
    assert await turns.signalled() == {"t1": None}


async def a_steering_message_that_is_repeated_is_there_once(database: Database) -> None:
    turns = await open_turns(database)
    await turns.add(turn(), WIDE)
    assert await turns.steer("t1", "left", 101.0)
    assert await turns.steer("t1", "left", 101.0)
    assert (await turns.signals("t1", 0)).steering == [Steering(1, "left")]


async def a_turn_that_has_ended_is_not_steered(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    await turns.add(turn("t2"), WIDE)
    assert await turns.steer("t2", "a queued one may be", 101.0)
    await turns.advance(ended(record), WIDE)
    assert not await turns.steer("t1", "too late", 120.0)
    assert not await turns.steer("t9", "nobody", 120.0)


async def a_turn_does_not_answer_before_it_was_given_every_message(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    for n in (1, 2):
        assert await turns.steer("t1", f"message {n}", 100.0 + n)
    assert await turns.advance(advanced(record, 1, messages=[said("a")]), WIDE)
    written = await turns.find("t1")
    for number, steered in ((2, 0), (3, 1), (3, 1)):
        refused = ended(record, number, steered=steered, messages=[said("early")], events=EventChunk(3, b"[]"))
        await raised(TurnSteered, turns.advance(refused, WIDE))
        assert await turns.find("t1") == written
        assert await turns.events("t1", 0) == []
        assert await texts(turns) == [b'"Hello"', b'"a"']
    stale = replace(record, token=record.token + 1)
    assert not await turns.advance(ended(stale, 4, steered=0), WIDE)
    last = ended(record, 4, steered=2, messages=[said("b")])
    assert await turns.advance(last, WIDE)
    assert await turns.advance(last, WIDE)
    assert not await turns.steer("t1", "too late", 120.0)
    assert await texts(turns) == [b'"Hello"', b'"a"', b'"b"']


async def a_turn_ends_without_an_answer_whatever_it_was_sent(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    assert await turns.steer("t1", "not given", 101.0)
    assert await turns.advance(advanced(record, 1, "failed", outcome=b"{}"), WIDE)
    found = await turns.find("t1")
    assert found is not None
    assert found.state == "failed"


async def a_message_is_refused_or_keeps_its_turn_from_answering(database: Database) -> None:
    here, there = await open_turns(database), await open_turns(database)

    async def answers(record: TurnRecord) -> bool:
        try:
            return await here.advance(ended(record, steered=0, messages=[said("done")]), WIDE)
        except TurnSteered:
            return False

    for n in range(20):
        record = await here.add(turn(f"t{n}", f"s{n}"), WIDE)
        sent, answered = there.steer(record.id, "left", 101.0), answers(record)
        if n % 2:
            taken, done = await asyncio.gather(sent, answered)
        else:
            done, taken = await asyncio.gather(answered, sent)
        assert done is not taken
        assert len((await here.signals(record.id, 0)).steering) == taken


async def a_queued_turn_that_is_cancelled_ends_at_once(database: Database) -> None:
    turns = await open_turns(database)
    running = await turns.add(turn("t1"), WIDE)
    for id in ("t2", "t3"):
        await turns.add(turn(id, message=b'"%s"' % id.encode()), WIDE)
    found = await turns.cancel("t2", "not needed", 108.0, STOPPED)
    assert found is not None
    assert (found.state, found.ended_at, found.outcome, found.cancel_reason) == (
        "cancelled",
        108.0,
        STOPPED,
        "not needed",
    )
    assert await turns.find("t2") == found
    await turns.advance(ended(running), WIDE)
    assert (await claimed(turns)).id == "t3"
    assert await texts(turns) == [b'"Hello"', b'"t3"']  # the history has nothing of it


async def a_turn_that_has_begun_is_asked_to_stop(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    found = await turns.cancel("t1", "enough", 108.0, STOPPED)
    assert found is not None
    assert (found.state, found.ended_at, found.outcome, found.cancel_reason) == ("running", None, None, "enough")
    assert await turns.signalled() == {"t1": "enough"}
    assert (await turns.signals("t1", 0)).cancel_reason == "enough"
    found = await turns.cancel("t1", "another reason", 109.0, STOPPED)
    assert found is not None
    assert found.cancel_reason == "enough"
    assert (await claimed(turns)).cancel_reason == "enough"
    record = replace(record, token=2)
    assert await turns.advance(advanced(record, 1, "cancelled", outcome=STOPPED), WIDE)
    assert await turns.signalled() == {}


async def a_turn_that_waits_is_asked_to_stop(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    await turns.advance(advanced(record, 1, "waiting"), WIDE)
    found = await turns.cancel("t1", "enough", 108.0, STOPPED)
    assert found is not None
    assert (found.state, found.cancel_reason) == ("waiting", "enough")
    assert await turns.signalled() == {"t1": "enough"}


async def a_turn_that_has_ended_is_not_cancelled(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    await turns.advance(ended(record), WIDE)
    assert await turns.cancel("t1", "too late", 120.0, STOPPED) is None
    assert await turns.cancel("t9", "nobody", 120.0, STOPPED) is None
    found = await turns.find("t1")
    assert found is not None
    assert (found.state, found.cancel_reason) == ("answered", None)


async def a_cancellation_that_is_repeated_gives_the_same_answer(database: Database) -> None:
    turns = await open_turns(database)
    await turns.add(turn("t1"), WIDE)
    await turns.add(turn("t2"), WIDE)
    for id in ("t1", "t2"):
        first = await turns.cancel(id, "enough", 108.0, STOPPED)
        assert first is not None
        assert await turns.cancel(id, "enough", 108.0, STOPPED) == first
    assert await turns.cancel("t2", "once more", 109.0, STOPPED) is None


# --- text


async def odd_text_in_a_turn_comes_back_as_it_was(database: Database) -> None:
    turns = await open_turns(database)
    ids = [ODD, *NEAR]
    for id in ids:
        given = turn(id, f"of {id}", message=b'"\\u0000 \xc3\xa9 \\ud83d\\ude00"', options=b'{"model":"\\u0000"}')
        record = await turns.add(given, WIDE)
        assert (record.id, record.session, record.message, record.options) == (
            id,
            f"of {id}",
            given.message,
            given.options,
        )
    assert await turns.steer(ODD, f"{ODD} \U0001f600 '; --", 101.0)
    assert (await turns.signals(ODD, 0)).steering == [Steering(1, f"{ODD} \U0001f600 '; --")]
    found = await turns.cancel(ODD, f"{ODD}!", 102.0, STOPPED)
    assert found is not None
    assert found.cancel_reason == f"{ODD}!"
    assert await turns.signalled() == {ODD: f"{ODD}!"}
    for near in NEAR:
        assert await turns.signals(near, 0) == (None, [])
        assert [each.id for each in await turns.list(f"of {near}")] == [near]


async def the_unfinished_turns_of_a_call_are_found(database: Database) -> None:
    turns, mine, other = await open_turns(database), written_caller(call()), written_caller(call("another"))
    first = await turns.add(turn("t1", "s1/a", at=100.0, caller=mine), WIDE)
    await turns.add(turn("t2", "s1/a", at=101.0, caller=mine), WIDE)
    await turns.add(turn("t3", "s1/b", at=102.0, caller=mine), WIDE)
    await turns.add(turn("t4", "s1/c", at=103.0, caller=other), WIDE)
    await turns.add(turn("t5", "s1"), WIDE)
    assert [each.id for each in await turns.of_call(mine)] == ["t1", "t2", "t3"]
    assert await turns.advance(ended(first), WIDE)
    assert [(each.id, each.caller) for each in await turns.of_call(mine)] == [("t2", mine), ("t3", mine)]
    assert [each.id for each in await turns.of_call(other)] == ["t4"]
    assert await turns.of_call(written_caller(call("unknown"))) == []


TURNS = cases(
    the_first_turn_of_a_session_begins_when_it_is_added,
    turns_of_a_session_are_worked_on_in_the_order_in_which_they_were_added,
    turns_of_other_sessions_have_their_own_queue,
    the_unfinished_turns_of_a_call_are_found,
    turns_that_are_added_at_once_have_numbers_of_their_own,
    a_turn_that_is_added_again_is_the_same_turn,
    the_id_of_another_turn_is_refused,
    a_turn_for_any_worker_waits_for_one,
    a_turn_for_any_worker_is_ready_once_it_is_the_first,
    as_many_sessions_are_ready_as_are_asked_for,
    turns_are_listed_with_the_newest_first,
    turns_are_found_by_the_beginning_of_their_id,
    a_turn_without_room_for_its_message_is_not_queued,
    a_newer_claim_of_the_same_owner_is_the_only_one_that_may_write,
    a_turn_that_is_claimed_again_is_as_it_was_written,
    an_advance_writes_the_whole_state_of_a_turn,
    a_turn_that_has_ended_stays_as_it_is,
    an_advance_that_is_repeated_is_written_once,
    advances_are_written_in_the_order_in_which_they_were_asked_for,
    a_history_is_read_on_from_a_number,
    a_steering_message_is_read_in_order_and_after_a_number,
    a_steering_message_that_is_repeated_is_there_once,
    a_turn_that_has_ended_is_not_steered,
    a_turn_does_not_answer_before_it_was_given_every_message,
    a_turn_ends_without_an_answer_whatever_it_was_sent,
    a_message_is_refused_or_keeps_its_turn_from_answering,
    a_queued_turn_that_is_cancelled_ends_at_once,
    a_turn_that_has_begun_is_asked_to_stop,
    a_turn_that_waits_is_asked_to_stop,
    a_turn_that_has_ended_is_not_cancelled,
    a_cancellation_that_is_repeated_gives_the_same_answer,
    odd_text_in_a_turn_comes_back_as_it_was,
)


# --- stores that have the events and the history of turns in the same database


async def an_advance_without_room_for_its_messages_writes_nothing(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    tight = Quota(2, 10_000)
    given = advanced(
        record, 1, "waiting", progress=b'{"x":1}', messages=[said("a"), said("b")], events=EventChunk(3, b"[]")
    )
    assert await refusal(turns.advance(given, tight)) == "quota"
    assert await turns.find("t1") == record
    assert await turns.events("t1", 0) == []
    assert await texts(turns) == [b'"Hello"']
    assert await turns.advance(advanced(record, 2, "failed", outcome=b"{}"), tight)


async def events_are_read_in_chunks_and_after_a_number(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    chunks = [EventChunk(last, b'[{"number":%d}]' % last) for last in (3, 7, 8, 20)]
    for chunk in chunks[:2]:
        assert await turns.log("t1", record.token, chunk)
    assert await turns.advance(advanced(record, 1, events=chunks[2]), WIDE)
    assert await turns.advance(ended(record, 2, events=chunks[3]), WIDE)
    assert await turns.events("t1", 0) == chunks
    assert await turns.events("t1", 0, limit=2) == chunks[:2]
    for after, rest in ((2, 0), (3, 1), (6, 1), (7, 2), (19, 3), (20, 4)):
        assert await turns.events("t1", after) == chunks[rest:]
    assert await turns.events("t9", 0) == []
    found = await turns.find("t1")
    assert found is not None
    assert found.events == 20


async def events_that_are_written_again_are_there_once(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    chunk = EventChunk(3, b'["\\u0000"]')
    assert await turns.log("t1", record.token, chunk)
    assert await turns.log("t1", record.token, chunk)
    assert await turns.events("t1", 0) == [chunk]


async def events_of_a_turn_that_continues_have_higher_numbers(database: Database) -> None:
    turns = await open_turns(database)
    record = await turns.add(turn(), WIDE)
    await turns.log("t1", record.token, EventChunk(5, b"[5]"))
    again = await claimed(turns)
    assert again.events >= 1_000  # events that were shown and not stored had numbers below
    assert not await turns.log("t1", record.token, EventChunk(6, b"[6]"))
    assert await turns.log("t1", again.token, EventChunk(again.events + 1, b"[]"))
    assert [chunk.last for chunk in await turns.events("t1", 0)] == [5, again.events + 1]


async def the_history_of_a_turn_is_the_messages_of_its_session(database: Database) -> None:
    services = await open_services(database)
    record = await services.turns.add(turn(), WIDE)
    await services.turns.advance(advanced(record, messages=[said("a")]), WIDE)
    await services.messages.append_messages("s1", [said("of the host")], 120.0, WIDE, None)
    await services.turns.advance(ended(record, 2, messages=[said("b")]), WIDE)
    rows = await services.messages.list_messages("s1", 0, 10)
    assert [row[2] for row in rows] == [b'"Hello"', b'"a"', b'"of the host"', b'"b"']
    assert await services.turns.history("s1", 0, 10) == rows


async def a_session_with_an_unfinished_turn_is_not_deleted(database: Database) -> None:
    services = await open_services(database)
    record = await services.turns.add(turn("t1"), WIDE)
    assert await refusal(services.archives.delete_session("s1")) == "unfinished"
    await services.turns.log("t1", record.token, EventChunk(3, b"[]"))
    await services.turns.steer("t1", "left", 101.0)
    await services.turns.advance(ended(record), WIDE)
    await services.turns.add(turn("t2", anywhere=True), WIDE)
    assert await refusal(services.archives.delete_session("s1")) == "unfinished"
    await services.turns.cancel("t2", "not needed", 108.0, STOPPED)
    assert await services.archives.delete_session("s1")
    assert await services.turns.list(None) == []
    assert await services.turns.events("t1", 0) == []
    assert (await services.turns.signals("t1", 0)).steering == []
    assert (await services.turns.add(turn("t1"), WIDE)).number == 1


async def a_session_with_turns_only_is_listed(database: Database) -> None:
    services = await open_services(database)
    await services.turns.add(turn("t1", "s1", anywhere=True), WIDE)
    await services.turns.add(turn("t2", "s1", anywhere=True), WIDE)
    await services.turns.cancel("t2", "not needed", 108.0, STOPPED)
    (info,) = await services.archives.list_sessions()
    assert await services.archives.list_sessions(info.id) == [info]
    assert (info.id, info.calls, info.turns, info.unfinished_turns) == ("s1", 0, 2, 1)


STORED_TURNS = cases(
    an_advance_without_room_for_its_messages_writes_nothing,
    events_are_read_in_chunks_and_after_a_number,
    events_that_are_written_again_are_there_once,
    events_of_a_turn_that_continues_have_higher_numbers,
    the_history_of_a_turn_is_the_messages_of_its_session,
    a_session_with_an_unfinished_turn_is_not_deleted,
    a_session_with_turns_only_is_listed,
)


# --- several processes


async def a_turn_of_a_living_owner_is_its_own(database: Database) -> None:
    first, second = await open_turns(database), await open_turns(database)
    await first.add(turn("t1"), WIDE)
    record = await second.add(turn("t2"), WIDE)  # behind the other's
    assert (record.number, record.state) == (2, "queued")
    assert await second.claim("s1", 105.0, WIDE) is None
    assert await second.ready(anywhere=True) == []
    assert await second.signalled() == {}


async def a_queued_turn_waits_for_the_owner_that_queued_it(database: Database) -> None:
    first, second = await open_turns(database), await open_turns(database)
    record = await first.add(turn("t1"), WIDE)
    await second.add(turn("t2"), WIDE)
    await first.advance(ended(record), WIDE)
    assert await first.claim("s1", 105.0, WIDE) is None
    assert await first.ready(anywhere=True) == []
    assert (await claimed(second)).id == "t2"


async def a_turn_of_a_dead_owner_is_ready_and_continues_where_it_was(database: Database) -> None:
    dead, heir = await database.open(), await open_turns(database)
    assert dead.services is not None
    turns = dead.services.turns
    record = await turns.add(turn("t1"), WIDE)
    await turns.add(turn("t2"), WIDE)
    await turns.advance(advanced(record, answer=b"{}", messages=[said("a")]), WIDE)
    await database.kill(dead)
    assert await heir.ready(anywhere=False) == ["s1"]
    again = await claimed(heir)
    assert (again.id, again.state, again.token, again.answer, again.started_at) == ("t1", "running", 2, b"{}", 100.0)
    assert again.owner != record.owner
    assert await heir.ready(anywhere=True) == []
    assert await heir.advance(ended(again, messages=[said("b")]), WIDE)
    assert (await claimed(heir)).id == "t2"
    assert await texts(heir) == [b'"Hello"', b'"a"', b'"b"', b'"Hello"']


async def a_dead_owner_that_wakes_up_writes_nothing_more(database: Database) -> None:
    dead, heir = await database.open(), await open_turns(database)
    assert dead.services is not None
    turns = dead.services.turns
    record = await turns.add(turn(), WIDE)
    await database.kill(dead)
    again = await claimed(heir)
    assert not await turns.advance(advanced(record, messages=[said("stale")]), WIDE)
    assert not await turns.advance(ended(record), WIDE)
    assert not await turns.log("t1", record.token, EventChunk(3, b"[]"))
    # Also where it knows the newest token, since the turn is another owner's.
    assert not await turns.advance(advanced(again, messages=[said("stolen")]), WIDE)
    assert not await turns.log("t1", again.token, EventChunk(3, b"[]"))
    assert await texts(heir) == [b'"Hello"']
    assert await heir.advance(ended(again), WIDE)


async def of_many_heirs_one_takes_a_turn(database: Database) -> None:
    dead = await database.open()
    heirs = [await open_turns(database) for _ in range(5)]
    assert dead.services is not None
    for n in range(8):
        await dead.services.turns.add(turn(f"t{n}", f"s{n}"), WIDE)
    await database.kill(dead)
    for n in range(8):
        told = await asyncio.gather(*(heir.claim(f"s{n}", 105.0, WIDE) for heir in heirs))
        assert sum(record is not None for record in told) == 1
        assert await texts(heirs[0], f"s{n}") == [b'"Hello"']


async def of_many_workers_one_takes_a_turn_for_any(database: Database) -> None:
    workers = [await open_turns(database) for _ in range(5)]
    for n in range(8):
        await workers[0].add(turn(f"t{n}", f"s{n}", anywhere=True), WIDE)
        told = await asyncio.gather(*(worker.claim(f"s{n}", 105.0, WIDE) for worker in workers))
        assert sum(record is not None for record in told) == 1
        assert await texts(workers[0], f"s{n}") == [b'"Hello"']


async def another_process_steers_cancels_and_follows_a_turn(database: Database) -> None:
    here, there = await open_turns(database), await open_turns(database)
    record = await here.add(turn(), WIDE)
    await here.log("t1", record.token, EventChunk(2, b"[1,2]"))
    assert await there.events("t1", 0) == [EventChunk(2, b"[1,2]")]
    assert await there.steer("t1", "left", 101.0)
    assert await there.cancel("t1", "enough", 102.0, STOPPED) is not None
    assert await there.signalled() == {}  # it is not that process's turn
    assert await here.signalled() == {"t1": "enough"}
    assert await here.signals("t1", 0) == ("enough", [Steering(1, "left")])
    assert await here.advance(advanced(record, 1, "cancelled", outcome=STOPPED), WIDE)
    found = await there.find("t1")
    assert found is not None
    assert (found.state, found.outcome) == ("cancelled", STOPPED)


async def a_turn_that_waits_is_continued_by_another_process(database: Database) -> None:
    first, heir = await database.open(), await open_turns(database)
    assert first.services is not None
    record = await first.services.turns.add(turn(), WIDE)
    await first.services.turns.advance(advanced(record, 1, "waiting", answer=b"{}"), WIDE)
    assert await heir.claim("s1", 105.0, WIDE) is None
    await first.close()
    assert await heir.ready(anywhere=False) == ["s1"]
    again = await claimed(heir)
    assert (again.answer, again.token) == (b"{}", 2)


async def a_turn_that_its_owner_releases_is_continued_by_another_process(database: Database) -> None:
    first, other = await open_turns(database), await open_turns(database)
    record = await first.add(turn(), WIDE)
    await first.advance(advanced(record, answer=b"{}"), WIDE)
    assert not await first.release("t1", record.token + 1)
    assert not await other.release("t1", record.token)  # it is not its own
    assert not await first.release("t9", 1)
    assert await first.release("t1", record.token)
    assert await first.release("t1", record.token)
    assert not await first.advance(advanced(record, 2), WIDE)
    assert await other.ready(anywhere=False) == ["s1"]
    again = await claimed(other)
    assert (again.answer, again.token) == (b"{}", 2)
    assert not await first.release("t1", record.token)
    assert await other.advance(ended(again), WIDE)
    assert not await other.release("t1", again.token)


TURN_OWNERS = cases(
    a_turn_that_its_owner_releases_is_continued_by_another_process,
    a_turn_of_a_living_owner_is_its_own,
    a_queued_turn_waits_for_the_owner_that_queued_it,
    a_turn_of_a_dead_owner_is_ready_and_continues_where_it_was,
    a_dead_owner_that_wakes_up_writes_nothing_more,
    of_many_heirs_one_takes_a_turn,
    of_many_workers_one_takes_a_turn_for_any,
    another_process_steers_cancels_and_follows_a_turn,
    a_turn_that_waits_is_continued_by_another_process,
)
