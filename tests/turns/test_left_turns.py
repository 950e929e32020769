"""Turns on a file that wait for people and that their process has left: whatever comes, they continue or end."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, ToolCall, ToolRegistry, tool
from toolwright.testing import FakeClock, ScriptedModel
from toolwright.testing.leftovers import left_over

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(approval="required")
async def wipe(path: str) -> str:
    """Wipe."""
    ran.append(path)
    return f"wiped {path}"


@tool
async def note(text: str) -> str:
    """Note."""
    ran.append(text)
    return text


def call(id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def script() -> ScriptedModel:
    """A call that runs and one that waits for a person; then answers."""
    return ScriptedModel([[call("n", "note", text="hi"), call("w", "wipe", path="/x")], "Gone.", "Later.", "Last."])


async def waiting(runtime: Runtime, session: str = "s") -> Any:
    outcome = await runtime.session(session).ask("Wipe it.")
    assert (outcome.status, [wait.call_id for wait in outcome.waits]) == ("waiting", ["w"])
    return outcome


async def only_request(runtime: Runtime) -> str:
    (approval,) = await runtime.approvals()
    return approval.key


async def nothing_is_left(runtime: Runtime) -> None:
    async with fail_after(10):
        while left_over(runtime):  # noqa: ASYNC110 - a look at the decisions of other processes may be under way
            await asyncio.sleep(0)


@pytest.mark.promise("TURN-08")
async def test_a_session_whose_turn_waits_for_a_person_is_not_kept_in_memory(file, open_runtime):
    runtime = await open_runtime(file, wipe, note, model=script())
    async with fail_after(10):
        session = runtime.session("s")
        gone = weakref.ref(session)
        assert (await session.ask("Wipe it.")).status == "waiting"
        assert runtime.session("s") is session
        del session
        await waiting(runtime, "t")
        gc.collect()
        assert gone() is not None  # it was opened again, and its turn has not been left since
        ids = {approval.session: approval.key for approval in await runtime.approvals()}
        await runtime.approve(ids["s"])
        turn = (await runtime.turns("s"))[0]
        ended = await (await runtime.turn(turn.id))
        assert (ended.text, [each.value for each in ended.calls]) == ("Gone.", ["hi", "wiped /x"])
        other = weakref.ref(runtime.session("u"))
        await waiting(runtime, "u")
        assert other() is None
    assert ran == ["hi", "hi", "/x", "hi"]


@pytest.mark.promise("TURN-08")
@pytest.mark.parametrize("by", ["this", "another"])
@pytest.mark.parametrize("decision", ["approve", "edit", "deny"])
async def test_a_left_turn_continues_with_the_decision(file, open_runtime, by, decision):
    runtime = await open_runtime(file, wipe, note, model=script())
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Wipe it.")
        assert (await turn).status == "waiting"
        found = await (await runtime.turn(turn.id))
        assert [(wait.call_id, wait.tool, wait.what) for wait in found.waits] == [("w", "wipe", "approval")]
        who = runtime if by == "this" else await open_runtime(file, wipe, note)
        key = await only_request(who)
        if decision == "deny":
            await who.deny(key, reason="not now")
        else:
            await who.approve(key, arguments={"path": "/y"} if decision == "edit" else None)
        ended = await turn.wait()
        assert ended is not None
        assert ended.text == "Gone."
        told = {"approve": "wiped /x", "edit": "wiped /y", "deny": None}[decision]
        assert [each.value for each in ended.calls] == ["hi", told]
        kinds = [event.kind for event in [event async for event in turn.follow()]]
    assert kinds.count("turn.waiting") == kinds.count("turn.continued") == kinds.count("turn.ended") == 1
    assert kinds.index("call.waiting") < kinds.index("turn.waiting") < kinds.index("turn.continued")
    assert ran == ["hi", *([] if decision == "deny" else [str(told).removeprefix("wiped ")])]
    await nothing_is_left(runtime)


@pytest.mark.promise("TURN-08")
async def test_a_follower_of_a_left_turn_gets_every_event_once(file, open_runtime):
    runtime = await open_runtime(file, wipe, note, model=script())
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Wipe it.")
        kinds: list[str] = []
        numbers: list[int] = []
        async for event in turn.follow():
            kinds.append(event.kind)
            numbers.append(event.number)
            if event.kind == "turn.waiting":
                await runtime.approve(await only_request(runtime))
    assert numbers == sorted(set(numbers))
    assert kinds == [event.kind for event in [event async for event in turn.follow()]]
    assert [kind for kind in kinds if kind.startswith("turn.")] == [
        "turn.started",
        "turn.waiting",
        "turn.continued",
        "turn.ended",
    ]


@pytest.mark.promise("TURN-08")
async def test_a_left_turn_continues_when_the_time_for_the_decision_is_over(file, open_runtime):
    clock = FakeClock()
    policy = Policy(approval_timeout=3600)
    runtime = await open_runtime(file, wipe, note, model=script(), clock=clock, policy=policy)
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Wipe it.")
        assert (await turn).status == "waiting"
        await clock.advance(3601)
        ended = await turn.wait()
        assert ended is not None
        assert ended.calls[1].failure is not None
        assert ended.calls[1].failure.code == "approval_expired"
        assert ended.text == "Gone."


@pytest.mark.promise("TURN-08", "TURN-05")
@pytest.mark.parametrize("how", ["handle", "new handle", "session", "another"])
async def test_a_left_turn_that_is_cancelled_ends_and_takes_its_request_back(file, open_runtime, how):
    runtime = await open_runtime(file, wipe, note, model=script())
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Wipe it.")
        assert (await turn).status == "waiting"
        if how == "handle":
            assert await turn.cancel("no longer needed")
        elif how == "new handle":
            assert await (await runtime.turn(turn.id)).cancel("no longer needed")
        elif how == "session":
            runtime.session("s").cancel("no longer needed")
        else:
            other = await open_runtime(file, wipe, note)
            await (await other.turn(turn.id)).cancel("no longer needed")
        ended = await turn.wait()
        assert ended is not None
        assert (ended.status, ended.reason) == ("cancelled", "no longer needed")
        statuses = [(each.status, each.may_have_run) for each in ended.calls]
        assert statuses == [("success", False), ("cancelled", False)]
        assert await runtime.approvals() == []
        assert (await runtime.session("s").ask("And now?")).text == "Gone."
    assert ran == ["hi"]
    await nothing_is_left(runtime)


@pytest.mark.promise("TURN-08", "TURN-03")
async def test_a_message_to_a_session_whose_turn_was_left_waits_for_that_turn(file, open_runtime):
    runtime = await open_runtime(file, wipe, note, model=script())
    async with fail_after(10):
        first = await waiting(runtime)
        second = await runtime.session("s").start_turn("And then?")
        queued = await second
        assert (queued.status, [wait.call_id for wait in queued.waits]) == ("waiting", ["w"])
        again = await runtime.session("s").ask("Wipe it.", id=first.turn_id)
        assert (again.status, [wait.call_id for wait in again.waits]) == ("waiting", ["w"])
        await runtime.approve(await only_request(runtime))
        assert (await (await runtime.turn(first.turn_id))).text == "Gone."
        ended = await second.wait()
        assert ended is not None
        assert ended.text == "Later."
    assert ran == ["hi", "/x"]


@pytest.mark.promise("TURN-08", "TURN-11")
async def test_a_left_turn_that_is_steered_tells_its_model_when_it_continues(file, open_runtime):
    model = script()
    runtime = await open_runtime(file, wipe, note, model=model)
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Wipe it.")
        assert (await turn).status == "waiting"
        await turn.steer("Be quick.")
        await runtime.approve(await only_request(runtime))
        ended = await turn.wait()
        assert ended is not None
        assert ended.status == "answered"
        said = [message.content for message in await runtime.session("s").messages.list() if message.sender == "user"]
    assert said == ["Wipe it.", "Be quick."]


@pytest.mark.promise("TURN-08", "TURN-03")
@pytest.mark.parametrize("decided", ["before", "after"])
async def test_a_left_turn_continues_in_the_next_process(file, open_runtime, decided):
    first = await Runtime.open(file, tools=[wipe, note], model=script())
    async with fail_after(20):
        outcome = await waiting(first)
        await first.close()
        second = await open_runtime(file, wipe, note, model=script())
        if decided == "before":
            await second.approve(await only_request(second))
        await second.recover()
        if decided == "after":
            await second.session("s").wait_for_idle()
            await second.approve(await only_request(second))
        ended = await (await second.turn(outcome.turn_id)).wait()
        assert ended is not None
        assert (ended.text, [each.value for each in ended.calls]) == ("Gone.", ["hi", "wiped /x"])
    assert ran == ["hi", "/x"]


@pytest.mark.promise("TURN-08")
async def test_what_only_this_process_has_is_still_there_when_the_turn_continues(file, open_runtime):
    @tool(approval="required")
    async def own(path: str) -> str:
        """Only this session has it."""
        return f"own {path}"

    runtime = await open_runtime(file)
    model = ScriptedModel([[call("w", "own", path="/x")], "Gone."])
    async with fail_after(10):
        runtime.session("s", tools=ToolRegistry([own]))
        turn = await runtime.session("s").start_turn("Go.", model=model)
        assert (await turn).status == "waiting"
        gc.collect()
        await runtime.approve(await only_request(runtime))
        ended = await turn.wait()
        assert ended is not None
        assert [each.value for each in ended.calls] == ["own /x"]


@pytest.mark.promise("TURN-08")
async def test_a_hook_sees_the_calls_of_a_waiting_turn_once(file, open_runtime):
    seen: list[str] = []

    async def look(request: Any) -> None:
        seen.append(request.call_id)

    runtime = await open_runtime(file, wipe, note, model=script(), before=[look])
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Wipe it.")
        assert (await turn).status == "waiting"
        await runtime.approve(await only_request(runtime))
        ended = await turn.wait()
        assert ended is not None
        assert ended.text == "Gone."
    assert seen == ["n", "w"]


@pytest.mark.promise("TURN-08")
async def test_many_left_turns_continue_side_by_side(file, open_runtime):
    runtime = await open_runtime(file, wipe, note, model=script())
    async with fail_after(30):
        await asyncio.gather(*[waiting(runtime, f"s{number}") for number in range(50)])
        for approval in await runtime.approvals():
            await runtime.approve(approval.key)
        turns = await runtime.turns(limit=100)
        ended = await asyncio.gather(*[(await runtime.turn(turn.id)).wait() for turn in turns])
    assert [one.text for one in ended if one is not None] == ["Gone."] * 50
    await nothing_is_left(runtime)
