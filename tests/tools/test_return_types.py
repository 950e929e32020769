"""Return annotations: the schema of a tool's value, and its check."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from toolwright import Failure, Image, Pending, Runtime, Success, Tool, ToolContext, ToolOutcome, tool
from toolwright.wire import mcp

if TYPE_CHECKING:
    from somewhere import Nowhere  # type: ignore[import-not-found]

T = TypeVar("T")


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    depth: int


@dataclass
class Receipt:
    flight: str
    paid_at: datetime
    seats: tuple[int, ...] = ()


class Fare(BaseModel):
    amount: Decimal = Field(alias="the amount")
    stops: list[str] = []


NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
FITTING: list[tuple[Any, Any]] = [
    (str, "text"),
    (int, 3),
    (float, 2),
    (float, 2.5),
    (bool, True),
    (dict, {"a": [1]}),
    (dict[str, Any], {"a": [1]}),
    (dict[int, str], {1: "one"}),
    (list[int], [1, 2]),
    (list[int], (1, 2)),
    (Iterable[str], ["a"]),
    (set[str], {"a"}),
    (tuple[int, str], (1, "a")),
    (bytes, b"\xff"),
    (Path, Path("/a")),
    (UUID, UUID(int=3)),
    (datetime, NOON),
    (datetime, datetime(2030, 1, 2)),
    (timedelta, timedelta(days=3, seconds=0.5)),
    (Decimal, Decimal("1.50")),
    (Colour, Colour.RED),
    (Point, Point(1, 2)),
    (Options, {}),
    (Literal["a", 3], 3),
    (Receipt, Receipt("LH1", NOON, (1, 2))),
    (list[Receipt], [Receipt("LH1", NOON)]),
    (Fare, Fare(**{"the amount": "1.5"})),
    (Annotated[int, Field(gt=3)], 4),
    (str | None, None),
    (str | Failure, "text"),
    (int | Pending, 3),
]
OPEN = [Any, object, None, Success, str | Success, ToolOutcome, Image, list[Image], Failure, T, dict[str, ToolContext]]


def returning(annotation: Any, value: Any) -> Tool:
    """A tool that says it returns one thing, and returns another."""

    async def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    return tool(give)


@pytest.mark.promise("TOOL-07", "APP-06")
async def test_a_return_annotation_is_the_output_schema_and_values_of_its_type_fit():
    for annotation, value in FITTING:
        give = returning(annotation, value)
        assert give.definition.output_schema, annotation
        async with Runtime.open(tools=[give]) as runtime:
            outcome = await runtime.session("s").call("give")
            assert outcome.ok, (annotation, outcome.text)


@pytest.mark.promise("TOOL-07", "APP-06")
@pytest.mark.parametrize(
    ("annotation", "value", "wrong"),
    [
        (str, 3, "$"),
        (int, "3", "$"),
        (float, float("inf"), "$"),
        (dict, [1], "$"),
        (dict[str, Any], "text", "$"),
        (list[int], [1, "two"], "$[1]"),
        (Receipt, Receipt("LH1", NOON, ("one",)), "$.seats[0]"),  # type: ignore[arg-type]
        (Receipt, {"flight": "LH1"}, "$.paid_at"),
        (int | Failure, "text", "$"),
        (str, Success(3), "$"),
    ],
)
@pytest.mark.parametrize("secret", [False, True])
async def test_a_value_that_does_not_fit_the_return_annotation_is_a_failure_that_names_the_path(
    annotation, value, wrong, secret
):
    async with Runtime.open(tools=[returning(annotation, value)]) as runtime:
        session = runtime.session("s")
        if secret:  # which takes another way to the outcome
            await session.secrets.set("k", "a value that nothing returns")
        outcome = await session.call("give")
        assert outcome.failure.code == "invalid_output"
        assert outcome.failure.data["problems"][0]["path"] == wrong


@pytest.mark.promise("TOOL-07", "APP-06")
@pytest.mark.parametrize("annotation", OPEN, ids=str)
async def test_an_annotation_that_says_nothing_of_the_value_leaves_it_open(annotation):
    give = returning(annotation, {"any": ["thing"]})
    assert give.definition.output_schema is None
    async with Runtime.open(tools=[give]) as runtime:
        assert (await runtime.session("s").call("give")).value == {"any": ["thing"]}


@pytest.mark.promise("TOOL-07", "APP-06")
async def test_an_output_schema_that_is_given_wins_over_the_annotation_and_none_leaves_the_value_open():
    @tool(output_schema={"type": "integer"})
    async def counted() -> str:
        return 3  # type: ignore[return-value]

    @tool(output_schema=None)
    async def anything() -> str:
        return 3  # type: ignore[return-value]

    assert anything.definition.output_schema is None
    async with Runtime.open(tools=[counted, anything]) as runtime:
        session = runtime.session("s")
        assert (await session.call("counted")).value == 3
        assert (await session.call("anything")).value == 3


@pytest.mark.promise("TOOL-07", "APP-06")
def test_a_return_type_is_found_when_it_is_defined_further_down_and_ignored_when_only_type_checkers_know_it():
    @tool
    def later() -> Later:
        return Later(3)

    @tool
    def nowhere() -> Nowhere:
        return 3

    @tool
    def promised() -> Awaitable[int]:
        raise NotImplementedError

    @dataclass
    class Later:
        size: int

    assert (later.definition.output_schema or {})["properties"] == {"size": {"type": "integer"}}
    assert nowhere.definition.output_schema is None
    assert promised.definition.output_schema == {"type": "integer"}


@pytest.mark.promise("TOOL-07")
def test_the_return_type_of_a_tool_is_in_its_mcp_listing():
    @tool
    def book() -> Fare:
        raise NotImplementedError

    (listed,) = mcp.write_tools([book])
    assert listed["outputSchema"]["required"] == ["amount"]
