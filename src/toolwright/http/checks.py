"""Checking requests by their types. Owns decoding a body and a query, and telling every place where they do not fit, in
the words that a model reads for arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from toolwright import jsonx
from toolwright.errors import ToolDefinitionError
from toolwright.http.problems import Problem, invalid
from toolwright.tools.raw_schema import OutputCheck, compile_output_schema
from toolwright.tools.validation_messages import ArgumentProblem, preview


class BodyCheck:
    """Decodes the JSON of one type."""

    def __init__(self, type: object) -> None:
        self._type = type
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(type).decode

    def read(self, data: bytes) -> Any:
        """The value of JSON that fits the type.

        Raises:
            Problem: it is not JSON, or does not fit.
        """
        try:
            if len(data) > jsonx.SHALLOW:
                jsonx.require_shallow(data)
            return self._decode(data)
        except msgspec.ValidationError as error:
            raise invalid(self._problems(data, error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, "not_json", f"The body is not JSON ({error}); send JSON in UTF-8") from None

    def _problems(self, data: bytes, error: msgspec.ValidationError) -> list[ArgumentProblem]:
        check = self._all_problems
        found = [] if check is None else check(data)
        return found or [_one(str(error))]

    @cached_property
    def _all_problems(self) -> OutputCheck | None:
        """Lists every problem of a body; None where the type has no schema. Made when it is first needed."""
        try:
            return compile_output_schema(msgspec.json.schema(self._type), owner="the body of a request")
        except (TypeError, ToolDefinitionError):
            return None


def read_query(type: Any, given: list[tuple[str, str]]) -> Any:
    """The parameters of a query as a struct.

    Raises:
        Problem: one is not known, comes twice, or does not fit.
    """
    named = dict(given)
    unknown = named.keys() - set(type.__struct_encode_fields__)
    if unknown:
        one = sorted(unknown)[0]
        known = ", ".join(type.__struct_encode_fields__) or "none"
        raise invalid([ArgumentProblem(f"?{one}"[:200], "the parameter is not known", "a value", f"one of {known}")])
    if len(named) != len(given):
        raise invalid([ArgumentProblem("?", "a parameter is given twice", "two values", "one value")])
    try:
        return msgspec.convert(named, type, strict=False)
    except msgspec.ValidationError as error:
        raise invalid([_one(str(error))]) from None


def _one(text: str) -> ArgumentProblem:
    """The problem that msgspec tells: `Expected int, got str - at $.limit`."""
    message, _, place = text.partition(" - at ")
    expected, _, given = message.partition(", got ")
    return ArgumentProblem(
        place.strip("`") or "$", message, preview(given.strip("`")) if given else "another value", expected
    )
