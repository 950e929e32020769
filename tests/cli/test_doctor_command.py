"""`toolwright doctor`: it finds what is wrong, says a remedy, and changes nothing."""

import asyncio
import os

import apsw
import pytest

from toolwright import Runtime
from toolwright.stores import SqliteStore

TOOLS = """
from toolwright import tool

@tool
async def add(a: int, b: int) -> int:
    "Add."
    return a + b
"""


def states(result) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in result.json["findings"]:
        found.setdefault(finding["what"], set()).add(finding["state"])
    return found


def remedy(result, what: str) -> str:
    (found,) = [one for one in result.json["findings"] if one["what"] == what and one["state"] in ("problem", "damage")]
    return found["remedy"]


@pytest.fixture
def store(project):
    async def make() -> None:
        async with Runtime.open("agent.db") as runtime:
            await runtime.session("s").kv.set("a", 1)

    asyncio.run(make())
    return project / "agent.db"


@pytest.mark.promise("HTTP-05")
def test_a_sound_store_and_app_have_no_problem(run, project, store):
    (project / "my_tools.py").write_text(TOOLS)
    before = store.read_bytes()
    result = run("doctor", "--tools", "my_tools.py", "--db", "agent.db", "--json")
    assert result.code == 0, result.out
    assert result.json["sound"]
    assert {"versions", "clock", "extras", "app", "store", "disk", "permissions", "workers", "master key"} <= states(
        result
    ).keys()
    assert not (project / "agent.db.key").exists()
    assert len(store.read_bytes()) == len(before)
    shown = run("doctor", "--db", "agent.db")
    assert shown.code == 0
    assert "agent.db is sound" in shown.out


@pytest.mark.promise("HTTP-05")
def test_a_store_that_others_may_read_is_a_problem_with_a_remedy(run, project, store):
    os.chmod(store, 0o644)
    result = run("doctor", "--db", "agent.db", "--json")
    assert result.code == 2
    assert remedy(result, "permissions") == "run: chmod 600 agent.db"


@pytest.mark.promise("HTTP-05")
def test_a_key_that_is_not_usable_is_a_problem_and_is_not_shown(run, project, store, monkeypatch):
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", "not-a-key-but-nearly")
    result = run("doctor", "--db", "agent.db", "--json")
    assert (result.code, states(result)["master key"]) == (2, {"problem"})
    assert "not-a-key" not in result.out


@pytest.mark.promise("HTTP-05")
def test_damage_is_told_as_such(run, project, store):
    async def close() -> None:
        await SqliteStore(store).close()

    asyncio.run(close())
    connection = apsw.Connection(str(store))
    connection.execute("INSERT INTO effects VALUES ('s', '', 'nobody', 'step:a', x'', 1, 1, x'', NULL)")
    connection.close()
    result = run("doctor", "--db", "agent.db", "--json")
    assert (result.code, states(result)["store"]) == (4, {"damage"})


@pytest.mark.promise("HTTP-05")
def test_an_app_that_cannot_be_loaded_is_a_problem(run, project, store):
    result = run("doctor", "--app", "nothing_here:app", "--db", "agent.db", "--json")
    assert (result.code, states(result)["app"]) == (2, {"problem"})


@pytest.mark.promise("HTTP-05")
def test_records_of_the_future_and_runs_without_a_worker_are_problems(run, project, store):
    from toolwright import tool

    @tool(supports_background=True)
    async def later() -> str:
        """Do it later."""
        return "done"

    async def make() -> None:
        async with Runtime.open("agent.db", tools=[later], worker=False) as runtime:
            await runtime.session("s").spawn("later")
            await runtime.session("s").call("later")

    asyncio.run(make())
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE calls SET queued_at = queued_at + 1e6")
    connection.close()
    result = run("doctor", "--db", "agent.db", "--json")
    assert result.code == 2
    assert states(result)["workers"] == {"problem"}
    assert "problem" in states(result)["clock"]


def test_a_store_that_is_not_there_yet_is_no_problem(run, project):
    result = run("doctor", "--db", "none.db", "--json")
    assert (result.code, states(result)["store"]) == (0, {"note"})
    assert not (project / "none.db").exists()
