"""MCP servers for the tests of them: in this process, and in one of their own over stdio and HTTP."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.warm_programs import WarmPrograms

APP = Path(__file__).with_name("served_app.py")
MODES = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
"""How the SDK's client connects at each revision."""

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=MODES)
def revision(request: pytest.FixtureRequest) -> str:
    """Each revision in turn."""
    found: str = request.param
    return found


@pytest.fixture
def effects(tmp_path: Path) -> Callable[[], list[str]]:
    """The effects that the served app has had so far."""
    return lambda: (tmp_path / "effects.txt").read_text().splitlines() if (tmp_path / "effects.txt").exists() else []


def command(folder: Path, *options: str, app: Path = APP) -> tuple[list[str], dict[str, str]]:
    """The command that serves the app, and its environment."""
    arguments = [
        "-m",
        "toolwright.cli",
        "mcp",
        "serve",
        "--app",
        f"{app}:app",
        "--db",
        str(folder / "mcp.db"),
        *options,
    ]
    return arguments, {**os.environ, "EFFECTS": str(folder / "effects.txt"), "PYTHONWARNINGS": ""}


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmPrograms]:
    """Starts servers in processes of their own, with the SDK imported."""
    with closing(WarmPrograms("toolwright.cli.app", "toolwright.mcp.serve")) as programs:
        yield programs


@pytest.fixture
def over_stdio(tmp_path: Path, warm: WarmPrograms) -> Connect:
    """Connects a client of the SDK to the app in a process of its own, over stdio."""

    @asynccontextmanager
    async def connect(revision: str, *options: str, **of_client: Any) -> AsyncIterator[Client]:
        arguments, environment = command(tmp_path, *options)
        python, *words = warm.command
        started = StdioServerParameters(command=python, args=[*words, *arguments], env=environment, cwd=tmp_path)
        with (tmp_path / "stderr.txt").open("a") as log:
            async with Client(stdio_client(started, errlog=log), mode=MODES[revision], **of_client) as client:
                yield client

    return connect


@contextmanager
def http_server(folder: Path, *options: str, app: Path = APP) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The app served over HTTP by a process of its own: its address, and the process."""
    arguments, environment = command(folder, "--http", "127.0.0.1:0", *options, app=app)
    with ExitStack() as stack:
        program = stack.enter_context(
            subprocess.Popen(
                [sys.executable, *arguments], env=environment, cwd=folder, stderr=subprocess.PIPE, text=True
            )
        )
        stack.callback(program.kill)
        assert program.stderr is not None
        said = []
        for line in program.stderr:
            said.append(line)
            if found := re.search(r"http://\S+", line):
                yield found.group(), program
                return
        pytest.fail(f"The server ended before it said its address: {''.join(said)}")
