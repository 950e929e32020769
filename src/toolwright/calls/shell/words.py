"""The words of a script, as the shell sees them once quotes and escapes are gone. Owns what of a word can be known.

A piece that only the shell can know, such as what a variable holds or what a pattern finds, is None.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

from msgspec import Struct

Piece = str | None

_ANSI = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.S)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_UNQUOTED = re.compile(r"\\\n|\\(.)|([*?\[{}~])|([^\\*?\[{}~]+|\\)", re.S)
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


def word_of(node: Any) -> Word:
    """The word that a node of the syntax tree stands for."""
    pieces, splits = _pieces(node)
    return Word(tuple(pieces), node.text.decode(), splits)


def _pieces(node: Any) -> tuple[list[Piece], bool]:
    kind, text = node.type, node.text.decode()
    if kind in ("word", "number", "variable_name", "test_operator", "heredoc_content"):
        return _unquoted(text)
    if kind == "raw_string":
        return [text[1:-1]], False
    if kind == "ansi_c_string":
        return [_ansi(text[2:-1])], False
    if kind == "string":
        return _string(node), '"$@"' in text or "[@]" in text
    if kind in ("concatenation", "command_name"):
        pieces: list[Piece] = []
        splits = False
        for part, between in _parts(node):
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
    braces = "{" in text or "}" in text
    for found in _UNQUOTED.finditer(text):
        escaped, special, plain = found.groups()
        if special == "~" and found.start() > 0:
            pieces.append("~")
        elif special in ("{", "}") and text in ("{", "}", "{}"):
            pieces.append(special)
        elif special:
            pieces.append(None)
            splits = True
        else:
            pieces.append(escaped or plain or "")
    # `{a,b}` becomes several words, which may stand anywhere.
    return ([None], True) if braces and splits else (pieces, splits)


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
    return pieces


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
