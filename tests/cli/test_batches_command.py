"""`toolwright batches`: what a store tells of its batches."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run

RECOVER = ("recover", "--tools", "crashing.py", "--db", "agent.db")
NOTE = {"id": "n1", "name": "note", "arguments": {"text": "hello"}}


def test_batches_are_listed_newest_first_with_their_calls_by_status(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE, {"id": "d1", "name": "die"}, {"id": "n2", "name": "note", "arguments": {"text": "x"}})
    left({"id": "n3", "name": "note", "arguments": {"text": "y"}}, session="s2")
    found = run("batches", "--db", "agent.db", "--json").json
    assert [(batch["session"], batch["calls"], batch["statuses"], batch["unfinished"]) for batch in found] == [
        ("s2", 1, {"success": 1}, 0),
        ("s1", 3, {"success": 1, "unfinished": 2}, 2),
    ]
    assert [batch["session"] for batch in run("batches", "--db", "agent.db", "--limit", "1", "--json").json] == ["s2"]
    assert [batch["session"] for batch in run("batches", "--db", "agent.db", "--session", "s1", "--json").json] == [
        "s1"
    ]
    table = run("batches", "--db", "agent.db").out
    assert "○ 2 unfinished" in table
    assert table.index("s2") < table.index("s1")


def test_a_batch_is_shown_by_the_beginning_of_its_id(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE, {"id": "l1", "name": "launch"})
    (batch,) = run("batches", "--db", "agent.db", "--json").json
    beginning = batch["batch"].removeprefix("batch_")[:6]
    shown = run("batches", "show", beginning, "--db", "agent.db", "--json").json
    assert [(call["call_id"], call["status"], call["attempts"]) for call in shown["calls"]] == [
        ("n1", "success", 1),
        ("l1", "waiting", 0),
    ]
    assert shown["calls"][0]["outcome"]["value"] == "hello"
    table = run("batches", "--db", "agent.db", "show", batch["batch"]).out
    for said in ('{"text":"hello"}', "waits for approval, and no process runs it"):
        assert said in table


def test_what_a_crash_cut_off_says_whether_it_had_begun(run: Run, left: Callable[..., Path]) -> None:
    left({"id": "d1", "name": "die"}, NOTE, {"id": "d2", "name": "die"})
    (batch,) = run("batches", "--db", "agent.db", "--json").json
    shown = run("batches", "show", batch["batch"], "--db", "agent.db", "--json").json
    assert [(call["call_id"], call["status"], call["attempts"]) for call in shown["calls"]] == [
        ("d1", "cut off", 1),
        ("n1", "cut off", 0),
        ("d2", "cut off", 0),
    ]
    table = run("batches", "show", batch["batch"], "--db", "agent.db").out
    assert "it had begun, and may have run" in table
    assert table.count("it had not begun, or may simply run again") == 2


def test_a_call_whose_key_was_resolved_waits_for_a_program_to_go_on_with_it(
    run: Run, project: Path, left: Callable[..., Path]
) -> None:
    left({"id": "o1", "name": "order"})
    (batch,) = run("batches", "--db", "agent.db", "--json").json
    show = ("batches", "show", batch["batch"], "--db", "agent.db")
    seen = []
    for then in (("resolve", (project / "key").read_text(), "5", "--db", "agent.db"), RECOVER):
        seen.append((run(*show, "--json").json["calls"][0], run(*show).out))
        assert run(*then).code == 0
    seen.append((run(*show, "--json").json["calls"][0], run(*show).out))
    assert [(call["status"], call["waits_for"], call["resolved"], call["cut_off"]) for call, _ in seen] == [
        ("waiting", ["completion"], False, True),
        ("waiting", [], True, True),
        ("success", [], False, False),
    ]
    assert "waits for its completion, and no process runs it" in seen[0][1]
    assert "resolved, and waits for a program to continue it" in seen[1][1]


def test_the_beginning_of_nothing_and_of_several_is_an_error_that_says_so(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE)
    left(NOTE, session="s2")
    (one, other) = run("batches", "--db", "agent.db", "--json").json
    assert one["batch"] == other["batch"]
    for word in ("zzz", ""):
        ended = run("batches", "show", word, "--db", "agent.db")
        assert ended.code == 2
        assert f"There is no batch {word!r}" in ended.err
    ended = run("batches", "show", one["batch"], "--db", "agent.db")
    assert ended.code == 2
    assert "of session 's1'" in ended.err
    assert "of session 's2'" in ended.err
    assert run("batches", "show", one["batch"], "--db", "agent.db", "--session", "s2").code == 0


def test_arguments_are_cut_to_the_screen_and_whole_in_json(run: Run, left: Callable[..., Path]) -> None:
    long = "x" * 500
    left({"id": "n1", "name": "note", "arguments": {"text": long}})
    (batch,) = run("batches", "--db", "agent.db", "--json").json
    table = run("batches", "show", batch["batch"], "--db", "agent.db").out
    assert max(map(len, table.splitlines())) <= 120
    assert (
        run("batches", "show", batch["batch"], "--db", "agent.db", "--json").json["calls"][0]["arguments"]["text"]
        == long
    )


@pytest.mark.promise("EFF-15")
def test_a_call_that_was_refused_before_it_ran_is_shown_with_its_batch(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE, {"id": "x1", "name": "nobody"}, {"id": "n2", "name": "note", "arguments": {"text": 5}})
    (batch,) = run("batches", "--db", "agent.db", "--json").json
    shown = run("batches", "show", batch["batch"], "--db", "agent.db", "--json").json
    assert [(call["call_id"], call["tool"], call["status"]) for call in shown["calls"]] == [
        ("n1", "note", "success"),
        ("x1", "nobody", "failure"),
        ("n2", "note", "failure"),
    ]
    assert shown["calls"][1]["outcome"]["failure"]["code"] == "unknown_tool"
    assert "not registered" in run("batches", "show", batch["batch"], "--db", "agent.db").out
