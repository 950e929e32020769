"""An agent of Pydantic AI whose process is killed: at every crash point, and in the middle of its tools.

The host stores the history as JSON before the calls of an answer run, as a host must; the next process continues it.
"""

import json
from collections import Counter

import pytest

from toolwright.testing import CrashKit

PARTS = 4

PRELOADED = ("pydantic_ai", "pydantic_ai.models.function", "toolwright.adapters.pydantic_ai", "toolwright.app")

PROGRAM = """
import json, pathlib
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ModelRequest
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from toolwright.adapters.pydantic_ai import ToolwrightToolset

saved = pathlib.Path("history.json")

@tool(readonly=True)
async def look(key: str) -> str:
    return f"seen {key}"

@tool(key="key")
async def pay(key: str, ctx: ToolContext) -> str:
    note(f"pay {key}")
    await asyncio.sleep(0)
    return f"paid {key}"

@tool(approval="required", on_crash=crash_policy)
async def order(key: str, ctx: ToolContext) -> str:
    note(f"order {key}")
    await asyncio.sleep(0)
    return f"ordered {key}"

def answer(messages, info):
    number = sum(isinstance(each, ModelResponse) for each in messages)
    answers = [
        [("look", "a"), ("pay", "b"), ("pay", "c")],
        [("order", "d"), ("pay", "e"), ("order", "f")],
        [("pay", "g")],
    ]
    if number == len(answers):
        return ModelResponse(parts=[TextPart("done")])
    # The same ids in each answer, as some servers give them.
    calls = enumerate(answers[number])
    return ModelResponse(parts=[ToolCallPart(name, {"key": key}, f"c{place}") for place, (name, key) in calls])

def save(messages, deferred):
    text = json.dumps({"messages": json.loads(ModelMessagesTypeAdapter.dump_json(messages)), "deferred": deferred})
    pathlib.Path("history.new").write_text(text)
    os.replace("history.new", saved)

def results(messages):
    found, number = {}, 0
    for message in messages:
        number += isinstance(message, ModelResponse)
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    found[f"{number} {part.tool_call_id}"] = part.model_response_str()
    return found

async def main():
    async with Runtime.open(store, tools=[look, pay, order]) as runtime:
        toolset = ToolwrightToolset(runtime.session("s"))
        agent = Agent(FunctionModel(answer), toolsets=[toolset], output_type=[str, DeferredToolRequests])
        state = json.loads(saved.read_text()) if saved.exists() else {"messages": [], "deferred": {}}
        prompt = None if state["messages"] else "go"
        while True:
            history = ModelMessagesTypeAdapter.validate_python(state["messages"])
            given, waiting = None, state["deferred"]
            if waiting:
                given = DeferredToolResults(approvals={id: True for id in waiting}, metadata=waiting)
            async with agent.iter(prompt, message_history=history, deferred_tool_results=given) as run:
                async for node in run:
                    if Agent.is_model_request_node(node):
                        waiting = None  # the results of the deferred calls are in the history
                    if Agent.is_call_tools_node(node) and not waiting:
                        save(run.all_messages(), {})
                messages, output = run.all_messages(), run.result.output
            prompt = None
            deferred = {}
            if isinstance(output, DeferredToolRequests):
                deferred = {part.tool_call_id: output.metadata[part.tool_call_id] for part in output.approvals}
            save(messages, deferred)
            say(["results", results(messages)])
            if not deferred:
                say(["end", output])
                return
            state = json.loads(saved.read_text())
"""
CALLS = {
    "1 c0": "look a",
    "1 c1": "pay b",
    "1 c2": "pay c",
    "2 c0": "order d",
    "2 c1": "pay e",
    "2 c2": "order f",
    "3 c0": "pay g",
}


def require_continued(crashes: CrashKit, acknowledged: dict[str, str], crash_policy: str) -> None:
    """The next process ends the conversation: no effect twice, and what was stored in the history stays."""
    ended = crashes.run(PROGRAM, crash_policy=crash_policy)
    *_, (word, results), end = ended.said
    assert (word, end) == ("results", ["end", "done"])
    assert sorted(results) == sorted(CALLS)
    effects = Counter(crashes.ledger)
    for id, text in acknowledged.items():
        assert results[id] == text
    for id, text in results.items():
        name = CALLS[id]
        if not name.startswith("look"):
            done = "paid" if name.startswith("pay") else "ordered"
            most = 1 if crash_policy != "rerun" or name.startswith("pay") else 2
            assert effects[name] <= most
            if text == f"{done} {name.split()[1]}":
                assert effects[name] >= 1
            else:
                assert "interrupted" in text or "cut off" in text, text


@pytest.mark.promise("ADP-01", "ADP-05")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_conversation_that_is_killed_at_any_point_continues_with_no_effect_twice(crashes, tmp_path, zygote, part):
    points = crashes.points(PROGRAM, crash_policy="fail")[2 * part :: 2 * PARTS]
    assert Counter(crashes.ledger) == Counter(name for name in CALLS.values() if not name.startswith("look"))
    kills = 0
    for number, (point, nth) in enumerate(points):
        (folder := tmp_path / str(number)).mkdir()
        with CrashKit(folder, zygote=zygote) as kit:
            killed = kit.start_doomed(point, PROGRAM, nth=nth, crash_policy="fail").wait()
            kills += killed.killed  # how often a program commits depends on time: the last of them may not come
            acknowledged = dict(killed.said[-1][1]) if killed.said and killed.said[-1][0] == "results" else {}
            require_continued(kit, acknowledged, "fail")
    assert kills >= 30 // PARTS


@pytest.mark.promise("ADP-05")
def test_an_approval_in_the_run_does_not_answer_the_question_after_a_crash(crashes):
    """To run a call again that may have had its effect is another decision than to run it."""
    # The tools run in the order of the answers: three, one that needs no approval, and then the first order.
    crashes.kill_at("after the tool ran", PROGRAM, nth=5, crash_policy="ask")
    assert crashes.ledger.count("order d") == 1
    saved = json.loads((crashes.folder / "history.json").read_text())
    assert saved["deferred"]["c0"]["cause"] == "policy"
    # It asks again, with another cause. The host approves that as well: only then it runs again.
    ended = crashes.run(PROGRAM, crash_policy="ask")
    rounds = [said for said in ended.said if said[0] == "results"]
    assert "2 c0" not in rounds[0][1], "the approval of the first request does not count"
    assert rounds[-1][1]["2 c0"] == "ordered d"
    assert crashes.ledger.count("order d") == 2
