"""Stage 1: prepare. Owns resolving a call's tool and reading its arguments; hands on a `PreparedCall`."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.exception_failures import invalid
from toolwright.errors import InvalidArguments, ToolwrightError
from toolwright.ids import new_id
from toolwright.large_json import has_few_parts, is_flat, is_small, is_within
from toolwright.log_fields import log_fields
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.outcome import Decision, Failure, ToolOutcome, encodable, told
from toolwright.tools.registry import Snapshot, find, nearest
from toolwright.tools.tool import Tool

log = logging.getLogger("toolwright.calls")

EMPTY = b"{}"
_SOURCES = frozenset(("model", "user", "tool", "schedule", "host"))
_FIELDS = frozenset(ToolCall.__struct_fields__)
_KEPT = 10_000
MOST_CONTAINERS = 10_000
"""How many lists and objects the arguments of a call may have: they are checked on the event loop."""
MOST_ITEMS = 50_000
"""How many items and fields these may have in all."""
_UNCHANGEABLE = frozenset(
    {str, bytes, bool, int, float, type(None), Decimal, UUID, date, datetime, time, timedelta}
    | {PurePosixPath, PureWindowsPath, type(PurePath()), type(Path())}
)
"""Types of arguments of which nothing can be changed."""
_canonical_unchecked = jsonx.canonical_unchecked
_FEW_PARTS = 2 * MOST_CONTAINERS
"""JSON of up to this many bytes cannot have more."""
NOT_KEPT = jsonx.encode("[arguments that were too long to be kept]")
"""The recorded arguments of a call that was refused before they were encoded."""
_KINDS = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}
_BYTE = re.compile(r"\(byte (\d+)\)")


class PreparedCall(Struct, kw_only=True, eq=False):
    """A call with its tool and its arguments, or with the outcome that ends it before it could run.

    `raw` is the canonical JSON of the arguments, which is hashed, validated, recorded and shown; for text that is not
    the JSON of an object, it is that text as a JSON string. `arguments` are the arguments of the tool's function.
    """

    call_id: str = ""
    name: str = ""
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    raw: bytes = EMPTY
    outcome: ToolOutcome | None = None
    answer: Any = None
    payload: Any = None
    decided_by: str | None = None
    decision: Decision | None = None
    parent_id: str | None = None
    source: CallSource = "model"
    named: bool = False
    """True when the call was given its id."""
    repeated: bool = False
    """True when an earlier call of its batch has the same id, or its id cannot be used."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.call_id!r} of tool {self.name!r}>"  # not what it was given

    def fail(self, failure: Failure) -> None:
        """End the call here; it flows on as a finished entry, so that order and count never change."""
        self.outcome = ToolOutcome(
            call_id=self.call_id,
            tool=self.name,
            status="failure",
            failure=failure,
            decided_by=self.decided_by,
            decision=self.decision,
        )


