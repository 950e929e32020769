"""Background tools as tasks (SEP-2663), questions of tools, and lists that change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import BaseModel

from tests.mcp.server.conftest import MODES
from tests.support import fail_after
from toolwright import Policy, Rule, Runtime, ToolContext, ToolError, tool
from toolwright.mcp import server
from toolwright.mcp.server_request import TASKS
from toolwright.mcp.tool_server import ToolServer

KEY = "dev.toolwright/idempotency-key"
ENVELOPE = {
    types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
    types.CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}, "extensions": {TASKS: {}}},
}


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


async def ask(client: Client, method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """Send a request as a client with the extension for tasks does; the SDK's own does not have it yet."""
    params["_meta"] = {**ENVELOPE, **(meta or {})}
    return await client.session._dispatcher.send_raw_request(method, params)


async def ended(client: Client, task: str) -> dict[str, Any]:
    while True:
        state = await ask(client, "tasks/get", taskId=task)
        if state["status"] != "working":
            return state


@tool(supports_background=True)
async def build(ctx: ToolContext, name: str) -> str:
    """Build something."""
    await ctx.progress(1, 3, label="begun")
    return f"built {name}"


@pytest.mark.promise("MCP-06")
async def test_a_background_tool_is_a_task_for_a_client_that_takes_tasks() -> None:
    async with fail_after(20), Runtime.open(tools=[build]) as runtime, Client(server(runtime)) as client:
        created = await ask(client, "tools/call", name="build", arguments={"name": "a"})
        assert created["resultType"] == "task"
        assert created["status"] == "working"
        assert created["ttlMs"] is None
        state = await ended(client, created["taskId"])
        assert state["status"] == "completed"
        assert state["result"]["content"] == [{"type": "text", "text": "built a"}]
        # A client without the extension waits for the result.
        assert text_of(await client.call_tool("build", {"name": "b"})) == "built b"
        with pytest.raises(MCPError) as refused:
            await ask(client, "tasks/get", {types.CLIENT_CAPABILITIES_META_KEY: {}}, taskId=created["taskId"])
        assert refused.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY


@pytest.mark.promise("MCP-06")
async def test_the_same_key_is_the_same_task_also_for_a_client_without_tasks() -> None:
    ran = []

    @tool(supports_background=True)
    def note(name: str) -> int:
        """Note a call."""
        ran.append(name)
        return len(ran)

    async with fail_after(20), Runtime.open(tools=[note]) as runtime, Client(server(runtime)) as client:
        arguments = {"name": "a"}
        first, second = [
            await ask(client, "tools/call", meta={KEY: "k"}, name="note", arguments=arguments) for _ in range(2)
        ]
        assert first["taskId"] == second["taskId"]
        await ended(client, first["taskId"])
        assert text_of(await client.call_tool("note", arguments, meta={KEY: "k"})) == "1"
        async with Client(server(runtime), mode="legacy") as older:
            assert text_of(await older.call_tool("note", arguments, meta={KEY: "k"})) == "1"
        for other in (ask(client, "tools/call", meta={KEY: "k"}, name="note", arguments={"name": "b"}),):
            with pytest.raises(MCPError, match="another call before"):
                await other
    assert ran == ["a"]


async def test_a_failed_tool_completes_its_task_and_a_broken_one_fails_it() -> None:
    @tool(supports_background=True)
    def refuse() -> None:
        """Fail in an expected way."""
        raise ToolError("Nothing doing")

    @tool(supports_background=True)
    async def hang() -> None:
        """Run until it is cancelled."""
        await asyncio.Event().wait()

    async with fail_after(20), Runtime.open(tools=[refuse, hang]) as runtime, Client(server(runtime)) as client:
        refused = await ask(client, "tools/call", name="refuse", arguments={})
        state = await ended(client, refused["taskId"])
        assert (state["status"], state["result"]["isError"]) == ("completed", True)
        hanging = await ask(client, "tools/call", name="hang", arguments={})
        assert await ask(client, "tasks/cancel", taskId=hanging["taskId"])
        assert (await ended(client, hanging["taskId"]))["status"] == "cancelled"
        for wrong in ("task_0", "bg_1", "", "\ud800", "../x"):
            with pytest.raises(MCPError) as unknown:
                await ask(client, "tasks/get", taskId=wrong)
            assert unknown.value.error.code == types.INVALID_PARAMS


