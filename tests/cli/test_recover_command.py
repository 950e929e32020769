"""`toolwright recover` and `toolwright resolve`: going on where another process stopped."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run

DB = ("--db", "agent.db")
RECOVER = ("recover", "--tools", "crashing.py", *DB)
CALLS = [
    {"id": "n1", "name": "note", "arguments": {"text": "before"}},
    {"id": "d1", "name": "die"},
    {"id": "n2", "name": "note", "arguments": {"text": "after"}},
    {"id": "l1", "name": "launch"},
]


@pytest.mark.promise("EFF-05")
def test_recovery_tells_what_was_done_for_each_call(run: Run, project: Path, left: Callable[..., Path]) -> None:
    left(*CALLS)
    ended = run(*RECOVER, "--json")
    assert ended.code == 1
    assert [(one["call_id"], one["action"], one["outcome"]["status"]) for one in ended.json] == [
        ("d1", "interrupted", "failure"),
        ("n2", "rerun", "success"),
        ("l1", "waiting", "pending"),
    ]
    assert (project / "ledger").read_text().split() == ["before", "after"]


def test_recovery_shows_people_a_table_and_where_to_decide(run: Run, left: Callable[..., Path]) -> None:
    left(*CALLS)
    ended = run(*RECOVER)
    for said in ("not run again", "run again", "went on waiting"):
        assert said in ended.out
    assert "1 still wait; calls for a person to decide: toolwright approvals --db agent.db" in ended.err


def test_when_nothing_was_cut_off_all_is_well(run: Run, left: Callable[..., Path]) -> None:
    left(CALLS[0])
    assert (run(*RECOVER).code, run(*RECOVER).err) == (0, "Nothing was cut off.\n")
    assert run(*RECOVER, "--json").json == []


def test_a_call_whose_tool_is_not_known_is_left(run: Run, left: Callable[..., Path]) -> None:
    left(CALLS[1])
    ended = run("recover", "--tools", "kit.py", *DB, "--json")
    assert (ended.code, [one["action"] for one in ended.json]) == (1, ["left"])
    assert [one["action"] for one in run(*RECOVER, "--json").json] == ["interrupted"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (['{"paid": true}'], "success", '{"paid":true}'),
        ([], "success", "null"),
        (["--error", "out", "Out of stock"], "failure", "Out of stock"),
        (["--cancel", "too late"], "cancelled", "too late"),
    ],
)
def test_a_waiting_call_ends_as_its_key_is_resolved(
    run: Run, project: Path, left: Callable[..., Path], words: list[str], status: str, text: str
) -> None:
    left({"id": "o1", "name": "order"})
    key = (project / "key").read_text()
    first = run("resolve", key, *words, *DB)
    assert (first.code, first.out[:6]) == (0, "It is ")
    second = run("resolve", key, "5", *DB)
    assert second.code == 3
    assert second.out.startswith("Somebody else was first: it was ")
    assert run("resolve", key, "5", *DB, "--json").json["first"] is False
    (recovered,) = run(*RECOVER, "--json").json
    assert (recovered["outcome"]["status"]) == status
    assert text in recovered["outcome"]["text"]


def test_a_value_may_come_on_stdin(run: Run, project: Path, left: Callable[..., Path]) -> None:
    left({"id": "o1", "name": "order"})
    key = (project / "key").read_text()
    assert run("resolve", key, "-", *DB, "--json", stdin='{"a": 1}').json["value"] == {"a": 1}


def test_what_cannot_be_resolved_is_named_with_the_remedy(run: Run, project: Path, left: Callable[..., Path]) -> None:
    left({"id": "o1", "name": "order"}, {"id": "l1", "name": "launch"})
    key = (project / "key").read_text()
    (request,) = run("approvals", *DB, "--json").json
    for words, said in (
        ([key, "{rubbish"], "The value is not JSON"),
        ([key, "5", "--cancel", "x"], "give a value, --error or --cancel"),
        (["nonsense"], "was not made by this store"),
        ([key[:-2] + "xx"], "not signed by this store"),
        ([request["key"]], "approvals and questions are decided with toolwright approvals"),
    ):
        ended = run("resolve", *words, *DB)
        assert (ended.code, ended.out) == (2, "")
        assert said in ended.err
    assert run("resolve", key, "5", *DB).code == 0


@pytest.mark.promise("EFF-05")
def test_only_calls_of_a_session_and_a_scope_are_recovered_where_that_is_asked_for(
    run: Run, left: Callable[..., Path]
) -> None:
    left(CALLS[1])
    assert run(*RECOVER, "--session", "another", "--json").json == []
    assert run(*RECOVER, "--scope", "another", "--json").json == []
    assert [one["call_id"] for one in run(*RECOVER, "--json").json] == ["d1"]
