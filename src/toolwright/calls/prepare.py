"""Stage 1: prepare. Owns resolving a call's tool and reading its arguments; hands on a `PreparedCall`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolwright import jsonx
from toolwright.errors import InvalidArguments, ToolwrightError
from toolwright.ids import new_id
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.outcome import Failure, ToolOutcome
from toolwright.tools.registry import Snapshot, find, nearest
from toolwright.tools.schema import summarise
from toolwright.tools.tool import Tool

EMPTY = b"{}"
_SOURCES = frozenset(("model", "user", "tool", "schedule", "host"))
_BYTE = re.compile(r"\(byte (\d+)\)")


class PreparedCall:
    """A call with its tool and its arguments, or with the outcome that ends it before it could run.

    `raw` is the canonical JSON of the arguments: what is hashed, validated, recorded and shown. `arguments` is what
    the tool is called with.
    """

    __slots__ = ("answer", "arguments", "call_id", "decided_by", "name", "outcome", "parent", "payload", "raw", "source", "tool")

    def __init__(self, call_id: str, name: str, source: CallSource, parent: str | None) -> None:
        self.call_id = call_id
        self.name = name
        self.source: CallSource = source
        self.parent = parent
        self.raw = EMPTY
        self.tool: Tool | None = None
        self.arguments: dict[str, Any] | None = None
        self.outcome: ToolOutcome | None = None
        self.answer: Any = None
        self.payload: Any = None
        self.decided_by: str | None = None

    def fail(self, failure: Failure) -> None:
        """End the call here; it flows on as a finished entry, so that order and count never change."""
        self.outcome = ToolOutcome(
            call_id=self.call_id, tool=self.name, status="failure", failure=failure, decided_by=self.decided_by
        )


def read_call(given: ToolCall | Mapping[str, Any]) -> ToolCall:
    """Take a call in either of its forms.

    Raises:
        ToolwrightError: it is neither, or a field has the wrong type.
    """
    if type(given) is ToolCall:
        call = given
    elif isinstance(given, Mapping):
        unknown = given.keys() - {"id", "name", "arguments", "source", "kind"}
        if unknown or "name" not in given:
            raise ToolwrightError(
                f"The call {dict(given)!r:.200} is not a tool call; give it a name, arguments and an id and nothing else"
            )
        call = ToolCall(**given)
    else:
        raise ToolwrightError(f"{given!r:.200} is not a tool call; use ToolCall(name=..., arguments=...) or a mapping")
    if type(call.name) is not str or not (call.id is None or (type(call.id) is str and call.id)):
        raise ToolwrightError(f"The call {call!r:.200} needs a name and an id that are non-empty strings")
    if call.source not in _SOURCES:
        raise ToolwrightError(f"The call {call.id!r} has source {call.source!r}; use one of {', '.join(sorted(_SOURCES))}")
    return call


def prepare(
    call: ToolCall, snapshot: Snapshot, *, parent: str | None, seen: set[str], max_bytes: int
) -> PreparedCall:
    """Resolve the tool, parse and validate the arguments. What fails here never reaches the tool."""
    prepared = PreparedCall(call.id or new_id("call"), call.name, "tool" if parent is not None else call.source, parent)
    failure = read_arguments(prepared, call.arguments, max_bytes)
    tool = snapshot.get(call.name)
    if tool is None and (tool := find(snapshot, call.name)) is None:
        failure = _unknown(call.name, snapshot)
    elif prepared.call_id in seen:
        failure = Failure(
            category="invalid_arguments",
            code="duplicate_id",
            message=f"The call id {prepared.call_id!r} is used twice in this batch; give each call its own id",
            source="runtime",
        )
    prepared.tool = tool
    seen.add(prepared.call_id)
    if failure is None and tool is not None:
        prepared.name = tool.definition.name
        if call.kind is not None and call.kind != tool.definition.kind:
            failure = Failure(
                category="invalid_arguments",
                code="kind_mismatch",
                message=f"Tool {call.name!r} expected a {tool.definition.kind!r} call and got a {call.kind!r} call",
                source="runtime",
            )
        else:
            failure = validate(prepared, tool)
    if failure is not None:
        prepared.fail(failure)
    return prepared


def validate(prepared: PreparedCall, tool: Tool) -> Failure | None:
    """Check `raw` against the tool and fill in `arguments`; a failure lists every problem."""
    try:
        prepared.arguments = tool.validate(prepared.raw)
    except InvalidArguments as error:
        return invalid(tool.name, error)
    return None


def invalid(name: str, error: InvalidArguments) -> Failure:
    """The failure a model reads when its arguments do not fit."""
    return Failure(
        category="invalid_arguments",
        code="invalid_arguments",
        message=f"The arguments of {name!r} do not fit its schema:\n{summarise(error.problems)}",
        source="runtime",
    )


def read_arguments(prepared: PreparedCall, given: Any, max_bytes: int) -> Failure | None:
    """Bring arguments, an object or the JSON text of one, to canonical JSON."""
    try:
        if type(given) is dict:
            raw = jsonx.canonical(given)
        elif given is None:
            return None
        elif isinstance(given, (str, bytes, bytearray)):
            if not given.strip():
                return None
            if len(given) > max_bytes:
                return _too_long(len(given), max_bytes)
            parsed = jsonx.decode(given)
            if type(parsed) is not dict:
                return _malformed(f"The arguments are not a JSON object but {type(parsed).__name__}: {_show(given)}")
            raw = jsonx.canonical(parsed)
        elif isinstance(given, Mapping):
            raw = jsonx.canonical(dict(given))
        else:
            return _malformed(f"The arguments are not an object but a {type(given).__name__}")
    except jsonx.DecodeError as error:
        return _malformed(f"The arguments are not JSON: {error}{_break(given, str(error))}")
    except RecursionError:
        return _malformed("The arguments are nested too deeply")
    except (TypeError, ValueError, OverflowError) as error:
        return _malformed(f"The arguments have no JSON form: {error}")
    if len(raw) > max_bytes:
        return _too_long(len(raw), max_bytes)
    prepared.raw = raw
    return None


def _malformed(message: str) -> Failure:
    return Failure(category="invalid_arguments", code="malformed_arguments", message=message, source="runtime")


def _too_long(size: int, limit: int) -> Failure:
    return Failure(
        category="resource_limit",
        code="arguments_too_long",
        message=f"The arguments have {size} bytes and the limit is {limit}; send less, or refer to a file",
        source="runtime",
    )


def _show(text: str | bytes | bytearray, start: int = 0, length: int = 60) -> str:
    data = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    return repr(data[max(0, start) : start + length].decode("utf-8", "replace"))


def _break(given: Any, message: str) -> str:
    """Quote the place where JSON text breaks, when the decoder names it."""
    found = _BYTE.search(message)
    if found is None:
        return f" in {_show(given)}"
    place = int(found.group(1))
    return f", near {_show(given, max(0, place - 30))}"


def _unknown(name: str, snapshot: Snapshot) -> Failure:
    near = nearest(snapshot, name)
    if near:
        remedy = "did you mean " + " or ".join(map(repr, near)) + "?"
    elif snapshot:
        remedy = "the tools are: " + ", ".join(sorted(snapshot)[:20])
    else:
        remedy = "no tools are registered"
    return Failure(
        category="not_found",
        code="unknown_tool",
        message=f"Tool {name[:128]!r} is not registered; {remedy}",
        source="runtime",
    )
