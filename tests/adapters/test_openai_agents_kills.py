"""An agent of the OpenAI Agents SDK whose process is killed: at every crash point, and in the middle of its tools.

The host stores the state of an interrupted run as JSON. A run that was killed before is run again from there, or from
its beginning; the scripted model gives the same answers again.
"""

from collections import Counter

import pytest

from toolwright.testing import CrashKit

PARTS = 4

PRELOADED = ("agents", "agents.testing", "toolwright.adapters.openai_agents", "toolwright.app")

PROGRAM = """
import json, pathlib
from agents import Agent, RunConfig, Runner, RunState, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from toolwright.adapters.openai_agents import function_tools, settle

saved = pathlib.Path("state.json")
set_tracing_disabled(True)

@tool(readonly=True)
async def look(key: str) -> str:
    return f"seen {key}"

@tool(key="key")
async def pay(key: str, ctx: ToolContext) -> str:
    note(f"pay {key}")
    await asyncio.sleep(0)
    return f"paid {key}"

@tool(approval="required")
async def order(key: str, ctx: ToolContext) -> str:
    note(f"order {key}")
    await asyncio.sleep(0)
    return f"ordered {key}"

def save(state):
    pathlib.Path("state.new").write_text(state.to_string())
    os.replace("state.new", saved)

def call(name, key):
    return function_call(name, {"key": key}, call_id=f"{name} {key}")

def results(result):
    items = result.to_input_list()
    return {each["call_id"]: each["output"] for each in items if each.get("type") == "function_call_output"}

async def main():
    async with Runtime.open(store, tools=[look, pay, order]) as runtime:
        session = runtime.session("s")
        answers = [
            [call("look", "a"), call("pay", "b"), call("pay", "c")],
            [call("order", "d"), call("pay", "e"), call("order", "f")],
            [call("pay", "g")],
            [assistant_message("done")],
        ]
        resumed = saved.exists()
        agent = Agent("clerk", model=ScriptedModel(answers[2:] if resumed else answers), tools=function_tools(session))
        given = await RunState.from_string(agent, saved.read_text()) if resumed else "go"
        while True:
            if not isinstance(given, str):
                for item in given.get_interruptions():
                    if item.call_id == "order d":
                        given.approve(item)
                    else:
                        given.reject(item, rejection_message="no")
                await settle(session, given)
            result = await Runner.run(agent, given)
            if not result.interruptions:
                say(["results", results(result)])
                say(["end", result.final_output, len(await session.approvals())])
                return
            given = result.to_state()
            save(given)
            say(["results", results(result)])
"""
CALLS = ("look a", "pay b", "pay c", "order d", "pay e", "order f", "pay g")


def require_continued(crashes: CrashKit, acknowledged: dict[str, str]) -> None:
    """The next process ends the run: no effect twice, and what was stored in the state stays."""
    *_, (word, results), end = crashes.run(PROGRAM).said
    assert (word, end) == ("results", ["end", "done", 0])
    assert sorted(results) == sorted(CALLS)
    for id, text in acknowledged.items():
        assert results[id] == text
    effects = Counter(crashes.ledger)
    done = {"pay": "paid", "order": "ordered"}
    assert results["order f"] == "no"
    assert effects["order f"] == 0
    for id, text in results.items():
        name, key = id.split()
        if name in done and id != "order f":
            assert effects[id] <= 1
            if text == f"{done[name]} {key}":
                assert effects[id] == 1
            else:
                assert "interrupted" in text or "cut off" in text, text


@pytest.mark.promise("ADP-03", "ADP-05")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_that_is_killed_at_any_point_continues_with_no_effect_twice(crashes, tmp_path, zygote, part):
    points, kills = crashes.points(PROGRAM)[2 * part :: 2 * PARTS], 0
    assert Counter(crashes.ledger) == Counter(set(CALLS) - {"look a", "order f"})
    for number, (point, nth) in enumerate(points):
        (folder := tmp_path / str(number)).mkdir()
        with CrashKit(folder, zygote=zygote) as kit:
            killed = kit.start_doomed(point, PROGRAM, nth=nth).wait()
            kills += killed.killed  # how often a program commits depends on time: the last of them may not come
            acknowledged = dict(killed.said[-1][1]) if killed.said and killed.said[-1][0] == "results" else {}
            require_continued(kit, acknowledged)
    assert kills >= 30 // PARTS


RECORDED = """
import uuid
from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.testing import assistant_message, function_call
from toolwright.adapters.openai_agents import RecordedModel, function_tools

set_tracing_disabled(True)

@tool(key="key")
async def pay(key: str, ctx: ToolContext) -> str:
    note(f"pay {key}")
    await asyncio.sleep(0)
    return f"paid {key}"

class Forgetful(Model):
    async def get_response(self, system, input, *given, **options):
        number = 0 if isinstance(input, str) else sum(each.get("type") == "function_call" for each in input)
        note(f"asked {number}")
        names = ["ab", "cd"][number // 2] if number < 4 else ""
        # A real model gives other ids each time.
        calls = [function_call("pay", {"key": key}, call_id=f"call_{uuid.uuid4().hex}") for key in names]
        return ModelResponse(output=calls or [assistant_message("done")], usage=Usage(), response_id=None)

    def stream_response(self, *given, **options):
        raise NotImplementedError

async def main():
    async with Runtime.open(store, tools=[pay]) as runtime:
        session = runtime.session("s")
        agent = Agent("clerk", model=RecordedModel(Forgetful(), session, "message 1"), tools=function_tools(session))
        result = await Runner.run(agent, "go")
        say([result.final_output, len(result.to_input_list())])
"""


@pytest.mark.promise("ADP-05")
def test_a_run_of_a_model_with_fresh_ids_is_killed_anywhere_and_pays_nothing_twice(crashes, tmp_path, zygote):
    points = crashes.points(RECORDED)[::3]
    assert len(points) >= 10
    for number, (point, nth) in enumerate(points):
        (folder := tmp_path / f"r{number}").mkdir()
        with CrashKit(folder, zygote=zygote) as kit:
            kit.start_doomed(point, RECORDED, nth=nth).wait()
            assert kit.run(RECORDED).said == [["done", 10]]
            effects = Counter(each for each in kit.ledger if each.startswith("pay"))
            assert max(effects.values()) == 1, (point, nth, kit.ledger)
            asked = Counter(each for each in kit.ledger if each.startswith("asked"))
            # Only the answer that was on its way when the process died is asked for again.
            assert sum(asked.values()) <= 4
