"""Whatever a model writes for arguments: always an outcome, and the tool runs with nothing but what fits.

The verdict is held against the standard library's JSON and against `jsonschema`, which the runtime does not use.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.calls.running import run
from toolwright import Arguments, Runtime, Tool, ToolCall, ToolOutcome, tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "n": {"type": "integer"}, "more": {}},
    "required": ["path"],
    "additionalProperties": False,
}


class Refused(Exception):
    """Not the JSON of an object, by a strict reading."""


def strictly(text: str | bytes) -> Any:
    """Read JSON as its standard has it; Python's reader also takes NaN, lone surrogates and infinity."""

    def refuse(constant: str) -> Any:
        raise Refused(constant)

    def number(digits: str) -> float:
        value = float(digits)
        if value in (float("inf"), float("-inf")):
            raise Refused(digits)
        return value

    try:
        text = text if isinstance(text, str) else text.decode()
        text.encode()
        found = json.loads(text, parse_constant=refuse, parse_float=number)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refused(str(error)) from None
    if not isinstance(found, dict):
        raise Refused(type(found).__name__)
    return found


def is_deep(value: Any) -> bool:
    """Nested deeper than anyone needs: it may be taken or refused."""
    level = [value]
    for _ in range(100):
        inside = [
            list(item.values()) if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)
        ]
        level = [item for items in inside for item in items]
    return bool(level)


def outcomes_of(thing: Tool, *arguments: Any) -> list[ToolOutcome]:
    async def check() -> list[ToolOutcome]:
        async with Runtime.open(tools=[thing]) as runtime:
            return await run(runtime.session("s"), *(ToolCall(name=thing.name, arguments=item) for item in arguments))

    return asyncio.run(check())


def raw_tool(schema: Any, ran: list[Any]) -> Tool:
    async def note(args: Arguments) -> None:
        ran.append(dict(args))

    return Tool.from_schema(name="note", input_schema=schema, handler=note)


objects = st.fixed_dictionaries(
    {},
    optional={
        "path": st.text() | st.integers() | st.none(),
        "n": st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just("1"),
        "more": st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner), max_leaves=5),
        "extra": st.just(1),
    },
)


