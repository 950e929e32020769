"""Sub-agents: an app as a tool of another, and turns in the child sessions of calls."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import App, Budget, Policy, Rule, Runtime, ToolCall, ToolContext, ToolwrightError, tool
from toolwright.testing import CrashKit, FunctionModel, ScriptedModel
from toolwright.tools.model import ModelAnswer, ModelError, Usage


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def call(id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def adder(model: Any = None, **options: Any) -> App:
    if model is None:
        model = ScriptedModel([[call("1", "add", a=1, b=2)], "The sum is 3."], name="child")
    return App(tools=[add], model=model, instructions="You add.", **options)


ASKS_ONCE: list[Any] = [[call("1", "adder", message="1 + 2?")], "It is 3."]


@pytest.mark.promise("TURN-12", "TURN-04")
async def test_an_app_is_a_tool_of_another_with_its_own_tools_model_and_instructions(place, open_runtime):
    child = ScriptedModel([[call("1", "add", a=1, b=2)], "The sum is 3."], name="child")
    parent = ScriptedModel(ASKS_ONCE)
    runtime = await open_runtime(place, adder(child).as_tool("adder", description="Adds."), model=parent)
    outcome = await runtime.session("s").ask("1 + 2?")
    assert (outcome.status, outcome.text) == ("answered", "It is 3.")
    assert [(each.tool, each.value) for each in outcome.calls] == [("adder", "The sum is 3.")]
    assert [[each.name for each in request.tools] for request in (parent.requests[0], child.requests[0])] == [
        ["adder"],
        ["add"],
    ]
    assert [request.instructions for request in (parent.requests[0], child.requests[0])] == ["", "You add."]
    assert parent.requests[0].tools[0].description == "Adds."
    assert child.requests[0].session.startswith("s/")
    info = (await runtime.turns(child.requests[0].session))[0]
    assert (info.parent_session, info.parent_call_id, info.model_calls) == ("s", "1", 2)


@pytest.mark.promise("TURN-12")
async def test_an_agent_without_a_model_is_asked_through_the_model_of_the_turn(open_runtime):
    def model(request: Any) -> Any:
        if request.session != "s":
            return "I am the child."
        return [call("1", "helper", message="Who?")] if request.number == 0 else "Done."

    runtime = await open_runtime(App().as_tool("helper"))
    outcome = await runtime.session("s").ask("?", model=FunctionModel(model))
    assert outcome.calls[0].value == "I am the child."
    failed = await runtime.session("t").call("helper", message="Who?")
    assert (failed.failure.code, "no model" in failed.text) == ("no_model", True)


@pytest.mark.promise("TURN-12")
async def test_the_use_of_a_sub_agent_counts_for_the_turn_above(place, open_runtime):
    child = ScriptedModel(
        [
            ModelAnswer(calls=(call("1", "add", a=1, b=2),), usage=Usage(10, 1), model="c:c"),
            ModelAnswer(text="3", usage=Usage(20, 2), model="c:c"),
        ]
    )
    parent = ScriptedModel(
        [
            ModelAnswer(calls=(call("1", "adder", message="?"),), usage=Usage(100, 10), model="p:p"),
            ModelAnswer(text="Three.", usage=Usage(200, 20), model="p:p"),
        ]
    )
    runtime = await open_runtime(place, adder(child).as_tool("adder"), model=parent)
    session = runtime.session("s")
    outcome = await session.ask("?")
    assert outcome.model_calls == 4
    assert outcome.usage == Usage(330, 33)
    assert outcome.usage_by_model == {"p:p": Usage(300, 30), "c:c": Usage(30, 3)}
    info = (await session.turns())[0]
    assert (info.model_calls, info.tool_calls, info.usage) == (4, 2, Usage(330, 33))


@pytest.mark.promise("TURN-12")
@pytest.mark.parametrize(
    ("budget", "limit", "asked"),
    [
        (Budget(model_calls=3), "model_calls", 2),
        (Budget(tool_calls=3), "tool_calls", 3),
        (Budget(tokens=35), "tokens", 3),
    ],
)
async def test_a_sub_agent_never_uses_more_than_the_turn_above_has_left(place, open_runtime, budget, limit, asked):
    requests = []

    def endless(request: Any) -> ModelAnswer:
        requests.append(request)
        return ModelAnswer(calls=(call("c", "add", a=1, b=request.number),), usage=Usage(6, 4))

    parent = ScriptedModel(
        [ModelAnswer(calls=(call("1", "adder", message="?"),), usage=Usage(6, 4)), ModelAnswer(text="I gave up.")]
    )
    runtime = await open_runtime(place, adder(FunctionModel(endless)).as_tool("adder"), model=parent)
    outcome = await runtime.session("s").ask("?", budget=budget)
    (failed,) = outcome.calls
    assert (failed.failure.category, failed.failure.code) == ("resource_limit", "out_of_budget")
    assert failed.failure.data["limit"] == limit
    assert len(requests) == asked
    if limit == "tool_calls":
        assert outcome.text == "I gave up."
    else:
        assert (outcome.status, outcome.limit) == ("out_of_budget", limit)


@pytest.mark.promise("TURN-12")
async def test_sub_agents_side_by_side_share_what_the_turn_above_has_left(open_runtime):
    asked = 0

    async def endless(request: Any) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return [call("c", "add", a=1, b=request.number)]

    calls = [call(str(n), "adder", message=f"{n}?") for n in range(4)]
    runtime = await open_runtime(adder(FunctionModel(endless)).as_tool("adder"), model=ScriptedModel([calls, "Done."]))
    outcome = await runtime.session("s").ask("?", budget=Budget(model_calls=9))
    assert (outcome.status, outcome.limit, outcome.model_calls, asked) == ("out_of_budget", "model_calls", 9, 8)


@pytest.mark.promise("TURN-12")
async def test_the_own_budget_of_a_sub_agent_fails_its_call_and_not_the_turn(open_runtime):
    endless = FunctionModel(lambda request: [call("c", "add", a=1, b=request.number)])
    agent = adder(endless).as_tool("adder", budget=Budget(model_calls=2))
    runtime = await open_runtime(agent, model=ScriptedModel(ASKS_ONCE))
    outcome = await runtime.session("s").ask("?")
    assert (outcome.status, outcome.model_calls) == ("answered", 4)
    assert outcome.calls[0].failure.data["limit"] == "model_calls"


@pytest.mark.promise("TURN-12")
async def test_the_depth_of_sub_agents_is_bounded():
    app = adder()
    for _ in range(4):
        app = App(
            tools=[app.as_tool("adder")],
            model=FunctionModel(
                lambda request: (
                    [call("1", "adder", message="?")] if request.number == 0 else request.messages[-1].outcomes[0].text
                )
            ),
        )
    runtime = await app.open()
    session = runtime.session("s")
    assert (await session.ask("?", budget=Budget(model_calls=30))).text == "The sum is 3."
    outcome = await runtime.session("t").ask("?", budget=Budget(model_calls=30, depth=3))
    assert "nested as deep as the budget" in outcome.text
    assert outcome.model_calls == 2 * 4
    await runtime.close()


@pytest.mark.promise("TURN-04", "TURN-12")
async def test_a_sub_agent_has_its_own_policy_and_never_more_authority_than_its_call(place, open_runtime):
    ran = []

    @tool
    async def change(what: str) -> str:
        """Change."""
        ran.append(what)
        return what

    def child() -> Any:
        return ScriptedModel([[call("1", "change", what="x")], "Tried."])

    strict = App(tools=[change], model=child(), policy=Policy(rules=[Rule("deny", "change")]))
    free = App(tools=[change], model=child(), policy=Policy(rules=[Rule("allow", "*")]))
    runtime = await open_runtime(
        place,
        strict.as_tool("strict"),
        free.as_tool("free"),
        policy=Policy(rules=[Rule("deny", "change", source="model", name="none of the models")]),
    )
    for name in ("strict", "free"):
        script = ScriptedModel([[call("1", name, message="Change x.")], "Done."])
        outcome = await runtime.session(name).ask("?", model=script)
        assert outcome.calls[0].value == "Tried."
    assert ran == []
    denied = [each for each in runtime.log.records if each.tool == "change"]
    assert [(each.source, each.category) for each in denied] == [("model", "permission_denied")] * 2


@pytest.mark.promise("TURN-04", "TURN-07")
async def test_the_events_of_a_sub_agent_are_seen_in_the_turn_above_and_name_its_call(place, open_runtime):
    runtime = await open_runtime(place, adder().as_tool("adder"), model=ScriptedModel(ASKS_ONCE))
    with runtime.subscribe() as subscription:
        turn = await runtime.session("s").start_turn("?")
        async with fail_after(5):
            events = [event async for event in turn.follow()]
    nested = [event for event in events if event.kind.startswith("agent.")]
    kinds = [event.kind for event in nested]
    assert kinds[0] == "agent.turn.started"
    assert kinds[-1] == "agent.turn.ended"
    assert kinds.index("agent.model.answered") < kinds.index("agent.call.finished")
    assert {(event.data["agent"], event.data["parent_call_id"]) for event in nested} == {("adder", "1")}
    assert not [kind for kind in kinds if kind == "agent.text"]
    of_child = nested[0].data["session"]
    started = [
        event for event in iter(subscription.take, None) if event.kind == "call.started" and event.session == of_child
    ]
    assert [event.to_json()["parent"] for event in started] == ["1"]
    far = await runtime.turn(nested[0].data["turn"])
    assert "".join(event.text for event in [each async for each in far.follow()] if event.kind == "text")


@pytest.mark.promise("TURN-12")
async def test_a_sub_agent_that_fails_fails_its_call_with_the_reason(open_runtime):
    def broken(request: Any) -> Any:
        raise ModelError("The provider is closed.", "unauthorised")

    runtime = await open_runtime(adder(FunctionModel(broken)).as_tool("adder"), model=ScriptedModel(ASKS_ONCE))
    outcome = await runtime.session("s").ask("?")
    assert outcome.status == "answered"
    assert outcome.calls[0].failure.code == "unauthorised"
    assert "The provider is closed." in outcome.calls[0].text


@pytest.mark.promise("TURN-12")
async def test_cancelling_the_turn_above_cancels_the_sub_agent_in_its_model_call_and_in_its_tools(place, open_runtime):
    begun = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()

    async def model(request: Any) -> Any:
        if "model" in request.messages[0].text:
            begun.set()
            await asyncio.Event().wait()
        return [call("h", "hang")]

    agent = App(tools=[hang], model=FunctionModel(model)).as_tool("helper")
    runtime = await open_runtime(place, agent)
    for where in ("model", "tool"):
        begun.clear()
        script = ScriptedModel([[call("1", "helper", message=where)], "Never."])
        turn = await runtime.session(where).start_turn("?", model=script)
        async with fail_after(5):
            await begun.wait()
            await turn.cancel("enough")
            outcome = await turn
            assert (outcome.status, [each.status for each in outcome.calls]) == ("cancelled", ["cancelled"])
        (child,) = [info for info in await runtime.turns() if info.parent_session == where]
        assert (child.state, child.reason) == ("cancelled", "enough")


@pytest.mark.promise("TURN-08", "TURN-12")
async def test_a_sub_agent_that_waits_for_approval_lets_its_call_and_the_turn_above_wait(place, open_runtime):
    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    agent = App(tools=[wipe], model=ScriptedModel([[call("w", "wipe", path="/x")], "Gone."])).as_tool("cleaner")
    script = ScriptedModel([[call("1", "cleaner", message="Wipe /x.")], "All clean."])
    runtime = await open_runtime(place, agent, model=script)
    session = runtime.session("s")
    async with fail_after(5):
        outcome = await session.ask("Clean up.")
        assert outcome.status == "waiting"
        (wait,) = outcome.waits
        assert (wait.call_id, wait.tool, wait.what) == ("w", "wipe", "approval")
        assert await session.wait_for_idle()
        (approval,) = await runtime.approvals(wait.session)
        await runtime.approve(approval.key)
        ended = await (await session.turn(outcome.turn_id))
    assert (ended.status, ended.text, ended.calls[0].value) == ("answered", "All clean.", "Gone.")


@pytest.mark.promise("TURN-08", "TURN-12")
async def test_a_turn_whose_sub_agent_waits_is_cancelled_with_it(place, open_runtime):
    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    agent = App(tools=[wipe], model=ScriptedModel([[call("w", "wipe", path="/x")], "Gone."])).as_tool("cleaner")
    script = ScriptedModel([[call("1", "cleaner", message="Wipe /x.")], "All clean."])
    runtime = await open_runtime(place, agent, model=script)
    session = runtime.session("s")
    async with fail_after(5):
        outcome = await session.ask("Clean up.")
        turn = await session.turn(outcome.turn_id)
        await turn.cancel("never mind")
        assert (await turn).status == "cancelled"
    assert [info.state for info in await runtime.turns()] == ["cancelled", "cancelled"]
    assert await runtime.approvals() == []


@pytest.mark.promise("TURN-08", "TURN-12")
async def test_a_waiting_sub_agent_continues_in_the_next_process_however_often_that_changes(file, open_runtime):
    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    def app() -> App:
        agent = App(tools=[wipe], model=ScriptedModel([[call("w", "wipe", path="/x")], "Gone."])).as_tool("cleaner")
        return App(tools=[agent], model=ScriptedModel([[call("1", "cleaner", message="Wipe /x.")], "All clean."]))

    first = await app().open(file)
    outcome = await first.session("s").ask("Clean up.")
    assert outcome.status == "waiting"
    await first.close()
    async with fail_after(20):
        for _ in range(4):
            again = await app().open(file, recover=True)
            await again.session("s").wait_for_idle()
            assert [info.state for info in await again.turns(active=True)] == ["waiting", "waiting"]
            await again.close()
        last = await app().open(file, recover=True)
        await last.session("s").wait_for_idle()
        (approval,) = await last.approvals()
        await last.approve(approval.key)
        ended = await (await last.session("s").turn(outcome.turn_id))
        await last.close()
    assert (ended.text, [each.value for each in ended.calls], ended.model_calls) == ("All clean.", ["Gone."], 4)


@pytest.mark.promise("TURN-04")
async def test_a_tool_runs_a_sub_agent_in_its_child_session_with_the_tools_it_chooses(place, open_runtime):
    @tool
    async def delegate(ctx: ToolContext, question: str) -> list:
        """Delegate."""
        child = ctx.open_child("helper")
        first = await child.ask(question, tools=[add], budget=Budget(model_calls=2))
        second = await child.ask("And now?")
        return [first.text, second.text, child.tools]

    def model(request: Any) -> Any:
        if request.session == "s":
            return [call("1", "delegate", question="1 + 2?")] if request.number == 0 else "Done."
        return [call("1", "add", a=1, b=2)] if request.number == 0 else f"Answer {request.number}."

    runtime = await open_runtime(place, delegate, model=FunctionModel(model))
    outcome = await runtime.session("s").ask("?")
    assert outcome.calls[0].value == ["Answer 1.", "Answer 2.", ["add"]]
    assert outcome.model_calls == 5


async def test_a_child_session_is_asked_by_its_own_call_only(open_runtime):
    kept = []

    @tool
    async def delegate(ctx: ToolContext) -> None:
        """Delegate."""
        kept.append(ctx.open_child("helper"))

    runtime = await open_runtime(delegate, model=ScriptedModel(["x"]))
    await runtime.session("s").call("delegate")
    with pytest.raises(ToolwrightError, match="not one of this call"):
        await kept[0].ask("?")


@pytest.mark.promise("TURN-12")
async def test_a_sub_agent_has_the_dependencies_of_its_own_lifespan_or_those_of_its_caller(open_runtime):
    entered = []

    def lifespan(name: str) -> Any:
        @contextlib.asynccontextmanager
        async def around() -> Any:
            entered.append(name)
            yield name
            entered.append(f"{name} closed")

        return around

    @tool(readonly=True)
    async def whose(ctx: ToolContext) -> str:
        """Whose."""
        return str(ctx.deps)

    def model(request: Any) -> Any:
        return [call("1", "whose")] if request.number == 0 else request.messages[-1].outcomes[0].text

    own = App(tools=[whose], model=FunctionModel(model), lifespan=lifespan("own")).as_tool("own")
    lent = App(tools=[whose], model=FunctionModel(model)).as_tool("lent")
    runtime = await App(tools=[own, lent], lifespan=lifespan("caller")).open()
    session = runtime.session("s")
    assert (await session.call("own", message="?")).value == "own"
    assert (await session.call("own", message="!")).value == "own"
    assert (await session.call("lent", message="?")).value == "caller"
    await runtime.close()
    assert entered == ["caller", "own", "own closed", "caller closed"]


@pytest.mark.promise("TURN-12")
@pytest.mark.parametrize(("options", "told"), [({"budget": 5}, "use Budget"), ({"nonsense": 1}, "unknown option")])
def test_an_agent_that_cannot_be_a_tool_is_refused(options, told):
    with pytest.raises(ToolwrightError, match=told):
        adder().as_tool("adder", **options)
    with pytest.raises(ToolwrightError, match="name"):
        adder().as_tool("no name")


@pytest.mark.promise("TURN-12")
async def test_a_turn_of_a_sub_agent_is_not_continued_without_its_call(file, open_runtime):
    begun = asyncio.Event()

    async def slow(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    def model(request: Any) -> Any:
        return [call("1", "adder", message="?")] if request.number == 0 else "Done."

    first = await Runtime.open(file, tools=[adder(FunctionModel(slow)).as_tool("adder")], model=FunctionModel(model))
    await first.session("s").start_turn("?")
    await begun.wait()
    await first.close()
    # A program that has no such agent: the turn above is told so, and the sub-agent stays where it is.
    asked = []

    def other(request: Any) -> Any:
        asked.append(request.session)
        return "No agent."

    second = await open_runtime(file, model=FunctionModel(other), worker=True)
    async with fail_after(10):
        await second.recover()
        await second.session("s").wait_for_idle()
    assert asked == ["s"]


@pytest.mark.promise("TURN-03", "TURN-12")
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_a_sub_agent_continues_with_its_turn_after_its_runtime_was_closed(file, where):
    begun, paid = asyncio.Event(), []

    def app(hangs: bool) -> App:
        @tool(on_crash="rerun")
        async def work() -> str:
            """Work."""
            if hangs and where == "tool":
                begun.set()
                await asyncio.Event().wait()
            return "worked"

        async def child(request: Any) -> Any:
            paid.append(request.number)
            if hangs and where == "model" and request.number == 1:
                begun.set()
                await asyncio.Event().wait()
            return [call("w", "work")] if request.number == 0 else "Done by the child."

        agent = App(tools=[work], model=FunctionModel(child)).as_tool("worker")
        return App(tools=[agent], model=ScriptedModel([[call("1", "worker", message="Work.")], "Done."]))

    async with fail_after(10):
        first = await app(True).open(file)
        turn = await first.session("s").start_turn("?")
        await begun.wait()
        await first.close()
        async with app(False).open(file, recover=True) as second:
            outcome = await (await second.turn(turn.id))
    assert (outcome.text, [each.value for each in outcome.calls]) == ("Done.", ["Done by the child."])
    assert paid == ([0, 1, 1] if where == "model" else [0, 1])


# --- after a crash


STORY = """
from toolwright import App, Budget, Policy
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelAnswer, Usage

