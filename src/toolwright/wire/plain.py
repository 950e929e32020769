"""Calls and outcomes as plain JSON. Owns `{id, name, arguments}` and outcomes as JSON; no provider."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, get_args

from toolwright.errors import ConversionError
from toolwright.ids import new_id
from toolwright.jsonx import encode
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import CATEGORIES, Attachment, Decision, Failure, Image, Status, ToolOutcome, Verdict
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
    given = part.object("the JSON of an outcome")
    status = part.field("status")
    if status.value not in get_args(Status):
        raise status.wrong(f"one of {', '.join(get_args(Status))}")
    failure = part.field("failure")
    attempts, decision = part.field("attempts"), part.field("decision")
    if attempts.value is not None and (type(attempts.value) is not int or not 0 <= attempts.value < 2**63):
        raise attempts.wrong("a whole number, 0 or more")
    return ToolOutcome(
        call_id=part.field("call_id").name("the id of a call"),
        tool=part.field("tool").text("the name of a tool"),
        status=status.value,
        payload=encode(given.get("value")),
        failure=None if failure.value is None else _read_failure(failure, max(1, attempts.value or 0)),
        raw_output=_text(part, "raw_output"),
        images=tuple(
            Image(item.field("data").text(), item.field("media_type").name(), _text(item, "hash"))
            for item in _list(part, "images")
        ),
        attachments=tuple(
            Attachment(
                item.field("name").text(),
                item.field("data").text(),
                item.field("media_type").name(),
                _text(item, "hash"),
            )
            for item in _list(part, "attachments")
        ),
        provider=_text(part, "provider"),
        reason=_text(part, "reason"),
        may_have_run=given.get("may_have_run") is True,
        decided_by=_text(part, "decided_by"),
        attempts=attempts.value or 0,
        replayed=given.get("replayed") is True,
        spilled_to=_text(part, "spilled_to"),
        decision=None if decision.value is None else _read_decision(decision),
        model_text=_text(part, "text"),
        metadata=None if (metadata := part.field("metadata")).value is None else metadata.object("metadata"),
    )


def _read_failure(part: Part, attempts: int) -> Failure:
    given = part.object("a failure")
    category = part.field("category")
    if category.value not in CATEGORIES:
        raise category.wrong(f"one of {', '.join(sorted(CATEGORIES))}")
    return Failure(
        message=part.field("message").text(),
        category=category.value,
        code=part.field("code").name(),
        source=given.get("source", "tool"),
        retry=given.get("retry") is True,
        retry_after=given.get("retry_after"),
        attempts=attempts,
        data=given.get("data"),
    )


def _read_decision(part: Part) -> Decision:
    given = part.object("a decision")
    verdict, at = part.field("verdict"), part.field("at")
    if verdict.value not in get_args(Verdict):
        raise verdict.wrong(f"one of {', '.join(get_args(Verdict))}")
    return Decision(
        verdict.value,
        _instant(at),
        _text(part, "by"),
        _text(part, "reason"),
        given.get("edited") is True,
        given.get("always") is True,
        given.get("arguments"),
    )


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


def _list(part: Part, name: str) -> list[Part]:
    field = part.field(name)
    return [] if field.value is None else field.each()
