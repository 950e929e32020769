"""JSON of large values. Owns measuring a value before it is encoded, and encoding and reading it in short pieces.

One call of the encoder or the decoder holds the interpreter's lock until it returns, and no other thread runs
meanwhile. So a large value is encoded in a thread by many short calls, which stop as soon as it is too long.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sized
from typing import Annotated, Any

import msgspec

from toolwright import jsonx

SMALL = 256 * 1024
"""How large a value may be, as `room_after` counts, to be encoded in one call on the event loop."""
PIECE = 64 * 1024
"""How much is encoded or decoded in one call in a thread."""
MOST_CONTAINERS = 50_000
"""How many lists and objects the value of a tool may have. More take too long to decode."""
MOST_ITEMS = 500_000
"""How many items and fields the value of a tool may have in all."""
MOST_DUMPED = 200_000
"""How many items and fields a pydantic model may have that is too large to be encoded on the event loop."""

SCALARS = frozenset((int, float, bool, type(None)))
"""Types whose values are always short."""
_FEW = 32
_SHORT = 4096
_FEW_FIELDS = 8
_BUFFER = 16 * 1024
_NOT_COUNTED = bytes(set(range(256)) - set(b'[{,"'))


_Text = Annotated[str, msgspec.Meta(max_length=_SHORT)]
_Flat = int | float | bool | None | _Text


def _nested(item: Any, most: int) -> Any:
    """The type of lists and objects of up to `most` items of a type, and of values without items."""
    size = msgspec.Meta(max_length=most)
    return _Flat | Annotated[list[item], size] | Annotated[dict[_Text, item], size]


_Page = msgspec.defstruct("_Page", [("value", _nested(_nested(_nested(_nested(_Flat, 4), 16), 64), 8))])
"""A value with a few fields, such as a page of rows. The limits allow 32,768 parts in all."""
_Rows = msgspec.defstruct("_Rows", [("value", _nested(_nested(_nested(_nested(_Flat, 2), 4), 16), 256))])
"""A value of up to 256 items. The limits allow as many parts as those of a page."""


class TooLong(ValueError):
    """A value is longer than it may be: it has at least `size` bytes of JSON. The rest was not encoded."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it has at least {size} bytes")
        self.size = size


class TooManyParts(TooLong):
    """A value, or a part that is encoded in one call, has too many parts. It was not encoded."""

    def __init__(self) -> None:
        super().__init__(0)
        self.args = ("it has too many parts",)


def is_flat(fields: dict[Any, Any]) -> bool:
    """True when an object has few fields, and only short ones: as most values of tools are."""
    if len(fields) > _FEW:
        return False
    try:
        for key, item in fields.items():
            kind = type(item)
            if kind is str:
                if len(key) + len(item) > _SHORT:
                    return False
            elif kind not in SCALARS or len(key) > _SHORT:
                return False
    except TypeError:  # a key that is no text
        return False
    return True


def encode_small(value: Sized) -> bytes | None:
    """The JSON of a small value of plain lists and objects; None where the value must be measured by `is_small`.

    To measure a value takes longer than to encode it. So this only checks, by one call, that the value has short texts
    and not too many parts, and then lets the encoder write into a buffer that cannot grow.
    """
    try:
        msgspec.convert({"value": value}, _Page if len(value) <= _FEW_FIELDS else _Rows)
        buffer = bytearray(_BUFFER)
        with memoryview(buffer):  # a buffer that somebody looks at cannot be resized
            jsonx.encode_into(value, buffer)
    except (BufferError, TypeError, ValueError, OverflowError):  # too long, or something else than plain values
        return None
    return bytes(buffer)


def is_small(value: object) -> bool:
    """True when a value may be encoded in one call on the event loop. One that cannot be measured is not small."""
    try:
        return room_after(value, SMALL) >= 0
    except Exception:  # too deep, or its own code failed: the encoder will raise it
        return False


def is_within(value: object, most_bytes: int, most_parts: int) -> bool:
    """True when a value has no more characters of text, and no more items and fields in all, than these.

    It is looked at for no longer than it takes to find more of them, however large it is.

    Raises:
        TooDeep: it is nested deeper than `jsonx.DEEPEST`.
    """
    waiting: list[tuple[Iterable[Any], int]] = [((value,), 0)]
    while waiting:
        items, depth = waiting.pop()
        if depth > jsonx.DEEPEST:
            raise jsonx.TooDeep
        for item in items:
            kind = type(item)
            if kind is str:
                most_bytes -= len(item)
            elif kind in SCALARS:
                continue
            elif kind is dict or isinstance(item, Mapping):
                most_parts -= len(item)
                if most_parts < 0:
                    return False
                for key in item:
                    if isinstance(key, str):
                        most_bytes -= len(key)
                waiting.append((item.values(), depth + 1))
            elif isinstance(item, list | tuple | set | frozenset):
                most_parts -= len(item)
                if item:
                    waiting.append((item, depth + 1))
            elif isinstance(item, str | bytes | bytearray):
                most_bytes -= len(item)
            elif parts := _fields(item):
                most_parts -= len(parts)
                waiting.append((parts.values(), depth + 1))
            if most_bytes < 0 or most_parts < 0:
                return False
    return True


