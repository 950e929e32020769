"""`toolwright mcp add`, `list`, `test` and `rm` keep a file of servers."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

RAW = Path(__file__).parents[1] / "mcp" / "client" / "raw_server.py"


@pytest.fixture
def words(project: Path) -> list[str]:
    """The command of a server that starts quickly."""
    (project / "server").mkdir()
    return [sys.executable, str(RAW), str(project / "server"), "fine"]


def test_a_server_is_added_listed_tested_and_removed(run: Run, project: Path, words: list[str]):
    added = run("mcp", "add", "mine", "--env", "A_TOKEN=${A_TOKEN:-none}", "--", *words)
    assert added.code == 0, added.err
    written = json.loads((project / "mcp.json").read_text())["mcpServers"]["mine"]
    assert written["command"] == sys.executable
    assert written["env"] == {"A_TOKEN": "${A_TOKEN:-none}"}
    assert (project / "mcp.json").stat().st_mode & 0o077 == 0

    [listed] = run("mcp", "list", "--json").json
    assert (listed["name"], listed["state"], listed["transport"]) == ("mine", "connected", "stdio")
    assert listed["tools"] == [{"name": "mine__effect", "description": "A tool."}]
    assert "mine" in run("mcp", "list").out

    tested = run("mcp", "test", "mine")
    assert tested.code == 0
    assert "mine__effect" in tested.out
    assert run("mcp", "rm", "mine").code == 0
    assert run("mcp", "list", "--json").json == []


def test_a_tool_that_has_changed_since_it_was_pinned_is_told(run: Run, project: Path, words: list[str]):
    run("mcp", "add", "mine", "--", *words)
    assert run("mcp", "test", "mine", "--pin").code == 0
    file = project / "mcp.json"
    content = json.loads(file.read_text())
    assert list(content["mcpServers"]["mine"]["toolwright"]["pins"]) == ["effect"]
    [listed] = run("mcp", "list", "--json").json
    assert listed["changed"] == []
    content["mcpServers"]["mine"]["args"][-1] = "descriptions"
    file.write_text(json.dumps(content))
    [listed] = run("mcp", "list", "--json").json
    assert listed["changed"] == ["effect"]
    assert "Changed since it was pinned: effect" in run("mcp", "test", "mine").err


def test_a_server_that_cannot_be_reached_is_told(run: Run, project: Path):
    assert run("mcp", "add", "gone", "--", str(project / "nothing")).code == 0
    tested = run("mcp", "test", "gone")
    assert tested.code == 1
    assert "cannot be reached" in tested.err
    [listed] = run("mcp", "list", "--json").json
    assert "nothing" in listed["error"]


def test_wrong_words_are_refused(run: Run, project: Path):
    assert run("mcp", "add", "mine").code == 2
    assert run("mcp", "add", "a__b", "--", "x").code == 2
    assert run("mcp", "add", "mine", "--env", "x", "--", "y").code == 2
    assert run("mcp", "rm", "mine").code == 2
    assert run("mcp", "add", "mine", "--url", "https://example.com/mcp", "--header", "X-Key: ${KEY}").code == 0
    assert run("mcp", "add", "mine", "--url", "https://example.com/mcp").code == 2
    written = json.loads((project / "mcp.json").read_text())["mcpServers"]["mine"]
    assert written == {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "${KEY}"}}


def test_the_servers_of_the_project_are_among_its_tools(run: Run, project: Path, words: list[str]):
    (project / "pyproject.toml").write_text('[tool.toolwright]\ntools = ["kit.py"]\nmcp = "servers.json"\n')
    assert run("mcp", "add", "mine", "--", *words).code == 0
    assert (project / "servers.json").exists()
    called = run("call", "mine__effect", '{"text": "hello"}')
    assert called.code == 0, called.err
    assert (project / "server" / "effects").read_text() == "hello\n"


@pytest.mark.parametrize(
    "words",
    [
        ("bad", "--url", "nowhere"),
        ("bad", "--header", "A: b", "--", "program"),
        ("bad", "--env", "A=b", "--url", "https://example.com/mcp"),
    ],
)
def test_a_server_that_could_not_be_used_is_not_added(run: Run, project: Path, words: tuple[str, ...]):
    assert run("mcp", "add", *words).code != 0
    assert not (project / "mcp.json").exists()
