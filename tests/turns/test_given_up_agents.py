"""Sub-agents whose processes die again and again: who is given up, and that nothing of them stays unfinished."""

from typing import Any

import pytest

from toolwright.testing import CrashKit, Zygote

STORY = """
from toolwright import App, Budget
from toolwright.testing import FunctionModel

def passes(point):
    note(point)
    if point in deadly:
        die()

@tool(on_crash="rerun")
async def work(n: int) -> str:
    passes(f"work {n}")
    return f"worked {n}"

@tool(approval="required")
async def wipe() -> str:
    return "wiped"

def child(request):
    passes(f"child {request.number}")
    given = script[request.number]
    if isinstance(given, str):
        return given + "; ".join(one.text for item in request.messages for one in getattr(item, "outcomes", ()))
    return [ToolCall(id=f"c{n}", name=name, arguments=arguments) for n, (name, arguments) in enumerate(given)]

def parent(request):
    return [ToolCall(id="1", name=asked, arguments={"message": "Go."})] if request.number == 0 else "Over."

worker = App(tools=[work, wipe], model=FunctionModel(child, name="child"))

@tool(on_crash="fail")
async def once(message: str, ctx: ToolContext) -> str:
    outcome = await ctx.open_child("child").ask(message, tools=[work, wipe], model=FunctionModel(child, name="child"))
    return outcome.text

agent = worker.as_tool("agent")
def ask_below(request):
    return [ToolCall(id="u", name="agent", arguments={"message": "On."})] if request.number == 0 else "Up."

upper = App(tools=[agent], model=FunctionModel(ask_below, name="upper")).as_tool("upper")
app = App(tools=[agent, once, upper], model=FunctionModel(parent, name="parent"))

async def tell(runtime, outcome):
    say([outcome.status, outcome.text, [one.failure.code if one.failure else one.value for one in outcome.calls]])
    say(sorted([info.parent_call_id or "", info.state, info.reason or ""] for info in await runtime.turns()))
    say(len(await runtime.approvals()))
"""

ASK = """
async def main():
    async with app.open(store, recover=True) as runtime:
        outcome = await runtime.session("s").ask("?", id="t", budget=Budget(model_calls=30))
        if "waiting" in deadly:
            assert outcome.status == "waiting", outcome
            die()
        await tell(runtime, outcome)
"""

CANCEL = """
async def main():
    async with app.open(store) as runtime:
        turn = await runtime.turn("t")
        await turn.cancel("enough")
        await tell(runtime, await turn)
"""

WITHOUT_A_TURN = """
async def main():
    async with app.open(store) as runtime:
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="1", name="agent", arguments={"message": "?"})])
        say(outcome.failure.code)
        say([[info.state, info.reason] for info in await runtime.turns()])
"""


@pytest.fixture
def kit(zygote: Zygote, tmp_path: Any) -> Any:
    with CrashKit(tmp_path, zygote=zygote) as made:
        yield made


def die(kit: CrashKit, times: int, story: str, **given: Any) -> None:
    for _ in range(times):
        assert kit.start(STORY + story, **given).wait().killed


def unfinished(kit: CrashKit) -> list[str]:
    return [call.call_id for call in kit.calls() if call.state in ("intended", "begun")]


WORKS: list[Any] = [[["work", {"n": 1}], ["work", {"n": 2}]], "Worked: "]
GIVEN_UP = "its call ended without it: given_up"


@pytest.mark.promise("EFF-14", "TURN-12")
def test_a_tool_of_a_sub_agent_that_ends_its_process_each_time_is_given_up_and_the_sub_agent_is_not(kit):
    script: list[Any] = [[["work", {"n": 1}]], "Worked: "]
    die(kit, 3, ASK, asked="agent", script=script, deadly=["work 1"])
    said = kit.run(STORY + ASK, asked="agent", script=script, deadly=["work 1"]).said
    assert said[0][:2] == ["answered", "Over."]
    assert said[0][2][0].startswith("Worked: ")
    assert "was running each of the 3 times that its process died" in said[0][2][0]
    assert [state for _, state, _ in said[1]] == ["answered", "answered"]
    assert kit.ledger.count("work 1") == 3


