"""Tools of an MCP server are tools like any other: over both transports, in both revisions."""

import asyncio

import pytest

from tests.mcp.client.conftest import HANDSHAKE, MODERN, call, lines, raw, stdio
from tests.support import fail_after, until
from toolwright import App, ToolCall
from toolwright.events import CallOutput, CallProgress
from toolwright.mcp import McpServer


@pytest.mark.promise("MCP-01")
async def test_the_tools_of_a_server_are_registered_under_its_name(plain, opened):
    runtime = await opened(plain())
    assert "plain__echo" in runtime.tools
    definition = runtime.tools.get("plain__add").definition
    assert definition.kind == "mcp"
    assert definition.id == "mcp.plain.add"
    assert definition.output_schema["required"] == ["sum"]
    assert (await call(runtime, "echo", text="hello")).value == "hello"
    [outcome] = await runtime.session("s").run_batch([{"name": "mcp.plain.add", "arguments": {"a": 1, "b": 2}}])
    assert outcome.value == {"sum": 3}


@pytest.mark.promise("MCP-02")
async def test_both_revisions_are_spoken(plain, opened, revision):
    runtime = await opened(plain())
    assert [server.protocol for server in runtime.servers()] == [revision]
    assert (await call(runtime, "echo", text="hello")).ok


@pytest.mark.promise("MCP-02")
async def test_the_newest_revision_that_both_sides_know_is_agreed_on(opened, folder):
    runtime = await opened(stdio(folder, name="new"), raw(folder, "old", name="old"))
    assert [(server.name, server.protocol) for server in runtime.servers()] == [("new", MODERN), ("old", HANDSHAKE)]


@pytest.mark.promise("MCP-01")
async def test_arguments_are_checked_before_anything_is_sent(plain, opened, folder):
    runtime = await opened(plain())
    outcome = await call(runtime, "effect", text=7)
    assert outcome.failure.category == "invalid_arguments"
    assert lines(folder / "effects") == []


async def test_a_null_for_an_optional_parameter_is_left_out(opened, folder):
    runtime = await opened(stdio(folder))
    assert (await call(runtime, "optional", text="a", more=None)).value == '{"text": "a"}'
    assert (await call(runtime, "optional", text=None)).failure.category == "invalid_arguments"


@pytest.mark.promise("MCP-01")
async def test_a_result_that_breaks_the_servers_own_schema_is_a_failure(plain, opened):
    runtime = await opened(plain())
    outcome = await call(runtime, "broken")
    assert outcome.failure.code == "mcp_output_schema"
    assert "$.sum" in outcome.failure.message
    assert outcome.may_have_run


@pytest.mark.promise("MCP-01")
async def test_hints_are_used_only_where_the_owner_trusts_the_server(plain, opened):
    careful = await opened(plain())
    add = careful.tools.get("plain__add").definition
    assert not add.hints.repeatable
    assert not add.concurrency.parallel
    believing = await opened(plain(trusted=True))
    assert believing.tools.get("plain__add").definition.hints.readonly
    assert believing.tools.get("plain__add").definition.concurrency.parallel
    assert believing.tools.get("plain__repeatable").definition.hints.idempotent
    assert not believing.tools.get("plain__effect").definition.hints.repeatable


async def test_the_owners_options_win_over_what_the_server_says(opened, folder):
    runtime = await opened(
        stdio(folder, trusted=True, only=["echo", "add"], tools={"add": {"readonly": False, "approval": "required"}})
    )
    assert runtime.tools.names() == ["plain__add", "plain__echo"]
    add = runtime.tools.get("plain__add").definition
    assert not add.hints.readonly
    assert add.approval == "required"


@pytest.mark.promise("MCP-01")
async def test_the_words_of_a_tool_that_fails_are_its_failure(plain, opened):
    runtime = await opened(plain())
    outcome = await call(runtime, "fail")
    assert outcome.status == "failure"
    assert outcome.failure.message == "no such thing"
    assert outcome.failure.code == "mcp_tool_error"


@pytest.mark.promise("MCP-01")
async def test_images_sounds_resources_and_links_are_kept(plain, opened):
    runtime = await opened(plain())
    outcome = await call(runtime, "media")
    assert outcome.value.startswith("here\nhello\n")
    assert [image.data for image in outcome.images] == ["iVBORw=="]
    found = {item.name: (item.media_type, item.data) for item in outcome.attachments}
    assert found["audio-1"] == ("audio/wav", "iVBORw==")
    assert found["file:///a.bin"] == ("a/b", "iVBORw==")
    assert found["file:///a.txt"][0] == "text/plain"
    assert found["page"][0] == "text/uri-list"
    assert outcome.metadata == {"links": [{"name": "page", "uri": "https://example.com/page", "type": "resource_link"}]}


