"""The problems a model reads: of typed tools, and in their short forms."""

import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from tests.tools.signatures import arguments_of, problems_of
from toolwright.errors import InvalidArguments
from toolwright.tools.function_schema import (
    read_signature,
)
from toolwright.tools.raw_schema import compile_schema
from toolwright.tools.validation_messages import ArgumentProblem, preview, summarise


@pytest.mark.promise("RUN-03")
def test_every_problem_has_path_given_and_expected():
    class Item(BaseModel):
        name: Annotated[str, Field(min_length=2)]
        kind: Literal["a", "b"]

    def work(items: list[Item], count: Annotated[int, Field(ge=1)], by: dict[int, str], missing: str) -> None: ...

    found = problems_of(
        work,
        items=[{"name": "ok", "kind": "a"}, {"name": "x", "kind": "c"}, {"kind": "b"}],
        count=0,
        by={"k": "v"},
        extra=[1],
    )
    assert {(p.path, p.given, p.expected) for p in found} == {
        ("$.items[1].name", '"x"', "string to have at least 2 characters"),
        ("$.items[1].kind", '"c"', "'a' or 'b'"),
        ("$.items[2].name", "nothing", "a string"),
        ("$.count", "0", "greater than or equal to 1"),
        ("$.by.k", '"k"', "a valid integer"),
        ("$.missing", "nothing", "a string"),
        ("$.extra", "[1]", "no such field"),
    }


@pytest.mark.promise("RUN-03")
def test_a_missing_argument_names_those_that_were_given():
    def work(path: str, limit: int = 3) -> None: ...

    (missing,) = problems_of(work, limit=1)
    assert "'path'" in missing.message
    assert "'limit'" in missing.message
    assert "no fields were given" in problems_of(work)[0].message


def test_an_unknown_argument_names_the_allowed_ones_also_deep_inside():
    @dataclass
    class Point:
        x: int
        y: int = 0

    def work(path: str, points: list[Point], one: Point | None = None, limit: int = 3) -> None: ...

    top, nested, optional = problems_of(work, path="p", points=[{"x": 1, "z": 1}], one={"x": 1, "w": 1}, limt=3)[::-1]
    assert top.path == "$.limt"
    assert "'path', 'points', 'one', 'limit'" in top.message
    for problem, path in ((optional, "$.points[0].z"), (nested, "$.one.w")):
        assert problem.path == path
        assert "'x', 'y'" in problem.message


