"""Damaged histories, repaired: every call has one result where its provider wants it, and the rest stays."""

import copy
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings

from tests.wire.histories import (
    FORMS,
    RULES,
    Atom,
    damaged,
    said_by_users,
    texts_of_results,
    whole,
)
from tests.wire.shapes import dumped
from toolwright.errors import ConversionError
from toolwright.wire.detect import PROVIDERS
from toolwright.wire.repair import repair

pytestmark = pytest.mark.promise("OUT-08")

UNKNOWN = '{"error":"The call was interrupted and its result is not known; it may have had an effect."}'
OPENING = "(The beginning of this conversation is not shown.)"
every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@given(atoms=damaged(same_ids=True))
def test_every_call_of_a_repaired_history_has_one_result_in_its_place(form: str, atoms: list[Atom]):
    provider, lay_out = FORMS[form]
    history = lay_out(atoms)
    repaired = repair(history, provider).messages
    ids = RULES[provider](repaired)
    assert all(ids)
    assert len(set(ids)) == len(ids) == sum(len(atom[1]) for atom in atoms if atom[0] == "ask")
    assert [said for said in said_by_users(repaired) if said != OPENING] == said_by_users(history)
    assert repaired[:1] == [] or history[0].get("role") != "user" or repaired[0].get("role") == "user"


@every_form
@given(atoms=damaged(same_ids=True))
def test_repairing_twice_changes_nothing_more_and_never_the_input(form: str, atoms: list[Atom]):
    provider, lay_out = FORMS[form]
    history = lay_out(atoms)
    before = copy.deepcopy(history)
    once = repair(history, provider)
    assert history == before
    assert bool(once.changes) == (once.messages != history)
    again = repair(once.messages, provider)
    assert again.changes == []
    assert again.messages == once.messages


@pytest.mark.parametrize("provider", RULES)
@given(atoms=whole())
def test_a_history_in_good_order_comes_back_as_it_is(provider: str, atoms: list[Atom]):
    _, lay_out = FORMS[provider]
    history = lay_out(atoms)
    repaired = repair(history, provider)
    assert repaired.changes == []
    assert all(new is old for new, old in zip(repaired.messages, history, strict=True))


@every_form
@given(atoms=damaged())
def test_each_call_keeps_the_first_result_that_came_after_it_or_is_said_to_be_unknown(form: str, atoms: list[Atom]):
    provider, lay_out = FORMS[form]
    expected = {}
    for at, atom in enumerate(atoms):
        for call_id in atom[1] if atom[0] == "ask" else ():
            given_for = [other[2] for other in atoms[at:] + atoms[:at] if other[:2] == ("result", call_id)]
            expected[call_id] = given_for[0] if given_for else UNKNOWN
    assert texts_of_results(repair(lay_out(atoms), provider).messages) == expected


@pytest.mark.parametrize("provider", RULES)
@settings(max_examples=25)
@given(atoms=damaged(same_ids=True))
def test_objects_of_an_sdk_are_repaired_like_the_dicts_they_stand_for(provider: str, atoms: list[Atom]):
    _, lay_out = FORMS[provider]
    history = lay_out(atoms)
    objects = dumped(history)
    repaired = repair(objects, provider)
    assert repaired.changes == repair(history, provider).changes
    read = PROVIDERS[provider].read_results(repaired.messages)
    assert sorted(item.call_id for item in read) == sorted(RULES[provider](repair(history, provider).messages))


def test_what_an_sdk_left_unsaid_is_not_sent_back_in_a_message_that_was_changed():
    _, lay_out = FORMS["openai-chat"]
    [asked, _] = repair(dumped(lay_out([("ask", ("",))])), "openai-chat").messages
    assert asked.keys() == {"role", "content", "tool_calls"}
    assert asked["tool_calls"][0].keys() == {"id", "type", "function"}


def test_a_dangling_anthropic_call_is_answered_in_the_user_message_that_follows():
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "t", "input": {}}]},
        {"role": "user", "content": "Well?"},
    ]
    repaired = repair(history, "anthropic")
    assert repaired.messages[2:] == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": UNKNOWN, "is_error": True},
                {"type": "text", "text": "Well?"},
            ],
        }
    ]
    assert repaired.changes == ["Added a result for call 'c1' of 't', which had none: interrupted."]


def test_anthropic_results_come_before_what_the_user_says_in_the_same_message():
    text = {"type": "text", "text": "Well?"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    history = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "t", "input": {}}]},
        {"role": "user", "content": [text, result]},
    ]
    repaired = repair(history, "anthropic")
    assert repaired.messages[1] == {"role": "user", "content": [result, text]}
    assert repaired.changes == ["Moved the result of call 'c1' to its place after the call."]


def test_a_repair_leaves_the_other_messages_of_an_anthropic_history_as_they_are():
    def ask(call_id: str) -> dict[str, Any]:
        call = {"type": "tool_use", "id": call_id, "name": "t", "input": {}}
        return {"role": "assistant", "content": [call]}

    result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    orphan = {"type": "tool_result", "tool_use_id": "gone", "content": "done"}
    first, second = {"type": "text", "text": "One."}, {"type": "text", "text": "Two."}
    history: list[Any] = [
        {"role": "user", "content": [first, orphan, second]},
        ask("c1"),
        {"role": "user", "content": [result]},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "At your service."},
    ]
    repaired = repair(history, "anthropic").messages
    assert repaired == [{"role": "user", "content": [first, second]}, *history[1:]]


