"""A session as an in-process server of the Claude Agent SDK, with a scripted transport in place of Claude Code."""

import asyncio
from typing import Any, TypedDict

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolAnnotations,
)
from claude_agent_sdk import tool as claude_tool

from tests.adapters.scripted_claude import ScriptedClaude
from tests.support import fail_after
from toolwright import (
    Image,
    Policy,
    Rule,
    Runtime,
    Success,
    ToolContext,
    ToolDefinitionError,
    ToolError,
    ToolwrightError,
    tool,
)
from toolwright.adapters.claude_agent import can_use_tool, sdk_server, tools_from

PIXEL = "aGVsbG8="


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    return a + b


@tool(approval="required")
async def pay(to: str) -> str:
    return f"paid {to}"


async def play(session: Any, script: ScriptedClaude, **options: Any) -> dict[str, Any]:
    """Run a client with the tools of a session until the script ends; return the results of the calls."""
    servers = {"toolwright": sdk_server(session, **options.pop("server", {}))}
    async with fail_after(20), ClaudeSDKClient(ClaudeAgentOptions(mcp_servers=servers, **options), script) as client:
        await client.query("go")
        async for _ in client.receive_response():
            pass
    return script.results


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.promise("ADP-04")
async def test_claude_sees_the_tools_of_the_session_and_calls_them(place, open_runtime):
    runtime = await open_runtime(place, add)
    script = ScriptedClaude([("t1", "add", {"a": 1, "b": 2}), ("t2", "add", {"a": 3, "b": 4})])
    results = await play(runtime.session("s"), script)
    assert [each["name"] for each in script.tools] == ["add"]
    assert script.tools[0]["annotations"]["readOnlyHint"] is True
    assert [text(results[id]) for id in ("t1", "t2")] == ["3", "7"]


@pytest.mark.promise("ADP-05")
async def test_an_id_that_comes_again_with_another_input_is_refused(place, open_runtime):
    runtime = await open_runtime(place, add)
    first = ScriptedClaude([("t1", "add", {"a": 1, "b": 2})])
    assert text((await play(runtime.session("s"), first))["t1"]) == "3"
    other = ScriptedClaude([("t1", "add", {"a": 40, "b": 2})])
    error = (await play(runtime.session("s"), other))["t1"]["error"]
    assert error["code"] == -32602
    assert "give each call its own key" in error["message"]


def test_a_session_of_a_blocking_runtime_is_refused():
    with Runtime.open_blocking(tools=[add]) as runtime:
        for make in (sdk_server, can_use_tool):
            with pytest.raises(ToolwrightError, match=r"open the runtime with `async with Runtime\.open"):
                make(runtime.session("s"))


@pytest.mark.promise("ADP-04", "ADP-05")
async def test_failures_and_images_are_those_of_mcp(open_runtime):
    @tool
    async def fail() -> str:
        raise ToolError("The printer is out of paper")

    @tool(readonly=True)
    async def look() -> Image:
        return Image(PIXEL)

    runtime = await open_runtime(fail, look)
    script = ScriptedClaude([("t1", "fail", {}), ("t2", "look", {}), ("t3", "look", {"x": 1}), ("t4", "nothing", {})])
    results = await play(runtime.session("s"), script)
    assert results["t1"]["isError"]
    assert "out of paper" in text(results["t1"])
    assert {"type": "image", "data": PIXEL, "mimeType": "image/png"} in results["t2"]["content"]
    assert results["t3"]["isError"]
    assert "nothing" in results["t4"]["error"]["message"]


@pytest.mark.promise("ADP-04", "ADP-05")
async def test_a_call_that_comes_again_with_its_id_has_its_recorded_outcome(place, open_runtime):
    ran = []

    @tool
    async def order(item: str) -> str:
        ran.append(item)
        return f"ordered {item}"

    runtime = await open_runtime(place, order)
    for _ in range(2):
        results = await play(runtime.session("s"), ScriptedClaude([("t1", "order", {"item": "tea"})]))
        assert text(results["t1"]) == "ordered tea"
    assert ran == ["tea"]
    # Without an id, which another client may not give, each call is a new one.
    await play(runtime.session("s"), ScriptedClaude([("t1", "order", {"item": "tea"})], gives_ids=False))
    assert ran == ["tea", "tea"]


@pytest.mark.promise("ADP-05")
async def test_calls_of_one_answer_keep_the_claims_of_their_tools(open_runtime):
    running: list[str] = []

    @tool(key="file")
    async def write(file: str) -> str:
        assert file not in running
        running.append(file)
        await asyncio.sleep(0)
        running.remove(file)
        return file

    runtime = await open_runtime(write)
    uses = [(f"t{n}", "write", {"file": "ab"[n % 2]}) for n in range(10)]
    results = await play(runtime.session("s"), ScriptedClaude(uses))
    assert [text(results[f"t{n}"]) for n in range(10)] == ["ab"[n % 2] for n in range(10)]


@pytest.mark.promise("ADP-04", "ADP-05")
async def test_an_approval_is_given_in_the_inbox(place, open_runtime):
    runtime = await open_runtime(place, pay)
    session = runtime.session("s")
    events = session.subscribe()
    playing = asyncio.create_task(
        play(session, ScriptedClaude([("t1", "pay", {"to": "x"})], asks=True), can_use_tool=can_use_tool(session))
    )
    async with fail_after(10):
        async for event in events:
            if event.kind == "call.waiting":
                break
        (asked,) = await session.approvals()
        await session.approve(asked.key, by="ada")
        results = await playing
    assert text(results["t1"]) == "paid x"


