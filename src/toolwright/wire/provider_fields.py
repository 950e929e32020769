"""Fields that a provider puts beside a call. Owns keeping them and giving them back; reads none of them.

A thought signature, a namespace or the caller of a call belongs to the provider, which wants it back as it was. The
fields of each shape are kept apart, so that a history can be continued by another provider.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from toolwright import jsonx
from toolwright.tools.call import ToolCall
from toolwright.wire.payload_reader import Part, plain


def unknown_fields(part: Part, known: Collection[str]) -> dict[str, Any]:
    """The fields of an object to which its format gives no meaning here. A value that is nested too deeply is left
    out."""
    found: dict[str, Any] = {}
    for name, value in part.object().items():
        if name not in known:
            with suppress(jsonx.TooDeep):
                found[name] = _plain(value, jsonx.DEEPEST)
    return found


def _plain(value: object, levels: int) -> object:
    """The value with the objects of an SDK inside it as dicts.

    Raises:
        TooDeep: it has more levels than these.
    """
    value = plain(value)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if not levels:
        raise jsonx.TooDeep
    if isinstance(value, dict):
        return {name: _plain(item, levels - 1) for name, item in value.items()}
    return [_plain(item, levels - 1) for item in value]


def kept(shape: str, fields: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of one shape, as the `meta` of a call."""
    return {shape: fields} if fields else None


def given_back(call: ToolCall, shape: str) -> dict[str, Any]:
    """The fields that a call brought from this shape; a new dict, which may be filled."""
    fields = (call.meta or {}).get(shape)
    return dict(fields) if isinstance(fields, dict) else {}