def test_an_anthropic_history_still_begins_with_a_user_when_an_orphan_stood_there():
    history: list[Any] = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone", "content": "done"}]},
        {"role": "assistant", "content": "It is done."},
    ]
    repaired = repair(history, "anthropic")
    assert repaired.messages == [{"role": "user", "content": OPENING}, history[1]]
    assert repaired.changes == ["Dropped a result for 'gone': no call in the history has that id."]


def test_a_dangling_custom_call_gets_an_output_of_its_own_kind():
    history = [{"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "x"}]
    [_, output] = repair(history, "openai-responses").messages
    assert output == {"type": "custom_tool_call_output", "call_id": "c1", "output": UNKNOWN}


def test_calls_that_share_an_id_are_told_apart_and_keep_their_own_results():
    def ask(call_id: str) -> dict[str, Any]:
        function = {"name": "t", "arguments": "{}"}
        call = {"id": call_id, "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def result(call_id: str, text: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    history = [ask("call_0"), result("call_0", "one"), ask("call_0"), result("call_0", "two")]
    repaired = repair(history, "openai-chat")
    assert repaired.messages == [
        ask("call_0"),
        result("call_0", "one"),
        ask("call_0_2"),
        result("call_0_2", "two"),
    ]
    assert repaired.changes == ["Renamed a further call with the id 'call_0' to 'call_0_2'."]

    repaired = repair([ask(""), result("", "one")], "openai-chat")
    assert repaired.messages == [ask("call_1"), result("call_1", "one")]
    assert repaired.changes == ["Gave the id 'call_1' to a call of 't' that had none."]


@pytest.mark.parametrize("provider", RULES)
def test_a_real_result_takes_the_place_of_one_that_a_repair_put_in(provider: str):
    _, lay_out = FORMS[provider]
    repaired = repair(lay_out([("user", "0"), ("ask", ("c1",))]), provider)
    assert texts_of_results(repaired.messages) == {"c1": UNKNOWN}
    late = [*repaired.messages, *lay_out([("user", "1"), ("result", "c1", "done")])]
    again = repair(late, provider)
    RULES[provider](again.messages)
    assert texts_of_results(again.messages) == {"c1": "done"}
    assert again.changes[0] == "Replaced the synthetic result of call 'c1' by the real one."


def test_a_history_in_good_order_with_reasoning_between_its_calls_is_left_alone():
    history = [
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"},
        {"type": "reasoning", "id": "r2", "summary": []},
        {"type": "function_call", "call_id": "c2", "name": "t", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "reasoning", "id": "r3", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    assert repair(history, "openai-responses").changes == []


@pytest.mark.parametrize("provider", ["mcp", "plain", "openai"])
def test_a_provider_without_histories_is_refused_with_those_that_have_them(provider: str):
    with pytest.raises(ConversionError, match="use one of anthropic, openai-chat, openai-responses"):
        repair([], provider)


@pytest.mark.parametrize("provider", RULES)
def test_a_message_that_is_no_object_is_refused_with_its_place(provider: str):
    with pytest.raises(ConversionError, match=r"messages\[1\] is 'Hello.'"):
        repair([{"role": "user", "content": "Hello."}, "Hello."], provider)


def test_what_a_model_gave_between_its_calls_and_their_results_stays_there():
    def call(call_id: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"}

    def result(call_id: str) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call_id, "output": "done"}

    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A moment."}]}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    asked = {"type": "mcp_call", "id": "m1", "name": "ask", "arguments": "{}", "output": "yes", "server_label": "s"}
    answer = [call("c1"), message, call("c2"), search, asked]
    good = [{"role": "user", "content": "Go."}, *answer, result("c2"), result("c1")]
    repaired = repair(good, "openai-responses")
    assert repaired.changes == []
    assert all(new is old for new, old in zip(repaired.messages, good, strict=True))
    # The rest of a history that needs a repair elsewhere stays as it was, too.
    assert repair([*good, call("c3")], "openai-responses").messages[:-1] == [*good, call("c3")]


@pytest.mark.parametrize("provider", RULES)
def test_a_repair_elsewhere_leaves_results_in_their_order(provider: str):
    _, lay_out = FORMS[provider]
    good = lay_out([("ask", ("c1", "c2")), ("result", "c2", "two"), ("result", "c1", "one")])
    repaired = repair([*good, *lay_out([("ask", ("c3",))])], provider)
    assert repaired.messages[: len(good)] == good
    assert repaired.changes == ["Added a result for call 'c3' of 't', which had none: interrupted."]


@every_form
@pytest.mark.parametrize("damage", ["one id for all", "no ids", "results of nothing"])
def test_the_work_of_a_repair_grows_with_the_history_and_not_with_its_square(form: str, damage: str):
    """Counted in executed lines: no clock, so no flakes."""
    provider, lay_out = FORMS[form]

    def history(size: int) -> list[Atom]:
        if damage == "one id for all":
            return [("ask", ["a"] * size), *[("result", "a", "done")] * size]
        if damage == "no ids":
            return [("ask", [""]), ("result", "", "done")] * size
        return [*[("result", f"lost {number}", "done") for number in range(size)], ("ask", ["a"] * size)]

    def lines(size: int) -> int:
        count = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal count
            count += event == "line" and frame.f_code.co_filename == repair.__code__.co_filename
            return trace

        messages, before = lay_out(history(size)), sys.gettrace()
        sys.settrace(trace)
        try:
            repair(messages, provider)
        finally:
            sys.settrace(before)
        return count

    assert lines(200) < 5 * lines(50)