@st.composite
def mutated(draw: Any) -> str:
    """The JSON of an object with a few characters lost, doubled, swapped or put in."""
    text = json.dumps(draw(objects), ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        put_in = draw(
            st.sampled_from(["", "{", "}", '"', "\\", ",", ":", "[", "]", "0", "-", "e", "\x00", "\ufeff", "ü", " "])
        )
        text = text[:place] + put_in + text[place + draw(st.integers(0, 2)) :]
    return text


broken = (
    mutated()
    | st.text()
    | st.text(st.characters() | st.characters(categories=["Cs"]))
    | st.binary()
    | mutated().map(str.encode)
    | st.builds(lambda text, cut: text.encode()[:cut], mutated(), st.integers(0, 60))
)


def with_examples(function: Callable[..., None]) -> Callable[..., None]:
    """The texts that broke something somewhere, once."""
    for text in (
        '{"path": "a", "n": ' + "9" * 400 + "}",
        '{"path": "a", "n": ' + "9" * 5000 + "}",
        f'{{"path": "a", "n": {2**70}}}',
        f'{{"path": "a", "n": {-(2**63) - 1}}}',
        '{"path": "a", "n": 1e400}',
        '{"path": "a", "n": 1.0}',
        '{"path": "a", "n": 1E2}',
        '{"path": "a", "n": -0}',
        '{"path": "a", "n": -0.0}',
        '{"path": "a", "n": 01}',
        '{"path": "a", "n": NaN}',
        '{"path": "a", "n": Infinity}',
        '{"path": "a", "more": [1, 2,]}',
        '{"path": "a", "path": "b"}',
        '{"path": "a", "path": 5}',
        '{"path": 5, "path": "b"}',
        '{"path": "\\ud800"}',
        '{"path": "\\udc00\\ud800"}',
        '{"path": "\\ud83c\\udf89"}',
        '{"path": "\ud800"}',
        '{"path": "a\x00b"}',
        '{"path": "a\\u0000b"}',
        '{"path": "a\nb"}',
        '\ufeff{"path": "a"}',
        b'\xef\xbb\xbf{"path": "a"}',
        '{"path": "a"}'.encode("utf-16"),
        '{"path": "a"}\x00',
        b'{"path": "\xc0\x80"}',
        b'{"path": "\xed\xa0\x80"}',
        '{"path": "a", "more": ' + "[" * 100 + "]" * 100 + "}",
        '{"path": "a", "more": ' + "[" * 300 + "]" * 300 + "}",
        '{"path": "a", "more": ' + "[" * 1000 + "]" * 1000 + "}",
        '{"path": "a", "more": ' + "[" * 100_000,
        '{"path": "a", "more": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}",
        "{" * 100_000,
        '"' + "\\" * 9999,
        "null",
        "",
        " ",
        "\x00",
    ):
        function = example(text)(function)
    return function


@pytest.mark.promise("RUN-02", "RUN-03")
@settings(max_examples=250, deadline=None)
@with_examples
@given(broken)
def test_any_text_is_an_outcome_and_a_raw_tool_runs_only_with_what_fits(text: str | bytes):
    ran: list[Any] = []
    first, last = outcomes_of(raw_tool(SCHEMA, ran), text, {"path": "still fine"})
    assert last.ok
    assert ran.pop() == {"path": "still fine"}
    try:
        meant = strictly(text) if text.strip() else {}
    except Refused:
        fits = False
    else:
        fits = first.ok if is_deep(meant) else Draft202012Validator(SCHEMA).is_valid(meant)
    if fits:
        assert first.ok, first
        assert len(ran) == 1
        assert is_deep(meant) or ran == [meant]
    else:
        assert first.failure is not None
        assert first.failure.category == "invalid_arguments", first
        assert ran == []
    assert json.loads(json.dumps(first.to_json()))["status"] == first.status


@pytest.mark.promise("RUN-02", "RUN-03")
@settings(max_examples=200, deadline=None)
@with_examples
@given(broken)
def test_any_text_is_an_outcome_and_a_typed_tool_runs_only_with_its_types(text: str | bytes):
    ran: list[Any] = []

    @tool
    async def note(path: str, n: int = 0, more: object = None) -> None:
        ran.append((path, n, more))

    first, last = outcomes_of(note, text, {"path": "still fine"})
    assert last.ok
    assert ran.pop() == ("still fine", 0, None)
    if first.failure is not None:
        assert first.failure.category == "invalid_arguments", first
        assert ran == []
    else:
        ((path, n, _),) = ran
        meant = strictly(text)
        assert (type(path), type(n)) == (str, int)
        assert meant.keys() <= {"path", "n", "more"}
        assert path == meant["path"]
    try:
        meant = strictly(text)
    except Refused:
        assert first.failure is not None
    else:
        # A whole number too large for 64 bits, written with an exponent, is no integer to pydantic.
        vast = isinstance(meant.get("n"), float) and abs(meant["n"]) >= 2**63
        if not is_deep(meant) and not vast and Draft202012Validator(SCHEMA).is_valid(meant):
            assert first.ok, first


@pytest.mark.promise("RUN-02")
@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters() | st.characters(categories=["Cs"])),
        st.text(st.characters() | st.characters(categories=["Cs"])),
    )
)
def test_any_object_is_an_outcome(arguments: dict[str, str]):
    ran: list[Any] = []
    first, last = outcomes_of(raw_tool(None, ran), arguments, {"last": 1})
    assert last.ok
    assert ran.pop() == {"last": 1}
    if first.ok:
        assert ran == [arguments]
    else:
        assert first.failure is not None
        assert first.failure.category == "invalid_arguments"
        assert ran == []


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"bytes", 1j, float("nan"), {None: 1}, {(1,): 1}, "\ud800", 10**5000, [object()]],
    ids=[
        "object",
        "set",
        "bytes",
        "complex",
        "nan",
        "None key",
        "tuple key",
        "surrogate",
        "digits",
        "inside",
    ],
)
def test_an_object_with_anything_inside_is_an_outcome(value: Any):
    ran: list[Any] = []
    first, last = outcomes_of(raw_tool(None, ran), {"value": value}, {"last": 1})
    assert last.ok
    assert first.ok or (first.failure is not None and first.failure.category == "invalid_arguments")


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"text": "a\\ud83d"}', "half of a surrogate pair, \\ud83d at byte 11"),
        (b'{"text": "\\ude00 b"}', "half of a surrogate pair, \\ude00 at byte 10"),
        ({"text": "a\ud83d"}, "half of a surrogate pair, '\\ud83d'"),
        ({"texts": {1: "a"}}, "an object in it has a key that is no text"),
        (5, "not an object but a number"),
        ([1], "not an object but a list"),
    ],
    ids=["escape", "escape in bytes", "object", "key", "number", "list"],
)
def test_arguments_without_a_json_form_are_refused_in_words_that_a_model_can_use(arguments: Any, said: str):
    ran: list[Any] = []
    first, last = outcomes_of(raw_tool(None, ran), arguments, {"last": 1})
    assert (last.ok, ran) == (True, [{"last": 1}])
    assert first.failure is not None
    assert first.failure.category == "invalid_arguments"
    assert said in first.failure.message


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    "arguments",
    [
        '{"first": tru, "text": "\\ud83d"}',
        '{"first": 1,, "text": "\\ude00 b"}',
        b'{"text": "a", "other": "\\x", "last": "\\ud83d"}',
        '{"text": "cut off \\ud83d',
    ],
    ids=["word", "comma", "escape", "cut off"],
)
def test_half_of_a_character_is_not_blamed_where_the_text_breaks_elsewhere(arguments: Any):
    (first,) = outcomes_of(raw_tool(None, []), arguments)
    assert first.failure is not None
    assert "The arguments are not JSON" in first.failure.message
    assert "half" not in first.failure.message


