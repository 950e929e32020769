"""Calls and outcomes as plain JSON. Owns `{id, name, arguments}` and outcomes as JSON; no provider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct, structs
from msgspec.structs import replace

from toolwright.errors import ConversionError
from toolwright.ids import new_id
from toolwright.jsonx import encode
from toolwright.tools import outcome as outcomes
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import CATEGORIES, ToolOutcome
from toolwright.tools.tool import Tool
from toolwright.wire.arguments import read_arguments, read_tool_name
from toolwright.wire.other_shapes import read_own
from toolwright.wire.payload_reader import Part
from toolwright.wire.results import definition_of, in_call_order

SHAPE = "plain"
_FIELDS = ("id", "name", "arguments", "kind", "source", "cut_off", "meta")


def read_calls(payload: object) -> list[ToolCall]:
    """The calls in a list, or the one call. A missing id is generated. A call without a usable name fails alone.

    Raises:
        ConversionError: the payload has another shape.
    """
    return read_own(
        Part(payload, SHAPE, "payload"),
        SHAPE,
        lambda part: [_read_call(item) for item in (part.each() if part.is_list else [part])],
    )


def write_calls(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """Each call as `{id, name, arguments}`."""
    written = []
    for call in calls:
        item: dict[str, Any] = {
            "id": call.id or new_id("call"),
            "name": call.name,
            "arguments": call.arguments,
        }
        if call.kind is not None:
            item["kind"] = call.kind
        if call.source != "model":
            item["source"] = call.source
        if call.cut_off is not None:
            item["cut_off"] = call.cut_off
        if call.meta is not None:
            item["meta"] = call.meta
        written.append(item)
    return written


def write_results(outcomes: Iterable[ToolOutcome], calls: Iterable[ToolCall] | None = None) -> list[dict[str, Any]]:
    """Each outcome as its JSON, in call order.

    Raises:
        ConversionError: `calls` are given and do not match the outcomes.
    """
    return [outcome.to_json() for outcome in in_call_order(outcomes, calls)]


def read_results(messages: object) -> list[ToolOutcome]:
    """The outcomes that were written by `write_results`.

    Raises:
        ConversionError: one has another shape.
    """
    part = Part(messages, SHAPE, "messages")
    return [_read_result(item) for item in (part.each() if part.is_list else [part])]


def write_tools(definitions: Iterable[ToolDefinition | Tool]) -> list[dict[str, Any]]:
    """Each tool's name, description and schemas."""
    written = []
    for tool in map(definition_of, definitions):
        item: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.input_schema,
        }
        if tool.output_schema is not None:
            item["output_schema"] = tool.output_schema
        written.append(item)
    return written


def _read_call(part: Part) -> ToolCall:
    unknown = part.object("a call with a name, arguments and an id").keys() - set(_FIELDS)
    if unknown:
        raise part.wrong(f"a call with {', '.join(_FIELDS)} and nothing else")
    name, source = part.field("name"), part.field("source")
    if not part.has("name", "arguments"):
        raise name.wrong("the name of a tool")
    if source.value is not None and source.value not in get_args(CallSource):
        raise source.wrong(f"one of {', '.join(get_args(CallSource))}")
    kind, meta = part.field("kind"), part.field("meta")
    call_id = part.field("id")
    return ToolCall(
        name=read_tool_name(name),
        arguments=read_arguments(part.field("arguments")),
        id=new_id("call") if call_id.value is None else call_id.name(),
        source=source.value or "model",
        kind=None if kind.value is None else kind.name(),
        cut_off=_text(part, "cut_off"),
        meta=None if meta.value is None else meta.object("the fields of providers, by the names of their shapes"),
    )


def _read_result(part: Part) -> ToolOutcome:
    fields = _read_fields(part, ToolOutcome, "the JSON of an outcome")
    value, text = part.object().get("value"), part.field("text")
    outcome = ToolOutcome(
        **fields, payload=encode(value), model_text=None if text.value is None else text.text("what the model reads")
    )
    if outcome.failure is None:
        return outcome
    return replace(outcome, failure=replace(outcome.failure, attempts=max(1, outcome.attempts)))


def _read_fields(part: Part, kind: type[Struct], expected: str) -> dict[str, Any]:
    """The fields of a value by the names and types that its type gives them, so that a new field is read, too.

    Text is always written, so it must be there; any other field that has a default may be missing.
    """
    given, read = part.object(expected), {}
    for name, (reader, required) in _readers(kind).items():
        if required or given.get(name) is not None:
            read[name] = reader(part.field(name))
    return read


@cache
def _readers(kind: type[Struct]) -> dict[str, tuple[Callable[[Part], Any], bool]]:
    hints = get_type_hints(kind, {**vars(outcomes), "AttachmentInfo": Any})
    untold: frozenset[str] = getattr(kind, "untold")  # noqa: B009 - a struct in general has none
    return {
        field.name: (_reader(field.name, hints[field.name]), field.required or hints[field.name] is str)
        for field in structs.fields(kind)
        if field.name not in untold
    }


def _reader(name: str, hint: object) -> Callable[[Part], Any]:
    """Reads a field of this name and type from its JSON."""
    if name == "at":
        return _instant
    if name == "category":
        return partial(_one_of, choices=sorted(CATEGORIES))
    of = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) is Literal:
        return partial(_one_of, choices=of)
    if get_origin(hint) is tuple:
        return lambda part: tuple(_read_struct(each, of[0]) for each in part.each())
    if len(of) == 1 and get_origin(hint) is not dict:
        return _reader(name, of[0])  # it may be None, which is read as if it were missing
    if isinstance(hint, type) and issubclass(hint, Struct):
        return partial(_read_struct, kind=hint)
    if hint is bool:
        return lambda part: part.value is True
    if hint is int:
        return _count
    if hint is float:
        return _number
    if get_origin(hint) is dict:
        return Part.object
    if hint is str:
        return Part.name if name in _NEVER_EMPTY else Part.text
    return lambda part: part.value


_NEVER_EMPTY = frozenset({"call_id", "media_type", "code"})


def _read_struct(part: Part, kind: type[Struct]) -> object:
    return kind(**_read_fields(part, kind, f"a {kind.__name__.lower()}"))


def _one_of(part: Part, choices: Sequence[str]) -> str:
    if part.value not in choices:
        raise part.wrong(f"one of {', '.join(choices)}")
    return part.text()


def _count(part: Part) -> int:
    if type(part.value) is not int or not 0 <= part.value < 2**63:
        raise part.wrong("a whole number, 0 or more")
    return part.value


def _number(part: Part) -> float:
    if type(part.value) not in (int, float) or not 0 <= part.value < 2**63:
        raise part.wrong("a number, 0 or more")
    number: float = part.value
    return number


def _instant(part: Part) -> float:
    """An instant that is RFC 3339 text, or seconds since the epoch."""
    if isinstance(part.value, (int, float)) and not isinstance(part.value, bool):
        return part.value
    try:
        moment = datetime.fromisoformat(part.text())
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (ValueError, OverflowError, ConversionError):
        pass
    raise part.wrong("an instant: RFC 3339 text, or seconds since the epoch")


def _text(part: Part, name: str) -> str | None:
    field = part.field(name)
    return None if field.value is None else field.text()
