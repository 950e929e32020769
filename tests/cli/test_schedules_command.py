"""`toolwright schedules`: schedules from the shell."""

import asyncio
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Workers
from toolwright import Runtime, tool
from toolwright.testing import FakeClock

pytestmark = pytest.mark.usefixtures("background")

DB = ("--db", "agent.db")
TOOLS = ("--tools", "background.py", *DB)
NIGHTLY = ("schedules", "add", "film", "scenes=2", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
FAR = ("schedules", "add", "film", "--at", "2199-01-31T09:00:00Z")


@pytest.mark.promise("CRON-01")
def test_a_schedule_is_added_and_listed(run: Run, project: Path) -> None:
    added = run(*NIGHTLY, "--title", "Nightly", "--session", "s1", "--overlap", "queue", *TOOLS)
    assert added.code == 0
    assert added.out.startswith("sch_")
    assert "It is due next at " in added.err
    once = run(*FAR, *TOOLS, "--json").json
    first, second = run("schedules", "list", *DB, "--json").json
    assert (first["schedule_id"], first["title"], first["session"]) == (added.out.strip(), "Nightly", "s1")
    assert (first["cron_expression"], first["timezone"], first["args"]) == (
        "30 2 * * *",
        "Europe/Berlin",
        {"scenes": 2},
    )
    assert (first["overlap"], first["misfire"], first["state"]) == ("queue", "once", "active")
    assert (second["schedule_id"], second["scheduled_at"]) == (once["schedule_id"], "2199-01-31T09:00:00Z")
    assert [one["session"] for one in run("schedules", "list", "--session", "s1", *DB, "--json").json] == ["s1"]
    table = run("schedules", "list", *DB).out
    for said in ("Nightly", "30 2 * * * Europe/Berlin", "active", "at 2199-01-31"):
        assert said in table


@pytest.mark.parametrize("session", ["s1", "session-of-somebody"])
def test_the_next_instant_is_listed_however_long_the_rest_is(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    source = (project / "background.py").read_text()
    (project / "background.py").write_text(source.replace("def film(", "def film_of_long_name("))
    often = ["--cron", "0,10,20,30,40,50 8-18 1-31 1-12 *", "--timezone", "America/Argentina/ComodRivadavia"]
    words = ["schedules", "add", "film_of_long_name", *often, "--title", "A long title of a film"]
    assert run(*words, "--session", session, *TOOLS).code == 0
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("schedules", "list", *DB).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[-2:] == ["state", "next"] for line in lines)
    (row,) = [line for line in lines if " active " in line]
    assert re.search(r"in \d+ [smhd]$", row.rstrip())


@pytest.mark.promise("CRON-03")
def test_the_next_instants_are_told_in_the_zone_of_the_schedule(run: Run, project: Path) -> None:
    id = run(*NIGHTLY, *TOOLS).out.strip()
    lines = run("schedules", "next", id, "-n", "3", *DB).out.splitlines()
    days = [datetime.fromisoformat(line) for line in lines]
    assert len({day.date() for day in days}) == 3
    # On the day that the clocks go forward, half past two is at three.
    assert all((day.hour, day.minute) in ((2, 30), (3, 0)) for day in days)
    once = run(*FAR, *TOOLS).out.strip()
    assert run("schedules", "next", once, *DB, "--json").json == ["2199-01-31T09:00:00Z"]


@pytest.mark.promise("CRON-04")
def test_a_schedule_is_paused_resumed_and_removed_once(run: Run, project: Path) -> None:
    id = run(*NIGHTLY, *TOOLS).out.strip()
    bare = id.removeprefix("sch_")[:14]
    for verb, said, state in (
        ("pause", "is paused", "paused"),
        ("resume", "is active again", "active"),
        ("rm", "is removed", "cancelled"),
    ):
        ended = run("schedules", verb, bare, *DB)
        assert (ended.code, ended.out) == (0, f"{id} {said}\n")
        assert [one["state"] for one in run("schedules", "list", *DB, "--json").json] == [state]
        again = run("schedules", verb, bare, *DB)
        assert (again.code, again.out) == (3, f"{id} is {state} already\n")
        assert run("schedules", verb, bare, *DB, "--json").json["changed"] is False
    assert run("schedules", "list", "--active", *DB, "--json").json == []
    assert "None: it is cancelled." in run("schedules", "next", id, *DB).err
    ended = run("schedules", "run-now", id, *DB)
    assert (ended.code, ended.out) == (2, "")
    assert "was cancelled; add another" in ended.err


@pytest.mark.promise("CRON-04")
def test_a_schedule_that_is_run_now_is_run_by_a_worker(run: Run, workers: Workers) -> None:
    id = run(*FAR, *TOOLS).out.strip()
    started = run("schedules", "run-now", id, *DB).out.strip()
    working = workers.start()
    assert run("runs", "wait", started, *DB).out == "3 scenes\n"
    assert working.end(signal.SIGTERM) == 0
    assert run("runs", "show", started, *DB, "--json").json["schedule"] == id
    (fired,) = run("schedules", "history", id, *DB, "--json").json
    assert fired["run"] == started
    assert started in run("schedules", "history", id, *DB).out


@pytest.mark.promise("CRON-03")
def test_a_worker_starts_what_is_due(run: Run, workers: Workers) -> None:
    id = asyncio.run(add_in_the_past())
    working = workers.start()
    working.until("(film) completed")
    (fired,) = run("schedules", "history", id, *DB, "--json").json
    shown = run("runs", "show", fired["run"], *DB, "--json").json
    assert (shown["status"], shown["schedule"]) == ("completed", id)
    assert [one["state"] for one in run("schedules", "list", *DB, "--json").json] == ["ended"]


async def add_in_the_past() -> str:
    """A schedule that was for one instant, which passed while nothing ran."""

    @tool(supports_background=True)
    async def film() -> None: ...

    async with Runtime.open("agent.db", tools=[film], clock=FakeClock(1_000_000_000.0), worker=False) as runtime:
        added = await runtime.session("s1").schedule("film", at=datetime.fromtimestamp(runtime.clock.now() + 60, UTC))
        return added.id


@pytest.mark.promise("CRON-01", "CRON-02")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["film"], "--cron, --at: schedule must include exactly one of cron_expression"),
        (["film", "--cron", "61 * * * *"], "--cron: cron_expression '61 * * * *'"),
        (["film", "--cron", "* * * * *", "--timezone", "Mars/Base"], "Mars/Base"),
        (["film", "--at", "2001-01-01T00:00:00Z"], "--at: scheduled_at '2001-01-01T00:00:00+00:00' is in the past"),
        (["film", "--at", "tomorrow"], "--at: scheduled_at must be RFC3339"),
        (["film", "--cron", "* * * * *", "--at", "2199-01-01T00:00:00Z"], "--cron, --at: schedule must not"),
        (["shy", "--cron", "* * * * *"], "does not support background execution"),
        (["frob", "--cron", "* * * * *"], "There is no tool 'frob'"),
    ],
)
def test_what_cannot_be_scheduled_is_named(run: Run, project: Path, words: list[str], said: str) -> None:
    ended = run("schedules", "add", *words, *TOOLS)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_word_that_names_no_schedule_or_several_is_an_error(run: Run, project: Path) -> None:
    run(*NIGHTLY, *TOOLS)
    run(*FAR, *TOOLS)
    for verb in ("next", "history", "pause", "resume", "run-now", "rm"):
        ended = run("schedules", verb, "zz", *DB)
        assert (ended.code, ended.out) == (2, "")
        assert "There is no schedule 'zz'; toolwright schedules list shows" in ended.err
        assert "More than one schedule is called 'sch_'" in run("schedules", verb, "sch_", *DB).err
