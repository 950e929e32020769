"""The Model Context Protocol. Owns `tools/call`, its result and tool listings; does not own connections.

`read_calls`, `write_calls`, `read_results` and `write_results` use whole JSON-RPC messages, which is where MCP has its
ids; `read_result` and `write_result` convert a bare `CallToolResult`, which has none. A JSON-RPC id is unique within
one connection only: a server of several gives each its own scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from toolwright.errors import ConversionError
from toolwright.ids import new_id
from toolwright.jsonx import decode, encode
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import Hints, Kind, ToolDefinition
from toolwright.tools.outcome import Failure, ToolOutcome
from toolwright.tools.tool import Tool
from toolwright.wire.arguments import as_object, object_schema, read_object, read_tool_name
from toolwright.wire.mcp_content import read_content, write_content
from toolwright.wire.other_shapes import read_own
from toolwright.wire.payload_reader import Part
from toolwright.wire.provider_fields import given_back, kept, unknown_fields
from toolwright.wire.results import definition_of, from_text, in_call_order, is_error

SHAPE = "MCP"
NAME = "mcp"
_KNOWN = ("name", "arguments", "method", "params", "jsonrpc", "id")
VERSION = "2025-11-25"
"""The version of the protocol that is written unless another is named."""
ANY_JSON = "2026-07-28"
"""From this version on, `structuredContent` may be any JSON and `outputSchema` any schema; before, objects only."""
_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBERED = re.compile(r"jsonrpc-(0|-?[1-9][0-9]{0,99})")
_TEXT = "jsonrpc-text:"
"""Marks an id that is text and would read as a marked one without it."""


def read_calls(payload: object, *, kind: Kind | None = "mcp") -> list[ToolCall]:
    """The calls in a `tools/call` request, its params, or a list of either.

    They are calls of the kind "mcp", for tools of MCP servers. A server that offers tools of every kind over MCP reads
    the calls of its clients with `kind=None`.

    A call without its JSON-RPC envelope gets a fresh id. A call whose arguments are not an object, or that has no
    usable name, fails alone.

    Raises:
        ConversionError: the payload has another shape.
    """
    return read_own(
        Part(payload, SHAPE, "payload"),
        NAME,
        lambda part: [_read_call(item, kind) for item in (part.each() if part.is_list else [part])],
    )


def write_calls(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """A `tools/call` request for each call.

    Raises:
        ConversionError: arguments are not an object, which is all that MCP carries.
    """
    return [
        {
            "jsonrpc": "2.0",
            "id": _to_rpc(call.id or new_id("call")),
            "method": "tools/call",
            "params": {**given_back(call, NAME), "name": call.name, "arguments": as_object(call, SHAPE)},
        }
        for call in calls
    ]


def write_results(
    outcomes: Iterable[ToolOutcome],
    calls: Iterable[ToolCall] | None = None,
    *,
    version: str = VERSION,
    tools: Iterable[ToolDefinition | Tool] = (),
) -> list[dict[str, Any]]:
    """A JSON-RPC response for each outcome, in call order. `version` and the `tools` are for `write_result`.

    Raises:
        ConversionError: `calls` are given and do not match the outcomes, or an outcome cannot be written.
    """
    named = {definition.name: definition for definition in map(definition_of, tools)}
    return [
        {
            "jsonrpc": "2.0",
            "id": _to_rpc(outcome.call_id),
            "result": write_result(outcome, version=version, tool=named.get(outcome.tool)),
        }
        for outcome in in_call_order(outcomes, calls)
    ]


def read_results(messages: object) -> list[ToolOutcome]:
    """The outcomes in a response or a list of responses. Requests and notifications are skipped, but tool names in them
    are used.

    Raises:
        ConversionError: a message has another shape.
    """
    part = Part(messages, SHAPE, "messages")
    names: dict[str, str] = {}
    outcomes = []
    for message in part.each() if part.is_list else [part]:
        message.object("a JSON-RPC message")
        if message.has("method"):
            if message.field("method").value == "tools/call":
                names.update((call.id or "", call.name) for call in read_calls(message.value))
            continue
        call_id = _from_rpc(message.field("id"))
        tool = names.get(call_id, "")
        if message.has("error"):
            said = message.field("error").field("message").text("the message of an error")
            failure = Failure(message=said, category="external", code="mcp_error")
            outcomes.append(ToolOutcome(call_id=call_id, tool=tool, status="failure", failure=failure))
        else:
            outcomes.append(_read_result(message.field("result"), call_id, tool))
    return outcomes


def write_result(
    outcome: ToolOutcome, *, version: str = VERSION, tool: ToolDefinition | Tool | None = None
) -> dict[str, Any]:
    """An outcome as a `CallToolResult`: `content` has the text for the model, `structuredContent` the whole value.

    Args:
        version: the protocol version of the client. Up to 2025-11-25 only an object is structured content; from
            2026-07-28 on any value is, except null and text of a tool without an output schema, which `content` has.
        tool: the tool of the call, for its output schema. Clients refuse a result without structured content where one
            was listed.

    Raises:
        ConversionError: the call is pending, and its tool has an output schema, which no such result fits: wait for the
            outcome, or answer with a task or a request for input. Or the version is not one.
    """
    any_json = _takes_any_json(version)
    has_schema = tool is not None and _listed_schema(definition_of(tool), any_json) is not None
    if outcome.status == "pending" and has_schema:
        raise ConversionError(
            f"Call {outcome.call_id!r} to {outcome.tool!r} is pending, and its tool has an output schema, which a "
            "client would hold against the result; wait for its outcome, or answer with a task or a request for input"
        )
    result: dict[str, Any] = {"content": write_content(outcome), "isError": is_error(outcome)}
    if outcome.ok:
        # Read for this result: an outcome that is recorded does not grow by it, and nobody else has the value.
        value = decode(outcome.payload)
        if isinstance(value, dict) or (any_json and (has_schema or (value is not None and not isinstance(value, str)))):
            result["structuredContent"] = value
    return result


def read_result(result: object, *, call_id: str, tool: str) -> ToolOutcome:
    """A `CallToolResult`, which names neither call nor tool, as the outcome of a call.

    Raises:
        ConversionError: the result has another shape.
    """
    return _read_result(Part(result, SHAPE, "result"), call_id, tool)


def write_tools(definitions: Iterable[ToolDefinition | Tool], *, version: str = VERSION) -> list[dict[str, Any]]:
    """The `tools` of a listing. A hint that was not given is left out: MCP takes it as the dangerous one.

    `version` is the protocol version of the client: up to 2025-11-25 only the output schema of an object is listed.

    Raises:
        ConversionError: the version is not one.
    """
    written, any_json = [], _takes_any_json(version)
    for tool in map(definition_of, definitions):
        hints = tool.hints
        annotations: dict[str, Any] = {"readOnlyHint": hints.readonly, "idempotentHint": hints.idempotent}
        if hints.destructive is not None:
            annotations["destructiveHint"] = hints.destructive
        if hints.open_world is not None:
            annotations["openWorldHint"] = hints.open_world
        listed: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": object_schema(tool),
            "annotations": annotations,
        }
        if tool.display_name is not None:
            listed["title"] = tool.display_name
        schema = _listed_schema(tool, any_json)
        if schema is not None:
            listed["outputSchema"] = schema
        written.append(listed)
    return written


def read_tools(listing: object) -> list[ToolDefinition]:
    """The tools of a `tools/list` result, or of its list. Hints are a server's word, and no more than that.

    Raises:
        ConversionError: the listing has another shape.
        ToolDefinitionError: a tool has a name that could not be called.
    """
    part = Part(listing, SHAPE, "listing")
    tools = part if part.is_list else part.field("tools")
    return [_read_tool(item) for item in tools.each("a list of tools")]


def _read_call(part: Part, kind: Kind | None) -> ToolCall:
    part.object("a tools/call request, or its params")
    params = part
    call_id: str | None = None
    if part.has("method"):
        if part.field("method").value != "tools/call":
            raise part.field("method").wrong("'tools/call'")
        params = part.field("params")
        if part.has("id", "jsonrpc"):  # an SDK keeps the id apart, in the envelope of its request
            call_id = _from_rpc(part.field("id"))
    name, given = params.field("name"), params.field("arguments")
    if not part.has("method") and not params.has("name", "arguments"):
        raise name.wrong("a non-empty string")
    return ToolCall(
        name=read_tool_name(name),
        arguments={} if given.value is None else read_object(given),
        id=call_id or new_id("call"),
        kind=kind,
        meta=kept(NAME, unknown_fields(params, _KNOWN)),
    )


def _read_result(part: Part, call_id: str, tool: str) -> ToolOutcome:
    part.object("a CallToolResult")
    structured = part.field("structuredContent").value
    content = part.field("content")
    if content.value is None and structured is None:
        raise content.wrong("a list of content blocks")
    text, images, attachments = ("", (), ()) if content.value is None else read_content(content)
    outcome = from_text(content, call_id, tool, text, images=images, error=part.field("isError").value is True)
    if outcome.failure is not None:
        # In whatever words a server fails, the model reads them as the JSON of an error.
        return replace(outcome, attachments=attachments, model_text=None)
    if structured is not None:
        outcome = replace(outcome, payload=encode(structured), model_text=text or None, given_text=text or None)
    return replace(outcome, attachments=attachments)


def _read_tool(part: Part) -> ToolDefinition:
    name = part.field("name").name("the name of a tool")
    said = part.field("annotations")
    hints = said.object("annotations") if said.value is not None else {}
    output = part.field("outputSchema")
    title = part.field("title").value or hints.get("title")
    return ToolDefinition(
        name=name,
        id=name,
        description=part.field("description").value or "",
        display_name=title if isinstance(title, str) else None,
        input_schema=part.field("inputSchema").object("a JSON schema"),
        output_schema=None if output.value is None else output.object("a JSON schema"),
        kind="mcp",
        hints=Hints(
            readonly=hints.get("readOnlyHint") is True,
            destructive=_hint(hints.get("destructiveHint")),
            idempotent=hints.get("idempotentHint") is True,
            open_world=_hint(hints.get("openWorldHint")),
        ),
    )


def _listed_schema(tool: ToolDefinition, any_json: bool) -> dict[str, Any] | None:
    """The output schema of a tool in a listing, which its results must fit.

    A result that is no object had no `structuredContent` that a client could hold against the schema.
    """
    schema = tool.output_schema
    if schema is None or any_json or schema.get("type") == "object":
        return schema
    return None


def _takes_any_json(version: str) -> bool:
    if version not in (VERSION, ANY_JSON) and (not isinstance(version, str) or _DATED.fullmatch(version) is None):
        raise ConversionError(f"The protocol version {version!r:.100} is not one; use a date such as {VERSION!r}")
    return version >= ANY_JSON


def _hint(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _from_rpc(part: Part) -> str:
    """A JSON-RPC id as a call id. A number keeps a mark, so that the answer carries the same number again; text that
    looks like a marked number is marked as text."""
    if isinstance(part.value, int) and not isinstance(part.value, bool):
        return f"jsonrpc-{part.value}"
    text = part.name("a JSON-RPC id: a string or a whole number")
    return f"{_TEXT}{text}" if _NUMBERED.fullmatch(text) or text.startswith(_TEXT) else text


def _to_rpc(call_id: str) -> str | int:
    if call_id.startswith(_TEXT):
        return call_id.removeprefix(_TEXT)
    numbered = _NUMBERED.fullmatch(call_id)
    return int(numbered.group(1)) if numbered else call_id