@pytest.mark.promise("EFF-14", "TURN-12")
@pytest.mark.parametrize("where", ["child 0", "child 1"])
def test_a_model_that_ends_its_process_each_time_ends_the_call_of_its_sub_agent_and_its_turn(kit, where):
    die(kit, 3, ASK, asked="agent", script=WORKS, deadly=[where])
    said = kit.run(STORY + ASK, asked="agent", script=WORKS, deadly=[where]).said
    assert said[0] == ["answered", "Over.", ["given_up"]]
    assert said[1] == [["", "answered", ""], ["1", "cancelled", GIVEN_UP]]
    assert said[2] == 0
    assert unfinished(kit) == []
    assert kit.ledger.count(where) == 3


@pytest.mark.promise("EFF-14", "TURN-12")
def test_deaths_in_the_tools_of_a_sub_agent_and_before_them_are_not_added_up(kit):
    for deadly in ("child 0", "child 0", "work 1", "work 1", "child 1", "child 1"):
        die(kit, 1, ASK, asked="agent", script=WORKS, deadly=[deadly])
    said = kit.run(STORY + ASK, asked="agent", script=WORKS, deadly=[]).said
    assert said[0] == ["answered", "Over.", ["Worked: worked 1; worked 2"]]


@pytest.mark.promise("EFF-14", "TURN-12")
def test_a_sub_agent_of_a_sub_agent_is_given_up_alone(kit):
    die(kit, 3, ASK, asked="upper", script=WORKS, deadly=["child 0"])
    said = kit.run(STORY + ASK, asked="upper", script=WORKS, deadly=["child 0"]).said
    assert said[0] == ["answered", "Over.", ["Up."]]
    assert said[1] == [["", "answered", ""], ["1", "answered", ""], ["u", "cancelled", GIVEN_UP]]


@pytest.mark.promise("EFF-14", "TURN-12")
def test_a_call_outside_of_turns_that_is_given_up_ends_the_turn_of_its_sub_agent(kit):
    die(kit, 3, WITHOUT_A_TURN, asked="agent", script=WORKS, deadly=["child 1"])
    said = kit.run(STORY + WITHOUT_A_TURN, asked="agent", script=WORKS, deadly=["child 1"]).said
    assert said == ["given_up", [["cancelled", GIVEN_UP]]]
    assert unfinished(kit) == []


@pytest.mark.promise("TURN-12")
@pytest.mark.parametrize("where", ["child 0", "work 1", "child 1"])
def test_a_tool_that_is_not_run_again_ends_the_turn_that_it_asked(kit, where):
    die(kit, 1, ASK, asked="once", script=WORKS, deadly=[where])
    said = kit.run(STORY + ASK, asked="once", script=WORKS, deadly=[where]).said
    assert said[0] == ["answered", "Over.", ["interrupted"]]
    assert said[1] == [["", "answered", ""], ["1", "cancelled", "its call ended without it: interrupted"]]
    assert said[2] == 0
    assert unfinished(kit) == []


@pytest.mark.promise("TURN-08", "TURN-12")
@pytest.mark.parametrize(
    ("asked", "where"), [("agent", "work 1"), ("agent", "child 1"), ("agent", "waiting"), ("upper", "waiting")]
)
def test_a_turn_that_is_cancelled_after_a_crash_takes_its_sub_agents_with_it(kit, asked, where):
    script = [[["wipe", {}]], "Wiped."] if where == "waiting" else WORKS
    die(kit, 1, ASK, asked=asked, script=script, deadly=[where])
    said = kit.run(STORY + CANCEL, asked=asked, script=script, deadly=[where]).said
    assert said[0][0] == "cancelled"
    assert [[state, reason] for _, state, reason in said[1]] == [["cancelled", "enough"]] * len(said[1])
    assert said[2] == 0
    assert unfinished(kit) == []