def room_after(value: Any, room: int, depth: int = 0) -> int:
    """How much of some room is left when a value is in it; below 0, and soon, when it does not fit.

    Text takes its length, and each part of a list or an object takes 8: an estimate of how long it takes to encode.

    Raises:
        TooDeep: it is nested deeper than `jsonx.DEEPEST`.
    """
    kind = type(value)
    if kind is dict:
        room -= 8 * len(value)
        if room < 0:
            return room
        for key in value:
            if type(key) is str:
                room -= len(key)
        return _room_after_items(value.values(), room, depth)
    if kind is list or kind is tuple:
        room -= 8 * len(value)
        return room if room < 0 else _room_after_items(value, room, depth)
    if isinstance(value, str | bytes | bytearray):
        return room - len(value)
    if kind in SCALARS:
        return room
    if isinstance(value, list | tuple | set | frozenset):
        room -= 8 * len(value)
        return room if room < 0 else _room_after_items(value, room, depth)
    parts = _fields(value)
    return room - 8 if not parts else _room_after_items(parts.values(), room - 8 * len(parts), depth)


def _room_after_items(items: Iterable[Any], room: int, depth: int) -> int:
    if depth >= jsonx.DEEPEST:
        raise jsonx.TooDeep
    for item in items:
        kind = type(item)
        if kind is str:
            room -= len(item)
        elif kind not in SCALARS:
            room = room_after(item, room, depth + 1)
            if room < 0:
                break
    return room


def _fields(value: object) -> dict[str, Any]:
    """The fields of an object that has a JSON form, by name; none of any other object."""
    if isinstance(value, dict):
        return value
    if isinstance(value, type):
        return {}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    named = getattr(type(value), "__attrs_attrs__", None)
    if named is not None:
        return {each.name: getattr(value, each.name, None) for each in named}
    if hasattr(type(value), "model_dump"):
        return dict(getattr(value, "__dict__", {}))
    return {}


def encode_in_pieces(value: object, most: int) -> bytes:
    """The JSON of a value, as `jsonx.encode` gives it, made by many short calls. Meant for a thread.

    Raises:
        TooLong: it has more bytes than `most`, or more parts than a value may have.
        TypeError, ValueError, OverflowError, RecursionError: it has no JSON form.
        TooDeep: a ValueError: it is nested deeper than `jsonx.DEEPEST`.
    """
    pieces = _Pieces(most)
    pieces.write(value, 0)
    return b"".join(pieces.parts)


