"""What the tests of the command line share: a directory with tools, and a way to run the command in it."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
from typer.testing import CliRunner

import toolwright
from tests.warm_programs import WarmPrograms
from toolwright import jsonx
from toolwright.cli.app import app
from toolwright.testing import CrashKit, Zygote

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


BACKGROUND = '''
import asyncio
import os
import threading
from toolwright import ToolContext, ToolError, tool


@tool(supports_background=True, idempotent=True)
async def film(ctx: ToolContext, scenes: int = 3, gate: str = "") -> str:
    """Shoot some scenes, and wait for the gate before the last one."""
    with open("ledger", "a") as file:
        file.write(f"{os.getpid()}\\\\n")
    for scene in range(1, scenes + 1):
        if gate and scene == scenes:
            await ctx.receive(gate)
        await ctx.progress(scene, total=scenes, label=f"scene {scene}")
        await ctx.output("stdout", f"scene {scene} is shot\\\\n")
    return f"{scenes} scenes"


@tool(supports_background=True)
async def refuse() -> None:
    """Fail in an expected way."""
    raise ToolError("Nothing doing", code="refused")


@tool(supports_background=True, readonly=True)
async def paint(ctx: ToolContext) -> str:
    """Give text in colours."""
    await ctx.output("stdout", chr(27) + "[32mgreen" + chr(27) + "[0m")
    return chr(27) + "[31mred" + chr(27) + "[0m"


@tool(supports_background=True)
async def produce(ctx: ToolContext) -> str:
    """Start another run, and wait for it."""
    run = await ctx.runs.spawn("film", {"gate": "go"}, title="The film")
    return (await run.wait()).text


@tool(supports_background=True)
def stuck() -> None:
    """Never end, whoever asks."""
    print("it has begun", flush=True)
    threading.Event().wait()


@tool(supports_background=True)
async def stubborn() -> None:
    """Go on, whoever asks."""
    print("it has begun", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@tool(supports_background=True)
async def threaded() -> None:
    """Wait for a thread of the loop that never ends."""
    def block() -> None:
        print("it has begun", flush=True)
        threading.Event().wait()

    await asyncio.to_thread(block)


@tool
async def shy() -> None:
    """Run in the foreground only."""
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


@pytest.fixture(scope="session")
def commands() -> Any:
    """All commands, from their functions: the tests run hundreds, and making them takes longer than most run."""
    return typer.main.get_command(app)


@pytest.fixture
def run(project: Path, commands: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process, with stdout and stderr that are no terminals."""
    monkeypatch.setattr("typer.testing._get_command", lambda _: commands)

    def invoke(*words: str | Path, stdin: str | bytes | None = None) -> Ended:
        result = CliRunner().invoke(app, [str(word) for word in words], input=stdin, prog_name="toolwright")
        return Ended(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmPrograms]:
    """Starts the command in a process of its own, without importing it for a third of a second."""
    modules = ("toolwright.cli.app", "toolwright.stores.sqlite.store", "toolwright.testing")
    with closing(WarmPrograms(*modules)) as programs:
        yield programs


@pytest.fixture
def fresh_command(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that start the command in an interpreter of its own, for tests of the process itself."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(toolwright.__file__).parents[1]))
    return [sys.executable, "-m", "toolwright.cli"]


@pytest.fixture
def command(fresh_command: list[str], warm: WarmPrograms) -> list[str]:
    """The words that start the command in a process of its own."""
    return [*warm.command, *fresh_command[1:]]


CRASHING = '''
import os
import signal
from pathlib import Path
from toolwright import Pending, Subject, ToolContext, tool


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


def flight(arguments: dict, view: object) -> Subject:
    return Subject("flight", f"to {arguments.get('where', 'moon')}", "/pad")


@tool(approval="required", parallel=True, subject=flight)
def launch(where: str = "moon") -> str:
    """Do something grave."""
    return f"launched to {where}"


@tool(parallel=True)
def order(ctx: ToolContext) -> Pending:
    """Wait for somebody outside."""
    Path("key").write_text(ctx.completion_key())
    return Pending()


@tool(parallel=True, on_crash="rerun")
async def tailor(ctx: ToolContext, item: str = "hat") -> str:
    """Ask a person for a size."""
    size = await ctx.ask("size", f"Which size of {item}?", {"type": "string", "enum": ["S", "M", "L"]})
    return f"{item} in {size}"
'''.replace("\\\\n", "\\n")


@pytest.fixture
def left(project: Path, zygote: Zygote) -> Callable[..., Path]:
    """Leaves a store behind, by a process that runs calls until it is killed, or until all that is left waits."""
    (project / "crashing.py").write_text(CRASHING)

    def leave(*calls: dict[str, Any], session: str = "s1", name: str = "agent.db") -> Path:
        with CrashKit(project, zygote=zygote) as kit:
            kit.start(LEAVING, name=name, session=session, calls=calls).wait()
        return project / name

    return leave


LEAVING = """
import sys

async def main():
    sys.path.insert(0, "")
    import crashing

    tools = [crashing.note, crashing.die, crashing.risky, crashing.launch, crashing.order, crashing.tailor]
    async with Runtime.open(name, tools=tools) as runtime:
        await runtime.session(session).start_batch([ToolCall(**call) for call in calls]).quiet()
"""


class Workers:
    """Starts workers in processes of their own, and ends those that are left."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self.all: list[tuple[subprocess.Popen[str], threading.Timer]] = []

    def start(self, *words: str) -> "Working":
        return self.start_command("worker", "--tools", "background.py", "--db", "agent.db", *words)

    def start_command(self, *words: str) -> "Working":
        process = subprocess.Popen(
            [*self._command, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # A worker that never says what a test waits for is killed, and the test fails with what it said.
        limit = threading.Timer(45, process.kill)
        limit.start()
        self.all.append((process, limit))
        return Working(process)


class Working:
    """A worker in a process of its own, and what it says on stderr."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said = ""

    def until(self, word: str) -> str:
        """Read until a line has this word, and return the line."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if word in line:
                return line
        pytest.fail(f"It ended without {word!r}: {self.said}")

    def end(self, number: int | None = None) -> int:
        """Send a signal, if one is given, and wait for the end of the process; returns its code."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        self.said += err
        assert out == ""
        return self.process.returncode


@pytest.fixture
def background(project: Path) -> None:
    """Tools that run in the background, in `background.py`."""
    (project / "background.py").write_text(BACKGROUND)


@pytest.fixture
def workers(project: Path, fresh_command: list[str]) -> Iterator[Workers]:
    """Workers for the store `agent.db`; those that still run after the test are killed."""
    made = Workers(fresh_command)
    yield made
    for process, limit in made.all:
        limit.cancel()
        process.kill()
        process.communicate()


Spawn = Callable[..., str]


@pytest.fixture
def spawn(run: Run) -> Spawn:
    """Starts a tool of `background.py` in the background, and returns the id of its run."""

    def start(*words: str) -> str:
        ended = run("spawn", *words, "--tools", "background.py", "--db", "agent.db")
        assert ended.code == 0, ended.err
        return ended.out.strip()

    return start
