"""Calls of MCP clients: their results, errors, progress, cancellation and keys, at both revisions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client import InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError

from tests.mcp.server.conftest import MODES, Connect, command
from tests.support import fail_after, in_memory, until
from tests.warm_programs import WarmPrograms
from toolwright import App, Policy, Rule, Runtime, ToolContext, tool
from toolwright.mcp import per_connection, server
from toolwright.runtime import used_sessions
from toolwright.session.core import SessionCore

KEY = "dev.toolwright/idempotency-key"


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


@pytest.mark.promise("MCP-05")
async def test_an_app_is_served_over_stdio_with_schemas_structured_results_and_errors(
    over_stdio: Connect, revision: str
) -> None:
    async with fail_after(30), over_stdio(revision) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["add"].input_schema["required"] == ["a", "b"]
        assert tools["add"].output_schema is not None
        assert tools["add"].annotations is not None
        assert tools["add"].annotations.read_only_hint is True
        # Before 2026-07-28 an output that is no object has no schema that a client could check.
        assert (tools["words"].output_schema is None) is (revision == "2025-11-25")
        assert "wait_run" not in tools

        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert (added.structured_content, added.is_error) == ({"total": 3}, False)
        words = await client.call_tool("words", {"count": 2})
        assert words.structured_content == (None if revision == "2025-11-25" else ["word", "word"])
        assert text_of(words) == '["word","word"]'

        refused = await client.call_tool("refuse", {})
        assert refused.is_error
        assert "Nothing doing" in text_of(refused)
        unfit = await client.call_tool("add", {"a": "one"})
        assert unfit.is_error
        assert "$.a" in text_of(unfit)
        crashed = await client.call_tool("crash", {})
        assert crashed.is_error
        with pytest.raises(MCPError, match="Unknown tool: 'ad'; did you mean 'add'") as unknown:
            await client.call_tool("ad", {})
        assert unknown.value.error.code == types.INVALID_PARAMS


@pytest.mark.promise("MCP-05")
async def test_a_line_that_cannot_be_read_is_answered_so_that_nobody_waits_for_it(
    tmp_path: Path, warm: WarmPrograms
) -> None:
    arguments, environment = command(tmp_path)
    pipe = asyncio.subprocess.PIPE
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}
    half = {"name": "charge", "arguments": {"order": "\ud800"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": half},
        {"jsonrpc": "2.0", "id": 1, "result": {"text": "\ud800"}},  # an answer, not a request of this id
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}},
    ]
    async with fail_after(30):
        server = await asyncio.create_subprocess_exec(
            *warm.command, *arguments, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=environment
        )
        assert server.stdin is not None
        assert server.stdout is not None
        sent = [json.dumps(line) for line in lines]
        server.stdin.write("\n".join([*sent[:2], "no JSON", *sent[2:], ""]).encode())
        told = [json.loads(await server.stdout.readline()) for _ in range(5)]
        server.stdin.close()
        await server.wait()
    errors = [(line["id"], line["error"]["code"]) for line in told if "error" in line]
    assert errors == [(None, -32700), (2, -32600), (None, -32600)]
    assert [line["id"] for line in told if "result" in line] == [1, 3]


@pytest.mark.promise("MCP-05")
async def test_progress_reaches_the_client_before_the_result(over_stdio: Connect, revision: str) -> None:
    async with fail_after(30), over_stdio(revision) as client:
        said: list[tuple[float, float | None, str | None]] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            said.append((progress, total, message))

        result = await client.call_tool("count", {"to": 5}, progress_callback=note)
        assert text_of(result) == "5"
        assert said == [(number, 5, f"at {number}") for number in range(1, 6)]


@pytest.mark.promise("MCP-05")
async def test_a_cancelled_request_cancels_the_tool(over_stdio: Connect, revision: str, effects: Any) -> None:
    began = asyncio.Event()

    async def begin(*progress: object) -> None:
        began.set()

    async with fail_after(30), over_stdio(revision) as client:
        calling = asyncio.ensure_future(client.call_tool("hang", {"order": "a"}, progress_callback=begin))
        await began.wait()
        calling.cancel()
        await asyncio.wait({calling})
        assert text_of(await client.call_tool("wait_for_cancelled", {})) == "cancelled"
    assert effects() == ["begin a"]


@pytest.mark.promise("MCP-06")
async def test_the_same_key_gives_the_recorded_outcome_also_after_a_new_connection(
    over_stdio: Connect, revision: str, effects: Any
) -> None:
    async with fail_after(60):
        for _ in range(2):
            async with over_stdio(revision) as client:
                for _ in range(2):
                    result = await client.call_tool("charge", {"order": "o1"}, meta={KEY: "order o1"})
                    assert text_of(result) == "charged o1"
                with pytest.raises(MCPError, match="another call before"):
                    await client.call_tool("charge", {"order": "o2"}, meta={KEY: "order o1"})
        assert effects() == ["o1"]


@pytest.mark.promise("MCP-06")
async def test_a_request_that_is_cancelled_does_not_stop_the_call_of_a_later_one_with_its_key(revision: str) -> None:
    ran, asked, may_end = 0, asyncio.Semaphore(0), asyncio.Event()

    @tool(readonly=True)
    async def slow() -> str:
        """Take long."""
        nonlocal ran
        ran += 1
        await may_end.wait()
        return "done"

    @tool(readonly=True)
    async def quick() -> int:
        """Count the calls of the other tool."""
        return ran

    def choose(client: object) -> str:
        asked.release()
        return "s"

    async with fail_after(20), Runtime.open(tools=[slow, quick]) as runtime:
        served = server(runtime, session=choose)
        async with Client(served, mode=MODES[revision]) as gone, Client(served, mode=MODES[revision]) as back:
            requests = []
            for client in (gone, back):
                requests.append(asyncio.ensure_future(client.call_tool("slow", {}, meta={KEY: "k"})))
                await asked.acquire()
            requests[0].cancel()
            await asyncio.wait(requests[:1])
            assert text_of(await back.call_tool("quick", {})) == "1"  # the server has seen by now what was cancelled
            may_end.set()
            assert text_of(await requests[1]) == "done"
    assert ran == 1


@pytest.mark.parametrize("key", ["", "x" * 300, 7, ["a"], "\ud800"])
async def test_a_key_that_is_not_usable_is_refused_and_nothing_runs(key: object) -> None:
    ran = []

    @tool
    def note() -> None:
        """Note a call."""
        ran.append(1)

    async with fail_after(10), Client(server(App(tools=[note])), mode="legacy") as client:
        with pytest.raises((MCPError, UnicodeEncodeError)):
            await client.call_tool("note", {}, meta={KEY: key})
    assert not ran


@pytest.mark.promise("MCP-05")
async def test_an_approval_asks_the_person_behind_the_client(revision: str) -> None:
    asked, ran = [], []

    @tool(approval="required")
    def launch(rocket: str) -> str:
        """Do something grave."""
        ran.append(rocket)
        return f"launched {rocket}"

    async def decide(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        if "no" in params.message:
            return types.ElicitResult(action="decline")
        if "maybe" in params.message:
            return types.ElicitResult(action="accept", content={"approve": False, "reason": "not today"})
        return types.ElicitResult(action="accept", content={"approve": True})

    async with fail_after(10):
        served = server(App(tools=[launch]))
        async with Client(served, mode=MODES[revision], elicitation_callback=decide) as client:
            assert text_of(await client.call_tool("launch", {"rocket": "yes"})) == "launched yes"
            denied = await client.call_tool("launch", {"rocket": "no"})
            assert denied.is_error
            assert "denied" in text_of(denied)
            assert "not today" in text_of(await client.call_tool("launch", {"rocket": "maybe"}))
    assert ran == ["yes"]
    assert len(asked) == 3
    assert "'launch'" in asked[0]


@pytest.mark.promise("MCP-05")
async def test_an_approval_that_is_given_in_the_inbox_ends_the_question_to_the_client() -> None:
    shown = asyncio.Event()

    @tool(approval="required")
    def launch() -> str:
        """Do something grave."""
        return "launched"

    async def never(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        shown.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        fail_after(10),
        Runtime.open(tools=[launch]) as runtime,
        Client(server(runtime), mode="legacy", elicitation_callback=never) as client,
    ):
        calling = asyncio.ensure_future(client.call_tool("launch", {}))
        await shown.wait()
        (approval,) = await runtime.approvals()
        await runtime.approve(approval.key)
        assert text_of(await calling) == "launched"


@pytest.mark.promise("MCP-05")
async def test_a_client_that_cannot_ask_waits_for_the_inbox_and_then_reads_what_to_do(revision: str) -> None:
    ran = []

    @tool(approval="required")
    def launch() -> str:
        """Do something grave."""
        ran.append(1)
        return "launched"

    async with (
        fail_after(10),
        Runtime.open(tools=[launch]) as runtime,
        Client(server(runtime, wait=0), mode=MODES[revision]) as client,
    ):
        without = await client.call_tool("launch", {})
        assert without.is_error
        assert "was cancelled: it waited for the approval of a person" in text_of(without)
        assert await runtime.approvals() == []

        first = await client.call_tool("launch", {}, meta={KEY: "k"})
        assert first.is_error
        assert "same idempotency key" in text_of(first)
        (approval,) = await runtime.approvals()
        await runtime.approve(approval.key)
        assert text_of(await client.call_tool("launch", {}, meta={KEY: "k"})) == "launched"
    assert ran == [1]


@pytest.mark.parametrize(
    "content", [None, {}, {"approve": "true"}, {"approve": 1}, {"yes": True}, {"approve": None}, {"Approve": True}]
)
async def test_an_approval_needs_the_plain_truth_value(content: Any, revision: str) -> None:
    ran = []

    @tool(approval="required")
    def launch() -> None:
        """Do something grave."""
        ran.append(1)

    async def forge(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=content)

    async with fail_after(10):
        served = server(App(tools=[launch]), wait=0)
        async with Client(served, mode=MODES[revision], elicitation_callback=forge) as client:
            try:
                assert (await client.call_tool("launch", {})).is_error
            except InputRequiredRoundsExceededError:  # The client of 2026-07-28 is asked again, until it gives up.
                assert revision == "2026-07-28"
    assert not ran


async def test_a_form_that_is_dismissed_leaves_the_question_in_the_inbox(revision: str) -> None:
    asked = []

    @tool(approval="required")
    def launch() -> str:
        """Do something grave."""
        return "launched"

    async def dismiss(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="cancel")

    async with (
        fail_after(10),
        Runtime.open(tools=[launch]) as runtime,
        Client(server(runtime, wait=0), mode=MODES[revision], elicitation_callback=dismiss) as client,
    ):
        assert "waits for the approval" in text_of(await client.call_tool("launch", {}, meta={KEY: "k"}))
        (approval,) = await runtime.approvals()
        await runtime.approve(approval.key)
        assert text_of(await client.call_tool("launch", {}, meta={KEY: "k"})) == "launched"
    assert len(asked) == 1


@pytest.mark.promise("MCP-05")
async def test_what_a_client_may_do_is_bounded_by_a_policy_of_its_own(revision: str) -> None:
    @tool(readonly=True)
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    def change() -> str:
        """Change something."""
        return "changed"

    @tool
    async def both(ctx: ToolContext) -> str:
        """Look, then change something."""
        (outcome,) = await ctx.run_batch([{"name": "change"}])
        return outcome.text

    async with fail_after(10), Runtime.open(tools=[look, change, both]) as runtime:
        bounds = Policy(rules=[Rule("deny", tools=("change",), name="not for clients")])
        async with Client(server(runtime, policy=bounds, session="s"), mode=MODES[revision]) as client:
            assert text_of(await client.call_tool("look", {})) == "seen"
            denied = await client.call_tool("change", {})
            assert denied.is_error
            assert "not for clients" in text_of(denied)
            assert "not for clients" in text_of(await client.call_tool("both", {}))
        # The session itself may still do so.
        assert (await runtime.session("s").call("change")).value == "changed"


async def test_only_the_tools_that_are_offered_can_be_called() -> None:
    @tool
    def public_one() -> str:
        """Say something."""
        return "one"

    @tool(supports_background=True)
    def private_one() -> str:
        """Say nothing."""
        return "two"

    async with fail_after(10):
        async with Client(server(App(tools=[public_one, private_one]), tools=["public_*"])) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["public_one"]
            for name in ("private_one", "wait_run", "spawn_background"):
                with pytest.raises(MCPError, match="Unknown tool"):
                    await client.call_tool(name, {})
        async with Client(server(App(tools=[private_one]), automatic_tools=True)) as client:
            assert "wait_run" in [tool.name for tool in (await client.list_tools()).tools]


async def test_a_key_belongs_to_its_session(revision: str) -> None:
    ran = []

    @tool
    def note() -> int:
        """Note a call."""
        ran.append(1)
        return len(ran)

    async with fail_after(10), Runtime.open(tools=[note]) as runtime:
        one, two = server(runtime, session="one"), server(runtime, session="two")
        for served in (one, two, one):
            async with Client(served, mode=MODES[revision]) as client:
                await client.call_tool("note", {}, meta={KEY: "k"})
    assert len(ran) == 2


async def test_each_connection_can_have_a_session_of_its_own() -> None:
    @tool
    async def remember(ctx: ToolContext, value: str) -> str | None:
        """Remember a value, and give the one before."""
        before = await ctx.kv.get("value")
        await ctx.kv.set("value", value)
        return before

    async with fail_after(10), Runtime.open(tools=[remember]) as runtime:
        served = server(runtime, session=per_connection)
        async with Client(served, mode="legacy") as one, Client(served, mode="legacy") as two:
            assert text_of(await one.call_tool("remember", {"value": "a"})) == "null"
            assert text_of(await two.call_tool("remember", {"value": "b"})) == "null"
            assert text_of(await one.call_tool("remember", {"value": "c"})) == "a"
        assert len(await runtime.sessions()) == 2


@pytest.mark.promise("MCP-05")
async def test_sessions_of_connections_that_ended_do_not_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    async def keep(ctx: ToolContext, value: str) -> None:
        """Keep a value."""
        await ctx.session.kv.set("value", value)

    monkeypatch.setattr(used_sessions, "MOST_SESSIONS", 5)
    before = in_memory(SessionCore)
    async with fail_after(30), Runtime.open(tmp_path / "mcp.db", tools=[keep]) as runtime:
        served = server(runtime, session=per_connection)
        for number in range(20):
            async with Client(served, mode="legacy") as client:
                assert not (await client.call_tool("keep", {"value": str(number)})).is_error
        await until(lambda: in_memory(SessionCore) - before <= 6)
        assert len(await runtime.sessions()) == 20