class _Pieces:
    """The JSON of a value so far."""

    def __init__(self, most: int) -> None:
        self.parts: list[bytes] = []
        self._most = most
        self._size = 0

    def _add(self, data: bytes) -> None:
        self.parts.append(data)
        self._size += len(data)
        if self._size > self._most:
            raise TooLong(self._size)

    def _encode(self, value: object, depth: int) -> bytes:
        data = jsonx.encode(value)
        if len(data) > jsonx.SHALLOW:
            jsonx.require_shallow(b"[" * depth + data + b"]" * depth)
        return data

    def write(self, value: object, depth: int) -> None:
        if depth > jsonx.DEEPEST:
            raise jsonx.TooDeep
        if room_after(value, PIECE, depth) >= 0:
            self._add(self._encode(value, depth))
        elif isinstance(value, str):
            self._write_text(str(value))
        elif isinstance(value, bytes | bytearray):
            if len(value) > self._most:
                raise TooLong(len(value))
            self._add(jsonx.encode(value))
        elif isinstance(value, dict):
            self._write_object(value, depth)
        elif isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "model_dump"):
            self._write_list(value, depth)
        elif hasattr(value, "model_dump"):
            # Its own dump is one call, which holds the interpreter's lock.
            if not is_within(value, self._most, MOST_DUMPED):
                raise TooManyParts
            self.write(jsonx.dump_model(value), depth)
        else:
            self._write_fields(value, depth)

    def _write_text(self, text: str) -> None:
        if len(text) > self._most:
            raise TooLong(len(text) + 2)
        self._add(b'"')
        for at in range(0, len(text), PIECE):
            self._add(jsonx.encode(text[at : at + PIECE])[1:-1])
        self._add(b'"')

    def _write_list(self, items: Iterable[Any], depth: int) -> None:
        group: list[Any] = []
        comma, room = b"[", PIECE
        for item in items:
            room = room_after(item, room, depth + 1) - 8
            if room < 0:
                if group:
                    self._add(comma + self._encode(group, depth)[1:-1])
                    comma = b","
                group, room = [], room_after(item, PIECE, depth + 1) - 8
                if room < 0:
                    self._add(comma)
                    self.write(item, depth + 1)
                    comma, room = b",", PIECE
                    continue
            group.append(item)
        if group:
            self._add(comma + self._encode(group, depth)[1:-1])
        self._add(b"]" if group or comma == b"," else b"[]")

    def _write_object(self, fields: dict[Any, Any], depth: int) -> None:
        group: dict[Any, Any] = {}
        comma, room = b"{", PIECE
        for key, item in fields.items():
            taken = 8 + (len(key) if isinstance(key, str) else 0)
            room = room_after(item, room, depth + 1) - taken
            if room < 0:
                if group:
                    self._add(comma + self._encode(group, depth)[1:-1])
                    comma = b","
                group, room = {}, room_after(item, PIECE, depth + 1) - taken
                if room < 0:
                    if type(key) is str and len(key) > PIECE:
                        self._add(comma)
                        self._write_text(key)
                        self._add(b":")
                    else:
                        self._add(comma + self._encode({key: None}, depth)[1 : -len("null}")])
                    self.write(item, depth + 1)
                    comma, room = b",", PIECE
                    continue
            group[key] = item
        if group:
            self._add(comma + self._encode(group, depth)[1:-1])
        self._add(b"}" if group or comma == b"," else b"{}")

    def _write_fields(self, value: Any, depth: int) -> None:
        """Write an object that the encoder knows, with its long fields encoded before."""
        changed = copy.copy(value)
        for name, item in _fields(value).items():
            if room_after(item, PIECE, depth + 1) < 0:
                pieces = _Pieces(self._most - self._size)
                pieces.write(item, depth + 1)
                raw = msgspec.Raw(b"".join(pieces.parts))
                if isinstance(value, msgspec.Struct):
                    msgspec.structs.force_setattr(changed, name, raw)
                else:
                    object.__setattr__(changed, name, raw)
        self._add(jsonx.encode_unchecked(changed))


def decode_text(payload: bytes) -> str:
    """The text whose JSON some bytes are. A long one is decoded in pieces: an escape takes long to read."""
    if len(payload) <= PIECE:
        return jsonx.decode(payload, type=str)
    parts, at, end = [], 1, len(payload) - 1
    while at < end:
        piece = payload[at : min(at + PIECE, end)]
        if at + len(piece) < end:
            piece = piece[: _whole(piece)]
        parts.append(jsonx.decode(b'"' + piece + b'"', type=str))
        at += len(piece)
    return "".join(parts)


def _whole(piece: bytes) -> int:
    """How much of a piece of a JSON string can be read by itself: it ends in no character, escape or pair of these."""
    end = len(piece)
    last = piece.rfind(b"\\", end - 6)
    if last >= 0 and _begins_escape(piece, last):
        size = 6 if piece[last + 1 : last + 2] == b"u" else 2
        if last + size > end or _is_high(piece[last : last + size]):
            end = last
    if end < len(piece) and _is_high(piece[end - 6 : end]) and _begins_escape(piece, end - 6):
        end -= 6
    if end == len(piece):
        # The last character may lack some of its bytes.
        start = max(0, end - 4)
        while end > start and piece[end - 1] & 0xC0 == 0x80:
            end -= 1
        if piece[end - 1] >= 0xC0:
            end -= 1
        else:
            end = len(piece)
    return end


def _begins_escape(piece: bytes, at: int) -> bool:
    before = piece[: at + 1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _is_high(escape: bytes) -> bool:
    """True for the first of two escapes that are one character."""
    return len(escape) == 6 and escape[:2] == b"\\u" and escape[2:3] in b"dD" and escape[3:4] in b"89abAB"


def has_few_parts(data: bytes, most_containers: int = MOST_CONTAINERS, most_items: int = MOST_ITEMS) -> bool:
    """True when some JSON has so few lists, objects and items that it can be decoded in one call."""
    if len(data) <= 2 * most_containers or data[:1] == b'"':
        return True
    containers, items = data.count(b"[") + data.count(b"{"), data.count(b",")
    if containers <= most_containers and items <= most_items:
        return True
    # Some of these may stand in texts, which do not count.
    containers = items = at = 0
    in_text = False
    while at < len(data):
        piece = data[at : at + PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = data[at : at + PIECE + 1]
        at += len(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.translate(None, _NOT_COUNTED).split(b'"')
        outside = b"".join(itertools.islice(parts, 1 if in_text else 0, None, 2))
        in_text ^= len(parts) % 2 == 0
        containers += outside.count(b"[") + outside.count(b"{")
        items += outside.count(b",")
        if containers > most_containers or items > most_items:
            return False
    return True
