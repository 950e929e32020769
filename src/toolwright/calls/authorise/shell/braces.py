"""Words with braces, as bash expands them: `a{b,c}` is `ab ac`. Owns which words they become.

An expansion into many words, or one that is not certain, is left to be a doubt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

Piece = str | None

MOST_WORDS = 64
MOST_PIECES = 100
MOST_DEPTH = 8

_RANGE = re.compile(r"(-?\d{1,9}|[a-z]|[A-Z])\.\.(-?\d{1,9}|[a-z]|[A-Z])(?:\.\.(-?\d{1,9}))?")
_PADDED = re.compile(r"-?0\d+")

Texts = list[tuple[Piece, ...]]


class Bare(str):
    """Text that is not quoted. Braces and commas stand alone in one, and mean something."""

    __slots__ = ()


class _UnsureError(Exception):
    """The expansion of this is not reliable."""


def expand(pieces: Sequence[Piece]) -> Texts | None:
    """The words that one word becomes, in order, each as its pieces; None when they cannot be told."""
    marks = [at for at, piece in enumerate(pieces) if isinstance(piece, Bare) and piece in ("{", "}")]
    opens = [at for at in marks if pieces[at] == "{"]
    within = pieces[opens[0] + 1 : marks[-1]] if opens else ()
    if not any(isinstance(piece, Bare) and (piece == "," or "." in piece) for piece in within):
        return [tuple(pieces)]
    if len(pieces) > MOST_PIECES:
        return None
    try:
        texts, end = _text(pieces, 0, 0)
    except _UnsureError:
        return None
    return texts if end == len(pieces) else None


def _text(pieces: Sequence[Piece], at: int, depth: int) -> tuple[Texts, int]:
    """The texts from one place on, up to the comma or brace that ends them, and where that is."""
    texts: Texts = [()]
    while at < len(pieces):
        piece = pieces[at]
        found: Texts = [(piece,)]
        if isinstance(piece, Bare) and (piece == "}" or (piece == "," and depth)):
            break
        if isinstance(piece, Bare) and piece == "{":
            found, at = _group(pieces, at + 1, depth + 1)
        if len(texts) * len(found) > MOST_WORDS:
            raise _UnsureError
        texts = [before + after for before, after in product(texts, found)]
        at += 1
    return texts, at


def _group(pieces: Sequence[Piece], at: int, depth: int) -> tuple[Texts, int]:
    """The text between braces, and the position of the last one."""
    if depth > MOST_DEPTH:
        raise _UnsureError
    start, commas = at, 0
    choices, at = _text(pieces, at, depth)
    while at < len(pieces) and pieces[at] == ",":
        more, at = _text(pieces, at + 1, depth)
        choices += more
        commas += 1
    if at == len(pieces) or len(choices) > MOST_WORDS:
        raise _UnsureError
    if commas:
        return choices, at
    inner = pieces[start:at]
    if "{" not in inner and all(isinstance(piece, Bare) for piece in inner):
        whole = "".join(piece or "" for piece in inner)
        if ".." in whole:
            return _range(whole), at
    elif any(isinstance(piece, Bare) and "." in piece for piece in inner):
        raise _UnsureError
    return [("{", *choice, "}") for choice in choices], at


def _range(text: str) -> Texts:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise _UnsureError
    first, last, step = found[1], found[2], abs(int(found[3] or 1)) or 1
    numbers = [end.lstrip("-").isdigit() for end in (first, last)]
    if numbers[0] != numbers[1] or (not numbers[0] and first.isupper() != last.isupper()):
        raise _UnsureError
    start, end = (int(first), int(last)) if numbers[0] else (ord(first), ord(last))
    if abs(end - start) // step >= MOST_WORDS:
        raise _UnsureError
    values = range(start, end + 1, step) if start <= end else range(start, end - 1, -step)
    if not numbers[0]:
        return [(chr(value),) for value in values]
    width = max(len(first), len(last)) if _PADDED.fullmatch(first) or _PADDED.fullmatch(last) else 0
    return [(f"{value:0{width}d}",) for value in values]
