"""Finding secrets in text. Owns the one pass that finds every form of every value; does not own which there are.

All of it works on UTF-8: a form that is whole there begins and ends where a character does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

from toolwright.errors import SecretsError
from toolwright.session.forms import forms

_BLOCK = 256 * 1024
"""Bytes that are searched at a time, so that what is found in them fits into memory whatever a tool prints."""
_HEAD = 3
_UNSAFE = re.compile(r'["\\\[\]<>&%\'\s]')


def handle(name: str) -> str:
    """What stands in the place of a secret. It fits into JSON, HTML and a URL as it is."""
    return f"[secret:{_UNSAFE.sub('_', name)}]"


class Patterns:
    """Every form of some secrets, compiled. It does not change, and any thread may use it."""

    __slots__ = ("_automaton", "_handles", "_heads", "_longest")

    def __init__(self, secrets: Iterable[tuple[str, str]]) -> None:
        owners: dict[bytes, bytes] = {}
        for name, value in secrets:
            mark = handle(name).encode()
            for form in forms(value):
                owners.setdefault(form, mark)
        self._handles = list(owners.values())
        self._longest = max(map(len, owners), default=0)
        self._automaton = require_library().BytesAhoCorasick(list(owners))
        # By its first bytes, the forms that may have begun at the end of a piece.
        self._heads: dict[bytes, list[bytes]] = {}
        for form in owners:
            for size in range(1, _HEAD + 1):
                self._heads.setdefault(form[:size], []).append(form)

    @property
    def handles(self) -> set[bytes]:
        """What can stand in the place of a secret."""
        return set(self._handles)

    def spans(self, data: bytes, shortest: int = 0) -> list[tuple[int, int, bytes]]:
        """Where secrets stand, and what to put there; those that overlap are one."""
        found = self._automaton.find_matches_as_indexes(data, overlapping=True)
        if not found:
            return []
        merged: list[tuple[int, int, bytes]] = []
        for start, end, index in sorted((start, -end, index) for index, start, end in found):
            mark, end = self._handles[index], -end
            if end - start < shortest:
                continue
            if not merged or start >= merged[-1][1]:
                merged.append((start, end, mark))
            elif end > merged[-1][1]:
                first, _, marks = merged[-1]
                merged[-1] = (first, end, marks if mark in marks else marks + mark)
        return merged

    def tail(self, data: bytes) -> int:
        """From where on the data may be the beginning of a form that goes on in the next piece."""
        size, heads = len(data), self._heads
        for at in range(max(0, size - self._longest + 1), size):
            begun = heads.get(data[at : at + _HEAD])
            if begun is not None:
                rest = data[at:]
                if any(len(form) > len(rest) and form.startswith(rest) for form in begun):
                    return at
        return size

    def redact(self, data: bytes, shortest: int = 0) -> bytes:
        """The data without secrets; the same object when it has none."""
        if len(data) > _BLOCK:
            scrubber = Scrubber()
            parts = [scrubber.feed(self, data[at : at + _BLOCK], shortest) for at in range(0, len(data), _BLOCK)]
            redacted = b"".join([*parts, scrubber.end(self, shortest)])
            return data if redacted == data else redacted
        spans = self.spans(data, shortest)
        if not spans:
            return data
        parts, at = [], 0
        for start, end, mark in spans:
            parts += [data[at:start], mark]
            at = end
        return b"".join([*parts, data[at:]])

    def __reduce__(self) -> NoReturn:
        raise TypeError("what is redacted is not pickled; it is made of secrets")


class Scrubber:
    """Data without secrets, piece by piece: one that is split across pieces is found too.

    It holds back what may be the beginning of a secret, and nothing else.
    """

    __slots__ = ("_covered", "_held")

    def __init__(self) -> None:
        self._held = b""
        self._covered = 0  # of what is held, how much belongs to a secret whose handle was given out

    def feed(self, patterns: Patterns, data: bytes, shortest: int = 0) -> bytes:
        """What can be given out now."""
        data = self._held + data
        return self._give(patterns, data, patterns.tail(data), shortest)

    def end(self, patterns: Patterns, shortest: int = 0) -> bytes:
        """What is left."""
        return self._give(patterns, self._held, len(self._held), shortest)

    def _give(self, patterns: Patterns, data: bytes, cut: int, shortest: int) -> bytes:
        given, at = [], self._covered
        for start, end, mark in patterns.spans(data, shortest):
            if start >= cut:
                break
            if end > at:
                given += [data[at:start], mark] if start > at else [mark]
                at = end
        if at < cut:
            given.append(data[at:cut])
            at = cut
        self._held, self._covered = data[cut:], at - cut
        return b"".join(given)


def require_library() -> Any:
    """The library that searches for many texts at once.

    Raises:
        SecretsError: it is missing.
    """
    try:
        import ahocorasick_rs
    except ImportError as error:
        raise SecretsError("Secrets need the library 'ahocorasick_rs'; pip install 'toolwright[secrets]'") from error
    return ahocorasick_rs
