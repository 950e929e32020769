"""JSON in one place: fast, canonical and hashed. Owns the encoding of values; does not own any schema."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


def known_form(value: object) -> object:
    """The form of a value that msgspec knows, for a value that it does not know.

    Raises:
        TypeError: it has none.
    """
    if hasattr(value, "model_dump"):
        return dump_model(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "__fspath__"):
        return str(value)
    for kind in (str, int, float):  # of which msgspec knows the type itself, but no class made of it
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a value of type {type(value).__name__!r} has no JSON form")


def dump_model(model: Any) -> object:
    """The plain data of a pydantic model, and of values inside it that only msgspec knows, such as an image.

    Raises:
        TypeError, ValueError: something inside has no JSON form.
    """
    try:
        return model.model_dump(mode="json")
    except ValueError:  # pydantic does not know something inside
        return model.model_dump(mode="json", fallback=builtin_form)


def builtin_form(value: object) -> object:
    """The plain data of a value that pydantic does not know, such as an image.

    Raises:
        TypeError: it has none.
    """
    return msgspec.to_builtins(value, enc_hook=known_form)


_encoder = msgspec.json.Encoder(enc_hook=known_form)
_encode = _encoder.encode
_canonical = msgspec.json.Encoder(enc_hook=known_form, order="sorted").encode
_decode = msgspec.json.decode

DecodeError = msgspec.DecodeError

DEEPEST = 128
"""How deep lists and objects may be nested in each other. Every parser of our JSON can read that depth."""
SHALLOW = 2 * DEEPEST
"""JSON of up to this many bytes cannot be nested deeper, for each list takes two."""


class TooDeep(msgspec.DecodeError, ValueError):
    """Lists and objects are nested in each other deeper than `DEEPEST`."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {DEEPEST} levels deep")


def encode(value: object) -> bytes:
    """Encode a value as compact JSON bytes.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: the value has no JSON form.
        TooDeep: a ValueError: it is nested deeper than `DEEPEST`.
    """
    data = _encode(value)
    if len(data) > SHALLOW:
        require_shallow(data)
    return data


encode_unchecked = _encode
"""The same, for a value whose depth is checked elsewhere: JSON longer than `SHALLOW` needs `require_shallow`."""
encode_into = _encoder.encode_into
"""The same, into a `bytearray`."""
canonical_unchecked = _canonical
"""The same as `canonical`, for such a value."""


def canonical(value: object) -> bytes:
    """Encode with sorted keys: equal values give equal bytes. Raises the same errors as `encode`."""
    data = _canonical(value)
    if len(data) > SHALLOW:
        require_shallow(data)
    return data


@overload
def decode(data: bytes | bytearray | memoryview | str, *, type: type[T]) -> T: ...
@overload
def decode(data: bytes | bytearray | memoryview | str, *, type: object = ...) -> Any: ...
def decode(data: bytes | bytearray | memoryview | str, *, type: object = Any) -> object:
    """Decode JSON bytes or text.

    Raises:
        DecodeError: it is not JSON; the text of the error names the place.
        TooDeep: a DecodeError: it is nested deeper than `DEEPEST`. It was not decoded.
    """
    if len(data) > SHALLOW:
        require_shallow(data.encode() if isinstance(data, str) else bytes(data))
    return _decode(data, type=type)


_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_LOW_HALF = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_MOST_SEARCHED = 256 * 1024
"""The bytes of a text that are searched for half of a character: they take tens of milliseconds."""


def lone_surrogate(data: bytes) -> tuple[str, int] | None:
    """The escape of half a character at which this text cannot be read, and its place; None if that has another cause.

    Such an escape has no other half beside it, and the text breaks elsewhere, or nowhere, without it. Only the start of
    a long text is searched.
    """
    place = 0
    while (found := _ESCAPE.search(data, place, _MOST_SEARCHED)) is not None:
        place = found.end()
        if not found[1]:
            continue  # another escape, such as that of a backslash
        code = found[1].lower()
        if b"d8" <= code < b"dc" and _LOW_HALF.match(data, place):
            place += 6
        elif b"d8" <= code[:2] <= b"df":
            without = data[: found.start()] + rb"\u0020" + data[place:]
            return None if _why_broken(without) == _why_broken(data) else (found[0].decode(), found.start())
    return None


def _why_broken(data: bytes) -> str | None:
    """Why and where a text is not JSON; None if it is."""
    try:
        _decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return None


def why_no_form(error: BaseException) -> str | None:
    """Why a value has no JSON form, where the encoder would speak of itself; None where the value is the cause."""
    if isinstance(error, UnicodeEncodeError):
        half = error.object[error.start]
        return f"a text in it has half of a surrogate pair, {half!a}, which is no character"
    if "with str keys" in str(error):
        return "an object in it has a key that is no text"
    return None


def has_no_form(error: BaseException) -> str:
    """What is said of a value without a JSON form: of the errors of values only what tells nothing of their content."""
    why = why_no_form(error)
    return "has no JSON form" if why is None else f"has no JSON form: {why}"


_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"\\'))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_STEPS = bytes.maketrans(b"[]", b"\x01\xff")
_LAYERS = 12
"""How many layers are removed before the rest is counted: hardly any value has more."""


def require_shallow(data: bytes) -> None:
    """Refuse JSON that is nested too deeply. It is not parsed for that, so no depth can exhaust the stack.

    Raises:
        TooDeep: it is nested deeper than `DEEPEST`.
    """
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Only brackets and quotes are left: two quotes side by side have nothing between them that counts.
    marks = data.translate(_ALIKE, _NOT_STRUCTURE).replace(b'""', b"")
    if b'"' in marks:
        marks = b"".join(marks.split(b'"')[::2])
    marks = marks.replace(b"\\", b"")
    for _ in range(_LAYERS):
        if not marks:
            return
        marks = marks.replace(b"[]", b"")  # the innermost lists and objects
    steps = memoryview(marks.translate(_STEPS)).cast("b")
    if max(itertools.accumulate(steps), default=0) > DEEPEST - _LAYERS:
        raise TooDeep


_NUMBERS = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBERS = (b"0" * 200, b"0e000", b"0e+000")
"""Where one of these is found, with every digit as a 0, a number may be longer or larger than can be read."""


def require_readable(data: bytes) -> None:
    """Refuse JSON whose syntax was checked, but that cannot be decoded.

    It is decoded only where a number may be too large, for that takes long.

    Raises:
        DecodeError: a number is too large, or it is nested deeper than `DEEPEST`.
    """
    if len(data) > SHALLOW:
        require_shallow(data)
    marks = data.translate(_NUMBERS)
    if any(number in marks for number in _LONG_NUMBERS):
        _decode(data)


_SHA256 = hashlib.sha256()  # Looking the algorithm up takes longer than hashing a short value.


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    found = _SHA256.copy()
    found.update(data)
    return found.hexdigest()
