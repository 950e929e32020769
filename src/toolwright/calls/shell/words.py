"""The words of a script, as the shell sees them once quotes and escapes are gone. Owns what of a word can be known.

A piece that only the shell can know, such as what a variable holds or what a pattern finds, is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from typing import Any

from msgspec import Struct

from toolwright.calls.shell.braces import Bare, Piece, expand

_ANSI = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.S)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_UNQUOTED = re.compile(r"\\\n|\\(.)|([*?\[~])|([{},])|([^\\*?\[{},~]+|\\)", re.S)
_QUOTED = re.compile(r"\\\n|\\([$`\"\\])|([^\\]+|\\)", re.S)


class Word(Struct, frozen=True):
    """One word. `spelled` is how it is written; `splits` says that it may become several words, or none."""

    pieces: tuple[Piece, ...]
    spelled: str
    splits: bool = False

    @property
    def text(self) -> str | None:
        """What it is for sure, or None."""
        if any(piece is None for piece in self.pieces):
            return None
        return "".join(piece for piece in self.pieces if piece is not None)

    @property
    def start(self) -> str:
        """What it begins with for sure, however that is quoted."""
        return "".join(piece for piece in takewhile(lambda piece: piece is not None, self.pieces) if piece)


def names(text: str) -> frozenset[str]:
    """The names in a text, for a table of them."""
    return frozenset(text.split())


UNKNOWN = Word((None,), "…", True)
"""A word, or several, of which nothing is known."""


def literal(text: str) -> Word:
    """A word that is what it says."""
    return Word((text,), text)


def words_of(node: Any) -> list[Word]:
    """The words that a node of the syntax tree stands for: several, or none, if it has braces."""
    pieces, splits = _pieces(node)
    spelled = node.text.decode()
    expanded = expand(pieces)
    if expanded is None:
        return [Word((None,), spelled, True)]
    words = [Word(tuple(_joined(found)), spelled, splits and None in found) for found in expanded]
    return [word for word in words if word.pieces or len(words) == 1]


def word_of(node: Any) -> Word:
    """The one word that a node stands for."""
    words = words_of(node)
    return words[0] if len(words) == 1 else Word((None,), node.text.decode(), True)


def bare_text(node: Any) -> str:
    """What is known of a node once its quotes are gone, before its braces are looked at."""
    return "".join(piece or "" for piece in _pieces(node)[0])


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    for known, run in groupby(pieces, lambda piece: piece is not None):
        yield "".join(piece or "" for piece in run) if known else None


def _pieces(node: Any) -> tuple[list[Piece], bool]:
    kind, text = node.type, node.text.decode()
    if kind in ("word", "number", "variable_name", "test_operator", "heredoc_content", "brace_expression"):
        return _unquoted(text)
    if kind == "raw_string":
        return [text[1:-1]], False
    if kind == "ansi_c_string":
        return [_ansi(text[2:-1])], False
    if kind == "translated_string" and node.named_child_count == 1:
        return _pieces(node.named_children[0])
    if kind == "string":
        return _string(node), '"$@"' in text or "[@]" in text
    if kind in ("concatenation", "command_name"):
        pieces: list[Piece] = []
        splits = False
        parts = _parts(node)
        for (part, between), (following, _) in zip(parts, [*parts[1:], (None, "")], strict=True):
            if following is not None and following.type == "string":
                between = between.removesuffix("$")  # of a translated string
            found, more = _pieces(part) if part is not None else _unquoted(between)
            pieces += found
            splits |= more
        return pieces, splits
    return [None], True  # an expansion or a substitution, or what this page does not know


def _parts(node: Any) -> list[tuple[Any, str]]:
    """The children of a node and the text between them, in order."""
    parts: list[tuple[Any, str]] = []
    at = node.start_byte
    for child in node.named_children:
        if child.start_byte > at:
            parts.append((None, node.text[at - node.start_byte : child.start_byte - node.start_byte].decode()))
        parts.append((child, ""))
        at = child.end_byte
    if at < node.end_byte:
        parts.append((None, node.text[at - node.start_byte :].decode()))
    return parts


def _unquoted(text: str) -> tuple[list[Piece], bool]:
    pieces: list[Piece] = []
    splits = False
    for found in _UNQUOTED.finditer(text):
        escaped, special, mark, plain = found.groups()
        if special == "~" and found.start() > 0 and text[found.start() - 1] not in "{,":
            pieces.append(Bare("~"))
        elif special:
            pieces.append(None)
            splits = True
        elif escaped:
            pieces.append(escaped)
        elif mark or plain:
            pieces.append(Bare(mark or plain))
    return pieces, splits


def _string(node: Any) -> list[Piece]:
    """What is between double quotes: text, and expansions that stay one word."""
    pieces: list[Piece] = []
    for part, between in _parts(node):
        if part is not None and part.type != "string_content":
            pieces.append(None)
            continue
        text = between if part is None else part.text.decode()
        if part is None:
            # The quotes themselves, and the `$` of a translated string.
            text = text.removeprefix("$") if not pieces and text.startswith('$"') else text
            text = text.replace('"', "") if not text.strip('"') else text.strip('"')
        pieces += [(escaped or plain or "") for escaped, plain in (found.groups() for found in _QUOTED.finditer(text))]
    return pieces or [""]


def _ansi(text: str) -> Piece:
    def decode(found: re.Match[str]) -> str:
        two, four, eight, octal, control, letter = found.groups()
        for digits, base in ((two, 16), (four, 16), (eight, 16), (octal, 8)):
            if digits is not None:
                return chr(int(digits, base) & (0xFF if digits in (two, octal) else 0x10FFFF))
        if control is not None:
            return chr(ord(control.upper()) & 0x1F)
        return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else f"\\{letter}")

    decoded = _ANSI.sub(decode, text)
    # The shell ends such a string at a zero byte; what follows it there is not worth knowing.
    return None if "\0" in decoded else decoded
