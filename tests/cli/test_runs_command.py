"""`toolwright runs` and `toolwright spawn`: background runs from the shell."""

import asyncio
import os
import pty
import signal
import subprocess
from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import Run, Spawn, Workers
from tests.cli.test_live import read_until
from tests.support import fail_after
from toolwright import Runtime, jsonx, tool
from toolwright.testing import FakeClock

pytestmark = pytest.mark.usefixtures("background")

DB = ("--db", "agent.db")
TOOLS = ("--tools", "background.py", *DB)


def test_spawn_prints_the_id_and_says_that_no_worker_is_there(run: Run, project: Path) -> None:
    ended = run("spawn", "film", "scenes=2", "--title", "A film", "--session", "s1", *TOOLS)
    assert ended.code == 0
    assert ended.out.startswith("bg_")
    assert "It waits for a worker: toolwright worker --db agent.db" in ended.err
    (listed,) = run("runs", *DB, "--json").json
    assert (listed["run_id"], listed["title"], listed["session"]) == (ended.out.strip(), "A film", "s1")
    assert (listed["tool"], listed["status"]) == ("film", "queued")


def test_a_run_of_the_same_id_and_content_is_the_same(run: Run, project: Path) -> None:
    first = run("spawn", "film", "--id", "r1", *TOOLS, "--json").json
    again = run("spawn", "film", "--id", "r1", *TOOLS, "--json").json
    assert first["run_id"] == again["run_id"] == "r1"
    assert len(run("runs", *DB, "--json").json) == 1
    other = run("spawn", "film", "scenes=5", "--id", "r1", *TOOLS)
    assert (other.code, other.out) == (2, "")
    assert "'r1' is that of another run" in other.err


@pytest.mark.promise("PROC-13")
def test_a_run_that_happens_elsewhere_is_listed_shown_and_cancelled(run: Run, project: Path) -> None:
    async def track() -> None:
        async with Runtime.open("agent.db", worker=False) as runtime:
            tracked = await runtime.session("s1").track("deploy", {"to": "prod"}, title="Deploy", id="d1")
            await tracked.report(status="Pushing", label="image 3")
            await tracked.append("checked", {"by": "ann"})

    asyncio.run(track())
    (listed,) = run("runs", *DB, "--json").json
    assert (listed["run_id"], listed["tool"], listed["status"], listed["tracked"]) == ("d1", "deploy", "running", True)
    shown = run("runs", "show", "d1", *DB).out
    for said in ("deploy", "Pushing", "image 3", "checked", "by ann"):
        assert said in shown
    assert "when its worker is gone" not in shown
    assert run("runs", "cancel", "d1", *DB).code == 0
    (listed,) = run("runs", *DB, "--json").json
    assert listed["status"] == "cancelled"


@pytest.mark.promise("PROC-06")
def test_beyond_the_limit_of_a_session_a_run_is_refused_or_waits(run: Run, spawn: Spawn) -> None:
    for _ in range(5):
        spawn("film")
    ended = run("spawn", "film", *TOOLS)
    assert (ended.code, ended.out) == (2, "")
    assert "Maximum 5 active background runs per session" in ended.err
    assert run("spawn", "film", "--queue", *TOOLS).code == 0
    assert len(run("runs", "--active", *DB, "--json").json) == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frob"], "There is no tool 'frob'"),
        (["shy"], "Tool does not support background execution: shy"),
        (["film", "scenes"], "'scenes' is not an argument"),
        (["film", "--timeout", "-1"], "The timeout -1.0 of a run is not usable"),
        (["film", "--when-lost", "weep"], "--when-lost"),
    ],
)
def test_what_cannot_be_spawned_is_named(run: Run, project: Path, words: list[str], said: str) -> None:
    ended = run("spawn", *words, *TOOLS)
    assert (ended.code, ended.out) == (2, "")
    assert said in " ".join(ended.err.split())


