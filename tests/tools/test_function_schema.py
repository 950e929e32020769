"""Python signatures as tools: the schema, the values, the words, and what is refused."""

import asyncio
import enum
import functools
import threading
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypedDict, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tests.tools.signatures import arguments_of, problems_of, schema_of
from toolwright.errors import InvalidArguments, ToolDefinitionError
from toolwright.tools.context import ToolContext
from toolwright.tools.function_schema import (
    UnresolvedAnnotation,
    is_unbound_method,
    read_signature,
    type_schema,
)


def refusal_of(function: Callable[..., Any]) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        read_signature(function, name="it")
    assert "'it'" in str(caught.value)
    assert str(caught.value).endswith(".")
    return str(caught.value)


# The schema.


@pytest.mark.promise("TOOL-01")
def test_a_function_gives_schema_description_and_parameters():
    async def get_issue(repo: str, number: int, *, draft: bool = False) -> dict:
        """Fetch one issue.

        Args:
            repo: owner/name.
            number: the issue's number.
        """
        return {}

    signature = read_signature(get_issue, name="get_issue")
    assert signature.input_schema == {
        "type": "object",
        "properties": {
            "repo": {"type": "string", "description": "owner/name."},
            "number": {"type": "integer", "description": "the issue's number."},
            "draft": {"type": "boolean", "default": False},
        },
        "required": ["repo", "number"],
        "additionalProperties": False,
    }
    assert signature.description == "Fetch one issue."
    assert signature.parameters == ("repo", "number", "draft")
    assert signature.is_async
    assert signature.context_parameter is None


@pytest.mark.promise("TOOL-01")
def test_nested_types_become_definitions_without_made_up_titles():
    class Colour(enum.Enum):
        RED = "red"
        BLUE = "blue"

    class Author(BaseModel):
        """Who wrote it."""

        title: str
        colour: Colour = Colour.RED

    @dataclass
    class Point:
        x: int
        y: int = 0

    class Labels(TypedDict):
        main: str
        other: NotRequired[list[str]]

    def write(author: Author, at: Point, labels: Labels, colour: Colour = Colour.BLUE) -> None: ...

    schema = schema_of(write)
    assert schema["properties"] == {
        "author": {"$ref": "#/$defs/Author"},
        "at": {"$ref": "#/$defs/Point"},
        "labels": {"$ref": "#/$defs/Labels"},
        "colour": {"$ref": "#/$defs/Colour", "default": "blue"},
    }
    assert schema["$defs"] == {
        "Colour": {"type": "string", "enum": ["red", "blue"]},
        "Author": {
            "type": "object",
            "description": "Who wrote it.",
            "properties": {
                "title": {"type": "string"},
                "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            },
            "required": ["title"],
        },
        "Point": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
            "additionalProperties": False,
        },
        "Labels": {
            "type": "object",
            "properties": {
                "main": {"type": "string"},
                "other": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["main"],
            "additionalProperties": False,
        },
    }
    given = arguments_of(write, author={"title": "T"}, at={"x": 1}, labels={"main": "m", "other": ["o"]}, colour="red")
    assert given == {
        "author": Author(title="T", colour=Colour.RED),
        "at": Point(1, 0),
        "labels": {"main": "m", "other": ["o"]},
        "colour": Colour.RED,
    }


@pytest.mark.promise("TOOL-01")
@pytest.mark.parametrize(
    ("annotation", "schema", "given", "value"),
    [
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3, 3),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", "5"),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
        (
            dict[str, float],
            {"type": "object", "additionalProperties": {"type": "number"}},
            {"a": 1},
            {"a": 1.0},
        ),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1, 1, 2], {1, 2}),
        (datetime, {"type": "string", "format": "date-time"}, "2024-05-01T10:00", datetime(2024, 5, 1, 10)),
        (date, {"type": "string", "format": "date"}, "2024-05-01", date(2024, 5, 1)),
        (UUID, {"type": "string", "format": "uuid"}, "0" * 31 + "7", UUID(int=7)),
        (Path, {"type": "string", "format": "path"}, "a/b", Path("a/b")),
        (Any, {}, {"a": [1]}, {"a": [1]}),
        (
            Annotated[int, Field(ge=1, description="A.")],
            {"type": "integer", "minimum": 1, "description": "A."},
            1,
            1,
        ),
        (Annotated[str, "Plain words."], {"type": "string", "description": "Plain words."}, "x", "x"),
        (Annotated[int, Field(title="Mine")], {"type": "integer", "title": "Mine"}, 1, 1),
    ],
)
def test_each_kind_of_annotation_has_its_schema_and_its_value(annotation: Any, schema: Any, given: Any, value: Any):
    def work(x): ...

    work.__annotations__["x"] = annotation
    assert schema_of(work)["properties"]["x"] == schema
    assert arguments_of(work, x=given) == {"x": value}


