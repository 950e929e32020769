"""Turns whose process is killed: at every crash point, and at any instant. The next process ends them."""

import random
from collections import Counter
from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from toolwright import ToolCall
from toolwright.testing.crash_points import TURN_POINTS
from toolwright.wire import anthropic, openai_chat
from toolwright.wire.repair import repair

PARTS = 10
KILLS = 200
"""At random instants; the crash points make some 150 more."""

PROGRAM = """
from toolwright import App
from toolwright.testing import FunctionModel

def call(id, name):
    return ToolCall(id=id, name=name, arguments={"key": id})

@tool(readonly=True)
async def look(ctx: ToolContext, key: str) -> str:
    await asyncio.sleep(0)
    return f"seen {key}"

@tool(idempotent=True)
async def put(ctx: ToolContext, key: str) -> str:
    return f"put {key}"

@tool
async def pay(ctx: ToolContext, key: str) -> str:
    note(f"pay {ctx.session_id} {key}")
    await asyncio.sleep(0)
    return f"paid {key}"

async def model(request):
    number = request.number
    note(f"model {request.session} {number}")
    await asyncio.sleep(0)
    step = number % 4
    if step == 0:
        return [call(f"l{number}", "look"), call(f"p{number}", "pay"), call(f"u{number}", "put")]
    if step == 1:
        return [call(f"p{number}", "pay"), call(f"q{number}", "pay"), call("n", "nothing")]
    if step == 2:
        return [call(f"l{number}", "look")]
    return f"Answer {number}."

app = App(tools=[look, put, pay], model=FunctionModel(model))

async def main():
    async with app.open(store) as runtime:
        if first:
            say("open")
        await runtime.recover()
        sessions = [runtime.session(f"s{n}") for n in range(2)]
        # Asked again after a crash: a turn of this id is the same turn.
        turns = [await session.start_turn(text, id=f"{session.id} {text}") for session in sessions for text in asked]
        outcomes = [await turn.wait() for turn in turns]
        for session in sessions:
            await session.wait_for_idle()
        if not first:
            for session in sessions:
                messages = [[each.sender, each.content, each.metadata] for each in await session.messages.list()]
                say([session.id, messages])
            say([[each.status, each.text, [one.status for one in each.calls]] for each in outcomes])
"""
RECORDED = """
from toolwright import App

async def main():
    async with Runtime.open(store) as runtime:
        say([[each.session, each.number, each.model_calls] for each in await runtime.turns(limit=100)])
"""
ASKED = ["one", "two"]


def chat(messages: list[Any]) -> list[Any]:
    """A history in the form of OpenAI's chat completions."""
    found: list[Any] = []
    for sender, content, _ in messages:
        if sender == "user":
            found.append({"role": "user", "content": content})
        elif sender == "assistant" and isinstance(content, str):
            found.append({"role": "assistant", "content": content})
        elif sender == "assistant":
            calls = [ToolCall(each["name"], each["arguments"], each["id"]) for each in content["calls"]]
            written = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": "{}"}} for one in calls
            ]
            found.append({"role": "assistant", "content": None, "tool_calls": written})
        else:
            found += [
                {"role": "tool", "tool_call_id": each["call_id"], "content": each["text"]}
                for each in content["results"]
            ]
    return found


def claude(messages: list[Any]) -> list[Any]:
    """A history in the form of Anthropic's messages."""
    found: list[Any] = []
    for sender, content, _ in messages:
        if sender == "user":
            found.append({"role": "user", "content": content})
        elif sender == "assistant" and isinstance(content, str):
            found.append({"role": "assistant", "content": content})
        elif sender == "assistant":
            blocks = [
                {"type": "tool_use", "id": each["id"], "name": each["name"], "input": each["arguments"]}
                for each in content["calls"]
            ]
            found.append({"role": "assistant", "content": blocks})
        else:
            results = [
                {"type": "tool_result", "tool_use_id": each["call_id"], "content": each["text"]}
                for each in content["results"]
            ]
            found.append({"role": "user", "content": results})
    return found


CHAT, CLAUDE = TypeAdapter(list[ChatCompletionMessageParam]), TypeAdapter(list[MessageParam])


def require_valid(messages: list[Any]) -> None:
    """Both providers accept the history as it is: their own types, and each call with its results after it."""
    for name, adapter, history in (
        (openai_chat.NAME, CHAT, chat(messages)),
        (anthropic.NAME, CLAUDE, claude(messages)),
    ):
        adapter.validate_python(history)
        assert repair(history, name).changes == []
    units = [(each[0], each[2]["turn"], each[2]["step"]) for each in messages if each[0] != "user"]
    assert len(units) == len(set(units)), "a unit is in the history twice"


def check_ended(crashes: Any) -> None:
    """Continue in another process: every turn ends, nothing recorded is paid for again, no effect happens twice."""
    (recorded,) = crashes.run(RECORDED).said
    known: Counter[str] = Counter()
    for session, _, model_calls in recorded:
        known[session] += model_calls
    before = len(crashes.ledger)
    *histories, outcomes = crashes.run(PROGRAM, first=False, asked=ASKED).said
    for line in crashes.ledger[before:]:
        kind, session, number = line.split()
        if kind == "model":
            assert int(number) >= known[session], "a recorded model call was made again"
    payments = [line for line in crashes.ledger if line.startswith("pay ")]
    assert len(payments) == len(set(payments))
    for _, messages in histories:
        require_valid(messages)
        assert [each[0] for each in messages].count("user") == len(ASKED)
    for status, text, calls in outcomes:
        assert (status, text.startswith("Answer")) == ("answered", True)
        assert len(calls) == 7


@pytest.mark.promise("TURN-03", "TURN-06")
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_every_crash_point_a_turn_ends_in_the_next_process(crashes, tmp_path_factory, zygote, part):
    points = crashes.points(PROGRAM, first=True, asked=ASKED[:1])
    claimed = {name for name in TURN_POINTS if name.endswith("claimed")}  # a turn that waited in the queue is
    assert {name for name, _ in points} >= set(TURN_POINTS) - claimed
    for point, nth in points[part::PARTS]:
        with type(crashes)(tmp_path_factory.mktemp("turn"), zygote=zygote) as kit:
            # Commits are shared by what comes together: a run may have fewer of them than the one that was counted.
            kit.start_doomed(point, PROGRAM, nth=nth, first=True, asked=ASKED[:1]).wait()
            check_ended(kit)


@pytest.mark.promise("TURN-03", "TURN-06")
@pytest.mark.parametrize("point", ["before a turn is claimed", "after a turn is claimed"])
def test_killed_when_a_queued_turn_is_claimed_it_ends_in_the_next_process(crashes, point):
    crashes.kill_at(point, PROGRAM, first=True, asked=ASKED)
    check_ended(crashes)


@pytest.mark.promise("TURN-03", "TURN-06")
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_any_instant_a_turn_ends_in_the_next_process(crashes, tmp_path_factory, zygote, part):
    chance = random.Random(part)
    for _ in range(KILLS // PARTS // 5):
        with type(crashes)(tmp_path_factory.mktemp("turn"), zygote=zygote) as kit:
            for _ in range(5):
                program = kit.start(PROGRAM, first=True, asked=ASKED)
                assert program.hear() == "open"
                program.listen(chance.uniform(0, 0.06))
                program.kill()
            check_ended(kit)
