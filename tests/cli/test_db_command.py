"""`toolwright db`: care of a store."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import Run

DB = ("--db", "agent.db")
NOTE = {"id": "n1", "name": "note", "arguments": {"text": "x"}}


def test_stats_count_what_there_is(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE)
    left({"id": "d1", "name": "die"})
    found = run("db", "stats", *DB, "--json").json
    assert (found["calls"], found["sessions"]) == ({"success": 1, "cut off": 1}, 1)
    assert "1 cut off, 1 success" in run("db", "stats", *DB).out


def test_a_sound_store_is_said_to_be(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE)
    assert (run("db", "check", *DB).code, run("db", "check", *DB).out) == (0, "agent.db is sound.\n")
    assert run("db", "check", *DB, "--json").json == {"sound": True, "problems": []}


def test_damage_ends_every_command_that_meets_it_with_four(run: Run, left: Callable[..., Path]) -> None:
    store = left(NOTE)
    content = bytearray(store.read_bytes())
    content[3 * 4096 : 6 * 4096] = b"\7" * (3 * 4096)
    store.write_bytes(content)
    ended = run("db", "check", *DB, "--json")
    assert (ended.code, ended.json["sound"]) == (4, False)
    assert ended.json["problems"]
    assert run("db", "check", *DB).code == 4
    assert run("approvals", *DB).code == 4


@pytest.mark.parametrize("before", ["1h", "2000-01-01"])
def test_what_is_not_old_enough_stays(run: Run, left: Callable[..., Path], before: str) -> None:
    left(NOTE)
    ended = run("db", "prune", "--before", before, *DB)
    assert (ended.code, ended.out) == (0, "Nothing was removed.\n")


def test_pruning_shows_what_it_would_remove_and_needs_a_yes(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE)
    left({"id": "d1", "name": "die"}, NOTE | {"id": "n2"})
    prune = ("db", "prune", "--before", "2999-01-01", *DB)
    for words in ((), ("--json",)):
        refused = run(*prune, *words)
        assert (refused.code, refused.out) == (2, "")
        assert "add --yes" in refused.err
    assert "To remove: 1 calls" in run(*prune).err
    assert run(*prune, "--dry-run").out.startswith("Would remove: 1 calls")
    assert run(*prune, "--dry-run", "--session", "s2", "--json").json["calls"] == 0
    assert len(run("batches", *DB, "--json").json) == 2
    assert run(*prune, "--yes", "--vacuum", "--json").json["calls"] == 1
    assert [batch["unfinished"] for batch in run("batches", *DB, "--json").json] == [2]


def test_pruning_removes_what_schedules_did_also_where_no_call_is_old(run: Run, left: Callable[..., Path]) -> None:
    store = left(NOTE)
    with contextlib.closing(apsw.Connection(str(store))) as connection:
        columns = "id, session, tool, arguments, title, options, timing, misfire, overlap"
        columns += ", state, next_at, created_at, provenance"
        values = "'sch_1', 's1', 'note', '{}', 't', x'80', x'80', 'once', 'skip', 'active', 9e9, 1, '{}'"
        connection.execute(f"INSERT INTO schedules ({columns}) VALUES ({values})")
        connection.execute("INSERT INTO firings VALUES ('sch_1', 1, 1, 'fired', NULL)")
    prune = ("db", "prune", "--before", "2000-01-01", *DB)
    assert run(*prune, "--dry-run").out.endswith("1 firings of schedules\n")
    assert run(*prune).code == 2
    assert run(*prune, "--yes", "--json").json["firings"] == 1
    assert run(*prune).out == "Nothing was removed.\n"


@pytest.mark.parametrize("before", ["30x", "", "soon", "-3d", "2026-13-01"])
def test_a_time_that_makes_no_sense_is_named(run: Run, left: Callable[..., Path], before: str) -> None:
    left(NOTE)
    ended = run("db", "prune", f"--before={before}", *DB)
    assert ended.code == 2
    assert f"--before is {before!r}; use a duration such as 30d" in ended.err
