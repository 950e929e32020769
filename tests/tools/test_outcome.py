"""Outcomes and failures as values: what they hold, what a model reads of them, and what stays private."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwright import Attachment, Failure, Image, Pending, ToolError, ToolOutcome, ToolwrightError

CLASSES = (
    "invalid_arguments",
    "not_found",
    "unavailable",
    "permission_denied",
    "timeout",
    "execution",
    "external",
    "resource_limit",
    "interrupted",
    "internal",
)


def success(payload: str, **more: Any) -> ToolOutcome:
    return ToolOutcome(call_id="c1", tool="t", status="success", payload=payload.encode(), **more)


def failed(message: str, **more: Any) -> ToolOutcome:
    return ToolOutcome(call_id="c1", tool="t", status="failure", failure=Failure(message=message, **more))


# --- failures


@pytest.mark.promise("OUT-02")
@pytest.mark.parametrize("category", CLASSES)
def test_every_class_of_failure_is_known(category: str):
    assert Failure(message="m", category=category).category == category


@pytest.mark.promise("OUT-02")
def test_an_unknown_class_is_refused_with_the_known_ones():
    with pytest.raises(ToolwrightError, match="category 'oops' is not known; use one of execution, external, "):
        Failure(message="m", category="oops")


@pytest.mark.promise("OUT-02")
def test_a_failure_has_all_its_parts():
    failure = Failure(
        message="try later",
        category="external",
        code="rate_limited",
        source="tool",
        retry=True,
        retry_after=2.5,
        detail="429 from upstream",
    )
    assert (failure.message, failure.category, failure.code) == ("try later", "external", "rate_limited")
    assert (failure.source, failure.retry, failure.retry_after) == ("tool", True, 2.5)
    assert failure.detail == "429 from upstream"


@pytest.mark.promise("OUT-02")
def test_what_a_failure_leaves_unsaid():
    failure = Failure(message="no")
    assert (failure.category, failure.code, failure.source) == ("execution", "tool_error", "tool")
    assert (failure.retry, failure.retry_after, failure.detail) == (False, None, None)


@pytest.mark.promise("OUT-02")
def test_a_raised_error_makes_the_same_failure():
    error = ToolError("busy", category="unavailable", code="busy", retry_after=3, detail="queue full")
    assert error.failure == Failure(
        message="busy",
        category="unavailable",
        code="busy",
        source="tool",
        retry=True,
        retry_after=3,
        detail="queue full",
    )
    assert str(error) == "busy"


@pytest.mark.promise("OUT-02")
@pytest.mark.parametrize("message", [None, 5, ValueError("x"), b"bytes"], ids=str)
def test_a_message_that_is_no_text_is_refused(message: Any):
    with pytest.raises(ToolwrightError, match=r"Failure message .* is not text; use a string"):
        Failure(message=message)


@pytest.mark.promise("OUT-02")
def test_a_detail_that_is_no_text_is_refused():
    with pytest.raises(ToolwrightError, match=r"Failure detail .* is not text; use a string"):
        ToolError("m", detail={"id": 2**70})  # type: ignore[arg-type]


@pytest.mark.promise("OUT-02")
@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", True, 2**63, 10**400], ids=str)
def test_an_advice_to_wait_is_a_number_of_seconds(seconds: Any):
    with pytest.raises(ToolwrightError, match=r"retry_after .* is not usable; use seconds, 0 or more"):
        Failure(message="m", retry_after=seconds)


@pytest.mark.promise("OUT-02")
@pytest.mark.parametrize(
    ("name", "value"),
    [("source", "github"), ("source", None), ("category", None), ("retry", 1), ("attempts", "3"), ("attempts", True)],
    ids=str,
)
def test_a_failure_that_no_store_could_read_again_is_refused(name: str, value: Any):
    with pytest.raises(ToolwrightError, match=rf"Failure {name} .* is not"):
        Failure(message="m", **{name: value})


# --- what a model reads


@pytest.mark.promise("OUT-04")
@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ('"hello"', "hello"),
        ('""', ""),
        ('"a\\nb \\"c\\""', 'a\nb "c"'),
        ('{"ok":true}', '{"ok":true}'),
        ("[1,2]", "[1,2]"),
        ("null", "null"),
        ("false", "false"),
        ("12.5", "12.5"),
    ],
)
def test_a_success_reads_as_its_json_and_a_string_as_itself(payload: str, text: str):
    assert success(payload).text == text


@pytest.mark.promise("OUT-04")
@settings(deadline=None)
@given(st.text(st.characters() | st.characters(categories=["Cs", "Cc"])))
def test_a_failure_reads_as_json_whatever_its_message_contains(message: str):
    read = json.loads(failed(message).text)
    assert list(read) == ["error"]
    if not any("\ud800" <= character <= "\udfff" for character in message):
        assert read["error"] == message


@pytest.mark.promise("OUT-04")
def test_a_lone_surrogate_in_a_message_is_written_out():
    outcome = failed("no such file: caf\udce9.txt")
    assert json.loads(outcome.text) == {"error": "no such file: caf\\udce9.txt"}
    assert outcome.failure is not None
    assert outcome.failure.message.encode() == b"no such file: caf\\udce9.txt"


@pytest.mark.promise("OUT-04")
def test_a_message_of_a_string_subclass_is_read_as_a_string():
    class Markup(str):
        pass

    assert failed(Markup("no")).text == '{"error":"no"}'


@pytest.mark.promise("OUT-04", "OUT-01")
def test_the_other_endings_read_as_json_too():
    ran = ToolOutcome(call_id="c", tool="t", status="cancelled", reason='"stop"', may_have_run=True)
    waited = ToolOutcome(call_id="c", tool="t", status="cancelled", reason="the user left")
    unconnected = ToolOutcome(call_id="c", tool="t", status="connection_required", provider='git"hub')
    assert json.loads(ran.text) == {"error": 'Cancelled: "stop"; it may have had an effect.'}
    assert json.loads(waited.text) == {"error": "Cancelled: the user left; it did not run."}
    assert json.loads(unconnected.text) == {"connection_required": 'git"hub'}


# --- as plain data


@pytest.mark.promise("OUT-01")
def test_a_success_as_plain_data():
    outcome = success(
        '{"a":1}',
        attempts=1,
        raw_output="raw",
        images=(Image("aGk=", "image/gif"),),
        attachments=(Attachment("notes.txt", "aGk=", "text/plain"),),
    )
    assert outcome.to_json() == {
        "call_id": "c1",
        "tool": "t",
        "status": "success",
        "value": {"a": 1},
        "raw_output": "raw",
        "images": [{"data": "aGk=", "media_type": "image/gif"}],
        "attachments": [{"name": "notes.txt", "data": "aGk=", "media_type": "text/plain"}],
        "attempts": 1,
        "replayed": False,
        "text": '{"a":1}',
    }


@pytest.mark.promise("OUT-02", "OUT-03")
def test_a_failure_as_plain_data_leaves_out_what_is_private():
    outcome = failed("busy", category="external", code="busy", retry=True, detail="password=hunter2")
    assert outcome.to_json() == {
        "call_id": "c1",
        "tool": "t",
        "status": "failure",
        "failure": {
            "category": "external",
            "code": "busy",
            "message": "busy",
            "source": "tool",
            "retry": True,
            "retry_after": None,
        },
        "may_have_run": False,
        "attempts": 0,
        "replayed": False,
        "text": '{"error":"busy"}',
    }


@pytest.mark.promise("OUT-01", "CANCEL-01")
@pytest.mark.parametrize("may_have_run", [True, False])
def test_what_did_not_succeed_says_as_plain_data_whether_it_may_have_run(may_have_run: bool):
    outcome = ToolOutcome(call_id="c", tool="t", status="cancelled", reason="enough", may_have_run=may_have_run)
    shown = outcome.to_json()
    assert replace(failed("no"), may_have_run=may_have_run).to_json()["may_have_run"] is may_have_run
    assert (shown["status"], shown["reason"], shown["may_have_run"]) == ("cancelled", "enough", may_have_run)
    assert "may_have_run" not in success("1").to_json()


@pytest.mark.promise("OUT-01")
def test_the_value_of_what_did_not_succeed_is_none():
    assert failed("no").value is None
    assert ToolOutcome(call_id="c", tool="t", status="cancelled").value is None


@pytest.mark.promise("OUT-01")
def test_an_image_can_be_made_of_its_bytes():
    assert Image.from_bytes(b"hi", "image/gif") == Image("aGk=", "image/gif")


@pytest.mark.promise("EFF-10")
@pytest.mark.parametrize("deadline", [-1, float("nan"), float("inf"), 10**400, True, "soon"], ids=str)
def test_a_deadline_that_is_no_number_of_seconds_is_refused(deadline):
    with pytest.raises(ToolwrightError, match=r"Pending deadline .* is not usable; use seconds from now, 0 or more"):
        Pending(deadline)