@pytest.mark.promise("MCP-01")
async def test_progress_is_forwarded(plain, opened):
    runtime = await opened(plain())
    watching = runtime.subscribe()
    assert (await call(runtime, "progress")).ok
    seen = []
    async with fail_after(10):
        async for event in watching:
            if isinstance(event, CallProgress):
                seen.append((event.current, event.total, event.label))
            if event.kind == "batch.finished":
                break
    watching.close()
    assert seen[0] == (1, 3, "part 1")
    assert seen[-1] == (3, 3, "part 3")


@pytest.mark.promise("MCP-01")
async def test_logs_of_the_server_come_with_the_call(plain, opened):
    runtime = await opened(plain())
    watching = runtime.subscribe()
    assert (await call(runtime, "logs")).ok
    seen = []
    async with fail_after(10):
        async for event in watching:
            if isinstance(event, CallOutput):
                seen.append((event.stream, event.text))
            if event.kind == "batch.finished":
                break
    watching.close()
    assert seen == [("log", "looking\n")]


@pytest.mark.promise("MCP-01")
async def test_a_cancelled_call_is_cancelled_at_the_server(plain, opened, folder):
    runtime = await opened(plain())
    batch = runtime.session("s").start_batch([{"name": "plain__wait", "arguments": {}}])
    await until(lambda: lines(folder / "started"))
    batch.cancel("enough")
    async with fail_after(10):
        [outcome] = await batch
    assert outcome.status == "cancelled"
    assert outcome.may_have_run
    await until(lambda: lines(folder / "cancelled"))


@pytest.mark.promise("MCP-01")
async def test_a_call_that_runs_out_of_time_is_cancelled_at_the_server(plain, opened, folder):
    runtime = await opened(plain(timeout=0.3))
    outcome = await call(runtime, "wait")
    assert outcome.failure.category == "timeout"
    await until(lambda: lines(folder / "cancelled"))
    assert (await call(runtime, "echo", text="still here")).ok


@pytest.mark.promise("MCP-01")
async def test_changes_of_the_list_are_followed(plain, opened, folder, caplog):
    runtime = await opened(plain())
    assert "plain__new" not in runtime.tools
    (folder / "changed").touch()
    assert (await call(runtime, "tell_change")).ok
    await until(lambda: "plain__new" in runtime.tools)
    assert "plain__fail" not in runtime.tools
    assert runtime.tools.get("plain__echo").definition.description == "Does something else."
    assert runtime.servers()[0].changed == ("echo",)
    assert "has changed" in caplog.text


async def test_the_calls_of_one_batch_run_side_by_side_where_the_server_is_trusted(opened, folder):
    runtime = await opened(stdio(folder, trusted=True))
    calls = [{"name": "plain__add", "arguments": {"a": number, "b": 1}} for number in range(50)]
    async with fail_after(20):
        outcomes = await runtime.session("s").run_batch(calls)
    assert [outcome.value["sum"] for outcome in outcomes] == list(range(1, 51))


async def test_an_app_with_a_server_can_be_changed_and_shown(folder):
    app = App(tools=[stdio(folder)])
    assert app.but(instructions="Be brief.").remote_tools == app.remote_tools
    assert app.catalogue().names() == []
    assert "1 tools" in repr(app)


async def test_two_servers_of_one_name_are_refused(folder):
    with pytest.raises(Exception, match="have the name 'plain'"):
        App(tools=[stdio(folder), stdio(folder)])


@pytest.mark.parametrize("name", ["", "a__b", "a_", "_a", "ä", "a b", "x" * 33])
async def test_names_that_could_be_taken_for_others_are_refused(name):
    with pytest.raises(Exception, match="of an MCP server is not usable"):
        McpServer.http(name, "https://example.com/mcp")


async def test_a_server_is_a_tool_of_a_sub_agent(opened, folder):
    from toolwright.testing import ScriptedModel

    agent = App(
        tools=[stdio(folder)],
        model=ScriptedModel([[ToolCall("plain__effect", {"text": "from below"})], "done"]),
    )
    runtime = await opened(agent.as_tool("helper"))
    async with fail_after(30):
        [outcome] = await runtime.session("s").run_batch([{"name": "helper", "arguments": {"message": "go"}}])
    assert outcome.ok
    assert lines(folder / "effects") == ["from below"]


async def test_many_calls_can_be_open_at_once_over_one_connection(opened, folder):
    runtime = await opened(stdio(folder, trusted=True, tools={"echo": {"parallel": True}}))
    async with fail_after(20):
        found = await asyncio.gather(*(call(runtime, "echo", session=f"s{n}", text=str(n)) for n in range(30)))
    assert [outcome.value for outcome in found] == [str(n) for n in range(30)]
