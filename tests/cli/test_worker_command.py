"""`toolwright worker`: a process that runs what waits in the background."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Spawn, Workers, Working
from tests.cli.talking import APP, write_agent
from toolwright import App, jsonx
from toolwright.testing import FunctionModel

pytestmark = pytest.mark.usefixtures("background")

DB = ("--db", "agent.db")


def status_of(run: Run, id: str) -> str:
    return run("runs", "show", id, *DB, "--json").json["status"]


def test_a_worker_says_what_it_starts_and_how_it_ends(run: Run, spawn: Spawn, workers: Workers) -> None:
    good, bad = spawn("film", "--title", "A film"), spawn("refuse")
    working = workers.start()
    assert run("runs", "wait", good, *DB).code == 0
    assert run("runs", "wait", bad, *DB).code == 1
    assert working.end(signal.SIGTERM) == 0
    for said in (f"{good} A film (film) started", f"{good} A film (film) completed after ", f"{bad} Background refuse"):
        assert said in working.said
    assert "failed after" in working.said
    assert working.said.endswith("Stopped\n")


def test_quietly_it_says_nothing_of_runs(run: Run, spawn: Spawn, workers: Workers) -> None:
    id = spawn("film")
    working = workers.start("--quiet")
    assert run("runs", "wait", id, *DB).code == 0
    assert working.end(signal.SIGTERM) == 0
    assert working.said == ""


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_hands_over_what_does_not_end(
    run: Run, spawn: Spawn, workers: Workers, number: int
) -> None:
    id = spawn("film", "gate=go")
    working = workers.start("--grace", "0")
    working.until(" started")
    assert working.end(number) == 0
    assert "Stopping: 1 may end within 0 ms" in working.said
    assert f"{id} Background film (film) handed over to other workers" in working.said
    shown = run("runs", "show", id, *DB, "--json").json
    assert (shown["status"], shown["lease_until"]) == ("queued", None)
    assert "handed_back" in [event["type"] for event in shown["events"]]

    other = workers.start()
    assert "attempt 2" in other.until(" started")
    assert run("runs", "signal", id, "go", *DB).code == 0
    assert run("runs", "wait", id, *DB).out == "3 scenes\n"
    assert other.end(signal.SIGTERM) == 0


def test_what_ends_within_the_grace_is_not_handed_over(run: Run, spawn: Spawn, workers: Workers) -> None:
    id = spawn("film", "gate=go")
    working = workers.start("--grace", "60")
    working.until(" started")
    working.process.send_signal(signal.SIGTERM)
    working.until("Stopping: 1 may end within 60 s")
    later = spawn("film")
    assert run("runs", "signal", id, "go", *DB).code == 0
    assert working.end() == 0
    assert status_of(run, id) == "completed"
    assert status_of(run, later) == "queued"


def test_a_second_signal_ends_it_at_once_and_another_takes_over(run: Run, spawn: Spawn, workers: Workers) -> None:
    id = spawn("film", "gate=go")
    working = workers.start("--grace", "600")
    working.until(" started")
    working.process.send_signal(signal.SIGTERM)
    working.until("Stopping")
    assert send_until_it_ends(working) == -signal.SIGTERM
    assert status_of(run, id) in ("running", "waiting")

    other = workers.start()
    other.until(" started, attempt 2")
    run("runs", "signal", id, "go", *DB)
    assert run("runs", "wait", id, *DB).code == 0


def send_until_it_ends(working: Working) -> int:
    """Signals that come close together are one, so that the second is sent until it is another."""
    for _ in range(600):
        working.process.send_signal(signal.SIGTERM)
        try:
            return working.process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    pytest.fail("It does not end.")


@pytest.mark.parametrize("name", ["stuck", "stubborn", "threaded"])
def test_a_tool_that_never_ends_does_not_keep_the_worker(spawn: Spawn, workers: Workers, name: str) -> None:
    spawn(name)
    working = workers.start("--grace", "0")
    working.until("it has begun")
    working.process.send_signal(signal.SIGTERM)
    assert working.end() == 0
    assert "handed over" in working.said
    assert working.said.endswith("Stopped\n")


@pytest.mark.promise("PROC-04")
def test_the_runs_of_a_killed_worker_are_completed_by_the_next(
    run: Run, spawn: Spawn, workers: Workers, project: Path
) -> None:
    id = spawn("film", "gate=go")
    first = workers.start()
    first.until(" started")
    assert any("scene 2" in run("runs", "logs", id, *DB).out for _ in range(1_000))
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    second = workers.start()
    second.until(" started, attempt 2")
    run("runs", "signal", id, "go", *DB)
    assert run("runs", "wait", id, "--timeout", "60", *DB).code == 0
    assert (project / "ledger").read_text().split() == [str(first.process.pid), str(second.process.pid)]


def get(url: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def address(working: Working) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", working.until("Health and metrics"))
    assert found is not None
    return found[0]


def test_health_and_metrics_are_told_over_http(run: Run, spawn: Spawn, workers: Workers) -> None:
    done, bad, held = spawn("film"), spawn("refuse"), spawn("film", "gate=go")
    working = workers.start("--health-port", "0", "--capacity", "7", "--grace", "600")
    url = address(working)
    assert run("runs", "wait", done, *DB).code == 0
    assert run("runs", "wait", bad, *DB).code == 1
    status, body = get(url, "/healthz")
    told = jsonx.decode(body)
    assert (status, told["healthy"], told["running"], told["capacity"]) == (200, True, 1, 7)
    status, body = get(url, "/metrics")
    lines = body.decode().splitlines()
    assert status == 200
    for line in (
        "toolwright_runs_started_total 3.0",
        "toolwright_runs_taken_over_total 0.0",
        'toolwright_runs_ended_total{status="completed"} 1.0',
        'toolwright_runs_ended_total{status="failed"} 1.0',
        'toolwright_runs_ended_total{status="cancelled"} 0.0',
        'toolwright_runs_ended_total{status="abandoned"} 0.0',
        "toolwright_runs_running 1.0",
        "toolwright_worker_capacity 7.0",
    ):
        assert line in lines
    (renewed,) = [line for line in lines if line.startswith("toolwright_worker_seconds_since_renewal ")]
    assert 0 <= float(renewed.split()[1]) < 30
    assert get(url, "/")[0] == 404
    assert get(url, "/metrics", "POST")[0] == 405
    assert get(url, "/metrics", "HEAD") == (200, b"")

    working.process.send_signal(signal.SIGTERM)
    working.until("Stopping")
    status, body = get(url, "/healthz")
    assert (status, jsonx.decode(body)["why"]) == (503, "it is stopping")
    assert "toolwright_worker_stopping 1.0" in get(url, "/metrics")[1].decode()
    run("runs", "cancel", held, *DB)
    assert working.end() == 0


def test_what_is_taken_over_is_counted(run: Run, spawn: Spawn, workers: Workers) -> None:
    id = spawn("film", "gate=go")
    first = workers.start()
    first.until(" started")
    first.end(signal.SIGKILL)
    second = workers.start("--health-port", "0")
    url = address(second)
    second.until(" started")
    run("runs", "cancel", id, *DB)
    assert run("runs", "wait", id, *DB).code == 1
    second.until(" cancelled after")
    lines = get(url, "/metrics")[1].decode().splitlines()
    assert "toolwright_runs_taken_over_total 1.0" in lines
    assert 'toolwright_runs_ended_total{status="cancelled"} 1.0' in lines


@pytest.mark.promise("TURN-03")
def test_a_worker_runs_turns_of_an_app_without_background_tools(run: Run, project: Path, workers: Workers) -> None:
    write_agent(project)

    async def start() -> str:
        async with App(model=FunctionModel(str)).open("agent.db", worker=False) as runtime:
            return (await runtime.session("s1").start_turn("Good morning", background=True)).id

    turn = asyncio.run(start())
    assert run("turns", *DB, "--json").json[0]["state"] == "queued"
    working = workers.start_command("worker", *APP, *DB)
    followed = run("turns", "follow", turn, *DB)
    assert (followed.code, followed.out) == (0, "You said: Good morning\n")
    assert working.end(signal.SIGTERM) == 0


HOLDING = '''
import asyncio
from pathlib import Path
from toolwright import App, ToolCall, tool
from toolwright.testing import FunctionModel


@tool
async def hold() -> str:
    """Hold until somebody writes into the gate."""
    return await asyncio.to_thread(Path("gate").read_text)


async def answer(request):
    return [ToolCall("hold", {}, "h")] if request.number == 0 else "Done."


app = App(model=FunctionModel(answer), tools=[hold])
'''


@pytest.mark.promise("TURN-03")
def test_a_turn_that_ends_within_the_grace_is_not_cut_off(run: Run, project: Path, workers: Workers) -> None:
    (project / "holding.py").write_text(HOLDING)
    os.mkfifo(project / "gate")

    async def start() -> str:
        async with App(model=FunctionModel(str)).open("agent.db") as runtime:
            return (await runtime.session("s1").start_turn("Go.", background=True)).id

    turn = asyncio.run(start())
    working = workers.start_command("worker", "--app", "holding:app", *DB, "--grace", "40", "--health-port", "0")
    url = address(working)
    assert f"{turn} of session s1 started" in working.until(" started")
    with (project / "gate").open("w") as gate:  # the tool reads it now
        assert "toolwright_turns_running 1.0" in get(url, "/metrics")[1].decode().splitlines()
        working.process.send_signal(signal.SIGTERM)
        working.until("Stopping: 1 may end within 40 s")
        gate.write("held")
    assert working.end() == 0
    assert f"{turn} of session s1 answered after " in working.said
    shown = run("turns", *DB, "--json").json[0]
    assert (shown["state"], shown["text"]) == ("answered", "Done.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tools", "gone.py"], "The tools 'gone.py' cannot be found"),
        ([], "There are no tools; name an app with --app"),
        (["--tools", "kit.py"], "None of the tools can run in the background"),
        (["--tools", "background.py", "--health-port", "70000"], "--health-port"),
        (["--tools", "background.py", "--capacity", "0"], "--capacity"),
        (["--tools", "background.py", "--grace", "-1"], "--grace"),
        (["--tools", "background.py", "--health-port", "0", "--health-host", "192.0.2.1"], "cannot be listened on"),
    ],
)
def test_a_worker_that_cannot_work_says_why(run: Run, spawn: Spawn, words: list[str], said: str) -> None:
    spawn("film")
    ended = run("worker", *words, *DB)
    assert (ended.code, ended.out) == (2, "")
    assert said in " ".join(ended.err.split())


def test_a_port_that_is_taken_is_named(run: Run, spawn: Spawn) -> None:
    spawn("film")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("worker", "--tools", "background.py", *DB, "--health-port", str(port))
    assert ended.code == 2
    assert f"Port {port} of '127.0.0.1' cannot be listened on (Address already in use)" in ended.err


def test_without_its_package_the_port_says_what_to_install(command: list[str], spawn: Spawn) -> None:
    spawn("film")
    code = "import sys; sys.modules['prometheus_client'] = None; from toolwright.cli import main; main()"
    words = ["worker", "--tools", "background.py", *DB, "--health-port", "0"]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2
    assert "'prometheus_client', which is missing; run: pip install 'toolwright[worker]'" in ended.stderr


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_worker_whose_store_is_gone_ends_with_an_error(spawn: Spawn, workers: Workers, how: str) -> None:
    spawn("film", "gate=go")
    working = workers.start("--grace", "0")
    working.until(" started")
    if how == "replaced":
        Path("other.db").write_bytes(Path("agent.db").read_bytes())
        Path("other.db").rename("agent.db")
    else:
        Path("agent.db").unlink()
    assert working.end() == 2
    assert "can store nothing more" in working.said
    assert "Traceback" not in working.said


HANGING = """
import asyncio
import sys
from contextlib import asynccontextmanager
from toolwright import App, tool


@tool(supports_background=True)
async def work() -> None: ...


async def hang() -> None:
    print("it hangs", file=sys.stderr, flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@asynccontextmanager
async def at_opening():
    await hang()
    yield


@asynccontextmanager
async def at_closing():
    yield
    await hang()


opening = App(tools=[work], lifespan=at_opening)
closing = App(tools=[work], lifespan=at_closing)
"""


@pytest.mark.parametrize("where", ["opening", "closing"])
def test_one_signal_ends_a_worker_whose_lifespan_hangs(project: Path, workers: Workers, where: str) -> None:
    (project / "hanging.py").write_text(HANGING)
    words = ("worker", "--app", f"hanging:{where}", "--db", "agent.db", "--grace", "0")
    working = workers.start_command(*words)
    working.until("it hangs" if where == "opening" else " runs up to ")
    assert working.end(signal.SIGTERM) == 0
    assert ("before its app was open" if where == "opening" else "did not close within") in working.said
