"""A file of servers is read as other programs write it, with variables of the environment and secrets."""

import json
import sys

import pytest

from tests.mcp.client.conftest import RAW, call, lines
from toolwright.errors import ToolwrightError
from toolwright.mcp import McpServer


def write(path, servers):
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@pytest.mark.promise("MCP-07")
async def test_the_servers_of_a_file_are_tools_of_the_app(opened, folder, tmp_path):
    file = write(
        tmp_path / "mcp.json",
        {
            "plain": {"command": sys.executable, "args": [str(RAW), str(folder), "fine"]},
            "off": {"command": "nothing", "disabled": True},
        },
    )
    runtime = await opened(*McpServer.from_file(file))
    assert runtime.tools.names() == ["plain__effect"]
    assert (await call(runtime, "effect", text="a")).ok
    assert lines(folder / "effects") == ["a"]


@pytest.mark.promise("MCP-07")
async def test_variables_come_from_the_environment_the_secrets_and_defaults(
    opened, folder, tmp_path, file, monkeypatch
):
    monkeypatch.setenv("FOLDER", str(folder))
    monkeypatch.delenv("SERVICE_TOKEN", raising=False)
    servers = write(
        tmp_path / "mcp.json",
        {
            "plain": {
                "command": sys.executable,
                "args": [str(RAW), "${FOLDER}", "${BEHAVIOUR:-leak}"],
                "env": {"SERVICE_TOKEN": "${SERVICE_TOKEN}"},
            }
        },
    )
    first = await opened(*McpServer.from_file(servers), store=file)
    [status] = first.servers()
    assert "${SERVICE_TOKEN}" in status.error
    assert "secrets of the session 'mcp'" in status.error
    await first.session("mcp").secrets.set("SERVICE_TOKEN", "open-sesame-77")
    await first.close()

    second = await opened(*McpServer.from_file(servers), store=file)
    outcome = await call(second, "effect")
    assert outcome.value == {"[secret:SERVICE_TOKEN]": ["[secret:SERVICE_TOKEN]"]}
    assert outcome.text == "token [secret:SERVICE_TOKEN]"


@pytest.mark.promise("MCP-07")
async def test_options_of_ours_stand_under_our_name(tmp_path):
    file = write(tmp_path / "mcp.json", {"a": {"url": "https://example.com/mcp", "toolwright": {"trusted": True}}})
    [server] = McpServer.from_file(file, timeout=3.0)
    assert server.trusted
    assert server.timeout == 3.0


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({}, "use one of the two|has url"),
        ({"command": "a", "args": "b"}, "a list of texts"),
        ({"type": "sse", "url": "http://a"}, "streamable HTTP"),
        ({"url": "ftp://a"}, "an http or https URL"),
        ({"command": "a", "toolwright": {"trust": True}}, "unknown options"),
        ({"command": "a", "env": [1]}, "no object"),
        ({"command": "a", "url": "http://b"}, "use one of the two"),
        ({"url": "http://ann:secret@b/mcp"}, "give them by auth= or headers="),
        ({"url": "http://b", "headers": {"A": "b\r\nC: d"}}, "cannot be sent"),
        (7, "is not an object"),
        ({"command": "a", "cwd": 5}, "use the path of a directory"),
        ({"command": "a", "toolwright": {"sampling": {"max": 1}}}, "unknown options .* use requests and max_tokens"),
        ({"command": "a", "toolwright": {"only": "search"}}, "only='search'; use a list of texts"),
        ({"command": "a", "toolwright": {"only": 5}}, "only=5; use a list of texts"),
        ({"command": "a", "toolwright": {"roots": "file:///a"}}, "use a list of texts"),
        ({"command": "a", "toolwright": {"tools": ["search"]}}, "use a dict of options by the names of tools"),
        ({"command": "a", "toolwright": {"tools": {"search": "readonly"}}}, "use a dict of options"),
        ({"command": "a", "toolwright": {"pins": ["search"]}}, "use a dict of hashes"),
    ],
)
async def test_a_server_that_is_not_usable_is_refused_with_its_name(tmp_path, entry, match):
    with pytest.raises(ToolwrightError, match=match) as raised:
        McpServer.from_file(write(tmp_path / "mcp.json", {"mine": entry}))
    assert "'mine'" in str(raised.value)
    assert "secret@" not in str(raised.value)


async def test_arguments_of_a_command_are_no_single_text():
    with pytest.raises(ToolwrightError, match="use a list of texts"):
        McpServer.stdio("mine", "uvx", "mcp-server-git")


@pytest.mark.parametrize("text", ["", "[]", '{"mcpServers": 7}', "{", '{"servers": {}}'])
async def test_a_file_of_another_form_is_refused(tmp_path, text):
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(ToolwrightError, match=r"mcp\.json"):
        McpServer.from_file(tmp_path / "mcp.json")


async def test_the_environment_of_a_server_has_only_what_it_was_given(opened, folder, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "x")
    from tests.mcp.client.conftest import stdio

    runtime = await opened(stdio(folder, env={"GIVEN": "yes"}))
    found = (await call(runtime, "environment")).value
    assert found["GIVEN"] == "yes"
    assert found.keys() <= {"GIVEN", "PATH", "HOME", "LC_CTYPE"}


@pytest.mark.promise("MCP-01")
async def test_a_tool_that_is_not_as_it_was_pinned_is_left_out(opened, folder):
    from tests.mcp.client.conftest import raw

    runtime = await opened(raw(folder, "fine"))
    pins = runtime.servers()[0].pins
    await runtime.close()
    same = await opened(raw(folder, "fine", pins=pins))
    assert same.tools.names() == ["plain__effect"]
    other = await opened(raw(folder, "descriptions", pins=pins))
    assert other.tools.names() == []
    assert "not what it was when it was pinned" in other.servers()[0].left_out["effect"]


@pytest.mark.promise("MCP-01")
async def test_a_change_since_the_last_process_is_told(opened, folder, file, caplog):
    from tests.mcp.client.conftest import raw

    first = await opened(raw(folder, "fine"), store=file)
    await first.close()
    second = await opened(raw(folder, "descriptions"), store=file)
    assert second.servers()[0].changed == ("effect",)
    assert "has changed" in caplog.text
