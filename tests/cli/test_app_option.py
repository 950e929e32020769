"""Commands open the app that `--app` or the project names: the same tools, policy, hooks and lifespan everywhere."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Workers
from toolwright import jsonx

AGENT = '''
from contextlib import asynccontextmanager
from pathlib import Path
from toolwright import App, Policy, ReplaceArguments, Rule, ToolContext, tool


class Ledger:
    def write(self, line: str) -> None:
        with open("ledger", "a") as file:
            file.write(line + "\\n")


@asynccontextmanager
async def lifespan():
    ledger = Ledger()
    ledger.write("entered")
    yield ledger
    ledger.write("closed")


@tool(supports_background=True, idempotent=True)
async def note(ctx: ToolContext[Ledger], line: str) -> str:
    """Write a line."""
    ctx.deps.write(line)
    return line


@tool(supports_background=True)
async def wipe() -> str:
    """Remove everything."""
    Ledger().write("wiped")
    return "wiped"


@tool
async def deploy() -> str:
    """Ship it."""
    return "shipped"


def shout(call):
    return ReplaceArguments({"line": call.arguments["line"].upper()}) if call.tool.name == "note" else None


app = App(
    tools=[note, wipe, deploy],
    capabilities=["todo"],
    policy=Policy(rules=[Rule("deny", "wipe", name="keep it"), Rule("ask", "deploy", name="ask first")]),
    before=[shout],
    projector=lambda outcome: f"<{outcome.value if outcome.ok else outcome.failure.code}>",
    lifespan=lifespan,
)
number = 3


def make() -> App:
    return app
'''


@pytest.fixture
def agent(project: Path) -> Path:
    (project / "agent.py").write_text(AGENT)
    return project


def ledger(agent: Path) -> list[str]:
    return (agent / "ledger").read_text().split()


@pytest.mark.promise("APP-01")
@pytest.mark.parametrize("source", ["agent:app", "agent.py:app"])
def test_a_command_calls_a_tool_of_an_app_under_its_hooks_policy_and_lifespan(
    run: Run,
    agent: Path,
    source: str,
) -> None:
    assert run("call", "note", "line=x", "--app", source).out == "<X>\n"
    assert ledger(agent) == ["entered", "X", "closed"]
    ended = run("call", "wipe", "--app", source)
    assert (ended.code, ended.out) == (1, "<denied>\n")
    assert "wiped" not in ledger(agent)


@pytest.mark.promise("APP-01")
def test_the_app_of_a_project_is_the_default_and_tools_are_the_quick_case(
    run: Run,
    agent: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (agent / "pyproject.toml").write_text('[tool.toolwright]\napp = "agent:app"\ntools = ["kit.py"]\n')
    (agent / "below").mkdir()
    monkeypatch.chdir(agent / "below")
    assert run("call", "note", "line=x").out == "<X>\n"
    names = {one["name"] for one in run("tools", "--json").json}
    assert names >= {"deploy", "note", "wipe", "spawn_background", "write_todos"}
    assert "echo" not in names
    assert run("call", "echo", "text=hi", "--tools", "../kit.py").out == "hi\n"


@pytest.mark.promise("APP-01")
def test_a_batch_runs_under_the_app(run: Run, agent: Path) -> None:
    calls = [{"id": "c1", "name": "note", "arguments": {"line": "x"}}, {"id": "c2", "name": "wipe", "arguments": {}}]
    ended = run("batch", "-", "--app", "agent:app", "--json", stdin=jsonx.encode(calls))
    assert [result["status"] for result in ended.json] == ["success", "failure"]
    assert ledger(agent) == ["entered", "X", "closed"]


@pytest.mark.promise("APP-01")
def test_options_of_a_command_narrow_the_policy_of_the_app(run: Run, agent: Path) -> None:
    assert run("call", "note", "line=x", "--app", "agent:app", "--read-only").out == "<denied>\n"
    assert run("call", "deploy", "--app", "agent:app").out == "<needs_approval>\n"
    assert run("call", "deploy", "--app", "agent:app", "--approve", "deploy").out == "<shipped>\n"
    # An approval is an answer to a question, and a rule that denies asks none.
    assert run("call", "wipe", "--app", "agent:app", "--approve", "wipe").out == "<denied>\n"


@pytest.mark.promise("APP-01", "APP-02")
def test_a_worker_makes_its_store_and_runs_the_app_until_it_is_stopped(
    run: Run,
    agent: Path,
    command: list[str],
    workers: Workers,
) -> None:
    (agent / "pyproject.toml").write_text('[tool.toolwright]\napp = "agent:app"\ndb = "agent.db"\n')
    assert not (agent / "agent.db").exists()
    working = workers.start_command("worker")
    working.until("runs up to")
    assert (agent / "agent.db").exists()
    good = run("spawn", "note", "line=x").out.strip()
    assert run("runs", "wait", good).out == "<X>\n"
    assert working.end(signal.SIGTERM) == 0
    # Once by the worker, and by `spawn` in this process in between.
    assert ledger(agent) == ["entered", "entered", "closed", "X", "closed"]


CUT_OFF = """
import asyncio, os
import agent