def prepare(
    entry: PreparedCall,
    given_call: ToolCall | Mapping[str, Any],
    snapshot: Snapshot,
    seen: set[str],
    max_bytes: int,
    unchecked_bytes: int,
) -> None:
    """Resolve the tool, parse and validate the arguments. A call that fails here never reaches the tool.

    `unchecked_bytes` is the lesser of `max_bytes` and `jsonx.SHALLOW`: so few need no further check.

    Raises:
        ToolwrightError: it is no tool call, or a field has the wrong type.
    """
    call = given_call if type(given_call) is ToolCall else _from_mapping(given_call)
    name, call_id, source, unusable_id = call.name, call.id, call.source, False
    if call_id is None:
        call_id = new_id("call")
    elif type(call_id) is not str or not call_id:
        raise _unusable(call)
    else:
        entry.named = True
        if not call_id.isascii() and encodable(call_id) != call_id:
            unusable_id = True
            call_id = encodable(call_id)
    if type(name) is not str:
        raise _unusable(call)
    if source != "model":
        if source not in _SOURCES:
            raise ToolwrightError(
                f"The call {call.id!r} has source {source!r}; use one of {', '.join(sorted(_SOURCES))}"
            )
        entry.source = source
    entry.call_id = call_id
    given = call.arguments
    failure: Failure | None = None
    if type(given) is dict and (is_flat(given) or is_small(given)):
        try:
            entry.raw = raw = _canonical_unchecked(given)
            if len(raw) > unchecked_bytes:
                jsonx.require_shallow(raw)
                if len(raw) > max_bytes:
                    entry.raw, failure = _as_written(raw), _too_long(len(raw), max_bytes)
                elif len(raw) > _FEW_PARTS and not _has_few_parts(raw):
                    entry.raw, failure = _as_written(raw), _too_many_parts()
        except (TypeError, ValueError, OverflowError, RecursionError):
            failure = read_arguments(entry, given, max_bytes)
    elif given is not None:
        failure = read_arguments(entry, given, max_bytes)
    repeated = unusable_id or call_id in seen  # A call without an id of its own is not journaled either.
    if repeated:
        entry.repeated = True
    else:
        seen.add(call_id)
    tool = entry.tool = snapshot.get(name) or find(snapshot, name)
    if tool is None:
        entry.name = encodable(name)
        failure = _unknown(name, snapshot)
    else:
        entry.name = tool.definition.name
        if failure is not None and failure.code == "malformed_arguments" and tool.definition.secret is not None:
            failure = _malformed("The arguments are not a JSON object")  # An excerpt may have the secret in it.
        if tool.screen is not None:
            failure = _screened(entry, tool) or failure
        if repeated:
            failure = _duplicate(call_id)
        elif call.kind is not None and call.kind != tool.definition.kind:
            failure = _wrong_kind(name, tool.definition.kind, call.kind)
        elif failure is None:
            try:
                entry.arguments = tool.validate(entry.raw)
            except BaseException as error:  # a validator may be a tool's code
                failure = rejected(name, error)
    if unusable_id:
        failure = _unusable_id(call_id)
    if call.cut_off is not None:
        failure = _cut_off(call.cut_off)
    if failure is not None:
        entry.fail(failure)


def named(given: ToolCall | Mapping[str, Any]) -> ToolCall:
    """A call with an id: its own, or a fresh one.

    Raises:
        ToolwrightError: it is no tool call.
    """
    call = given if type(given) is ToolCall else _from_mapping(given)
    return call if call.id is not None else replace(call, id=new_id("call"))


def _from_mapping(given: object) -> ToolCall:
    if not isinstance(given, Mapping):
        raise ToolwrightError(f"{given!r:.200} is not a tool call; use ToolCall(name=..., arguments=...) or a mapping")
    unknown = given.keys() - _FIELDS
    if unknown or "name" not in given:
        raise ToolwrightError(
            f"The call {dict(given)!r:.200} is not a tool call; give it a name, arguments and an id, no more"
        )
    return ToolCall(**given)


def _unusable(call: ToolCall) -> ToolwrightError:
    return ToolwrightError(f"The call {call!r:.200} needs a name and an id that are non-empty strings")


def validate(prepared: PreparedCall, tool: Tool) -> Failure | None:
    """Check `raw` against the tool and fill in `arguments`; a failure lists every problem."""
    if tool.screen is not None and (failure := _screened(prepared, tool)) is not None:
        return failure
    try:
        prepared.arguments = tool.validate(prepared.raw)
    except BaseException as error:  # a validator may be a tool's code
        return rejected(tool.name, error)
    return None


def own_arguments(prepared: PreparedCall, tool: Tool) -> dict[str, Any]:
    """Arguments equal to those of a call, for code that must not change them: nothing that can be changed is shared.

    They are copied: reading the JSON again could give other values, where a function makes a default.

    Raises:
        Exception: a value that cannot be copied was read again, and the validation of the tool refused it this time.
    """
    arguments = prepared.arguments or {}
    if not can_change(arguments):
        return dict(arguments)
    try:
        return copy.deepcopy(arguments)
    except Exception:  # the code of a value's class
        return tool.validate(prepared.raw)