def test_tuples_and_decimals_keep_their_python_types():
    class Pair(NamedTuple):
        left: int
        right: str = "r"

    def work(pair: tuple[int, str], named: Pair, price: Decimal) -> None: ...

    given = arguments_of(work, pair=[1, "a"], named=[2], price="1.10")
    assert given == {"pair": (1, "a"), "named": Pair(2, "r"), "price": Decimal("1.10")}


@pytest.mark.parametrize("name", ["schema", "json", "copy", "model_config", "_x", "__y", "class_", "validate", "name"])
def test_any_name_may_be_a_parameter(name: str):
    space: dict[str, Any] = {}
    exec(f"def work({name}: int, other: str = 'o'): return {name}", space)
    assert arguments_of(space["work"], **{name: 5}) == {name: 5}
    assert list(schema_of(space["work"])["properties"]) == [name, "other"]


def test_a_default_is_shown_where_it_has_a_json_form_and_applied_by_python():
    marker = object()

    class Level(enum.IntEnum):
        LOW = 1

    def work(
        level: Level = Level.LOW,
        where: Path = Path("a"),
        pair: tuple[int, int] = (1, 2),
        limit: float = float("inf"),
        secret: SecretStr = SecretStr("hunter2"),  # noqa: B008
        thing: Any = marker,
        note: str | None = None,
    ) -> Any:
        return thing, where, secret.get_secret_value()

    shown = {name: part["default"] for name, part in schema_of(work)["properties"].items() if "default" in part}
    assert shown == {"level": 1, "where": "a", "pair": [1, 2], "note": None}
    assert "required" not in schema_of(work)
    assert arguments_of(work) == {}
    assert work(**arguments_of(work)) == (marker, Path("a"), "hunter2")


