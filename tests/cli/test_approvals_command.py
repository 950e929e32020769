"""`toolwright approvals`: what waits for a person, and who decides first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

DB = ("--db", "agent.db")
RECOVER = ("recover", "--tools", "crashing.py", *DB, "--json")
LAUNCH = {"id": "l1", "name": "launch"}


def outcomes(run: Run) -> dict[str, Any]:
    return {one["call_id"]: one["outcome"] for one in run(*RECOVER).json}


def test_requests_tell_tool_arguments_rule_and_deadline(run: Run, left: Callable[..., Path]) -> None:
    left({**LAUNCH, "arguments": {"where": "mars"}})
    (request,) = run("approvals", *DB, "--json").json
    assert (request["call_id"], request["tool"], request["arguments"]) == ("l1", "launch", {"where": "mars"})
    assert (request["cause"], request["rule"]) == ("policy", "approval")
    assert request["subject"] == {"kind": "flight", "text": "to mars", "directory": "/pad"}
    table = run("approvals", *DB).out
    for said in (
        "l1",
        "launch",
        '{"where":"mars"}',
        "the tool requires approval",
        "24 h left",
        "flight in /pad: to mars",
    ):
        assert said in table


def test_nothing_that_waits_is_said_on_stderr(run: Run, left: Callable[..., Path]) -> None:
    left()
    assert run("approvals", *DB, "--session", "none").err == "Nothing waits for a person.\n"
    assert run("approvals", *DB, "--json").json == []


@pytest.mark.promise("AUTH-04")
def test_the_first_decision_stands_and_the_second_is_told_so(run: Run, left: Callable[..., Path]) -> None:
    left(LAUNCH)
    (request,) = run("approvals", *DB, "--json").json
    approved = run("approvals", "approve", "l1", *DB)
    assert (approved.code, approved.out) == (0, "l1 (launch) is approved\n")
    for word in ("l1", request["key"]):
        denied = run("approvals", "deny", word, *DB, "--reason", "no")
        assert denied.code == 3
        assert denied.out.startswith("Somebody else was first: ")
        assert "was approved" in denied.out
    assert outcomes(run)["l1"]["value"] == "launched to moon"
    assert run("approvals", "deny", "l1", *DB, "--json").json[0]["first"] is False


def test_a_call_may_be_approved_with_other_arguments(run: Run, left: Callable[..., Path]) -> None:
    left(LAUNCH)
    assert run("approvals", "approve", "l1", *DB, "--arguments", '{"where": "mars"}').code == 0
    assert outcomes(run)["l1"]["value"] == "launched to mars"


@pytest.mark.promise("AUTH-03")
def test_arguments_that_do_not_fit_the_tool_of_the_app_leave_the_request_open(
    run: Run, left: Callable[..., Path]
) -> None:
    left(LAUNCH)
    Path("agent.py").write_text("import crashing\nfrom toolwright import App\n\napp = App(tools=[crashing.launch])\n")
    approve = ("approvals", "approve", "l1", *DB, "--app", "agent:app", "--arguments")
    refused = run(*approve, '{"where": 3}')
    assert refused.code == 2
    assert "the request stays open" in refused.err
    assert "$.where" in refused.err
    assert len(run("approvals", *DB, "--json").json) == 1
    assert run(*approve, '{"where": "mars"}').code == 0
    assert outcomes(run)["l1"]["value"] == "launched to mars"


def test_the_model_reads_why_a_call_was_denied(run: Run, left: Callable[..., Path]) -> None:
    left(LAUNCH, {"id": "l2", "name": "launch"})
    assert run("approvals", "deny", "l1", "l2", *DB, "--reason", "too windy").code == 0
    assert all("too windy" in outcome["text"] for outcome in outcomes(run).values())


@pytest.mark.parametrize(
    ("options", "waiting"), [(["--always"], []), (["--matching", '{"where": "ma*"}'], ["l3"]), ([], ["l2", "l3"])]
)
def test_a_decision_may_hold_for_later_calls(
    run: Run, left: Callable[..., Path], options: list[str], waiting: list[str]
) -> None:
    left(LAUNCH)
    assert run("approvals", "approve", "l1", *DB, *options).code == 0
    left({"id": "l2", "name": "launch", "arguments": {"where": "mars"}}, {"id": "l3", "name": "launch"})
    assert [request["call_id"] for request in run("approvals", *DB, "--json").json] == waiting


def test_a_number_of_the_list_must_be_confirmed(run: Run, left: Callable[..., Path]) -> None:
    left(LAUNCH, {"id": "l2", "name": "launch", "arguments": {"where": "mars"}})
    second = run("approvals", *DB, "--json").json[1]["call_id"]
    asked = run("approvals", "approve", "2", *DB)
    assert asked.code == 2
    assert f"here it is call {second!r}" in asked.err
    assert len(run("approvals", *DB, "--json").json) == 2
    assert run("approvals", "approve", "2", "--yes", *DB).out == f"{second} (launch) is approved\n"


def test_an_ambiguous_word_is_an_error_that_lists_the_choices(run: Run, left: Callable[..., Path]) -> None:
    left(LAUNCH)
    left(LAUNCH, session="s2")
    left({"id": "1", "name": "launch"}, session="s3")
    keys = [request["key"] for request in run("approvals", *DB, "--json").json]
    ended = run("approvals", "approve", "l1", *DB)
    assert ended.code == 2
    assert keys[0] in ended.err
    assert keys[1] in ended.err
    assert run("approvals", "approve", "1", "--yes", *DB).code == 2
    assert run("approvals", "approve", "l1", "--session", "s2", *DB).code == 0
    # What is said before the verb holds, too: another session's call must not be approved instead.
    assert run("approvals", *DB, "--session", "s3", "approve", "l1").code == 2
    assert run("approvals", "approve", keys[0], keys[2], *DB).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["approve", "l9"], "Nothing that waits for a person is called 'l9'"),
        (["approve", "9"], "Nothing that waits for a person is called '9'"),
        (["deny", "twk1.abc.def"], "not signed by this store"),
        (["approve", "l1", "--arguments", "{x"], "are not JSON"),
        (["approve", "l1", "--arguments", "[1]"], "not a JSON object"),
        (["approve", "l1", "--matching", "5"], "not a JSON object"),
        (["approve", "l1", "l2", "--arguments", "{}"], "--arguments belong to one call"),
    ],
)
def test_what_cannot_be_decided_is_named_and_decides_nothing(
    run: Run, left: Callable[..., Path], words: list[str], said: str
) -> None:
    left(LAUNCH, {"id": "l2", "name": "launch"})
    ended = run("approvals", *words, *DB)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(run("approvals", *DB, "--json").json) == 2


def test_what_a_crash_cut_off_is_asked_about_and_decided_each_time(run: Run, left: Callable[..., Path]) -> None:
    left({"id": "r1", "name": "risky"})
    assert [one["action"] for one in run(*RECOVER).json] == ["asked"]
    (request,) = run("approvals", *DB, "--json").json
    assert request["cause"] == "crash"
    assert "leave out --always" in run("approvals", "approve", "r1", "--always", *DB).err
    assert run("approvals", "approve", "r1", *DB).code == 0
    assert outcomes(run)["r1"]["value"] == "alive"


@pytest.mark.promise("AUTH-03")
def test_what_was_decided_is_listed_with_who_and_when(
    run: Run, left: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(LAUNCH, {"id": "l2", "name": "launch"})
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    monkeypatch.setattr("socket.gethostname", lambda: "desk\x1b[31m")
    assert run("approvals", "approve", "l1", *DB, "--arguments", '{"where": "mars"}').code == 0
    monkeypatch.setattr("getpass.getuser", lambda: "bob\x1b[31m")
    assert run("approvals", "deny", "l2", *DB, "--reason", "too windy").code == 0

    listed = run("approvals", *DB, "--decided").out
    for said in (
        "approved, edited",
        "ann",
        "terminal of desk [31m",
        "denied: too windy",
        '→ {"where":"mars"}',
        "l1",
        "launch",
    ):
        assert said in listed, said
    assert "\x1b" not in listed
    denied, approved = run("approvals", *DB, "--decided", "--json").json
    assert (approved["decision"]["by"], approved["decision"]["edited"]) == ("ann", True)
    assert approved["decision"]["via"] == "terminal of desk [31m"
    assert (approved["arguments"], approved["decision"]["arguments"]) == ({}, {"where": "mars"})
    assert (denied["decision"]["verdict"], denied["decision"]["reason"]) == ("denied", "too windy")
    assert run("approvals", *DB, "--decided", "--json", "--limit", "1").json == [denied]
    older = run("approvals", *DB, "--decided", "--json", "--before", str(denied["number"]))
    assert older.json == [approved]
    assert run("approvals", *DB, "--decided", "--session", "none").err == "Nothing was decided.\n"
    assert {one["outcome"]["decision"]["by"] for one in run(*RECOVER).json} == {"ann", "bob [31m"}