@pytest.mark.promise("MCP-05")
async def test_a_task_that_waits_for_an_approval_or_an_answer_asks_its_client() -> None:
    @tool(supports_background=True, approval="required")
    async def launch(ctx: ToolContext) -> str:
        """Do something grave."""
        return f"launched {await ctx.ask('name', 'What is its name?')}"

    async with fail_after(20), Runtime.open(tools=[launch]) as runtime, Client(server(runtime)) as client:
        task = (await ask(client, "tools/call", name="launch", arguments={}))["taskId"]
        for content in ({"approve": True}, {"answer": "Ada"}):
            state = await ended(client, task)
            assert state["status"] == "input_required"
            ((id, question),) = state["inputRequests"].items()
            assert question["method"] == "elicitation/create"
            responses = {id: {"action": "accept", "content": content}, "unknown": {"ignored": True}, "x": 7}
            await ask(client, "tasks/update", taskId=task, inputResponses=responses)
            while id in state.get("inputRequests", {}):
                state = await ended(client, task)
        assert (await ended(client, task))["result"]["content"][0]["text"] == "launched Ada"


async def test_a_task_is_bounded_by_the_policy_of_the_clients() -> None:
    bounds = Policy(rules=[Rule("deny", tools=("build",), name="not for clients")])
    async with (
        fail_after(20),
        Runtime.open(tools=[build]) as runtime,
        Client(server(runtime, policy=bounds)) as client,
    ):
        denied = await ask(client, "tools/call", name="build", arguments={"name": "a"})
        assert denied["isError"] is True
        assert "not for clients" in denied["content"][0]["text"]
        assert await runtime.runs() == []


async def test_a_tool_may_be_served_only_as_a_task(revision: str) -> None:
    async with (
        fail_after(20),
        Runtime.open(tools=[build]) as runtime,
        Client(server(runtime, only_as_tasks=["bu*"]), mode=MODES[revision]) as client,
    ):
        with pytest.raises(MCPError) as refused:
            await client.call_tool("build", {"name": "a"})
        assert refused.value.error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


class Person(BaseModel):
    name: str
    age: int | None = None


@pytest.mark.promise("MCP-05")
async def test_a_question_of_a_tool_is_a_form_of_the_client(revision: str) -> None:
    shown: list[types.ElicitRequestFormParams] = []

    @tool
    async def greet(ctx: ToolContext) -> str:
        """Greet somebody."""
        person = await ctx.ask("person", "Who are you?", Person.model_json_schema())
        sure = await ctx.ask("sure", "Sure?", {"type": "boolean"})
        return f"{person['name']} {sure}"

    async def fill(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        shown.append(params)
        content: Any = {"name": "Ada"} if params.message == "Who are you?" else {"answer": True}
        return types.ElicitResult(action="accept", content=content)

    async with (
        fail_after(20),
        Runtime.open(tools=[greet]) as runtime,
        Client(server(runtime), mode=MODES[revision], elicitation_callback=fill) as client,
    ):
        assert text_of(await client.call_tool("greet", {})) == "Ada True"
        assert await runtime.questions() == []
    assert [params.message for params in shown] == ["Who are you?", "Sure?"]
    assert set(shown[0].requested_schema["properties"]) == {"name", "age"}


@pytest.mark.promise("MCP-05")
async def test_a_client_is_told_when_the_tools_change(revision: str) -> None:
    told = asyncio.Event()

    @tool
    def second() -> None:
        """Come later."""

    async def note(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with (
        fail_after(20),
        Runtime.open(tools=[build]) as runtime,
        Client(server(runtime), mode=MODES[revision], message_handler=note) as client,
    ):
        if revision == "2026-07-28":
            async with client.listen(tools_list_changed=True) as changes:
                runtime.tools.register(second)
                async for _ in changes:
                    break
        else:
            await client.list_tools()
            runtime.tools.register(second)
            await told.wait()
        assert "second" in [tool.name for tool in (await client.list_tools()).tools]


@asynccontextmanager
async def silent(served: ToolServer) -> AsyncIterator[None]:
    """A client of 2025-11-25 that reads nothing once it has introduced itself."""
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](2)
    write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "silent", "version": "1"}}
    serving = asyncio.ensure_future(served.run(read, write, served.create_initialization_options()))
    try:
        for message in (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "ping"},
        ):
            told = types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})
            await to_server.send(SessionMessage(told))
            if "id" in message:
                await from_server.receive()
        yield
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        for stream in (to_server, read, write, from_server):
            stream.close()


@pytest.mark.promise("MCP-05")
async def test_a_client_that_reads_nothing_holds_up_no_other_that_is_told_of_changes() -> None:
    told = asyncio.Queue[None]()

    def later() -> None:
        """Come later."""

    async def note(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.put_nowait(None)

    async with fail_after(20), Runtime.open(tools=[build]) as runtime:
        served = server(runtime)
        async with (
            silent(served),
            Client(served, mode="legacy", message_handler=note) as client,
            silent(served),
        ):
            for name in ("second", "third"):
                runtime.tools.register(tool(later, name=name))
                await told.get()
                assert name in [each.name for each in (await client.list_tools()).tools]