@pytest.mark.promise("PROC-09")
def test_runs_are_listed_newest_first_and_by_session(run: Run, spawn: Spawn) -> None:
    first, second = spawn("film", "--session", "s1"), spawn("film", "--title", "\x1b[31mred", "--session", "s2")
    assert [one["run_id"] for one in run("runs", *DB, "--json").json] == [second, first]
    assert [one["run_id"] for one in run("runs", "--session", "s1", *DB, "--json").json] == [first]
    assert [one["run_id"] for one in run("runs", "--limit", "1", *DB, "--json").json] == [second]
    assert run("runs", "cancel", first, *DB).code == 0
    assert [one["run_id"] for one in run("runs", "--active", *DB, "--json").json] == [second]
    table = run("runs", *DB).out
    assert table.index("s2") < table.index("s1")
    assert "○ queued" in table
    assert "⊘ cancelled" in table
    assert "\x1b" not in table


def test_what_a_table_shows_of_an_id_is_enough_to_name_it(run: Run, spawn: Spawn) -> None:
    ids = {spawn("film"), spawn("film"), spawn("film")}
    rows = [line.split() for line in run("runs", *DB).out.splitlines() if "queued" in line]
    assert {run("runs", "show", row[0], *DB, "--json").json["run_id"] for row in rows} == ids


def test_the_beginning_of_nothing_and_of_several_runs_is_an_error_that_says_so(run: Run, spawn: Spawn) -> None:
    ids = [spawn("film"), spawn("film", "--title", "The other")]
    for verb in (["show"], ["logs"], ["wait"], ["cancel"]):
        for word in ("zz", "%", ""):
            ended = run("runs", *verb, word, *DB)
            assert (ended.code, ended.out) == (2, "")
            assert f"There is no run {word!r}; toolwright runs lists" in ended.err
    ended = run("runs", "show", "bg_", *DB)
    assert ended.code == 2
    assert all(id in ended.err for id in ids)
    assert "The other" in ended.err
    assert "in session 's9'" in run("runs", "show", ids[0], *DB, "--session", "s9").err
    assert run("runs", "signal", "zz", "go", *DB).code == 2


@pytest.mark.promise("PROC-03")
def test_all_that_is_known_of_a_run_is_shown(run: Run, spawn: Spawn, workers: Workers) -> None:
    parent = spawn("produce", "--tell", "--timeout", "100")
    working = workers.start()
    working.until("The film (film) started")
    (child,) = [one for one in run("runs", *DB, "--json").json if one["tool"] == "film"]
    assert child["parent"] == parent
    assert run("runs", "signal", child["run_id"], "go", '{"on": true}', *DB).code == 0
    assert run("runs", "wait", parent, *DB).out == "3 scenes\n"

    shown = run("runs", "show", parent, *DB, "--json").json
    assert (shown["status"], shown["attempts"], shown["timeout"]) == ("completed", 1, 100.0)
    assert [one["run_id"] for one in shown["children"]] == [child["run_id"]]
    assert shown["outcome"]["value"] == "3 scenes"
    types = [event["type"] for event in shown["events"]]
    assert (types[0], types[1], types[-1]) == ("queued", "started", "completed")
    text = run("runs", "show", parent, *DB).out
    for said in (parent, child["run_id"], "The film", "✓ completed", "3 scenes", "events", "outcome"):
        assert said in text
    assert f"the run {parent}" in " ".join(run("runs", "show", child["run_id"], *DB).out.split())


