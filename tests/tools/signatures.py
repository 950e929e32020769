"""What a function says of its arguments as a tool. Owns asking its signature; each test says what it expects."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolwright.errors import InvalidArguments
from toolwright.tools.function_schema import read_signature
from toolwright.tools.validation_messages import ArgumentProblem


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    return read_signature(function, name="it").input_schema


def arguments_of(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    return read_signature(function, name="it").validate(json.dumps(arguments).encode())


def problems_of(function: Callable[..., Any], **arguments: Any) -> list[ArgumentProblem]:
    with pytest.raises(InvalidArguments) as caught:
        arguments_of(function, **arguments)
    return caught.value.problems
