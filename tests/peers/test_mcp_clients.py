"""MCP clients that others wrote, each with a server of toolwright over stdio."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peers.install import inspector_program, old_client_python

APP = Path(__file__).parents[1] / "mcp" / "server" / "served_app.py"
CLIENT = Path(__file__).with_name("old_client.py")


def asked(folder: Path, *command: str) -> Any:
    """What a client prints, as JSON."""
    environment = {**os.environ, "EFFECTS": str(folder / "effects.txt")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)


def server(folder: Path) -> list[str]:
    options = ["--app", f"{APP}:app", "--db", str(folder / "mcp.db")]
    return [sys.executable, "-m", "toolwright.cli", "mcp", "serve", *options]


@pytest.mark.promise("MCP-05")
def test_the_official_sdk_of_the_first_version(tmp_path: Path) -> None:
    got = asked(tmp_path, str(old_client_python()), str(CLIENT), "sdk", *server(tmp_path))
    assert got["revision"] == "2025-11-25"
    assert "add" in got["tools"]
    assert got["added"] == {"total": 3}
    assert got["launched"] == "launched x"
    assert got["progress"] == [1, 2, 3]
    assert got["refused"] is True


@pytest.mark.promise("MCP-05")
def test_smolagents(tmp_path: Path) -> None:
    got = asked(tmp_path, str(old_client_python()), str(CLIENT), "smolagents", *server(tmp_path))
    assert "charge" in got["tools"]
    assert got["charged"] == "charged o1"
    assert (tmp_path / "effects.txt").read_text() == "o1\n"


@pytest.mark.promise("MCP-05")
def test_the_command_line_of_the_inspector(tmp_path: Path) -> None:
    command = [*inspector_program(), "--cli", "-e", f"EFFECTS={tmp_path / 'effects.txt'}", *server(tmp_path)]
    listed = asked(tmp_path, *command, "--method", "tools/list")
    assert "add" in [tool["name"] for tool in listed["tools"]]
    called = asked(
        tmp_path, *command, "--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=1", "--tool-arg", "b=2"
    )
    assert called["structuredContent"] == {"total": 3}
