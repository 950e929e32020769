"""Annotations that are text: under `from __future__ import annotations` every one of them is."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest
import typing_extensions
from pydantic import BaseModel, Field

from toolwright.tools.annotations import capture_locals as capture_without_pydantic
from toolwright.tools.context import ToolContext as Context
from toolwright.tools.function_schema import Signature, UnresolvedAnnotation, capture_locals, read_signature

if TYPE_CHECKING:
    from toolwright.tools.context import ToolContext


class Item(BaseModel):
    at_the_top_of_the_module: int


def take_top(item: Item) -> None: ...


def declare(function: Callable[..., Any]) -> Callable[[], Signature]:
    """Note the names where a decorator runs, as `@tool` does, and read the signature later."""
    names = capture_locals(1)
    return lambda: read_signature(function, name="it", localns=names)


def fields_of(signature: Signature, definition: str) -> list[str]:
    return list(signature.input_schema["$defs"][definition]["properties"])


@pytest.mark.promise("TOOL-01")
def test_types_that_are_local_to_a_function_are_found():
    class Colour(enum.Enum):
        RED = "red"

    class Author(BaseModel):
        name: str

    @dataclass
    class Point:
        x: int

    class Labels(TypedDict):
        main: str
        other: NotRequired[int]

    def write(
        author: Author,
        points: list[Point],
        labels: Labels | None,
        by_name: dict[str, Author],
        colour: Colour = Colour.RED,
        mode: Literal["a", "b"] = "a",
        maybe: Optional[Author] = None,  # noqa: UP045
    ) -> None: ...

    assert inspect.signature(write).parameters["author"].annotation == "Author"
    signature = read_signature(write, name="it")
    assert signature.input_schema["properties"] == {
        "author": {"$ref": "#/$defs/Author"},
        "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
        "labels": {"anyOf": [{"$ref": "#/$defs/Labels"}, {"type": "null"}]},
        "by_name": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Author"}},
        "colour": {"$ref": "#/$defs/Colour", "default": "red"},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "maybe": {"anyOf": [{"$ref": "#/$defs/Author"}, {"type": "null"}], "default": None},
    }
    assert signature.input_schema["$defs"]["Labels"]["required"] == ["main"]
    values = signature.validate(
        b'{"author": {"name": "A"}, "points": [{"x": 1}], "labels": {"main": "m"}, "by_name": {"b": {"name": "B"}}}'
    )
    assert values == {
        "author": Author(name="A"),
        "points": [Point(1)],
        "labels": {"main": "m"},
        "by_name": {"b": Author(name="B")},
    }


def test_local_types_that_name_other_local_types_are_found():
    @dataclass
    class Leaf:
        size: int

    @dataclass
    class Branch:
        leaves: list[Leaf]
        next: Branch | None = None

    class Tree(TypedDict):
        root: Branch

    def plant(tree: Tree, branch: Branch) -> None: ...

    signature = read_signature(plant, name="it")
    assert fields_of(signature, "Leaf") == ["size"]
    values = signature.validate(
        b'{"tree": {"root": {"leaves": []}}, "branch": {"leaves": [{"size": 3}], "next": {"leaves": []}}}'
    )
    assert values == {"tree": {"root": Branch([])}, "branch": Branch([Leaf(3)], Branch([]))}


def test_a_local_type_hides_one_of_the_module():
    class Item(BaseModel):
        inside_the_function: int

    def take(item: Item) -> None: ...

    assert fields_of(read_signature(take, name="it"), "Item") == ["inside_the_function"]


def test_a_local_type_hides_one_of_the_module_inside_other_types_too():
    class Item(BaseModel):
        inside_the_function: int

    class Standard(TypedDict):
        item: Item

    class Backported(typing_extensions.TypedDict):
        item: Item

    def take_standard(it: Standard) -> None: ...
    def take_backported(it: Backported) -> None: ...

    for function in (take_standard, take_backported):
        assert fields_of(read_signature(function, name="it"), "Item") == ["inside_the_function"]


def test_a_local_name_does_not_reach_a_function_of_the_module():
    class Item(BaseModel):
        inside_the_function: int

    names = capture_locals()
    assert names["Item"] is Item
    assert fields_of(read_signature(take_top, name="it", localns=names), "Item") == ["at_the_top_of_the_module"]


def test_a_function_outlives_the_frame_that_defined_it():
    def define() -> tuple[Callable[[], Signature], Callable[..., Any]]:
        class Item(BaseModel):
            inside_the_function: int

        @declare
        def take(item: Item) -> None: ...

        def take_by_closure(item: Item) -> type:
            return Item

        return take, take_by_closure

    read_later, closed_over = define()
    assert fields_of(read_later(), "Item") == ["inside_the_function"]
    assert fields_of(read_signature(closed_over, name="it"), "Item") == ["inside_the_function"]


def test_enclosing_functions_are_searched_the_innermost_first():
    class Outer(BaseModel):
        outer: int

    class Both(BaseModel):
        outer: int

    def define() -> Callable[[], Signature]:
        class Both(BaseModel):
            inner: int

        @declare
        def take(a: Outer, b: Both) -> None: ...

        return take

    signature = define()()
    assert fields_of(signature, "Outer") == ["outer"]
    assert fields_of(signature, "Both") == ["inner"]


def test_a_caller_that_does_not_enclose_the_function_is_not_searched():
    def define() -> Callable[..., Any]:
        def take(item: Item) -> None: ...

        return take

    def call() -> Signature:
        class Item(BaseModel):
            of_the_caller: int

        return read_signature(define(), name="it", localns=capture_locals())

    assert fields_of(call(), "Item") == ["at_the_top_of_the_module"]


def test_a_type_further_down_is_found_when_the_function_is_read_again():
    @declare
    def take(item: Later) -> None: ...

    with pytest.raises(UnresolvedAnnotation, match=r"'item'.*'Later'"):
        take()

    class Later(BaseModel):
        x: int

    assert fields_of(take(), "Later") == ["x"]


def test_methods_and_callable_objects_see_the_names_of_their_class_and_its_surroundings():
    class Local(BaseModel):
        x: int

    class Shop:
        class Order(BaseModel):
            y: int

        def list(self) -> None: ...

        def take(self, order: Order, local: Local, many: list[int]) -> None: ...  # type: ignore[valid-type]

        async def __call__(self, order: Order, local: Local, many: list[int]) -> None: ...  # type: ignore[valid-type]

    for function in (Shop().take, Shop(), functools.partial(Shop().take)):
        signature = read_signature(function, name="it")
        assert fields_of(signature, "Order") == ["y"]
        assert fields_of(signature, "Local") == ["x"]
        assert signature.input_schema["properties"]["many"] == {"type": "array", "items": {"type": "integer"}}


def test_a_method_declared_in_the_class_body_is_bound_when_everything_around_is_gone():
    def define() -> Any:
        class Local(BaseModel):
            x: int

        class Shop:
            names = None

            class Order(BaseModel):
                y: int

            def list(self) -> None: ...

            def take(self, order: Order, local: Local, many: list[int]) -> None: ...  # type: ignore[valid-type]

            names = capture_without_pydantic()

        return Shop

    shop = define()
    signature = read_signature(shop().take, name="it", localns=shop.names)
    assert fields_of(signature, "Order") == ["y"]
    assert fields_of(signature, "Local") == ["x"]
    assert signature.parameters == ("order", "local", "many")


def test_a_wrapped_function_is_read_where_it_was_written():
    class Local(BaseModel):
        x: int

    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        class Local(BaseModel):
            of_the_decorator: int

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return Local, function(*args, **kwargs)

        return wrapper

    @logged
    def take(local: Local) -> None: ...

    assert fields_of(read_signature(take, name="it"), "Local") == ["x"]


def test_local_values_in_an_annotation_are_found():
    most = 5
    words = "How many."

    def take(count: Annotated[int, Field(le=most, description=words)]) -> None: ...

    assert read_signature(take, name="it").input_schema["properties"]["count"] == {
        "type": "integer",
        "maximum": 5,
        "description": "How many.",
    }


@pytest.mark.promise("TOOL-02")
def test_the_context_is_recognised_as_text_and_when_imported_for_type_checkers_only():
    def plain(ctx: Context, x: int) -> None: ...
    def optional(x: int, ctx: Context | None = None) -> None: ...
    def checked(ctx: ToolContext, x: int) -> None: ...
    def checked_optional(x: int, ctx: ToolContext | None = None) -> None: ...
    def checked_older(x: int, ctx: Optional[ToolContext] = None) -> None: ...  # noqa: UP045
    def quoted(x: int, ctx: "ToolContext") -> None: ...  # noqa: UP037

    for function in (plain, optional, checked, checked_optional, checked_older, quoted):
        signature = read_signature(function, name="it")
        assert (signature.context_parameter, signature.parameters) == ("ctx", ("x",))


def test_the_names_noted_at_the_top_of_a_module_are_none():
    space: dict[str, Any] = {"__name__": "elsewhere", "capture_locals": capture_locals}
    exec("x = 1\nfound = capture_locals()", space)
    assert space["found"] == {}


def test_recursive_local_types_are_found():
    class Node(BaseModel):
        children: list[Node] = []

    def take(node: Node) -> None: ...

    assert read_signature(take, name="it").validate(b'{"node": {"children": [{}]}}') == {
        "node": Node(children=[Node()])
    }