def test_a_parameter_that_defaults_to_none_takes_null():
    def work(count: int = None, size: Annotated[int, Field(ge=1)] = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert arguments_of(work, count=None, size=None) == {"count": None, "size": None}
    assert schema_of(work)["properties"]["count"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "default": None,
    }
    assert [p.path for p in problems_of(work, size=0)] == ["$.size"]


def test_a_field_as_default_gives_the_value_and_the_constraints():
    def work(
        x: int = Field(5, ge=1, description="An x."),
        items: list[int] = Field(default_factory=list),  # noqa: B008
        needed: int = Field(le=3),
        twice: Annotated[int, Field(default=1)] = 2,
        alone: Annotated[int, Field(default=7)] = Field(),
        renamed: Annotated[int, Field(alias="from")] = 3,
    ) -> None: ...

    schema = schema_of(work)
    assert schema["properties"]["x"] == {
        "type": "integer",
        "minimum": 1,
        "default": 5,
        "description": "An x.",
    }
    assert schema["properties"]["twice"]["default"] == 2
    assert schema["properties"]["from"]["default"] == 3
    assert schema["required"] == ["needed"]
    assert arguments_of(work, needed=1) == {"x": 5, "items": [], "needed": 1, "twice": 2, "alone": 7}
    assert arguments_of(work, needed=1, **{"from": 4})["renamed"] == 4


def test_generic_and_recursive_types_work():
    T = TypeVar("T")

    class Box(BaseModel, Generic[T]):
        content: T

    class Node(BaseModel):
        children: list["Node"] = []

    def work(box: Box[int], node: Node) -> None: ...

    given = arguments_of(work, box={"content": "5"}, node={"children": [{"children": []}]})
    assert given == {"box": Box[int](content=5), "node": Node(children=[Node()])}


def test_typed_dicts_of_the_standard_library_work_at_any_depth():
    class Base(TypedDict):
        a: int
        b: NotRequired[int]

    class Wide(Base, total=False):
        """Wide."""

        c: list[Base]

    def work(one: list[Wide], two: Wide | None, three: Annotated[dict[str, Wide], "Three."]) -> None: ...

    schema = schema_of(work)
    assert schema["$defs"]["Wide"]["required"] == ["a"]
    assert schema["$defs"]["Wide"]["description"] == "Wide."
    assert schema["properties"]["three"]["description"] == "Three."
    value = {"a": 1, "c": [{"a": 2}]}
    assert arguments_of(work, one=[value], two=None, three={"k": value}) == {
        "one": [value],
        "two": None,
        "three": {"k": value},
    }
    assert [p.path for p in problems_of(work, one=[{"c": [{}]}], two=None, three={})] == [
        "$.one[0].a",
        "$.one[0].c[0].a",
    ]


def test_reading_a_function_twice_gives_schemas_of_their_own():
    def work(x: int) -> None: ...

    schema_of(work)["properties"]["x"]["type"] = "string"
    assert schema_of(work)["properties"]["x"]["type"] == "integer"


# What can be a tool.


@pytest.mark.promise("TOOL-01")
def test_methods_callables_partials_and_wrapped_functions_are_read_as_they_are_called():
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    class Clock:
        """Tells the time."""

        def tell(self, zone: str) -> str:
            """Tell it."""
            return f"tell {zone}"

        @classmethod
        async def build(cls, zone: str) -> str:
            """Build it."""
            return f"build {zone}"

        @staticmethod
        def parse(zone: str) -> str:
            """Parse it."""
            return f"parse {zone}"

        @logged
        def traced(self, zone: str) -> str:
            """Trace it."""
            return f"traced {zone}"

        async def __call__(self, zone: str) -> str:
            return f"call {zone}"

    def set_clock(clock: Any, zone: str, key: str = "k") -> str:
        """Set it."""
        return f"set {zone} {key}"

    clock = Clock()
    cases: list[tuple[Any, bool, str, str]] = [
        (clock.tell, False, "Tell it.", "tell x"),
        (Clock.build, True, "Build it.", "build x"),
        (Clock.parse, False, "Parse it.", "parse x"),
        (clock.traced, False, "Trace it.", "traced x"),
        (clock, True, "Tells the time.", "call x"),
        (logged(clock.tell), False, "Tell it.", "tell x"),
        (functools.partial(set_clock, 1, key="secret"), False, "Set it.", "set x secret"),
        (functools.partial(clock), True, "Tells the time.", "call x"),
    ]
    for function, is_async, description, answer in cases:
        signature = read_signature(function, name="it")
        assert signature.parameters == ("zone",)
        assert signature.is_async is is_async
        assert signature.description == description
        result = function(**signature.validate(b'{"zone": "x"}'))
        assert (asyncio.run(result) if is_async else result) == answer


def test_what_a_partial_binds_is_not_shown():
    def search(query: str, api_key: str, limit: int = 5) -> None: ...

    signature = read_signature(functools.partial(search, api_key="hunter2"), name="it")
    assert signature.parameters == ("query", "limit")
    assert "hunter2" not in str(signature.input_schema)


def test_a_static_method_is_read_before_its_class_exists():
    async def work(x: int) -> None:
        """Static."""

    signature = read_signature(staticmethod(work), name="it")
    assert (signature.parameters, signature.is_async, signature.description) == (("x",), True, "Static.")


def test_a_method_that_waits_for_its_object_is_told_apart():
    class Clock:
        def tell(self, zone: str) -> None: ...

        @staticmethod
        def parse(zone: str) -> None: ...

    def self_made(self: int) -> None: ...

    others: list[Any] = [
        Clock().tell,
        Clock.parse,
        Clock(),
        self_made,
        functools.partial(Clock.tell, Clock()),
        len,
    ]
    assert is_unbound_method(Clock.tell)
    assert not any(map(is_unbound_method, others))
    assert "instance" in refusal_of(Clock.tell)
    assert schema_of(self_made)["required"] == ["self"]


# The context.


@pytest.mark.promise("TOOL-02")
def test_the_context_is_injected_and_not_in_the_schema():
    class OwnContext(ToolContext):
        pass

    def plain(ctx: ToolContext, x: int) -> None: ...
    def late(x: int, *, context: ToolContext) -> None: ...
    def text(x: int, ctx: "ToolContext") -> None: ...
    def optional(x: int, ctx: ToolContext | None = None) -> None: ...
    def older(x: int, ctx: Optional["ToolContext"] = None) -> None: ...
    def noted(x: int, ctx: Annotated[ToolContext, "the context"]) -> None: ...
    def derived(x: int, ctx: OwnContext) -> None: ...

    for function in (plain, late, text, optional, older, noted, derived):
        signature = read_signature(function, name="it")
        assert signature.context_parameter == ("context" if function is late else "ctx")
        assert signature.parameters == ("x",)
        assert list(signature.input_schema["properties"]) == ["x"]
        assert signature.validate(b'{"x": 1}') == {"x": 1}
        with pytest.raises(InvalidArguments):
            signature.validate(b'{"x": 1, "ctx": {}}')


def test_a_tool_may_take_nothing_but_its_context():
    def work(ctx: ToolContext) -> None: ...

    assert schema_of(work) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert arguments_of(work) == {}


def test_a_second_context_is_refused():
    def work(ctx: ToolContext, again: ToolContext) -> None: ...

    assert "'again'" in refusal_of(work)


# What is refused.


@pytest.mark.promise("TOOL-02")
def test_parameters_that_no_model_can_fill_in_are_refused_by_name():
    def many(*values: int) -> None: ...
    def options(**values: int) -> None: ...
    def first(values: int, /, x: int) -> None: ...
    def bare(x: int, values) -> None: ...
    def bare_with_default(x: int, values=3) -> None: ...

    for function in (many, options, first, bare, bare_with_default):
        assert "values" in refusal_of(function)


def test_a_type_without_a_schema_is_refused_with_its_parameter():
    class Opaque:
        pass

    def opaque(a: int, lock: Opaque) -> None: ...
    def inside(a: int, lock: list[Opaque]) -> None: ...
    def call(a: int, lock: Callable[[int], int]) -> None: ...
    def thread(a: int, lock: threading.Thread) -> None: ...
    def pattern(a: int, lock: Annotated[str, Field(pattern="(")]) -> None: ...

    for function in (opaque, inside, call, thread, pattern):
        assert "'lock'" in refusal_of(function)


def test_a_type_whose_own_code_fails_is_refused_with_its_parameter():
    class Broken:
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
            raise KeyError("no luck")

    def work(a: int, broken: Broken) -> None: ...

    assert "'broken'" in refusal_of(work)
    assert "no luck" in refusal_of(work)


def test_an_annotation_that_is_no_type_is_refused():
    def syntax(x: "1 +") -> None: ...  # type: ignore[valid-type]  # noqa: F722
    def number(x: 5) -> None: ...  # type: ignore[valid-type]

    def number_with_default(x: 5 = 3) -> None: ...  # type: ignore[valid-type]

    for function in (syntax, number, number_with_default):
        assert "'x'" in refusal_of(function)


def test_a_name_that_is_not_defined_is_told_apart_so_that_it_can_be_tried_again():
    def work(a: int, later: "Undefined") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UnresolvedAnnotation, match=r"'it'.*'later'.*Undefined"):
        read_signature(work, name="it")
    assert read_signature(work, name="it", localns={"Undefined": int}).parameters == ("a", "later")