@tool(on_crash="rerun")
async def work(ctx: ToolContext, n: int) -> int:
    crash_point("tool")
    await ctx.step("act", act, n, on_crash="rerun")
    return n

async def act(n: int) -> None:
    note(f"act {n}")

def model(name, script):
    def answer(request):
        note(f"{name} {request.number}")
        crash_point(f"{name} answers")
        given = script[request.number]
        if isinstance(given, str):
            return ModelAnswer(text=given, usage=Usage(1, 1))
        return ModelAnswer(calls=tuple(given), usage=Usage(1, 1), stop="calls")
    return FunctionModel(answer, name=name)

def calls(*numbers):
    return [ToolCall(id=f"w{n}", name="work", arguments={"n": n}) for n in numbers]

async def main():
    agent = App(tools=[work], model=model("child", [calls(1, 2), calls(3), "All three."])).as_tool("worker")
    asks = [ToolCall(id=id, name="worker", arguments={"message": id}) for id in names]
    app = App(tools=[agent], model=model("parent", [asks, "All is done."]), policy=Policy(max_crashes=max_crashes))
    async with app.open(store, recover=True) as runtime:
        outcome = await runtime.session("s").ask("Go.", id="t", budget=Budget(model_calls=20))
        say([outcome.status, outcome.text, [each.value for each in outcome.calls], outcome.model_calls,
            outcome.usage.tokens, sorted(info.state for info in await runtime.turns())])
