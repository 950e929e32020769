"""The forms of a secret. Owns in which encodings a value is looked for in what a tool gives."""

from __future__ import annotations

import base64
import html
import json
import shlex
import urllib.parse
from collections.abc import Iterator
from itertools import pairwise

from toolwright import jsonx

SHORTEST = 4
"""Characters of the shortest value that can be told from other text."""
_DEPTH = 3
"""How often a value may have been escaped."""
_SHORTEST_LINE = 12
"""The same for a line of a value that has several: a shorter one is too likely to be ordinary text."""


def forms(value: str) -> set[bytes]:
    """The encodings of a value, and of its lines, as they would stand in text or inside a string of JSON."""
    found: set[bytes] = set()
    for part in _parts(value):
        texts = _escaped({part}, _DEPTH) | _escaped(set(_quoted(part)), 1)
        found.update(text.encode() for text in texts)
        found.update(_encoded(part.encode()))
    for whole in {value, value.strip()}:
        found.update(_in_lines(whole.encode()))
    return {form for form in found if len(form) >= SHORTEST}


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
    for safe in ("", "/", "!'()*", "/!'()*", "!#$&'()*+,/:;=?@"):  # browsers and libraries differ in what they leave
        quoted = urllib.parse.quote(value, safe=safe)
        yield quoted
        yield _lower(quoted)
    plus = urllib.parse.quote_plus(value)
    yield plus
    yield _lower(plus)


def _lower(quoted: str) -> str:
    """The escapes of a percent-encoded text in small letters."""
    head, *rest = quoted.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _encoded(data: bytes) -> Iterator[bytes]:
    """The bytes of a value in base64, at any place of a longer text that was encoded, in hex, and percent-encoded."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data)
        for before in range(3):
            # Only what no neighbour has a part in: of the characters at both ends some bits are another's.
            whole = encode(bytes(before) + data)
            yield whole[(8 * before + 5) // 6 : 8 * (before + len(data)) // 6]
    digits = data.hex()
    yield digits.encode()
    yield digits.upper().encode()
    for each in (digits, digits.upper()):
        yield "".join(f"%{each[at : at + 2]}" for at in range(0, len(each), 2)).encode()


def _in_lines(data: bytes) -> Iterator[bytes]:
    """The bytes of a value in base64 that is broken into lines, as many programs do, wherever the lines end."""
    for width in (76, 64):
        for before in range(width * 3 // 4):
            whole = base64.b64encode(bytes(before) + data)
            start, end = (8 * before + 5) // 6, 8 * (before + len(data)) // 6
            breaks = range(start // width * width + width, end, width)
            if breaks:
                places = [start, *breaks, end]
                yield b"\n".join(whole[here:there] for here, there in pairwise(places))
