"""Four tools that calculate. Owns rounding and overflow: integers stay integers as far as JSON can express them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from pydantic import WithJsonSchema

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.output_schemas import shape
from toolwright.tools.outcome import ToolError

Number = Annotated[int | float, WithJsonSchema({"type": "number"})]

# Beyond, a whole number is not the same for every reader of JSON.
LARGEST_WHOLE = 2**63 - 1
RESULT = shape({"result": "number"})


def _calculated(operation: Callable[[], int | float]) -> dict[str, int | float]:
    try:
        result = operation()
        if isinstance(result, int) and abs(result) > LARGEST_WHOLE:
            result = float(result)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ToolError("The result is too large to be a number; use smaller ones", code="overflow")
    return {"result": result}


@boxed(
    "Add",
    category="math",
    readonly=True,
    idempotent=True,
    gives=RESULT,
)
async def add(a: Number, b: Number) -> object:
    """Add two numbers.

    Args:
        a: The first number.
        b: The number to add to it.
    """
    return _calculated(lambda: a + b)


@boxed(
    "Subtract",
    category="math",
    readonly=True,
    idempotent=True,
    gives=RESULT,
)
async def subtract(a: Number, b: Number) -> object:
    """Subtract one number from another.

    Args:
        a: The number to subtract from.
        b: The number to subtract.
    """
    return _calculated(lambda: a - b)


@boxed(
    "Multiply",
    category="math",
    readonly=True,
    idempotent=True,
    gives=RESULT,
)
async def multiply(a: Number, b: Number) -> object:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    return _calculated(lambda: a * b)


@boxed(
    "Divide",
    category="math",
    readonly=True,
    idempotent=True,
    gives=RESULT,
)
async def divide(a: Number, b: Number) -> object:
    """Divide one number by another.

    Args:
        a: The number to divide.
        b: The number to divide it by; not 0.
    """
    if b == 0:
        raise ToolError(
            f"{a} cannot be divided by zero; give a 'b' other than 0",
            category="invalid_arguments",
            code="division_by_zero",
        )
    return _calculated(lambda: a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b)