"""


def check(kit: CrashKit, kills: int, **given: Any) -> None:
    """Run the story to its end, and compare what was done with what may have been done."""
    (told,) = kit.run(STORY, **given).said
    agents = len(given["names"])
    assert told == [
        "answered",
        "All is done.",
        ["All three."] * agents,
        2 + 3 * agents,
        2 * (2 + 3 * agents),
        ["answered"] * (1 + agents),
    ]
    ledger = kit.ledger
    # A model call or a step that a kill cut off before it was recorded is made again, and no other.
    assert len(ledger) <= 2 + 6 * agents + kills * agents
    assert len([line for line in ledger if line.startswith("act")]) <= 3 * agents + kills * agents


@pytest.mark.promise("TURN-03", "TURN-04", "TURN-12")
@pytest.mark.parametrize("part", range(4))
def test_a_sub_agent_survives_a_kill_at_every_point_and_pays_no_model_call_twice(zygote, tmp_path, part):
    given = {"names": ["a"], "max_crashes": 3}
    with CrashKit(tmp_path / "whole", zygote=zygote) as kit:
        kit.folder.mkdir()
        points = kit.points(STORY, **given)
    points = [each for each in points if each[0] != "before a commit"]  # that is right after the point before it
    assert len(points) > 40
    killed = []
    for number, (point, nth) in enumerate(points[part::4]):
        with CrashKit(tmp_path / str(number), zygote=zygote) as kit:
            kit.folder.mkdir()
            # It may end before: writes of the same moment are one commit or two, and the queue is looked at again.
            killed.append(kit.start_doomed(point, STORY, nth=nth, **given).wait().killed)
            check(kit, int(killed[-1]), **given)
    assert sum(killed) > len(killed) / 2


@pytest.mark.promise("TURN-03", "TURN-12")
@pytest.mark.parametrize("seed", range(6))
def test_sub_agents_side_by_side_survive_several_kills_at_random_instants(zygote, tmp_path, seed):
    # Three kills before it gets anywhere would let it be given up.
    chance, given = random.Random(seed), {"names": ["a", "b"], "max_crashes": 4}
    with CrashKit(tmp_path, zygote=zygote) as kit:
        killed = sum(kit.kill_after(chance.uniform(0.05, 0.25), STORY, **given).killed for _ in range(3))
        check(kit, killed, **given)


WAITING = """
from toolwright import App
from toolwright.testing import ScriptedModel