def die(ledger, line):
    os._exit(9)

async def main():
    async with agent.app.open("agent.db") as runtime:
        agent.Ledger.write = die
        await runtime.session("s1").run_batch([{"id": "c1", "name": "note", "arguments": {"line": "x"}}])

asyncio.run(main())
"""


@pytest.mark.promise("APP-01", "APP-02")
def test_recovery_runs_the_app(run: Run, agent: Path, command: list[str]) -> None:
    (agent / "cut_off.py").write_text(CUT_OFF)
    assert subprocess.run([command[0], "cut_off.py"], timeout=30).returncode == 9
    ended = run("recover", "--app", "agent:app", "--db", "agent.db", "--json")
    assert [(one["action"], one["outcome"]["text"]) for one in ended.json] == [("rerun", "<X>")]
    assert ledger(agent) == ["entered", "entered", "X", "closed"]


@pytest.mark.promise("APP-01")
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("gone:app", "The app 'gone:app' cannot be found: no module 'gone'; install it, run from its directory, or"),
        ("gone.py:app", "The app 'gone.py:app' cannot be found: no file"),
        ("agent:apple", "The app 'agent:apple' cannot be found: 'agent' has no 'apple'; it has the app 'app'"),
        ("agent", "The app 'agent' is a module; name the app in it, as in agent:app; did you mean 'agent:app'?"),
        ("agent:number", "The app 'agent:number' is of type 'int', and no App; it has the app 'app'"),
        ("agent:make", "The app 'agent:make' is of type 'function', and no App; it has the app 'app'"),
        ("agent app", "The app 'agent app' cannot be found: it is neither a Python file nor a module; use module:app"),
        ("broken:app", "could not be loaded: ZeroDivisionError: division by zero (broken.py, line 1); fix that"),
        ("garbled.py:app", "could not be loaded: SyntaxError: invalid syntax (garbled.py, line 2); fix that"),
        ("refused.py:app", "annotate it, as in 'x: str'. (refused.py, line 3); fix that"),
    ],
)
def test_an_app_that_is_not_there_is_an_error_that_says_so(
    run: Run,
    agent: Path,
    source: str,
    said: str,
) -> None:
    (agent / "broken.py").write_text("1 / 0\n")
    (agent / "garbled.py").write_text("\ndef f(:\n")
    (agent / "refused.py").write_text("from toolwright import tool\n\n@tool\ndef f(x):\n    return x\n")
    ended = run("tools", "--app", source)
    assert ended.code == 2
    assert said in ended.err


def test_an_app_and_tools_are_not_given_together(run: Run, agent: Path) -> None:
    ended = run("tools", "--app", "agent:app", "--tools", "kit.py")
    assert (ended.code, "leave out --tools" in ended.err) == (2, True)


def test_an_app_of_a_project_that_is_no_text_is_refused(run: Run, agent: Path) -> None:
    (agent / "pyproject.toml").write_text("[tool.toolwright]\napp = 3\n")
    assert "has app = 3; write where it is, as in app = " in run("tools").err


def test_a_lifespan_that_fails_ends_the_command_with_its_error(run: Run, agent: Path) -> None:
    (agent / "agent.py").write_text(AGENT.replace('ledger.write("entered")', 'raise OSError("no database")'))
    ended = run("call", "note", "line=x", "--app", "agent:app")
    assert ended.code == 2
    assert ended.err == "Error: The lifespan of the app failed: OSError: no database; fix that and run it again\n"
    (agent / "agent.py").write_text(AGENT.replace('ledger.write("closed")', 'raise OSError("no end")'))
    ended = run("tools", "--app", "agent:app")
    assert ended.code == 0
