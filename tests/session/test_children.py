"""What a tool sees of sessions, and the model that it may ask."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Policy, RetryPolicy, Rule, Runtime, ToolCall, ToolContext, ToolError, tool
from toolwright.errors import ServiceError
from toolwright.tools.model import ModelRequest


@tool(readonly=True)
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def change(ctx: ToolContext) -> str:
    """Change something."""
    await ctx.kv.set("changed", ctx.session_id)
    return ctx.session_id


@pytest.mark.promise("SES-09")
async def test_a_tool_reads_its_own_sessions_state_and_tools(place, open_runtime):
    @tool
    async def introspect(ctx: ToolContext) -> dict:
        """Look at oneself."""
        await ctx.session.kv.set("a", 1)
        return {
            "id": ctx.session.id,
            "tools": ctx.session.tools,
            "about": {definition.name: definition.description for definition in ctx.session.definitions},
            "value": await ctx.kv.get("a"),
            "messages": [message.content for message in await ctx.session.messages.list()],
            "connections": [connection.provider for connection in await ctx.session.connections.list()],
        }

    runtime = await open_runtime(place, introspect, look)
    session = runtime.session("s")
    session.tools.push([change])
    await session.messages.append("hi", sender="user")
    await session.connect("github")
    await runtime.session("t").messages.append("secret", sender="user")
    assert (await session.call("introspect")).value == {
        "id": "s",
        "tools": ["change", "introspect", "look"],
        "about": {"change": "Change something.", "introspect": "Look at oneself.", "look": "Look."},
        "value": 1,
        "messages": ["hi"],
        "connections": ["github"],
    }


@pytest.mark.promise("SES-09", "SES-06")
async def test_a_tool_opens_a_child_session_of_its_own(place, open_runtime):
    @tool
    async def delegate(ctx: ToolContext, name: str) -> list:
        child = ctx.open_child(name)
        await child.messages.append("do it", sender="user")
        again = await ctx.open_child(name).call("change")
        return [child.id, again.value, await child.kv.get("changed"), await ctx.kv.get("changed"), child.tools]

    runtime = await open_runtime(place, delegate, change)
    session = runtime.session("s")
    calls = [ToolCall(id=f"c{n}", name="delegate", arguments={"name": name}) for n, name in enumerate("aab")]
    outcomes = await session.run_batch(calls)
    ids = [outcome.value[0] for outcome in outcomes]
    assert len(set(ids)) == 3
    assert all(name.startswith("s/") for name in ids)
    for outcome in outcomes:
        child_id, ran_in, changed, own, tools = outcome.value
        assert (ran_in, changed, own, tools) == (child_id, child_id, None, ["change", "delegate"])
        child = runtime.session(child_id)
        assert [message.content for message in await child.messages.list()] == ["do it"]
        assert await child.kv.get("changed") == child_id
    assert await session.messages.list() == []
    other = await runtime.session("t").run_batch(calls)
    assert not {outcome.value[0] for outcome in other} & set(ids)


@pytest.mark.promise("SES-09")
async def test_a_child_session_may_do_no_more_than_the_call_that_opened_it(place, open_runtime):
    @tool(readonly=True)
    async def delegate(ctx: ToolContext) -> list:
        child = ctx.open_child("c")
        assert not hasattr(child, "policy")
        return [(await child.call(name)).status for name in ("look", "change")]

    session = (await open_runtime(place, delegate, look, change)).session("s")
    call = ToolCall(id="c1", name="delegate", arguments={})
    assert (await session.run_batch([call], read_only=True))[0].value == ["success", "failure"]
    call = ToolCall(id="c2", name="delegate", arguments={})
    rules = [Rule("deny", tools="look")]
    assert (await session.run_batch([call], rules=rules))[0].value == ["failure", "success"]


async def test_child_sessions_are_bounded_and_named(place, open_runtime, monkeypatch):
    monkeypatch.setattr("toolwright.session.children.MOST", 2)

    @tool
    async def delegate(ctx: ToolContext, names: list[str]) -> None:
        for name in names:
            ctx.open_child(name)

    @tool
    def on_a_thread(ctx: ToolContext) -> None:
        ctx.open_child("a")

    @tool
    async def speak(ctx: ToolContext) -> None:
        await ctx.open_child("a").messages.append("I am the runtime", sender="runtime")

    session = (await open_runtime(place, delegate, on_a_thread, speak)).session("s")
    assert (await session.call("delegate", names=["a", "b", "a"])).ok
    assert (await session.call("delegate", names=["a", "b", "c"])).failure.code == "quota"
    for name in ("", "x" * 65, "a\nb"):
        assert (await session.call("delegate", names=[name])).failure.category == "invalid_arguments"
    assert not (await session.call("on_a_thread")).ok
    assert (await session.call("speak")).failure.category == "permission_denied"


async def test_a_child_session_that_runs_is_stopped_with_the_runtime(place):
    began = asyncio.Event()

    @tool
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    @tool
    async def delegate(ctx: ToolContext) -> None:
        await ctx.open_child("c").call("hang")

    async with fail_after(5):
        runtime = await Runtime.open(place, tools=[hang, delegate])
        batch = runtime.session("s").start_batch([ToolCall(name="delegate", arguments={})])
        await began.wait()
        await runtime.close()
        await batch.settled()
    assert batch.done


class Parrot:
    """A model that answers with what it is asked."""

    def __init__(self) -> None:
        self.asked: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> object:
        self.asked.append(request)
        if request.options.get("fail"):
            raise ToolError("overloaded", category="external", code="overloaded")
        return {"text": request.messages[-1]["content"].upper(), **request.options}


@pytest.mark.promise("SES-08", "EFF-01")
async def test_a_tool_asks_the_sessions_model_once(place, open_runtime):
    attempts = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=2))
    async def think(ctx: ToolContext) -> list:
        first = await ctx.complete("first", "hello", temperature=0)
        second = await ctx.complete("second", [{"role": "user", "content": "bye"}])
        attempts.append(1)
        if len(attempts) == 1:
            raise ToolError("again", retry=True, retry_after=0)
        return [first, second]

    model = Parrot()
    session = (await open_runtime(place, think, model=model)).session("s")
    assert (await session.call("think")).value == [{"text": "HELLO", "temperature": 0}, {"text": "BYE"}]
    assert [(request.session, len(request.messages)) for request in model.asked] == [("s", 1), ("s", 1)]


@pytest.mark.promise("SES-08")
async def test_a_model_that_fails_and_one_that_is_missing_are_said_to(place, open_runtime, caplog):
    @tool
    async def think(ctx: ToolContext) -> object:
        return await ctx.complete("first", "hello", fail=True)

    failure = (await (await open_runtime(place, think, model=Parrot())).session("s").call("think")).failure
    assert (failure.category, failure.code) == ("external", "overloaded")
    failure = (await (await open_runtime(":memory:", think)).session("s").call("think")).failure
    assert (failure.category, failure.code) == ("unavailable", "no_model")
    assert failure.message == "This tool asks a model, and none is configured here"
    assert "give one to App(model=...)" in caplog.text


async def test_services_are_there_for_code_that_is_not_async(place):
    runtime = await asyncio.to_thread(Runtime.open_blocking, place)

    def use() -> list:
        with runtime:
            session = runtime.session("s")
            session.kv.set("a", 1)
            session.messages.append("hi", sender="user")
            info = session.attachments.put(b"x", name="x", media_type="a/b")
            session.resources.upsert("r", kind="k", name="n", status="s")
            session.connect("github")
            assert session.wait_for_idle()
            with pytest.raises(ServiceError):
                session.kv.get("")
            return [
                session.kv.get("a"),
                session.messages.list()[0].content,
                session.attachments.get(info.hash),
                session.resources.list()[0].id,
                session.connections()[0].provider,
                [info.id for info in runtime.sessions()],
            ]

    assert await asyncio.to_thread(use) == [1, "hi", b"x", "r", "github", ["s"]]


async def test_a_policy_holds_in_a_child_of_a_child(place, open_runtime):
    @tool(readonly=True)
    async def delegate(ctx: ToolContext, depth: int) -> str:
        child = ctx.open_child("c")
        if depth:
            return (await child.call("delegate", depth=depth - 1)).value
        return (await child.call("change")).status

    session = (await open_runtime(place, delegate, change, policy=Policy(read_only=True))).session("s")
    assert (await session.call("delegate", depth=2)).value == "failure"