def test_the_path_of_a_union_is_a_place_in_the_arguments():
    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]

    def tagged(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...
    def plain(pet: int | Cat) -> None: ...

    assert [p.path for p in problems_of(tagged, pet={"kind": "cat", "lives": "many"})] == ["$.pet.lives"]
    assert [p.path for p in problems_of(tagged, pet={"kind": "cow"})] == ["$.pet"]
    assert [p.path for p in problems_of(plain, pet={"kind": "cat"})] == ["$.pet", "$.pet.lives"]


def test_a_tuple_that_is_too_short_names_the_place_of_what_is_missing():
    def work(pair: tuple[int, str]) -> None: ...

    (problem,) = problems_of(work, pair=[1])
    assert (problem.path, problem.given, problem.expected) == ("$.pair[1]", "nothing", "a string")


def test_the_words_of_a_validator_reach_the_model():
    class Even(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            if value % 2:
                raise ValueError("x should be even")
            assert value < 10, "x is too big"
            return value

    def work(it: Even) -> None: ...

    (odd,) = problems_of(work, it={"x": 3})
    assert (odd.path, odd.message, odd.given, odd.expected) == (
        "$.it.x",
        "x should be even",
        "3",
        "an integer",
    )
    (big,) = problems_of(work, it={"x": 12})
    assert big.message.startswith("x is too big")
    assert "\n" not in big.message


def test_values_are_converted_as_pydantic_does():
    def work(a: int, b: bool, c: float) -> None: ...

    assert arguments_of(work, a="5", b="yes", c=1) == {"a": 5, "b": True, "c": 1.0}


def test_numbers_that_json_does_not_have_are_refused():
    def work(x: float) -> None: ...

    for raw in (b'{"x": NaN}', b'{"x": Infinity}', b'{"x": "inf"}', b'{"x": 1e999}'):
        with pytest.raises(InvalidArguments):
            read_signature(work, name="it").validate(raw)


def test_text_that_is_not_an_object_is_a_problem_of_the_whole():
    def work(x: Any = None) -> None: ...

    validate = read_signature(work, name="it").validate
    for raw in (b"", b"{", b"[1]", b"null", b'{"x": "\\ud800"}', b'{"x":' * 5000 + b"1" + b"}" * 5000):
        with pytest.raises(InvalidArguments) as caught:
            validate(raw)
        assert [p.path for p in caught.value.problems] == ["$"]
        assert len(caught.value.problems[0].given) <= 120


def test_two_calls_share_nothing():
    def work(items: list[int] = Field(default_factory=list)) -> None: ...  # noqa: B008

    validate = read_signature(work, name="it").validate
    validate(b"{}")["items"].append(1)
    assert validate(b"{}") == {"items": []}


@dataclass
class Line:
    text: str
    indent: int = 0


class Shade(enum.Enum):
    DARK = "dark"
    LIGHT = "light"


LINES = st.fixed_dictionaries({"text": st.text()}, optional={"indent": st.integers()})
ARGUMENTS = st.fixed_dictionaries(
    {"title": st.text(min_size=1), "lines": st.lists(LINES, max_size=3)},
    optional={
        "shade": st.sampled_from(["dark", "light"]) | st.none(),
        "level": st.integers(1, 5),
        "tags": st.dictionaries(st.text(), st.booleans(), max_size=3),
    },
)


def page(
    title: Annotated[str, Field(min_length=1)],
    lines: list[Line],
    shade: Shade | None = None,
    level: Literal[1, 2, 3, 4, 5] = 1,
    tags: dict[str, bool] | None = None,
) -> None: ...


@given(ARGUMENTS)
@settings(max_examples=100, deadline=None)
def test_arguments_that_fit_the_types_are_accepted_and_fit_the_schema(arguments: dict[str, Any]):
    signature = read_signature(page, name="page")
    values = signature.validate(json.dumps(arguments).encode())
    assert values.keys() == arguments.keys()
    assert [line.text for line in values["lines"]] == [line["text"] for line in arguments["lines"]]
    assert jsonschema.Draft202012Validator(signature.input_schema).is_valid(arguments)


@given(ARGUMENTS, st.data())
@settings(max_examples=100, deadline=None)
def test_arguments_that_are_refused_do_not_fit_the_schema_either(arguments: dict[str, Any], data: st.DataObject):
    key = data.draw(st.sampled_from(["title", "lines", "shade", "level", "tags", "unknown"]))
    wrong: Any = data.draw(st.none() | st.just("") | st.just(9) | st.just([{}]) | st.just({"a": []}))
    arguments = {**arguments, key: wrong}
    signature = read_signature(page, name="page")
    fits = jsonschema.Draft202012Validator(signature.input_schema).is_valid(arguments)
    if fits:
        signature.validate(json.dumps(arguments).encode())
    else:
        with pytest.raises(InvalidArguments):
            signature.validate(json.dumps(arguments).encode())


def test_the_summary_has_one_line_a_problem_and_an_end():
    found = [ArgumentProblem(f"$[{i}]", "wrong type", '"x"', "an integer") for i in range(60)]
    lines = summarise(found).splitlines()
    assert lines[0] == '$[0]: wrong type (expected an integer; given "x")'
    assert len(lines) == 51
    assert lines[-1] == "and 10 more"
    assert len(summarise(found[:50]).splitlines()) == 50


def test_huge_arguments_do_not_make_a_huge_summary():
    schema = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    value = {"a": "x" * 1_000_000, "b" * 1_000_000: {"c": ["d" * 1000] * 1000}}
    with pytest.raises(InvalidArguments) as caught:
        compile_schema(schema, owner="people")(json.dumps(value).encode())
    assert len(caught.value.problems) == 2
    assert len(summarise(caught.value.problems)) < 2000


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=300), st.lists))
@settings(max_examples=100, deadline=None)
def test_a_preview_is_at_most_120_characters_and_whole_ones(value: Any):
    text = preview(value)
    assert len(text) <= 120
    text.encode()


def test_a_preview_of_text_ends_with_an_ellipsis_and_never_inside_a_character():
    assert preview("😀" * 200) == '"' + "😀" * 118 + "…"
    assert preview("a" * 118) == '"' + "a" * 118 + '"'
    assert len(preview("\ud800" * 200)) <= 120
    preview("\ud800" * 200).encode()
