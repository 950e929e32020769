"""JSON in one place: fast, canonical and hashed. Owns the encoding of values; does not own any schema."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import msgspec


def _plain(value: Any) -> Any:
    """Give msgspec a form it knows of a value it does not know."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "__fspath__"):
        return str(value)
    for kind in (str, int, float):  # of which msgspec knows the type itself, but no class made of it
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a value of type {type(value).__name__!r} has no JSON form")


encode = msgspec.json.Encoder(enc_hook=_plain).encode
"""Encode a value as compact JSON bytes. Raises TypeError or ValueError for what has no JSON form."""

canonical = msgspec.json.Encoder(enc_hook=_plain, order="sorted").encode
"""Encode with sorted keys: equal values give equal bytes."""

decode = msgspec.json.decode
"""Decode JSON bytes or text. Raises msgspec.DecodeError, whose text names the place."""

DecodeError = msgspec.DecodeError


_SHA256 = hashlib.sha256()  # To look the algorithm up takes longer than to hash what is short.


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    found = _SHA256.copy()
    found.update(data)
    return found.hexdigest()