def can_change(arguments: Mapping[str, Any]) -> bool:
    """True when code that is given these arguments could change one of them: a list, an object, or the like."""
    return not _UNCHANGEABLE.issuperset(map(type, arguments.values()))


def _screened(entry: PreparedCall, tool: Tool) -> Failure | None:
    """Let the tool refuse arguments that must not be written down, and forget them."""
    assert tool.screen is not None
    try:
        screened = tool.screen(entry.raw)
        if screened is None:
            return None
        entry.raw, failure = screened
        return failure
    except BaseException as error:  # the tool's code
        entry.raw = EMPTY
        return rejected(tool.name, error)


def rejected(name: str, error: BaseException) -> Failure:
    """The failure for an exception of a tool's validation: most often, the arguments do not fit."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, InvalidArguments):
        return invalid(name, error)
    log.error(
        "The validation of tool %r failed", name, exc_info=error, extra=log_fields("call.validation_failed", tool=name)
    )
    return Failure(
        category="internal",
        code="validation_error",
        message="The arguments could not be checked; the details are in the log.",
        source="tool",
        detail=told(error),
    )


def read_arguments(prepared: PreparedCall, given: object, max_bytes: int) -> Failure | None:
    """Bring arguments, an object or the JSON text of one, to canonical JSON."""
    failure = _read(prepared, given, max_bytes)
    if failure is not None:
        if isinstance(given, (str, bytes, bytearray)):
            prepared.raw = _as_written(given)
        elif failure.code == "arguments_too_long":
            prepared.raw = NOT_KEPT
    return failure


def _read(prepared: PreparedCall, given: object, max_bytes: int) -> Failure | None:
    try:
        if isinstance(given, Mapping) and not is_within(given, max_bytes, MOST_ITEMS + MOST_CONTAINERS):
            return _too_large(max_bytes)
        if type(given) is dict:
            raw = jsonx.canonical(given)
        elif given is None or (isinstance(given, (str, bytes, bytearray)) and not given.strip()):
            raw = EMPTY
        elif isinstance(given, (str, bytes, bytearray)):
            if len(given) > max_bytes:
                return _too_long(len(given), max_bytes)
            if len(given) > _FEW_PARTS:
                data = given.encode() if isinstance(given, str) else bytes(given)
                if not _has_few_parts(data):
                    jsonx.require_shallow(data[:_FEW_PARTS])
                    return _too_many_parts()
            parsed = jsonx.decode(given)
            if type(parsed) is not dict:
                return _malformed(f"The arguments are not a JSON object but {_KINDS[type(parsed)]}: {_show(given)}")
            raw = jsonx.canonical(parsed)
        elif isinstance(given, Mapping):
            raw = jsonx.canonical(dict(given))
        else:
            return _malformed(f"The arguments are not an object but {_KINDS.get(type(given), type(given).__name__)}")
    except (jsonx.TooDeep, RecursionError):
        return _malformed(f"The arguments are nested too deeply; the limit is {jsonx.DEEPEST} levels")
    except jsonx.DecodeError as error:
        return _malformed(_why_not_json(given, error))
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(given, (str, bytes, bytearray)) and isinstance(error, UnicodeError):
            return _malformed(f"The arguments are not JSON: not UTF-8, near {_show(given, _not_utf8(given) - 30)}")
        return _malformed(f"The arguments have no JSON form: {jsonx.why_no_form(error) or error}")
    if len(raw) > max_bytes:
        return _too_long(len(raw), max_bytes)
    if len(raw) > _FEW_PARTS and not _has_few_parts(raw):
        return _too_many_parts()
    prepared.raw = raw
    return None


def _why_not_json(given: Any, error: Exception) -> str:
    """Why JSON text cannot be read: the decoder does not name half of a character."""
    half = jsonx.lone_surrogate(given.encode() if isinstance(given, str) else bytes(given))
    if half is None:
        return f"The arguments are not JSON: {error}{_break(given, str(error))}"
    text, place = half
    return (
        f"The arguments have half of a surrogate pair, {text} at byte {place}, which is no character; send both halves,"
        " or the character itself"
    )


def _as_written(text: str | bytes | bytearray) -> bytes:
    """The start of a model's text, as a JSON string: the record of arguments that are not a JSON object."""
    start = text[:_KEPT] if isinstance(text, str) else text[:_KEPT].decode("utf-8", "backslashreplace")
    return jsonx.encode(encodable(start))


