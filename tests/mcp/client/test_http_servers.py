"""Servers over HTTP that go away and come back."""

import pytest

from tests.mcp.client.conftest import call, lines
from tests.support import fail_after, until
from toolwright.mcp import McpServer


@pytest.fixture
def settings(http_server, revision):
    return McpServer.http("plain", http_server.url, protocol=revision, connect_timeout=20.0)


@pytest.mark.promise("MCP-03")
async def test_a_server_that_comes_later_brings_its_tools_then(opened, http_server, settings):
    runtime = await opened(settings)
    assert runtime.tools.names() == []
    assert "cannot be reached" in runtime.servers()[0].error
    await http_server.started()
    await until(lambda: "plain__echo" in runtime.tools)
    assert (await call(runtime, "echo", text="hello")).value == "hello"


@pytest.mark.promise("MCP-03")
async def test_a_call_that_is_open_when_its_server_dies_is_not_sent_again(opened, http_server, settings, folder):
    await http_server.started()
    runtime = await opened(settings)
    batch = runtime.session("s").start_batch([{"name": "plain__wait", "arguments": {}}])
    await until(lambda: lines(folder / "started"))
    http_server.kill()
    async with fail_after(20):
        [outcome] = await batch
    assert outcome.failure.category == "interrupted"
    assert outcome.may_have_run
    assert lines(folder / "started") == ["wait"]
    await http_server.started()
    assert (await call(runtime, "effect", text="after")).ok
    assert lines(folder / "effects") == ["after"]


@pytest.mark.promise("MCP-03")
async def test_a_call_that_never_reached_a_server_is_sent_when_it_is_there_again(opened, http_server, settings, folder):
    await http_server.started()
    runtime = await opened(settings)
    assert (await call(runtime, "effect", text="one")).ok
    http_server.kill()
    batch = runtime.session("s").start_batch([{"name": "plain__effect", "arguments": {"text": "two"}}])
    await http_server.started()
    async with fail_after(30):
        [outcome] = await batch
    # Either it came too early and was sent later, or a connection broke under it; it was never done twice.
    assert outcome.ok or outcome.failure.category == "interrupted"
    assert lines(folder / "effects") in (["one", "two"], ["one"])
    assert (await call(runtime, "echo", text="here")).ok