@pytest.mark.promise("PROC-07")
def test_the_log_is_printed_so_far_and_followed_to_the_end(
    run: Run, spawn: Spawn, workers: Workers, command: list[str]
) -> None:
    id = spawn("film", "gate=go")
    assert run("runs", "logs", id, *DB).out == ""
    with subprocess.Popen(
        [*command, "runs", "logs", id, "-f", *DB], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        workers.start()
        assert following.stdout.readline() == "[stdout] scene 1 is shot\n"
        assert following.stdout.readline() == "scene 2 is shot\n"
        assert run("runs", "logs", id, *DB).out == "[stdout] scene 1 is shot\nscene 2 is shot\n"
        with subprocess.Popen([*command, "runs", "logs", id, "-f", *DB], stdout=subprocess.PIPE, text=True) as later:
            assert later.stdout is not None
            assert later.stdout.readline() == "[stdout] scene 1 is shot\n"
            assert later.stdout.readline() == "scene 2 is shot\n"
            run("runs", "signal", id, "go", *DB)
            assert later.communicate(timeout=30)[0] == "scene 3 is shot\n"
        out, err = following.communicate(timeout=30)
    assert out == "scene 3 is shot\n"
    assert (following.returncode, "✓ completed" in err) == (0, True)
    whole = "[stdout] scene 1 is shot\nscene 2 is shot\nscene 3 is shot\n"
    assert run("runs", "logs", id, *DB).out == whole
    assert run("runs", "logs", id, "-f", *DB).out == whole
    pieces = [jsonx.decode(line) for line in run("runs", "logs", id, *DB, "--json").out.splitlines()]
    assert "".join(piece["text"] for piece in pieces) == whole.removeprefix("[stdout] ")
    assert {piece["stream"] for piece in pieces} == {"stdout"}


@pytest.mark.promise("PROC-09")
def test_the_code_of_wait_tells_how_a_run_ended(run: Run, spawn: Spawn, workers: Workers) -> None:
    good, bad, held = spawn("film"), spawn("refuse"), spawn("film", "gate=go")
    ended = run("runs", "wait", held, "--timeout", "0", *DB)
    assert (ended.code, ended.out) == (5, "")
    assert f"The run {held!r} is queued after 0 s; it continues" in ended.err
    workers.start()
    ended = run("runs", "wait", good, *DB)
    assert (ended.code, ended.out) == (0, "3 scenes\n")
    ended = run("runs", "wait", bad, *DB)
    assert (ended.code, "Nothing doing" in ended.out) == (1, True)
    assert "✗ failed" in ended.err
    told = run("runs", "wait", good, *DB, "--json").json
    assert (told["status"], told["outcome"]["value"]) == ("completed", "3 scenes")
    assert run("runs", "cancel", held, "--reason", "too dear", *DB).code == 0
    ended = run("runs", "wait", held, *DB)
    assert ended.code == 1
    assert "too dear" in ended.err


@pytest.mark.parametrize("verb", ["wait", "logs"])
def test_what_a_tool_gives_does_not_steer_the_terminal(
    run: Run, spawn: Spawn, workers: Workers, command: list[str], verb: str
) -> None:
    id = spawn("paint", "--session", "\x1b[2Js")
    workers.start()
    assert run("runs", "wait", id, *DB).out == "\x1b[31mred\x1b[0m\n"
    assert run("runs", "logs", id, *DB).out == "[stdout] \x1b[32mgreen\x1b[0m\n"
    for words in (["runs"], ["runs", "show", id], ["runs", "cancel", id]):
        assert "\x1b" not in run(*words, *DB).out
    ours, theirs = pty.openpty()
    with subprocess.Popen([*command, "runs", verb, id, *DB], stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        try:
            shown = read_until(ours, None)
            assert process.wait(30) == 0
        finally:
            os.close(ours)
            process.kill()
    assert {"wait": b"red", "logs": b"green"}[verb] in shown
    assert b"\x1b" not in shown


@pytest.mark.promise("PROC-09")
def test_cancelling_says_whether_there_was_something_to_cancel(run: Run, spawn: Spawn, workers: Workers) -> None:
    id = spawn("film", "gate=go")
    workers.start().until(" started")
    assert run("runs", "cancel", id, *DB).out == f"{id} is to stop; its worker is told\n"
    assert run("runs", "wait", id, *DB).code == 1
    again = run("runs", "cancel", id, *DB)
    assert (again.code, again.out) == (3, f"{id} was finished already: cancelled\n")


def test_a_run_whose_worker_is_gone_says_so(run: Run, project: Path) -> None:
    async def with_a_lease_of_long_ago() -> list[str]:
        begun = asyncio.Event()

        @tool(supports_background=True)
        async def hang() -> None:
            begun.set()
            await asyncio.Event().wait()

        clock = FakeClock(1_000_000_000.0)
        async with Runtime.open("agent.db", tools=[hang], clock=clock, worker=True) as runtime:
            id = (await runtime.session("s1").spawn("hang")).id
            async with fail_after(20):
                await begun.wait()
            words = (["runs"], ["runs", "show", id], ["runs", "cancel", id])
            ends = [await asyncio.to_thread(run, *one, *DB) for one in words]
        return [" ".join(ended.out.split()) for ended in ends]

    table, shown, cancelled = asyncio.run(with_a_lease_of_long_ago())
    assert "● running" in table
    assert table.endswith("(worker gone)")
    assert "● running (its worker is gone)" in shown
    assert "is to stop; its worker is gone, it is cancelled when another takes it up" in cancelled


def test_what_waits_for_a_worker_is_cancelled_at_once(run: Run, spawn: Spawn) -> None:
    id = spawn("film")
    assert run("runs", "cancel", id, *DB).out == f"{id} is cancelled\n"
    told = run("runs", "cancel", id, *DB, "--json")
    assert (told.code, told.json["cancelled"], told.json["status"]) == (3, False, "cancelled")


def test_signals_are_numbered_and_wait_for_their_run(run: Run, spawn: Spawn, workers: Workers) -> None:
    id = spawn("film", "gate=go")
    assert run("runs", "signal", id, "go", *DB, "--json").json == {"run_id": id, "name": "go", "number": 1}
    assert run("runs", "signal", id, "go", "-", *DB, stdin="[1]").out.endswith("it is number 2 of this name\n")
    assert run("runs", "signal", id, "go", "{rubbish", *DB).code == 2
    workers.start()
    assert run("runs", "wait", id, *DB).code == 0
    ended = run("runs", "signal", id, "go", *DB)
    assert (ended.code, ended.out) == (2, "")
    assert "takes no signals" in ended.err


def test_without_a_terminal_following_is_a_line_for_each_thing(run: Run, spawn: Spawn, workers: Workers) -> None:
    good, bad = spawn("film"), spawn("refuse")
    workers.start()
    ended = run("runs", "follow", good, bad, *DB)
    assert ended.code == 1
    for said in (f"{good} Background film: queued", f"{good} Background film: completed, 3 scenes", "failed, Nothing"):
        assert said in ended.out
    told = run("runs", "follow", good, *DB, "--json")
    assert (told.code, [one["status"] for one in told.json]) == (0, ["completed"])
    nothing = run("runs", "follow", *DB)
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "Nothing runs in the background.\n")


def test_on_a_terminal_bars_follow_all_that_runs_and_what_it_starts(
    run: Run, spawn: Spawn, workers: Workers, command: list[str]
) -> None:
    spawn("produce", "--title", "Producing")
    ours, theirs = pty.openpty()
    words = [*command, "runs", "follow", *DB]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        try:
            shown = read_until(ours, b"queued")
            workers.start()
            shown += read_until(ours, b"scene 2")
            (child,) = [one["run_id"] for one in run("runs", *DB, "--json").json if one["tool"] == "film"]
            run("runs", "signal", child, "go", *DB)
            shown += read_until(ours, None)
            code = process.wait(30)
        finally:
            os.close(ours)
            process.kill()
    text = shown.decode()
    for word in ("Producing", "The film", "67%", "100%", "✓ completed", "2 completed"):
        assert word in text
    assert code == 0


def test_ctrl_c_leaves_what_is_followed_running(run: Run, spawn: Spawn, workers: Workers, command: list[str]) -> None:
    id = spawn("film", "gate=go")
    workers.start().until(" started")
    for words in (["logs", "-f", id], ["follow"]):
        with subprocess.Popen(
            [*command, "runs", *words, *DB], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "Traceback" not in err
    assert run("runs", "show", id, *DB, "--json").json["status"] in ("running", "waiting")


def test_a_store_that_somebody_else_keeps_locked_is_named(
    run: Run, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = spawn("film")
    monkeypatch.setattr("toolwright.stores.sqlite.core.writer.BUSY", 50)  # how long is waited for the lock
    # Not with `sqlite3`: locks of two libraries in one process do not see each other.
    connection = apsw.Connection("agent.db")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        for words in (["runs", "cancel", id], ["spawn", "film", "--tools", "background.py"]):
            ended = run(*words, *DB)
            assert (ended.code, ended.out) == (2, "")
            assert "agent.db' cannot be" in ended.err
    finally:
        connection.close()
    assert run("runs", "cancel", id, *DB).code == 0