def test_a_model_that_is_not_complete_yet_is_told_apart_too():
    class Model(BaseModel):
        part: "Undefined"  # type: ignore[name-defined]  # noqa: F821

    def work(a: int, model: Model) -> None: ...

    with pytest.raises(UnresolvedAnnotation, match=r"'model'.*Undefined"):
        read_signature(work, name="it")


def test_builtins_without_a_usable_signature_are_refused():
    for function in (min, len, print, dict.get):
        assert refusal_of(function).startswith("Tool 'it'")


# Types of outputs.


def test_an_output_type_has_the_schema_of_what_is_written():
    class Report(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        total: int = Field(0, alias="sum")

    class Shade(enum.Enum):
        DARK = "dark"
        LIGHT = "light"

    assert type_schema(Report, owner="it") == {
        "type": "object",
        "properties": {"total": {"type": "integer", "default": 0}},
    }
    assert type_schema(list[Shade], owner="it") == {
        "type": "array",
        "items": {"$ref": "#/$defs/Shade"},
        "$defs": {"Shade": {"type": "string", "enum": ["dark", "light"]}},
    }
    with pytest.raises(ToolDefinitionError, match="'it'"):
        type_schema(threading.Thread, owner="it")


@pytest.mark.promise("RUN-03")
def test_every_item_of_an_iterable_is_checked_before_the_tool_runs():
    @dataclass
    class Order:
        prices: Iterable[int]

    def total(prices: Iterable[int], orders: dict[str, Iterable[Order]], notes: Iterable[str] | None = None) -> int:
        return sum(prices)

    signature = read_signature(total, name="total")
    assert signature.validate(b'{"prices": [1, 2], "orders": {"a": [{"prices": [3]}]}}') == {
        "prices": [1, 2],
        "orders": {"a": [Order(prices=[3])]},
    }
    with pytest.raises(InvalidArguments) as caught:
        signature.validate(b'{"prices": [1, "x"], "orders": {"7": [{"prices": ["y"]}]}, "notes": [1]}')
    assert {problem.path for problem in caught.value.problems} == {
        "$.prices[1]",
        '$.orders["7"][0].prices[0]',
        "$.notes[0]",
    }
    assert signature.input_schema["properties"]["prices"] == {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize("kind", [Generator[int, None, None], AsyncIterable[int], Iterator[int], list[Generator]])
def test_a_parameter_that_no_list_can_be_is_refused(kind):
    def read(lines: kind) -> None: ...  # type: ignore[valid-type]

    with pytest.raises(ToolDefinitionError, match="'lines'"):
        read_signature(read, name="read")
