"""How a handler of a raw schema reads its arguments."""

from typing import Any

import pytest

from toolwright import Arguments
from toolwright.errors import InvalidArguments
from toolwright.tools.validation_messages import ArgumentProblem


def problem(values: dict[str, Any], name: str, kind: type) -> ArgumentProblem:
    """What is wrong with one field, whichever accessor is asked."""
    with pytest.raises(InvalidArguments) as required:
        Arguments(values).require(name, kind)
    if values.get(name) is not None:
        with pytest.raises(InvalidArguments) as optional:
            Arguments(values).get(name, kind)
        assert optional.value.problems == required.value.problems
    (found,) = required.value.problems
    assert isinstance(found, ArgumentProblem)
    return found


@pytest.mark.promise("TOOL-08")
def test_accessors_give_what_was_asked_for():
    args = Arguments({"name": "demo", "count": 7, "enabled": True, "ratio": 0.5, "tags": ["a"], "more": {"b": 1}})
    assert args.require("name", str) == "demo"
    assert args.require("count", int) == 7
    assert args.require("enabled", bool) is True
    assert args.require("ratio", float) == 0.5
    assert args.require("tags", list) == ["a"]
    assert args.require("more", dict) == {"b": 1}
    assert args.get("count", int, 0) == 7


@pytest.mark.promise("TOOL-08")
def test_an_absent_field_gives_the_default():
    args = Arguments({"other": 1})
    assert args.get("limit", int, 100) == 100
    assert args.get("limit", int) is None


@pytest.mark.promise("TOOL-08")
def test_null_counts_as_absent():
    args = Arguments({"limit": None})
    assert args.get("limit", int, 100) == 100
    assert problem({"limit": None}, "limit", int).message == ("missing required field 'limit'; the call gave 'limit'")


@pytest.mark.promise("TOOL-08")
def test_a_missing_field_names_the_fields_that_were_given():
    found = problem({"path": "src/lib.rs", "content": "new body"}, "replace", str)
    assert found.message == "missing required field 'replace'; the call gave 'path', 'content'"
    assert (found.path, found.given, found.expected) == ("$.replace", "nothing", "a string")


@pytest.mark.promise("TOOL-08")
def test_a_missing_field_says_when_no_fields_were_given():
    assert problem({}, "path", str).message == "missing required field 'path'; the call gave no fields"


@pytest.mark.promise("TOOL-08")
def test_a_missing_field_names_no_more_fields_than_can_be_read():
    found = problem({f"f{number}": 1 for number in range(1000)}, "path", str)
    assert "'f0', 'f1'" in found.message
    assert found.message.endswith("and 970 more")


@pytest.mark.promise("TOOL-08")
@pytest.mark.parametrize(
    ("value", "kind", "expected", "given"),
    [
        (5, str, "a string", "5"),
        ("5", int, "an integer", '"5"'),
        (5.5, int, "an integer", "5.5"),
        ("5", float, "a number", '"5"'),
        (1, bool, "true or false", "1"),
        ([], dict, "an object", "[]"),
        ({}, list, "a list", "{}"),
        ("ü", int, "an integer", '"ü"'),
    ],
)
def test_a_wrong_type_says_what_was_expected_and_what_came(value: Any, kind: type, expected: str, given: str):
    found = problem({"field": value}, "field", kind)
    assert found.path == "$.field"
    assert found.message == f"field 'field' is not {expected}"
    assert (found.expected, found.given) == (expected, given)


@pytest.mark.promise("TOOL-08")
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_not_a_number(value: bool, kind: type):
    assert problem({"limit": value}, "limit", kind).given == ("true" if value else "false")


@pytest.mark.promise("TOOL-08")
def test_what_came_is_shown_up_to_120_characters():
    assert problem({"n": "x" * 118}, "n", int).given == '"' + "x" * 118 + '"'
    assert problem({"n": "x" * 119}, "n", int).given == '"' + "x" * 118 + "…"
    assert len(problem({"n": list(range(10_000))}, "n", int).given) == 120


@pytest.mark.promise("TOOL-08")
def test_a_whole_number_serves_as_a_number_and_the_other_way_round():
    as_float = Arguments({"n": 3}).require("n", float)
    as_int = Arguments({"n": 3.0}).require("n", int)
    assert (as_float, type(as_float)) == (3.0, float)
    assert (as_int, type(as_int)) == (3, int)


@pytest.mark.promise("TOOL-08")
def test_an_integer_beyond_every_float_is_not_a_number_but_no_crash():
    assert problem({"n": 10**400}, "n", float).expected == "a number"
    assert Arguments({"n": 10**400}).require("n", int) == 10**400


@pytest.mark.promise("TOOL-08")
def test_arguments_can_be_read_like_a_mapping():
    args = Arguments({"a": 1, "b": None})
    assert dict(args) == {"a": 1, "b": None}
    assert (args["a"], "b" in args, "c" in args, len(args), list(args)) == (1, True, False, 2, ["a", "b"])
    assert {**args} == {"a": 1, "b": None}
    assert repr(args) == "Arguments({'a': 1, 'b': None})"
