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
            try:
                problems = self._problems(data, error)
            except UnicodeDecodeError as wrong:  # behind the first place that does not fit
                raise not_json(data, wrong) from None
            raise invalid(problems) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise not_json(data, error) from None

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


def not_json(data: bytes, error: Exception) -> Problem:
    """The problem of a body that is not JSON, or that has half of a character."""
    half = jsonx.lone_surrogate(data)
    if half is not None:
        text, place = half
        detail = (
            f"The body has half of a surrogate pair, {text} at byte {place}, which is no character; send both halves"
        )
        return Problem(400, "not_json", detail)
    return Problem(400, "not_json", f"The body is not JSON ({error}); send JSON in UTF-8")


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
        twice = next(name for place, (name, _) in enumerate(given) if name in dict(given[:place]))
        raise invalid([ArgumentProblem(f"?{twice}", "the parameter is given twice", "two values", "one value")])
    try:
        return msgspec.convert(named, type, strict=False)
    except msgspec.ValidationError as error:
        raise invalid([_of_query(type, named, str(error))]) from None


def _of_query(type: Any, named: dict[str, str], text: str) -> ArgumentProblem:
    """The problem that msgspec tells of a parameter, with what it may be."""
    name = text.partition(" - at ")[2].strip("`").removeprefix("$.").partition("[")[0]
    info = msgspec.inspect.type_info(type)
    assert isinstance(info, msgspec.inspect.StructType)
    for each in info.fields:
        if each.encode_name == name:
            expected = _expected(each.type)
            return ArgumentProblem(f"?{name}", f"it is not {expected}", preview(named.get(name, "")), expected)
    return _one(text)


def _expected(type: msgspec.inspect.Type) -> str:
    """What a parameter may be, in words."""
    if isinstance(type, msgspec.inspect.Metadata):
        return _expected(type.type)
    if isinstance(type, msgspec.inspect.UnionType):
        kinds = [each for each in type.types if not isinstance(each, msgspec.inspect.NoneType)]
        return " or ".join(map(_expected, kinds))
    if isinstance(type, msgspec.inspect.LiteralType):
        return f"one of {', '.join(map(repr, type.values))}"
    if isinstance(type, msgspec.inspect.StrType):
        return f"text of {type.min_length or 0} to {type.max_length} characters" if type.max_length else "text"
    if isinstance(type, msgspec.inspect.BoolType):
        return "true or false"
    if isinstance(type, (msgspec.inspect.IntType, msgspec.inspect.FloatType)):
        kind = "a whole number" if isinstance(type, msgspec.inspect.IntType) else "a number"
        least, most = type.ge if type.ge is not None else type.gt, type.le if type.le is not None else type.lt
        bounds = [] if least is None else [f"from {least} on"] if most is None else [f"from {least} to {most}"]
        return " ".join([kind, *bounds])
    return "another value"


def _one(text: str) -> ArgumentProblem:
    """The problem that msgspec tells: `Expected int, got str - at $.limit`."""
    message, _, place = text.partition(" - at ")
    expected, _, given = message.partition(", got ")
    return ArgumentProblem(
        place.strip("`") or "$", message, preview(given.strip("`")) if given else "another value", expected
    )