@tool(approval="required")
async def wipe(path: str) -> str:
    return f"wiped {path}"

def script(*answers):
    return ScriptedModel(list(answers))

async def main():
    wiping = [ToolCall(id="w", name="wipe", arguments={"path": "/x"})]
    agent = App(tools=[wipe], model=script(wiping, "Gone.")).as_tool("cleaner")
    asking = [ToolCall(id="1", name="cleaner", arguments={"message": "Wipe /x."})]
    async with App(tools=[agent], model=script(asking, "All clean.")).open(store, recover=True) as runtime:
        session = runtime.session("s")
        outcome = await session.ask("Clean up.", id="t")
        assert outcome.status == "waiting", outcome
        if dies:
            die()
        (approval,) = await runtime.approvals()
        await runtime.approve(approval.key)
        outcome = await (await session.turn("t"))
        say([outcome.status, outcome.text, [each.text for each in outcome.calls], outcome.model_calls])
"""


@pytest.mark.promise("TURN-08", "TURN-12")
def test_a_sub_agent_that_waits_is_not_given_up_however_often_its_process_is_killed(zygote, tmp_path):
    with CrashKit(tmp_path, zygote=zygote) as kit:
        for _ in range(5):
            assert kit.start(WAITING, dies=True).wait().killed
        (told,) = kit.run(WAITING, dies=False).said
    assert told == ["answered", "All clean.", ["Gone."], 4]


@pytest.mark.promise("TURN-03", "TURN-12")
def test_a_sub_agent_that_gets_further_each_time_is_not_given_up_however_often_its_process_is_killed(zygote, tmp_path):
    story = STORY.replace("calls(1, 2), calls(3)", ", ".join(f"calls({n})" for n in range(7)))
    with CrashKit(tmp_path, zygote=zygote) as kit:
        for nth in (1, 2, 2, 2, 2, 2):  # each time it records one more answer, and dies at the next
            kit.kill_at("child answers", story, nth=nth, names=["a"], max_crashes=3)
        (told,) = kit.run(story, names=["a"], max_crashes=3).said
    assert told[:4] == ["answered", "All is done.", ["All three."], 10]
