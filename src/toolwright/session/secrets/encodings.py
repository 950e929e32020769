"""The forms of a secret. Owns the encodings in which a value is searched for in a tool's output."""

from __future__ import annotations

import base64
import binascii
import html
import json
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from toolwright import jsonx

SHORTEST = 4
"""Characters of the shortest value that can be told from other text."""
LONGEST = 16 * 1024
"""The longest value in bytes: some four times the longest keys in use. Each costs many forms to look for."""
_DEPTH = 3
"""How often a value may have been escaped."""
_LONG = 2_048
"""Characters from which on a value is looked for escaped once only, and not as shells and HTML quote it: a token is
shorter, and of a text that long every form is a cost."""
_SHORTEST_BROKEN = 8
"""Bytes of the shortest form that is looked for across the ends of lines."""
_SHORTEST_LINE = 12
"""The same for a line of a value that has several: a shorter one is too likely to be ordinary text."""


class Forms(NamedTuple):
    """The encodings of a value: forms without line breaks, and forms that may have line breaks in them."""

    whole: frozenset[bytes]
    broken: frozenset[bytes]


def forms(value: str) -> Forms:
    """The encodings of a value, and of its lines, as they would stand in text or inside a string of JSON."""
    found: set[bytes] = set()
    for part in _parts(value):
        if len(part) < _LONG:
            texts = _escaped({part}, _DEPTH) | _escaped(set(_quoted(part)), 1)
        else:
            texts = _escaped({part}, 1) | set(_percent(part))
        found.update(text.encode() for text in texts)
        found.update(_encoded(part.encode()))
    broken: set[bytes] = set()
    for whole in {value, value.strip()}:
        broken.update(_armoured(whole.encode()))
    return Forms(
        frozenset(form for form in found if len(form) >= SHORTEST),
        frozenset(form for form in broken if len(form) >= _SHORTEST_BROKEN),
    )


def _parts(value: str) -> Iterator[str]:
    """The value, without the blanks around it too, and each of its lines, for these are often printed alone."""
    yield value
    if len(stripped := value.strip()) >= SHORTEST:
        yield stripped
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for each in lines if len(line := each.strip()) >= _SHORTEST_LINE)


def _escaped(texts: set[str], depth: int) -> set[str]:
    """Texts as they stand inside strings of JSON or of Python, inside other strings, and so on."""
    found, latest = set(texts), set(texts)
    for _ in range(depth):
        latest = {escape(text) for text in latest for escape in (_in_json, _in_ascii, _in_python)} - found
        found |= latest
    return found


def _in_json(text: str) -> str:
    return jsonx.encode(text)[1:-1].decode()


def _in_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


def _in_python(text: str) -> str:
    return repr(text)[1:-1]


def _quoted(value: str) -> Iterator[str]:
    """The value as other programs quote text."""
    for escaped in (_in_json(value), _in_ascii(value)):
        yield escaped.replace("/", "\\/")
        yield escaped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    yield repr(value.encode())[2:-1]
    yield html.escape(value)
    yield html.escape(value, quote=False)
    yield shlex.quote(value)
    yield from _percent(value)


def _percent(value: str) -> Iterator[str]:
    """The value percent-encoded, with escapes in capital and in small letters."""
    data = value.encode()
    for table in _PERCENT:
        yield "".join(map(table.__getitem__, data))


_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


def _percent_table(safe: bytes, escape: str, blank: str | None = None) -> list[str]:
    plain = _UNRESERVED | frozenset(safe)
    table = [chr(byte) if byte in plain else escape % byte for byte in range(256)]
    table[0x20] = blank or table[0x20]
    return table


# Browsers and libraries differ in the characters that they leave as they are.
_PERCENT = [
    *(
        _percent_table(safe, escape)
        for safe in (b"", b"/", b"!'()*", b"/!'()*", b"!#$&'()*+,/:;=?@")
        for escape in ("%%%02X", "%%%02x")
    ),
    *(_percent_table(b"", escape, "+") for escape in ("%%%02X", "%%%02x")),
]


def _encoded(data: bytes) -> Iterator[bytes]:
    """The bytes of a value in base64, at any place of a longer text that was encoded, in hex, and percent-encoded."""
    yield base64.b64encode(data)
    yield base64.urlsafe_b64encode(data)
    yield from _armoured(data)
    if data:
        digits = b"%" + binascii.hexlify(data, "%")
        yield digits
        yield digits.upper()


def _armoured(data: bytes) -> Iterator[bytes]:
    """The bytes in base64 and hex, which programs break into lines, at any place of a longer text."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            # Only characters that no neighbour shares: at both ends some bits belong to another byte.
            whole = encode(bytes(before) + data)
            yield whole[(8 * before + 5) // 6 : 8 * (before + len(data)) // 6]
    digits = data.hex()
    yield digits.encode()
    yield digits.upper().encode()