@pytest.mark.promise("ADP-04", "ADP-05")
@pytest.mark.parametrize("gives_ids", [True, False])
async def test_an_approval_is_asked_for_by_can_use_tool(place, open_runtime, gives_ids):
    asked = []

    async def ask(name: str, given: dict[str, Any], context: Any) -> Any:
        asked.append((name, given["to"], context.tool_use_id))
        if given["to"] == "y":
            return PermissionResultDeny(message="too much")
        return PermissionResultAllow(updated_input={"to": "w"} if given["to"] == "z" else None)

    deny = Policy(rules=[Rule("deny", "pay", reason="not to him", when=lambda call: call.arguments["to"] == "v")])
    runtime = await open_runtime(place, pay, add, policy=deny)
    session = runtime.session("s")
    uses = [(f"t{to}", "pay", {"to": to}) for to in "vxyz"]
    script = ScriptedClaude([*uses, ("ta", "add", {"a": 1, "b": 2})], asks=True, gives_ids=gives_ids)
    results = await play(session, script, can_use_tool=can_use_tool(session, ask))
    assert sorted(asked) == [("mcp__toolwright__pay", to, f"t{to}") for to in "xyz"]
    assert results["tv"] == {"denied": "not to him"}
    assert results["ty"] == {"denied": "too much"}
    assert (text(results["tx"]), text(results["tz"]), text(results["ta"])) == ("paid x", "paid w", "3")
    assert await session.approvals() == []
    assert {each.decision.by for each in await runtime.decisions()} == {"claude-agent-sdk"}


@pytest.mark.promise("ADP-05")
async def test_a_person_who_allows_a_call_does_not_approve_another_one_with_the_same_input(open_runtime):
    paid = []

    @tool(approval="required")
    async def pay(ctx: ToolContext, to: str) -> str:
        paid.append(ctx.call_id)
        return f"paid {to}"

    async def allow(name: str, given: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow()

    session = (await open_runtime(pay)).session("s")
    results = await play(session, ScriptedClaude([("t1", "pay", {"to": "x"})]), server={"wait": 0.0})
    assert "waits for the approval" in text(results["t1"])
    script = ScriptedClaude([("t2", "pay", {"to": "x"})], asks=True)
    results = await play(session, script, can_use_tool=can_use_tool(session, allow))
    assert text(results["t2"]) == "paid x"
    assert paid == ["t2"]
    assert [each.call_id for each in await session.approvals()] == ["t1"]


@pytest.mark.promise("ADP-04")
async def test_images_and_files_that_the_session_keeps_reach_claude_with_their_content(place, open_runtime):
    @tool
    async def report(ctx: ToolContext) -> Success:
        picture = await ctx.attachments.put(b"hello", name="chart.png", media_type="image/png")
        table = await ctx.attachments.put(b"a,b", name="table.csv", media_type="text/csv")
        return Success({"rows": 1}, attachments=[picture, table])

    session = (await open_runtime(place, report)).session("s")
    results = await play(session, ScriptedClaude([("t1", "report", {})]))
    _, image, file = results["t1"]["content"]
    assert image == {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    assert file["resource"]["mimeType"] == "text/csv"


@pytest.mark.promise("ADP-04")
async def test_tools_of_others_are_left_to_their_own_function(open_runtime):
    runtime = await open_runtime(add)
    session = runtime.session("s")

    async def otherwise(name: str, given: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow(updated_input=given)

    context: Any = None
    alone, beside = can_use_tool(session), can_use_tool(session, otherwise=otherwise)
    assert (await alone("Bash", {"command": "ls"}, context)).behavior == "deny"
    assert (await beside("Bash", {"command": "ls"}, context)).behavior == "allow"


@pytest.mark.promise("ADP-05")
async def test_a_call_that_claude_gives_up_is_cancelled(open_runtime):
    began, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    runtime = await open_runtime(work)
    script = ScriptedClaude([("t1", "work", {})])
    playing = asyncio.create_task(play(runtime.session("s"), script))
    async with fail_after(10):
        await began.wait()
        cancelling = asyncio.create_task(script.cancel(3))  # after initialize and tools/list
        await stopped.wait()
        cancelling.cancel()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing


# --- the way back


async def run(made: Any, **arguments: Any) -> Any:
    async with Runtime.open(tools=[made]) as runtime:
        return await runtime.session("s").call(made.name, **arguments)


@pytest.mark.promise("ADP-04")
async def test_a_tool_of_the_sdk_is_a_tool_of_ours():
    @claude_tool("greet", "Greet someone.", {"name": str}, ToolAnnotations(readOnlyHint=True))
    async def greet(args: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"Hello, {args['name']}"}]}

    made = tools_from([greet])[0]
    assert made.definition.hints.readonly
    assert (await run(made, name="Ada")).text == "Hello, Ada"
    assert (await run(made)).failure.category == "invalid_arguments"

    class Place(TypedDict):
        street: str

    @claude_tool("go", "Go somewhere.", Place)
    async def go(args: Any) -> dict[str, Any]:
        if args["street"] == "nowhere":
            return {"content": [{"type": "text", "text": "There is no way"}], "is_error": True}
        return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}

    assert (await run(tools_from([go])[0], street="here")).images == (Image(PIXEL),)
    assert (await run(tools_from([go])[0], street="nowhere")).failure.message == "There is no way"
    with pytest.raises(ToolDefinitionError, match="decorate"):
        tools_from([lambda: None])  # type: ignore[list-item]