def test_a_circular_object_is_an_outcome():
    circular: dict[str, Any] = {}
    circular["self"] = circular
    ran: list[Any] = []
    first, last = outcomes_of(raw_tool(None, ran), circular, {"last": 1})
    assert last.ok
    assert first.failure is not None
    assert first.failure.category == "invalid_arguments"
    assert ran == [{"last": 1}]


# --- random schemas

numbers = st.integers(-1000, 1000) | st.sampled_from([0.5, 1.0, -2.5, 1e3])
leaves = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.just({}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])}, optional={"minimum": numbers, "maximum": numbers}
    ),
    st.fixed_dictionaries(
        {"type": st.just("number")}, optional={"exclusiveMinimum": numbers, "exclusiveMaximum": numbers}
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"minLength": st.integers(0, 3), "maxLength": st.integers(3, 8)}
    ),
    st.fixed_dictionaries({"type": st.just("string"), "pattern": st.sampled_from(["^a", "b$", "^[a-c]{1,3}$", "\\d"])}),
    st.fixed_dictionaries(
        {"enum": st.lists(st.sampled_from([1, "a", None, True, 2.5, [], {}]), min_size=1, unique_by=repr)}
    ),
    st.fixed_dictionaries({"const": st.sampled_from([0, "x", False, None, [1], {"a": 1}])}),
    st.just({"type": ["string", "null"]}),
)


def nested(inner: Any) -> Any:
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={
                "minItems": st.integers(0, 2),
                "maxItems": st.integers(2, 4),
                "uniqueItems": st.booleans(),
            },
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
        schema_of_object(inner),
    )


def schema_of_object(inner: Any) -> Any:
    return st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "properties": st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
        },
        optional={
            "required": st.lists(st.sampled_from("abcd"), unique=True, max_size=3),
            "additionalProperties": st.booleans() | inner,
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(2, 5),
        },
    )


schemas = schema_of_object(st.recursive(leaves, nested, max_leaves=6))
any_json = st.recursive(
    st.none() | st.booleans() | numbers | st.text("abc1é", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=3),
    max_leaves=6,
)


def changed(value: Any, draw: Any) -> Any:
    """The value with something in it replaced, lost or added."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        kept = {name: item for name, item in value.items() if name != key}
        return kept if draw(st.booleans()) else {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], changed(value[place], draw), *value[place + 1 :]]
    if isinstance(value, dict) and draw(st.booleans()):
        return {**value, draw(st.sampled_from("abcde")): draw(any_json)}
    return draw(any_json)


@pytest.mark.promise("RUN-03", "TOOL-04")
@settings(max_examples=100, deadline=None)
@given(data=st.data(), schema=schemas)
def test_random_schemas_are_judged_as_the_reference_judges_them(data: Any, schema: dict[str, Any]):
    validator = Draft202012Validator(schema)
    drawn: list[Any] = [data.draw(st.dictionaries(st.sampled_from("abcde"), any_json, max_size=4)) for _ in range(3)]
    try:
        fitting = data.draw(from_schema(schema))
    except Exception:  # some schemas that nothing fits are found out only here
        fitting = {}
    drawn += [fitting, changed(fitting, data.draw), changed(fitting, data.draw)]
    instances = [item for item in drawn if isinstance(item, dict)]
    try:
        for item in instances:
            json.dumps(item, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return
    ran: list[Any] = []
    written = [json.dumps(item) if data.draw(st.booleans()) else item for item in instances]
    outcomes = outcomes_of(raw_tool(schema, ran), *written)
    assert [outcome.ok for outcome in outcomes] == [validator.is_valid(item) for item in instances]
    assert ran == [item for item, outcome in zip(instances, outcomes, strict=True) if outcome.ok]
    for item, outcome in zip(instances, outcomes, strict=True):
        if outcome.failure is not None:
            assert outcome.failure.category == "invalid_arguments"
            assert len(outcome.failure.message.splitlines()) > 1, item