def _duplicate(call_id: str) -> Failure:
    return Failure(
        category="invalid_arguments",
        code="duplicate_id",
        message=f"The call id {call_id!r} is used twice in this batch; give each call its own id",
        source="runtime",
    )


def _unusable_id(call_id: str) -> Failure:
    return Failure(
        category="invalid_arguments",
        code="unusable_id",
        message=f"The call was not run: its id, shown as {call_id!r:.200}, has no form in UTF-8; give it another id",
        source="runtime",
    )


def _wrong_kind(name: str, expected: str, got: str) -> Failure:
    return Failure(
        category="invalid_arguments",
        code="kind_mismatch",
        message=f"Tool {name!r} expected a {expected!r} call and got a {got!r} call",
        source="runtime",
        data={"expected": expected, "got": got},
    )


def _cut_off(why: str) -> Failure:
    return Failure(
        category="invalid_arguments",
        code="answer_cut_off",
        message=f"The call was not run: the answer that it stands in was cut off ({encodable(str(why))[:100]}), so its "
        "arguments may not be whole; make the call again, with shorter arguments if they were long",
        source="runtime",
        data={"reason": encodable(str(why))[:100]},
    )


def _malformed(message: str) -> Failure:
    return Failure(category="invalid_arguments", code="malformed_arguments", message=message, source="runtime")


def _too_long(size: int, limit: int) -> Failure:
    return Failure(
        category="resource_limit",
        code="arguments_too_long",
        message=f"The arguments have {size} bytes and the limit is {limit}; send less, or refer to a file",
        source="runtime",
        data={"bytes": size, "limit": limit},
    )


def _too_large(limit: int) -> Failure:
    """The failure of arguments that were not encoded, so that their length is not known."""
    return Failure(
        category="resource_limit",
        code="arguments_too_long",
        message=f"The arguments have more than {limit} bytes, or more than {MOST_CONTAINERS} lists and objects, or "
        f"more than {MOST_ITEMS} items; send less, or refer to a file",
        source="runtime",
        data={"limit": limit, "most_lists_and_objects": MOST_CONTAINERS, "most_items": MOST_ITEMS},
    )


def _has_few_parts(data: bytes) -> bool:
    """True when arguments have so few parts that they are decoded and checked in a short time."""
    return has_few_parts(data, MOST_CONTAINERS, MOST_ITEMS)


def _too_many_parts() -> Failure:
    return Failure(
        category="resource_limit",
        code="arguments_too_long",
        message=f"The arguments have more than {MOST_CONTAINERS} lists and objects, or more than {MOST_ITEMS} items; "
        "send less, or refer to a file",
        source="runtime",
        data={"most_lists_and_objects": MOST_CONTAINERS, "most_items": MOST_ITEMS},
    )


def _show(text: str | bytes | bytearray, start: int = 0, length: int = 60) -> str:
    data = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    return repr(data[max(0, start) : start + length].decode("utf-8", "replace"))


def _not_utf8(text: str | bytes | bytearray) -> int:
    """The first byte that is not part of any character."""
    try:
        text.encode() if isinstance(text, str) else text.decode()
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        start = error.start
        return len(text[:start].encode()) if isinstance(text, str) else start
    return 0


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
        data={"name": encodable(name[:128]), "nearest": near},
    )
