"""Turns in everything that looks at a store: deleting, moving, listing, counting, checking and pruning."""

import asyncio
import time
from typing import Any

import apsw
import pytest

from tests.support import fail_after, in_memory, until
from toolwright import App, Runtime, ToolCall, tool
from toolwright.errors import ServiceError
from toolwright.session.core import SessionCore
from toolwright.stores import check, prune, stats
from toolwright.stores.contracts.inspection import Pruned
from toolwright.testing import FakeClock, FunctionModel, ScriptedModel


@tool(readonly=True)
async def look(key: str) -> str:
    """Look."""
    return f"seen {key}"


@tool(approval="required")
async def wipe(path: str) -> str:
    """Wipe."""
    return f"wiped {path}"


def call(id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def script() -> ScriptedModel:
    """Two steps, of which the second waits for an approval; then answers."""
    return ScriptedModel([[call("l", "look", key="a")], [call("w", "wipe", path="/x")], "Gone.", "Later."])


def rows(file: Any, table: str) -> int:
    connection = apsw.Connection(str(file))
    try:
        ((count,),) = connection.execute(f"SELECT count(*) FROM {table}")
        return int(count)
    finally:
        connection.close()


@pytest.mark.promise("TURN-03", "SES-06")
async def test_a_session_with_an_unfinished_turn_is_not_deleted(place, open_runtime):
    runtime = await open_runtime(place, look, wipe, model=script())
    session = runtime.session("s")
    async with fail_after(10):
        outcome = await session.ask("Wipe it.")
        assert outcome.status == "waiting"
        with pytest.raises(ServiceError, match="unfinished turns; let them end or cancel them") as refused:
            await runtime.delete_session("s")
        assert refused.value.code == "unfinished"
        turn = await session.turn(outcome.turn_id)
        assert await turn.cancel("no longer needed")
        assert (await turn).status == "cancelled"
        await session.wait_for_idle()
        assert await runtime.delete_session("s")
        assert await runtime.sessions() == []
        assert await runtime.turns() == []
        assert not await runtime.delete_session("s")
        # A session of this name is a new one.
        again = await runtime.session("s").ask("Hello.", model=ScriptedModel(["Hi."]))
        assert again.text == "Hi."
        assert [(info.number, info.message) for info in await runtime.turns("s")] == [(1, "Hello.")]


@pytest.mark.promise("SES-06")
async def test_a_deleted_session_leaves_no_row_of_its_turns(file, open_runtime):
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> str:
        begun.set()
        await go.wait()
        return "Done."

    runtime = await open_runtime(file, model=FunctionModel(slow))
    session = runtime.session("s")
    async with fail_after(10):
        turn = await session.start_turn("Go.")
        await begun.wait()
        await turn.steer("Faster.")
        with pytest.raises(ServiceError, match="unfinished turns"):
            await runtime.delete_session("s")
        go.set()
        assert (await turn).status == "answered"
        await session.wait_for_idle()
    assert rows(file, "turns") == 1
    assert rows(file, "turn_events") > 0
    assert rows(file, "turn_steering") == 1
    assert await runtime.delete_session("s")
    assert [rows(file, table) for table in ("turns", "turn_events", "turn_steering", "messages")] == [0, 0, 0, 0]


@pytest.mark.promise("SES-10", "TURN-06")
async def test_an_archive_has_the_history_and_not_the_turns_and_the_session_is_asked_on(place, open_runtime, tmp_path):
    model = ScriptedModel([[call("l", "look", key="a")], "It is a.", "As I said: a."])
    runtime = await open_runtime(place, look, model=model)
    async with fail_after(10):
        await runtime.session("s").ask("What is it?")
        await runtime.export_session("s", tmp_path / "s.zip")
        await runtime.import_session(tmp_path / "s.zip", as_id="copy")
        assert await runtime.turns("copy") == []
        outcome = await runtime.session("copy").ask("What was it?")
    assert outcome.text == "As I said: a."
    asked, answered, results, said, now = model.requests[-1].messages
    assert (asked.text, said.text, now.text) == ("What is it?", "It is a.", "What was it?")
    assert [each.id for each in answered.calls] == [each.call_id for each in results.outcomes] == ["l"]


@pytest.mark.promise("SES-10", "TURN-03")
async def test_a_session_with_an_unfinished_turn_is_not_replaced_by_an_archive(place, open_runtime, tmp_path):
    runtime = await open_runtime(place, look, wipe, model=script())
    async with fail_after(10):
        outcome = await runtime.session("s").ask("Wipe it.")
        await runtime.export_session("s", tmp_path / "s.zip")
        with pytest.raises(ServiceError, match="unfinished turns"):
            await runtime.import_session(tmp_path / "s.zip", replace=True)
        await (await runtime.turn(outcome.turn_id)).cancel("enough")
        await runtime.session("s").wait_for_idle()
        await runtime.import_session(tmp_path / "s.zip", replace=True)
        assert await runtime.turns("s") == []


@pytest.mark.promise("TURN-03")
async def test_a_session_that_has_only_turns_is_listed(place, open_runtime):
    runtime = await open_runtime(place, worker=False, model=ScriptedModel(["Later."]))
    await runtime.session("s").start_turn("Some day.", background=True)
    await runtime.session("t").ask("Now.")
    assert [(info.id, info.turns, info.unfinished_turns) for info in await runtime.sessions()] == [
        ("s", 1, 1),
        ("t", 1, 0),
    ]


@pytest.mark.promise("EFF-13", "TURN-08")
async def test_pruning_removes_turns_that_ended_and_nothing_that_an_unfinished_one_needs(file, open_runtime):
    runtime = await open_runtime(file, look, wipe, model=script())
    async with fail_after(10):
        await runtime.session("done").ask("Look.", model=ScriptedModel([[call("l", "look", key="b")], "It is b."]))
        waiting = await runtime.session("s").ask("Wipe it.")
        assert waiting.status == "waiting"
        counted = await stats(file)
        assert counted.turns == {"answered": 1, "waiting": 1}
        assert counted.sessions == 2
        later = time.time() + 1_000
        planned = await prune(file, later, dry_run=True)
        assert (planned.turns, planned.calls, planned.spared) == (1, 1, 1)
        assert rows(file, "turns") == 2
        assert await prune(file, later, sessions=["s"]) == Pruned(spared=1)
        removed = await prune(file, later)
        assert (removed.turns, removed.calls, removed.spared) == (1, 1, 1)
        assert await check(file) == []
        assert [info.session for info in await runtime.turns()] == ["s"]
        # Its history stays, and the session is asked on.
        senders = [message.sender for message in await runtime.session("done").messages.list()]
        assert senders == ["user", "assistant", "tool", "assistant"]
        (approval,) = await runtime.approvals("s")
        await runtime.approve(approval.key)
        ended = await (await runtime.turn(waiting.turn_id))
    assert (ended.status, [each.value for each in ended.calls]) == ("answered", ["seen a", "wiped /x"])


@pytest.mark.promise("EFF-13")
async def test_pruning_follows_the_age_of_a_turn_and_leaves_no_row_of_it(file, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(file, model=ScriptedModel(["One.", "Two."]), clock=clock)
    session = runtime.session("s")
    async with fail_after(10):
        first = await session.ask("One?")
        middle = clock.now() + 10
        await clock.advance(20)
        second = await session.ask("Two?")
        await session.wait_for_idle()
        assert (await prune(file, middle)).turns == 1
        assert [info.id for info in await session.turns()] == [second.turn_id]
        assert (await prune(file, clock.now() + 1)).turns == 1
    assert [rows(file, table) for table in ("turns", "turn_events", "turn_steering")] == [0, 0, 0]
    assert first.turn_id != second.turn_id
    assert rows(file, "messages") == 4


async def test_turns_of_a_program_that_is_gone_are_counted_as_cut_off(file, open_runtime):
    begun = asyncio.Event()

    async def silent(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    first = await Runtime.open(file, model=FunctionModel(silent))
    async with fail_after(10):
        await first.session("s").start_turn("Go.")
        await first.session("s").start_turn("Then?")
        await begun.wait()
        assert (await stats(file)).turns == {"running": 1, "queued": 1}
        await first.close()
    assert (await stats(file)).turns == {"cut off": 1, "queued": 1}
    assert await check(file) == []


async def test_a_check_finds_rows_of_turns_that_do_not_match(file, open_runtime):
    runtime = await open_runtime(file, model=ScriptedModel(["One.", "Two."]))
    await runtime.session("s").ask("One?")
    await runtime.session("s").ask("Two?")
    assert await check(file) == []
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE turns SET ended_at = NULL WHERE number = 1")
    connection.execute("INSERT INTO turn_events VALUES ('gone', 1, x'5b5d')")
    connection.execute("INSERT INTO turn_steering VALUES ('gone', 1, 'left', 1.0)")
    connection.close()
    assert await check(file) == [
        "1 turn_events belong to no turn",
        "1 turn_steering belong to no turn",
        "1 turns are in a state that does not match their end",
    ]


@pytest.mark.promise("EFF-13", "TURN-12")
async def test_the_turn_of_a_sub_agent_is_not_pruned_before_the_turn_above_has_ended(file, open_runtime):
    child = App(model=ScriptedModel(["I am the child."], name="child"))
    answers: list[Any] = [[call("a", "ask_child", message="Who?"), call("w", "wipe", path="/x")], "Done."]
    runtime = await open_runtime(file, child.as_tool("ask_child"), wipe, model=ScriptedModel(answers))
    async with fail_after(10):
        waiting = await runtime.session("s").ask("Go.")
        assert waiting.status == "waiting"
        later = time.time() + 1_000
        assert (await prune(file, later)).turns == 0
        (approval,) = await runtime.approvals("s")
        await runtime.approve(approval.key)
        ended = await (await runtime.turn(waiting.turn_id))
        assert (ended.status, ended.model_calls) == ("answered", 3)
        assert (await prune(file, later)).turns == 2


@pytest.mark.promise("EFF-13")
async def test_the_numbers_of_turns_continue_after_pruning(file, open_runtime):
    runtime = await open_runtime(file, model=FunctionModel(lambda request: "Yes."))
    session = runtime.session("s")
    async with fail_after(10):
        for _ in range(3):
            await session.ask("Is it?")
        assert (await prune(file, float("inf"))).turns == 3
        assert await session.turns() == []
        for _ in range(2):
            await session.ask("And now?")
        assert [turn.number for turn in await session.turns()] == [5, 4]
        await prune(file, float("inf"))
        await runtime.delete_session("s")
        await runtime.session("s").ask("From the beginning?")
        assert [turn.number for turn in await runtime.session("s").turns()] == [1]


@pytest.mark.promise("TURN-03")
async def test_recovery_names_the_turns_that_it_continues(file):
    waiting = asyncio.Event()

    async def never(request: Any) -> str:
        waiting.set()
        await asyncio.Event().wait()
        return "No."

    async with fail_after(10):
        async with App(model=FunctionModel(never)).open(file) as runtime:
            turn = await runtime.session("s").start_turn("Is it?")
            await waiting.wait()
        async with App(model=FunctionModel(lambda request: "Yes.")).open(file) as runtime:
            (recovered,) = await runtime.recover()
            assert (recovered.turn, recovered.session, recovered.action) == (turn.id, "s", "continued")
            assert recovered.to_json()["turn"] == turn.id
            assert (await (await runtime.turn(recovered.turn))).text == "Yes."
            assert await runtime.recover() == []


@pytest.mark.promise("TURN-06", "SES-01")
async def test_the_messages_of_turns_are_there_for_everybody_who_asks_later(place, open_runtime):
    async def answer(request: Any) -> str:
        return f"{len(request.messages)} items"

    runtime = await open_runtime(place, model=FunctionModel(answer))
    async with fail_after(10):
        assert [(await runtime.session("s").ask("?")).text for _ in range(2)] == ["1 items", "3 items"]
        assert (await runtime.session("t").ask("?")).text == "1 items"
        await runtime.session("s").messages.append("by hand", sender="user")
        assert (await runtime.session("s").ask("?")).text == "6 items"
        assert (await runtime.session("u").ask("?")).text == "1 items"
        found = await runtime.session("s").messages.list()
        assert [message.number for message in found] == list(range(1, 8))
        assert [message.content for message in found[1::2]] == ["1 items", "3 items", "?"]
        assert found[4].content == "by hand"
        counts = {info.id: info.usage["messages"].entries for info in await runtime.sessions()}
    assert counts == {"s": 7, "t": 2, "u": 2}


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize("content", ["none", {"results": 7}, {"results": [{"call_id": 1}]}])
@pytest.mark.parametrize("about", [{}, {"step": 1}, {"step": "first"}])
async def test_a_message_that_only_looks_like_results_is_none_of_a_turn(place, open_runtime, content, about):
    session = (await open_runtime(place, model=FunctionModel(lambda request: "Done."))).session("s")
    about = {"kind": "results", "turn": "t1", **about}
    await session.messages.append(content, sender="tool", metadata=about)
    assert (await session.ask("Go.", id="t1")).text == "Done."
    later = await (await session.turn("t1"))
    assert (later.text, later.calls) == ("Done.", ())


@pytest.mark.promise("TURN-05", "HTTP-05")
@pytest.mark.parametrize("what", ["read", "steered"])
async def test_a_program_does_not_keep_the_sessions_in_memory_whose_turns_it_finds_by_their_ids(file, what):
    app = App(model=FunctionModel(lambda request: "Done."))
    async with app.open(file, worker=False) as runtime:
        ids = [(await runtime.session(f"s{number}").ask("Go.")).turn_id for number in range(20)]
    del runtime
    before = in_memory(SessionCore)
    async with fail_after(20), app.open(file, worker=False) as runtime:
        for id in ids:
            turn = await runtime.turn(id)
            if what == "read":
                assert (await turn).text == "Done."
            else:
                await turn.steer("Again.", when="next_turn")

        async def all_answered() -> bool:
            return all(info.state == "answered" for info in await runtime.turns())

        await until(all_answered)
        await until(lambda: in_memory(SessionCore) - before < 10)
