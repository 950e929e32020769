"""The result of a tool, and what is made of it: the value, the text for the model, and what stays private."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import logging
import math
import pathlib
import uuid
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.calls.running import run, run_one
from tests.support import HalfMade, Unspeakable, fail_after
from toolwright import (
    Attachment,
    ConnectionRequired,
    Failure,
    Image,
    Pending,
    Policy,
    ProjectedCall,
    RetryPolicy,
    Runtime,
    Success,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolError,
    ToolOutcome,
    tool,
)
from toolwright.errors import ToolwrightError

GENERIC = "The tool failed with an internal error; its details are in the log."


def giving(value: Any) -> Tool:
    """A tool that gives this, or the result of calling it."""

    @tool
    async def give() -> Any:
        return value() if callable(value) else value

    return give


def raising(error: BaseException) -> Tool:
    def give() -> None:
        raise error

    return giving(give)


# --- the kinds of outcome


@pytest.mark.promise("OUT-01")
async def test_a_value_is_a_success(open_session):
    outcome = await run_one(await open_session(giving({"value": 42})), "give")
    assert (outcome.call_id, outcome.tool, outcome.status, outcome.ok) == ("c1", "give", "success", True)
    assert (outcome.value, outcome.text, outcome.failure) == ({"value": 42}, '{"value":42}', None)
    assert (outcome.raw_output, outcome.images, outcome.attachments, outcome.attempts) == (None, (), (), 1)


@pytest.mark.promise("OUT-01")
async def test_a_success_may_bring_images_and_attachments(open_session):
    image, notes = Image.from_bytes(b"\x89PNG"), Attachment("notes.txt", "aGk=", "text/plain")
    outcome = await run_one(await open_session(giving(Success("seen", images=(image,), attachments=(notes,)))), "give")
    assert (outcome.value, outcome.images, outcome.attachments) == ("seen", (image,), (notes,))
    assert outcome.text == "seen"


@pytest.mark.promise("OUT-01")
async def test_images_may_be_a_list(open_session):
    images: Any = [Image("aGk=")]
    assert (await run_one(await open_session(giving(Success(images=images))), "give")).images == (Image("aGk="),)


@pytest.mark.promise("OUT-01")
async def test_a_returned_failure_and_a_raised_one_are_the_same(open_session):
    parts: Any = {"category": "external", "code": "rate_limited", "retry": True, "detail": "429"}
    returned = await run_one(await open_session(giving(Failure(message="later", **parts))), "give")
    raised = await run_one(await open_session(raising(ToolError("later", **parts))), "give")
    assert returned.failure == raised.failure
    assert (returned.status, returned.ok, returned.value) == ("failure", False, None)
    assert (returned.failure.category, returned.failure.code, returned.failure.source) == (
        "external",
        "rate_limited",
        "tool",
    )
    assert returned.text == '{"error":"later"}'


@pytest.mark.promise("OUT-01")
async def test_a_missing_connection_names_its_provider(open_session):
    outcome = await run_one(await open_session(giving(ConnectionRequired("github"))), "give")
    assert (outcome.status, outcome.provider, outcome.failure) == ("connection_required", "github", None)
    assert json.loads(outcome.text) == {"connection_required": "github"}


@pytest.mark.promise("OUT-01", "WAIT-01")
async def test_pending_without_a_key_is_a_failure(open_session):
    outcome = await run_one(await open_session(giving(Pending(deadline=60))), "give")
    assert (outcome.status, outcome.failure.code) == ("failure", "pending_without_key")


@pytest.mark.promise("OUT-01")
@pytest.mark.parametrize(
    "wrong",
    [
        Success(1, images=None),  # type: ignore[arg-type]
        Success(1, images=("no image",)),  # type: ignore[arg-type]
        Success(1, attachments=(Image("aGk="),)),  # type: ignore[arg-type]
        Success(1, raw_output=b"bytes"),  # type: ignore[arg-type]
        ConnectionRequired(None),  # type: ignore[arg-type]
        ConnectionRequired(object()),  # type: ignore[arg-type]
    ],
    ids=[
        "no images",
        "text as image",
        "image as attachment",
        "bytes as output",
        "no provider",
        "odd provider",
    ],
)
async def test_an_ending_with_the_wrong_things_in_it_is_a_failure(open_session, wrong):
    outcome = await run_one(await open_session(giving(wrong)), "give")
    assert (outcome.failure.category, outcome.failure.code) == ("execution", "unserialisable_result")
    assert outcome.failure.detail


@pytest.mark.promise("OUT-02")
async def test_the_source_of_a_failure_tells_who_failed(open_session):
    from toolwright import Rule

    def hook(call: Any) -> None:
        if call.arguments.get("hook"):
            raise RuntimeError

    async def give() -> None:
        raise ToolError("no")

    session = await open_session(
        Tool.from_schema(name="give", handler=lambda args: asyncio.run(give())),
        Tool.from_schema(name="forbidden", handler=lambda args: None),
        before=[hook],
        policy=Policy(rules=[Rule("deny", "forbidden")]),
    )
    outcomes = await run(
        session,
        ToolCall(name="missing"),
        ToolCall(name="give"),
        ToolCall(name="forbidden"),
        ToolCall(name="give", arguments={"hook": True}),
    )
    assert [outcome.failure.source for outcome in outcomes] == ["runtime", "tool", "policy", "hook"]


@pytest.mark.promise("OUT-02", "RETRY-01")
async def test_the_last_failure_says_how_often_it_was_tried(open_session):
    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0))
    async def flaky() -> None:
        raise ToolError("busy", retry=True)

    outcome = await run_one(await open_session(flaky), "flaky")
    assert (outcome.attempts, outcome.failure.attempts) == (3, 3)
    assert outcome.text == '{"error":"busy (after 3 attempts)"}'


# --- nothing private


@pytest.mark.promise("OUT-03")
async def test_of_an_internal_error_the_model_reads_one_sentence(open_runtime, caplog):
    error = RuntimeError("password=hunter2")
    error.__cause__ = ValueError("token=hunter3")
    runtime = await open_runtime(raising(error))
    outcome = await run_one(runtime.session("s"), "give")
    assert (outcome.failure.category, outcome.failure.code) == ("internal", "internal_error")
    assert outcome.text == json.dumps({"error": GENERIC}, separators=(",", ":"))
    assert outcome.failure.message == GENERIC
    shown = json.dumps(outcome.to_json())
    assert "hunter2" not in shown
    assert "hunter3" not in shown
    assert "hunter2" in caplog.text
    assert "hunter3" in caplog.text
    (record,) = runtime.log
    assert record.outcome.failure.detail == "RuntimeError: password=hunter2\ncaused by ValueError: token=hunter3"


@pytest.mark.promise("OUT-03", "RUN-07")
@pytest.mark.parametrize(
    "error",
    [
        Unspeakable(),
        HalfMade(),
        ExceptionGroup("many", [ValueError("a")]),
        AssertionError(),
        StopIteration(),
        SystemExit(3),
    ],
    ids=["no text", "half made", "group", "assertion", "stop", "exit"],
)
async def test_odd_exceptions_are_internal_errors_like_any_other(open_session, error):
    @tool
    async def fine() -> int:
        return 1

    session = await open_session(raising(error), fine)
    outcome, other = await run(session, ToolCall(name="give"), ToolCall(name="fine"))
    assert (outcome.failure.category, outcome.text) == (
        "internal",
        json.dumps({"error": GENERIC}, separators=(",", ":")),
    )
    assert other.value == 1


@pytest.mark.promise("OUT-03")
async def test_a_message_that_is_no_text_does_not_reach_the_model(open_session):
    def give() -> None:
        raise ToolError(ValueError("password=hunter2"))  # type: ignore[arg-type]

    outcome = await run_one(await open_session(giving(give)), "give")
    assert outcome.failure.category == "internal"
    assert "hunter2" not in outcome.text


@pytest.mark.promise("OUT-03")
async def test_the_private_detail_of_a_failure_goes_to_the_record_only(open_runtime):
    runtime = await open_runtime(raising(ToolError("no", detail="password=hunter2")))
    outcome = await run_one(runtime.session("s"), "give")
    assert "hunter2" not in json.dumps(outcome.to_json())
    (record,) = runtime.log
    assert record.outcome.failure.detail == "password=hunter2"


# --- the text


@pytest.mark.promise("OUT-04")
@pytest.mark.parametrize(
    "message",
    [
        'say "hi"',
        "back\\slash",
        "line\nbreak\ttab",
        "\x00\x01\x1f\x7f",
        "</script>",
        "日本語 🎉",
        "\u2028\u2029",
        "{}",
        "",
    ],
    ids=ascii,
)
async def test_an_error_reads_as_json_whatever_it_contains(open_session, message):
    outcome = await run_one(await open_session(raising(ToolError(message))), "give")
    assert json.loads(outcome.text) == {"error": message}


@pytest.mark.promise("OUT-04")
async def test_an_error_with_the_name_of_an_odd_file_reads_as_json(open_session):
    outcome = await run_one(await open_session(raising(ToolError("no such file: caf\udce9"))), "give")
    assert json.loads(outcome.text) == {"error": "no such file: caf\\udce9"}
    assert json.loads(json.dumps(outcome.to_json()))["failure"]["message"] == "no such file: caf\\udce9"


# --- values


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Inner:
    when: datetime.date


@dataclasses.dataclass
class Outer:
    inner: Inner
    tags: set[str]


class Model(pydantic.BaseModel):
    name: str
    when: datetime.datetime
    inner: dict[str, decimal.Decimal]


class Typed(TypedDict):
    a: int


class Packed(msgspec.Struct):
    a: int


@pytest.mark.promise("OUT-01", "OUT-04")
@pytest.mark.parametrize(
    ("given_", "value"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (-(2**63) - 1, -(2**63) - 1),
        (0.1, 0.1),
        (float("nan"), None),
        (float("inf"), None),
        (b"hi\xff", "aGn/"),
        (bytearray(b"hi"), "aGk="),
        ((1, "a"), [1, "a"]),
        ({"x"}, ["x"]),
        (frozenset(), []),
        (datetime.date(2031, 5, 4), "2031-05-04"),
        (datetime.datetime(2031, 5, 4, 3, 2, 1, tzinfo=datetime.UTC), "2031-05-04T03:02:01Z"),
        (datetime.timedelta(minutes=90), "PT5400S"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Point(1, 2), [1, 2]),
        (Outer(Inner(datetime.date(2031, 5, 4)), {"x"}), {"inner": {"when": "2031-05-04"}, "tags": ["x"]}),
        (
            Model(name="n", when=datetime.datetime(2031, 5, 4), inner={"d": decimal.Decimal("1.5")}),
            {"name": "n", "when": "2031-05-04T00:00:00", "inner": {"d": "1.5"}},
        ),
        (
            [Model(name="n", when=datetime.datetime(2031, 5, 4), inner={})],
            [{"name": "n", "when": "2031-05-04T00:00:00", "inner": {}}],
        ),
        (pydantic.RootModel[list[int]]([1, 2]), [1, 2]),
        (Typed(a=1), {"a": 1}),
        (Packed(1), {"a": 1}),
        ({1: "a", 2.5: "b"}, {"1": "a", "2.5": "b"}),
        ({Colour.RED: 1}, {"red": 1}),
    ],
    ids=repr,
)
async def test_a_value_is_given_in_its_json_form(open_session, given_, value):
    outcome = await run_one(await open_session(giving(lambda: given_)), "give")
    assert outcome.status == "success", outcome
    assert outcome.value == value
    assert type(outcome.value) is type(value)
    if not isinstance(value, str):
        assert json.loads(outcome.text) == value
    else:
        assert outcome.text == value


class SelfMade:
    """A model by its own account, with code of its own that fails."""

    def model_dump(self, mode: str) -> Any:
        raise KeyError("password=hunter2")


class Unready(pydantic.BaseModel):
    fine: int = 1

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def broken(self) -> int:
        raise ZeroDivisionError("password=hunter2")


def circle() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def circular_dict() -> Any:
    found: dict[str, Any] = {}
    found["self"] = found
    return found


def circular_class() -> Any:
    @dataclasses.dataclass
    class Node:
        next: Any = None

    node = Node()
    node.next = node
    return node


def deep() -> Any:
    found: Any = None
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (object, "object"),
        (lambda: (number for number in range(3)), "generator"),
        (lambda: 1j, "complex"),
        (lambda: int, "type"),
        (lambda: ValueError("password=hunter2"), "ValueError"),
        (lambda: {"key": object()}, "dict"),
        (lambda: {(1, 2): "x"}, "dict"),
        (lambda: {None: "x"}, "dict"),
        (lambda: "lone \ud800", "str"),
        (lambda: ["lone \ud800"], "list"),
        (circle, "list"),
        (circular_dict, "dict"),
        (circular_class, "Node"),
        (deep, "list"),
        (SelfMade, "SelfMade"),
        (Unready, "Unready"),
        (lambda: Success(object()), "object"),
        (lambda: 10**5000, "int"),
    ],
    ids=[
        "object",
        "generator",
        "complex",
        "class",
        "exception",
        "object inside",
        "tuple as key",
        "None as key",
        "surrogate",
        "surrogate inside",
        "circular list",
        "circular dict",
        "circular dataclass",
        "too deep",
        "failing model",
        "failing property",
        "inside a success",
        "too many digits",
    ],
)
async def test_a_value_without_a_json_form_is_a_failure_of_its_own_call(open_session, make, name):
    @tool
    async def fine() -> int:
        return 1

    session = await open_session(giving(lambda: make()), fine)
    outcome, other = await run(session, ToolCall(name="give"), ToolCall(name="fine"))
    assert outcome.status == "failure", outcome.value
    assert (outcome.failure.category, outcome.failure.code) == ("execution", "unserialisable_result")
    why = (
        "has no JSON form",
        "has no JSON form: a text in it has half of a surrogate pair, '\\ud800', which is no character",
        "is nested more than 128 levels deep",  # as what holds itself is, too
    )
    assert outcome.failure.message in [f"The tool returned a {name} that {each}" for each in why]
    assert "hunter2" not in json.dumps(outcome.to_json())
    assert outcome.failure.detail
    assert other.value == 1


@pytest.mark.promise("OUT-01")
async def test_texts_and_numbers_of_a_subclass_are_values_too(open_session):
    class Markup(str):
        pass

    class Metres(float):
        pass

    class Count(int):
        pass

    session = await open_session(giving(lambda: {"text": Markup("a"), "far": Metres(1.5), "many": Count(3)}))
    assert (await run_one(session, "give")).value == {"text": "a", "far": 1.5, "many": 3}


@pytest.mark.promise("TOOL-01")
def test_a_generator_function_is_refused_when_it_is_defined():
    async def numbers() -> Any:
        yield 1

    def more() -> Any:
        yield 1

    for function in (numbers, more):
        with pytest.raises(ToolDefinitionError, match=f"{function.__name__!r} is a generator"):
            tool(function)


@pytest.mark.promise("OUT-01")
async def test_a_value_that_the_tool_changes_later_stays_as_it_was_given(open_session):
    kept: list[int] = [1]

    @tool
    async def give() -> list[int]:
        return kept

    outcome = await run_one(await open_session(give), "give")
    kept.append(2)
    assert outcome.value == [1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@pytest.mark.promise("OUT-04")
@settings(deadline=None)
@given(json_values)
def test_any_json_value_comes_back_the_same_and_reads_as_promised(value: Any):
    async def check() -> Any:
        async with Runtime.open(tools=[giving(lambda: value)]) as runtime:
            return await run_one(runtime.session("s"), "give")

    outcome = asyncio.run(check())
    assert outcome.status == "success"
    assert outcome.value == value
    if isinstance(value, str):
        assert outcome.text == value
    else:
        assert json.loads(outcome.text) == value
        # Compact: no space outside of strings.
        assert len(outcome.text.encode()) <= len(
            json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        ) + (8 * json.dumps(value).count("e"))
    assert json.loads(json.dumps(outcome.to_json()))["value"] == value


@pytest.mark.promise("OUT-04")
async def test_a_success_reads_as_compact_json_in_the_order_of_the_value(open_session):
    value = {"b": [1, 2, {"ü": "ö"}], "a": None, "c": "x y"}
    outcome = await run_one(await open_session(giving(value)), "give")
    assert outcome.text == '{"b":[1,2,{"ü":"ö"}],"a":null,"c":"x y"}'


# --- raw output


@pytest.mark.promise("OUT-06")
async def test_raw_output_travels_beside_the_value(open_session):
    outcome = await run_one(await open_session(giving(Success({"stdout": "hello"}, raw_output="raw bytes"))), "give")
    assert (outcome.value, outcome.raw_output) == ({"stdout": "hello"}, "raw bytes")
    assert outcome.text == '{"stdout":"hello"}'
    assert outcome.to_json()["raw_output"] == "raw bytes"


@pytest.mark.promise("OUT-06")
async def test_a_plain_summary_beside_raw_output_reads_as_itself(open_session):
    outcome = await run_one(await open_session(giving(Success("compact summary", raw_output="full output"))), "give")
    assert (outcome.text, outcome.value, outcome.raw_output) == (
        "compact summary",
        "compact summary",
        "full output",
    )


@pytest.mark.promise("OUT-06")
@pytest.mark.parametrize("key", ["raw_output", "_raw_output", "_raw_output_scalar", "images", "value", "error", "text"])
async def test_no_key_of_a_value_is_mistaken_for_raw_output(open_session, key):
    for value in ({key: "mine"}, {key: "mine", "kept": True}):
        outcome = await run_one(await open_session(giving(value)), "give")
        assert (outcome.value, outcome.raw_output, outcome.images) == (value, None, ())
        outcome = await run_one(await open_session(giving(Success(value, raw_output="other"))), "give")
        assert (outcome.value, outcome.raw_output) == (value, "other")


@pytest.mark.promise("OUT-06")
async def test_raw_output_with_lone_surrogates_can_be_written_down(open_session):
    outcome = await run_one(await open_session(giving(Success(1, raw_output="caf\udce9"))), "give")
    assert json.dumps(outcome.to_json(), ensure_ascii=False).encode()
    assert outcome.raw_output == "caf\\udce9"


# --- the output schema


@pytest.mark.promise("TOOL-07")
async def test_a_value_that_does_not_fit_the_output_schema_names_the_path(open_session):
    schema = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "object", "required": ["id"]}}},
    }

    @tool(output_schema=schema)
    async def give(fits: bool) -> Any:
        return {"items": [{"id": 1}, {"id": 2} if fits else {"name": "x"}]}

    session = await open_session(give)
    assert (await run_one(session, "give", {"fits": True})).value == {"items": [{"id": 1}, {"id": 2}]}
    outcome = await run_one(session, "give", {"fits": False})
    assert (outcome.failure.category, outcome.failure.code, outcome.failure.source) == (
        "execution",
        "invalid_output",
        "tool",
    )
    assert "The return value of 'give' does not fit its output schema" in outcome.failure.message
    assert "$.items[1].id: the required field 'id' is missing" in outcome.failure.message
    assert (outcome.value, outcome.may_have_run) == (None, True)


@pytest.mark.promise("TOOL-07")
async def test_an_output_schema_may_be_a_type(open_session):
    @dataclasses.dataclass
    class Report:
        name: str
        pages: int

    @tool(output_schema=Report)
    async def give(pages: Any) -> Any:
        return {"name": "annual", "pages": pages}

    session = await open_session(give)
    assert (await run_one(session, "give", {"pages": 3})).ok
    outcome = await run_one(session, "give", {"pages": "three"})
    assert "$.pages" in outcome.failure.message


@pytest.mark.promise("TOOL-07")
async def test_a_tool_without_an_output_schema_may_give_anything(open_session):
    @tool
    async def give() -> Any:
        return "not a number"

    assert (await run_one(await open_session(give), "give")).value == "not a number"


@pytest.mark.promise("TOOL-07")
async def test_failures_are_not_held_against_the_output_schema(open_session):
    @tool(output_schema={"type": "integer"})
    async def give() -> Any:
        return Failure(message="no")

    assert (await run_one(await open_session(give), "give")).text == '{"error":"no"}'


@pytest.mark.promise("TOOL-07")
async def test_the_value_inside_a_success_and_a_hooks_answer_are_checked_too(open_session):
    from toolwright import Answer

    @tool(output_schema={"type": "integer"})
    async def give() -> Any:
        return Success("text", raw_output="raw")

    outcome = await run_one(await open_session(give), "give")
    assert (outcome.failure.code, outcome.raw_output) == ("invalid_output", None)
    outcome = await run_one(await open_session(give, before=[lambda call: Answer("text")]), "give")
    assert outcome.failure.code == "invalid_output"


def nested(levels: int, kind: str = "list") -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind == "list" else {"in": value}
    return value


@pytest.mark.promise("OUT-12")
@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("schema", [None, {"type": ["array", "object"]}], ids=["no schema", "schema"])
async def test_a_value_may_be_nested_128_levels_deep_and_no_deeper(open_session, kind, schema):
    @tool(output_schema=schema)
    async def give(levels: int) -> Any:
        return nested(levels, kind)

    session = await open_session(give)
    outcomes = await run(session, *(ToolCall(name="give", arguments={"levels": n}) for n in (128, 129, 600)))
    assert outcomes[0].value == nested(128, kind)
    for outcome in outcomes[1:]:
        assert (outcome.failure.category, outcome.failure.code) == ("execution", "unserialisable_result")
        assert "nested more than 128 levels deep" in outcome.text


@pytest.mark.promise("OUT-12", "RUN-03")
@pytest.mark.parametrize("as_text", [True, False], ids=["as text", "as an object"])
async def test_arguments_may_be_nested_128_levels_deep_and_no_deeper(open_session, as_text):
    ran: list[Any] = []

    @tool
    async def take(what: Any) -> None:
        ran.append(what)

    session = await open_session(take)
    calls = []
    for levels in (127, 128, 600, 200_000):  # the arguments themselves are a level
        if as_text:
            calls.append(ToolCall(name="take", arguments='{"what": ' + "[" * levels + "]" * levels + "}"))
        elif levels < 1000:
            calls.append(ToolCall(name="take", arguments={"what": nested(levels)}))
    first, *others = await run(session, *calls)
    assert first.ok
    assert len(ran) == 1
    for outcome in others:
        assert outcome.failure.code == "malformed_arguments"
        assert "nested too deeply; the limit is 128 levels" in outcome.text


@pytest.mark.promise("OUT-12")
async def test_brackets_inside_of_text_are_not_depth(open_session):
    value = [{"text": "[[{{" * 200 + '"' + "\\" * 3 + "]" * 3, '"[': ["\\", "{" * 300, '\\"']} for _ in range(60)]

    @tool
    async def give() -> Any:
        return value

    outcome = await run_one(await open_session(give), "give")
    assert outcome.value == value


@pytest.mark.promise("OUT-12")
async def test_what_comes_from_outside_is_bounded_in_depth_too(open_runtime):
    @tool
    async def wait(ctx: ToolContext) -> Pending:
        keys.append(ctx.completion_key())
        return Pending()

    @tool(parallel=True)
    async def step(ctx: ToolContext) -> Any:
        return await ctx.step("deep", lambda: nested(200))

    keys: list[str] = []
    runtime = await open_runtime(wait, step)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(name="wait")])
    await batch.quiet()
    with pytest.raises(ToolwrightError, match="128 levels"):
        await runtime.resolve(keys[0], value=nested(200))
    await runtime.resolve(keys[0], value=nested(128))
    (outcome,) = await batch
    assert outcome.value == nested(128)
    assert (await run_one(session, "step")).failure.code == "unserialisable_result"


# --- the projector


@pytest.mark.promise("OUT-07")
async def test_a_projector_writes_what_the_model_reads(open_session):
    def project(outcome: ToolOutcome) -> str:
        return f"<{outcome.tool}: {outcome.value}>"

    outcome = await run_one(await open_session(giving(5), projector=project), "give")
    assert (outcome.text, outcome.value, outcome.status) == ("<give: 5>", 5, "success")


@pytest.mark.promise("OUT-07")
async def test_a_projector_sees_every_kind_of_outcome(open_session):
    session = await open_session(giving(5), projector=lambda outcome: outcome.status.upper())
    outcomes = await run(session, ToolCall(name="give"), ToolCall(name="missing"), ToolCall(name="give", arguments="{"))
    assert [outcome.text for outcome in outcomes] == ["SUCCESS", "FAILURE", "FAILURE"]


@pytest.mark.promise("OUT-07")
async def test_each_session_may_have_a_projector_of_its_own(open_runtime):
    runtime = await open_runtime(giving(5), projector=lambda outcome: "the runtime's")
    own = runtime.session("own", projector=lambda outcome: "its own")
    assert (await run_one(own, "give")).text == "its own"
    assert (await run_one(runtime.session("other"), "give")).text == "the runtime's"


@pytest.mark.promise("OUT-07")
@pytest.mark.parametrize(
    "project",
    [lambda outcome: 1 / 0, lambda outcome: None, lambda outcome: 5, lambda outcome: b"bytes"],
    ids=["raises", "None", "number", "bytes"],
)
async def test_a_projector_that_fails_is_read_by_the_model_and_leaves_the_outcome(open_runtime, project, caplog):
    runtime = await open_runtime(giving({"a": 1}), projector=project)
    outcome = await run_one(runtime.session("s"), "give")
    assert (outcome.status, outcome.value, outcome.failure) == ("success", {"a": 1}, None)
    assert json.loads(outcome.text)["error"].startswith("The result could not be shown: ")
    assert any(record.levelno >= logging.ERROR for record in caplog.records)
    (record,) = runtime.log
    assert (record.status, record.outcome.value) == ("success", {"a": 1})


@pytest.mark.promise("OUT-07", "OUT-03")
async def test_the_message_of_a_projectors_error_does_not_reach_the_model(open_session):
    def project(outcome: ToolOutcome) -> str:
        raise RuntimeError("password=hunter2")

    outcome = await run_one(await open_session(giving(1), projector=project), "give")
    assert "hunter2" not in outcome.text


@pytest.mark.promise("OUT-07", "OUT-05")
async def test_what_a_projector_writes_is_bounded_too(open_session):
    session = await open_session(giving(1), projector=lambda outcome: "x" * 10_000, policy=Policy(max_bytes=300))
    outcome = await run_one(session, "give")
    assert len(outcome.text.encode()) <= 300
    assert "bytes in 1 lines omitted" in outcome.text


@pytest.mark.promise("OUT-07")
async def test_what_a_projector_writes_can_always_be_written_down(open_session):
    outcome = await run_one(await open_session(giving(1), projector=lambda outcome: "caf\udce9"), "give")
    assert outcome.text == "caf\\udce9"


@pytest.mark.promise("OUT-07")
async def test_a_projector_may_be_async(open_session):
    turns: list[str] = []

    async def project(outcome: ToolOutcome) -> str:
        await asyncio.sleep(0)
        turns.append(outcome.call_id)
        return f"<{outcome.value}>"

    session = await open_session(giving(5), projector=project)
    outcomes = await run(session, ToolCall(name="give", id="c1"), ToolCall(name="give", id="c2"))
    assert [(outcome.text, outcome.value) for outcome in outcomes] == [("<5>", 5)] * 2
    assert sorted(turns) == ["c1", "c2"]


@pytest.mark.promise("OUT-07")
@pytest.mark.filterwarnings("error")
async def test_an_async_projector_that_hangs_or_breaks_is_read_by_the_model(open_session):
    async def project(outcome: ToolOutcome) -> str:
        if outcome.tool == "give":
            await asyncio.Event().wait()
        raise asyncio.CancelledError

    session = await open_session(giving(5), projector=project, policy=Policy(timeout=0.02))
    outcomes = await run(session, ToolCall(name="give"), ToolCall(name="missing"))
    assert [outcome.status for outcome in outcomes] == ["success", "failure"]
    assert all("could not be shown" in outcome.text for outcome in outcomes)


@pytest.mark.promise("OUT-07", "CANCEL-01")
@pytest.mark.filterwarnings("error")
async def test_an_async_projector_does_not_hold_up_a_call_that_is_cancelled(open_session):
    began = asyncio.Event()

    @tool
    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    async def project(outcome: ToolOutcome) -> str:
        await asyncio.Event().wait()
        return ""

    session = await open_session(wait, projector=project)
    async with fail_after(5):
        batch = session.start_batch([ToolCall(name="wait")])
        await began.wait()
        batch.cancel("enough")
        (outcome,) = await batch
    assert outcome.status == "cancelled"
    assert "enough" in outcome.text


@pytest.mark.promise("OUT-07")
async def test_a_projector_with_two_parameters_sees_the_call(open_session):
    seen: list[ProjectedCall] = []

    def project(outcome: ToolOutcome, call: ProjectedCall) -> str:
        seen.append(call)
        return "seen"

    @tool(secret="token")
    async def send(to: str, token: str) -> str:
        return "sent"

    session = await open_session(send, projector=project)
    calls = [
        ToolCall(name="send", id="c1", arguments={"to": "Ada", "token": "hunter22"}),
        ToolCall(name="missing", id="c2", arguments={"n": 1}, source="user"),
    ]
    outcomes = await session.run_batch(calls, scope="turn 1")
    assert [outcome.text for outcome in outcomes] == ["seen", "seen"]
    first, second = sorted(seen, key=lambda call: call.call_id)
    assert (first.session, first.scope, first.call_id, first.name, first.source) == (
        "s",
        "turn 1",
        "c1",
        "send",
        "model",
    )
    assert first.arguments == {"to": "Ada", "token": "[secret]"}
    assert first.tool is not None
    assert first.tool.name == "send"
    assert first.duration > 0
    assert (second.tool, second.arguments, second.source, second.duration) == (None, {"n": 1}, "user", 0.0)


@pytest.mark.promise("OUT-07")
@pytest.mark.parametrize(
    ("project", "text"),
    [
        (lambda outcome, limit=3: f"{outcome.value}"[:limit], "123"),
        (lambda *given: f"{len(given)}", "1"),
        (lambda outcome, call=None: call.name, "give"),
        (functools.partial(lambda mark, outcome, call: f"{mark}{call.name}", "!"), "!give"),
        (str, "ToolOutcome"),
    ],
    ids=["optional", "any", "named", "partial", "class"],
)
async def test_a_projector_is_given_the_call_only_if_it_takes_one(open_session, project, text):
    outcome = await run_one(await open_session(giving(12345), projector=project), "give")
    assert outcome.text.startswith(text)


@pytest.mark.promise("OUT-03")
async def test_a_tool_reads_the_outcomes_of_its_own_calls_without_secrets(open_session):
    @tool
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call("give")).text

    session = await open_session(outer, raising(RuntimeError("password=hunter2")))
    outcome = await run_one(session, "outer")
    assert json.loads(outcome.value) == {"error": GENERIC}


def test_numbers_keep_their_kind():
    """A whole float stays a float: a model that wrote 1.0 reads 1.0."""

    async def check() -> Any:
        async with Runtime.open(tools=[giving([1.0, 1, -0.0, 1e300])]) as runtime:
            return await run_one(runtime.session("s"), "give")

    outcome = asyncio.run(check())
    assert outcome.text == "[1.0,1,-0.0,1e300]"
    assert [type(number) for number in outcome.value] == [float, int, float, float]
    assert math.copysign(1, outcome.value[2]) == -1
