"""`toolwright approvals answer` and `decline`: questions of tools beside approvals, and answers that must fit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_terminal_escapes import ESCAPES, WILD, on_a_terminal

DB = ("--db", "agent.db")
RECOVER = ("recover", "--tools", "crashing.py", *DB, "--json")
HAT = {"id": "t1", "name": "tailor"}
COAT = {"id": "t2", "name": "tailor", "arguments": {"item": "coat"}}
LAUNCH = {"id": "l1", "name": "launch"}
Left = Callable[..., Path]


def outcomes(run: Run) -> dict[str, Any]:
    return {one["call_id"]: one["outcome"] for one in run(*RECOVER).json}


@pytest.mark.promise("WAIT-08")
def test_questions_are_listed_beside_approvals_and_answered(run: Run, left: Left) -> None:
    left(HAT, LAUNCH)
    listed = {one["call_id"]: one for one in run("approvals", *DB, "--json").json}
    assert {id: one["kind"] for id, one in listed.items()} == {"t1": "question", "l1": "approval"}
    question = listed["t1"]
    assert (question["tool"], question["name"], question["message"]) == ("tailor", "size", "Which size of hat?")
    assert question["schema"]["enum"] == ["S", "M", "L"]
    assert question["asked_at"] < question["deadline"]
    table = run("approvals", *DB).out
    for said in ("t1", "tailor", "? size: Which size of hat?", 'answer: one of "S", "M", "L"', "24 h left", "l1"):
        assert said in table

    answered = run("approvals", "answer", "t1", '"M"', *DB)
    assert (answered.code, answered.out) == (0, "t1 (tailor) is answered\n")
    for word in ("t1", question["key"]):
        late = run("approvals", "answer", word, "--text", "S", *DB)
        assert late.code == 3
        assert "was answered" in late.out
    assert outcomes(run)["t1"]["value"] == "hat in M"
    (decided,) = run("approvals", "--decided", *DB, "--json").json
    assert (decided["answer"], decided["decision"]["verdict"]) == ("M", "answered")
    assert decided["decision"]["by"]
    assert '"M"' in run("approvals", "--decided", *DB).out


@pytest.mark.promise("WAIT-08")
def test_an_answer_that_does_not_fit_leaves_the_question_open(run: Run, left: Left) -> None:
    left(HAT)
    refused = run("approvals", "answer", "t1", '"XXL"', *DB)
    assert refused.code == 2
    assert "the question 'size' stays open" in refused.err
    assert "not one of the allowed values" in refused.err
    for wrong in (("M",), (), ('"M"', "--text", "M")):
        assert run("approvals", "answer", "t1", *wrong, *DB).code == 2
    assert len(run("approvals", *DB, "--json").json) == 1
    assert run("approvals", "answer", "t1", "-", *DB, stdin='"L"').code == 0
    assert outcomes(run)["t1"]["value"] == "hat in L"


def test_questions_are_declined_with_a_reason_that_the_tool_reads(run: Run, left: Left) -> None:
    left(HAT, COAT)
    declined = run("approvals", "decline", "t1", "t2", "--reason", "a gift", *DB)
    assert (declined.code, declined.out.splitlines()) == (
        0,
        ["t1 (tailor) is declined: a gift", "t2 (tailor) is declined: a gift"],
    )
    assert run("approvals", "answer", "t1", '"M"', *DB, "--json").json[0]["status"] == "error"
    ends = outcomes(run)
    assert {end["failure"]["code"] for end in ends.values()} == {"declined"}
    assert all("a gift" in end["text"] for end in ends.values())


def test_a_question_is_not_approved_and_an_approval_not_answered(run: Run, left: Left) -> None:
    left(HAT, LAUNCH)
    wrong = run("approvals", "approve", "t1", *DB)
    assert (wrong.code, "approvals answer" in wrong.err) == (2, True)
    wrong = run("approvals", "answer", "l1", "true", *DB)
    assert (wrong.code, "approvals approve" in wrong.err) == (2, True)
    numbers = [one["call_id"] for one in run("approvals", *DB, "--json").json]
    asked = run("approvals", "answer", str(numbers.index("t1") + 1), '"M"', *DB)
    assert asked.code == 2
    assert "tailor asks: Which size of hat?" in asked.err
    assert run("approvals", "answer", str(numbers.index("t1") + 1), '"M"', "--yes", *DB).code == 0
    assert run("approvals", "approve", "l1", *DB).code == 0
    assert run("approvals", "approve", "t1", *DB).code == 2


def test_the_newest_of_approvals_and_questions_are_listed_together(run: Run, left: Left) -> None:
    left(HAT, LAUNCH, COAT)
    run("approvals", "answer", "t1", '"M"', *DB)
    run("approvals", "approve", "l1", *DB)
    run("approvals", "decline", "t2", *DB)
    first = run("approvals", "--decided", "--limit", "2", *DB, "--json").json
    assert [one["call_id"] for one in first] == ["t2", "l1"]
    rest = run("approvals", "--decided", "--before", str(first[-1]["number"]), *DB, "--json").json
    assert [one["call_id"] for one in rest] == ["t1"]


@pytest.mark.promise("SAFE-04")
def test_no_text_of_a_question_steers_the_terminal(run: Run, left: Left, command: list[str]) -> None:
    left({**HAT, "arguments": {"item": ESCAPES}})
    shown = on_a_terminal(*command, "approvals", *DB)
    shown += on_a_terminal(*command, "approvals", *DB, "--json")
    shown += on_a_terminal(*command, "approvals", "answer", "1", json.dumps(ESCAPES), "--yes", *DB)
    run("approvals", "decline", "t1", "--reason", ESCAPES, *DB)
    shown += on_a_terminal(*command, "approvals", "--decided", *DB)
    assert not WILD.findall(shown), ascii(shown)
    assert "owned" in shown
