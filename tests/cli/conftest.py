"""What the tests of the command line share: a directory with tools, and a way to run the command in it."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import toolwright
from toolwright import jsonx
from toolwright.cli.app import app

TOOLS = '''
import asyncio
from toolwright import ToolContext, ToolError, tool


@tool(readonly=True)
def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: the first one.
    """
    return a + b


@tool(readonly=True)
def echo(text: str) -> str:
    """Return the text."""
    return text


@tool(key="{name}")
def append(name: str, line: str) -> None:
    """Append a line to a file."""
    with open(name, "a") as file:
        file.write(line + "\\\\n")


@tool
def refuse() -> None:
    """Fail in an expected way."""
    raise ToolError("Nothing doing", code="refused")


@tool
def crash() -> None:
    """Fail in an unexpected way."""
    raise KeyError("lost")


@tool(approval="required")
def launch() -> str:
    """Do something grave."""
    return "launched"


@tool(readonly=True)
async def hang() -> None:
    """Never end."""
    print("hanging", flush=True)
    await asyncio.Event().wait()
'''.replace("\\\\n", "\\n")


class Ended(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return jsonx.decode(self.out)


Run = Callable[..., Ended]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with tools in `kit.py`, where the test runs. What is imported there is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "120")
    before = set(sys.modules)
    (tmp_path / "kit.py").write_text(TOOLS)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def run(project: Path) -> Iterator[Run]:
    """Runs the command in this process, with stdout and stderr that are no terminals."""
    log = logging.getLogger("toolwright")
    before = (list(log.handlers), log.propagate, log.level)

    def invoke(*words: str | Path, stdin: str | bytes | None = None) -> Ended:
        result = CliRunner().invoke(app, [str(word) for word in words], input=stdin, prog_name="toolwright")
        return Ended(result.exit_code, result.stdout, result.stderr)

    yield invoke
    log.handlers[:], log.propagate, log.level = before


@pytest.fixture
def command(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that start the command in a process of its own."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(toolwright.__file__).parents[1]))
    return [sys.executable, "-m", "toolwright.cli"]


CRASHING = '''
import os
import signal
from pathlib import Path
from toolwright import Pending, ToolContext, tool


def cut_off(name: str) -> None:
    """Kill this process, the first time."""
    if not Path(name).exists():
        Path(name).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@tool(readonly=True)
def note(text: str) -> str:
    """Write down that it ran."""
    with open("ledger", "a") as file:
        file.write(text + "\\\\n")
    return text


@tool
def die() -> str:
    """Kill the process that runs it."""
    cut_off("died")
    return "alive"


@tool(on_crash="ask")
def risky() -> str:
    """Kill the process that runs it, and let a person decide."""
    cut_off("risked")
    return "alive"


@tool(approval="required", parallel=True)
def launch(where: str = "moon") -> str:
    """Do something grave."""
    return f"launched to {where}"


@tool(parallel=True)
def order(ctx: ToolContext) -> Pending:
    """Wait for somebody outside."""
    Path("key").write_text(ctx.completion_key())
    return Pending()
'''.replace("\\\\n", "\\n")


@pytest.fixture
def left(project: Path, command: list[str]) -> Callable[..., Path]:
    """Leaves a store behind, by a process that runs calls until it is killed, or until all that is left waits."""
    (project / "crashing.py").write_text(CRASHING)

    def leave(*calls: dict[str, Any], session: str = "s1", name: str = "agent.db") -> Path:
        (project / "leave.py").write_text(LEAVING)
        words = [name, session, jsonx.encode(calls).decode()]
        subprocess.run([command[0], "leave.py", *words], check=False, timeout=30)
        return project / name

    return leave


LEAVING = """
import asyncio, sys
import crashing
from toolwright import Runtime, ToolCall, jsonx

async def main(store, session, calls):
    tools = [crashing.note, crashing.die, crashing.risky, crashing.launch, crashing.order]
    async with Runtime.open(store, tools=tools) as runtime:
        await runtime.session(session).start_batch([ToolCall(**call) for call in jsonx.decode(calls)]).quiet()

asyncio.run(main(*sys.argv[1:]))
"""
