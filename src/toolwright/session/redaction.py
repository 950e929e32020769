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
_HEAD = 6
"""Bytes of a form that are looked for in the one pass."""
_FEW = 4_096
"""Up to so many heads, the fastest machine takes a few megabytes at most; beyond, a smaller one is made."""
_START = 3
_UNSAFE = re.compile(r'["\\\[\]<>&%\'\s]')


def handle(name: str) -> str:
    """What stands in the place of a secret. It fits into JSON, HTML and a URL as it is."""
    return f"[secret:{_UNSAFE.sub('_', name)}]"


class Patterns:
    """Every form of some secrets, compiled. It does not change, and any thread may use it.

    The one pass looks for the first bytes of forms, and what begins like one is compared with it: the machine that
    finds a few bytes of each is small enough to be the fastest there is.
    """

    __slots__ = ("_automaton", "_begun", "_heads", "_longest", "_marks")

    def __init__(self, secrets: Iterable[tuple[str, str]]) -> None:
        owners: dict[bytes, bytes] = {}
        for name, value in secrets:
            mark = handle(name).encode()
            for form in forms(value):
                owners.setdefault(form, mark)
        self._longest = max(map(len, owners), default=0)
        self._marks = re.compile(b"|".join(map(re.escape, sorted(set(owners.values()), key=len, reverse=True))))
        heads: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for form in sorted(owners, key=len, reverse=True):
            heads.setdefault(form[:_HEAD], []).append((form, owners[form]))
        self._heads = list(heads.values())
        library = require_library()
        few = len(heads) <= _FEW
        kind = library.Implementation.DFA if few else library.Implementation.ContiguousNFA
        self._automaton = library.BytesAhoCorasick(list(heads), implementation=kind)
        # By its first bytes, the forms that may have begun at the end of a piece.
        self._begun: dict[bytes, list[bytes]] = {}
        for form in owners:
            for size in range(1, _START + 1):
                self._begun.setdefault(form[:size], []).append(form)

    def without_handles(self, data: bytes) -> bytes:
        """The data with nothing in the place of secrets that were taken out: a name is no secret, whatever it says."""
        return self._marks.sub(b"\0", data)

    def spans(self, data: bytes, shortest: int = 0) -> list[tuple[int, int, bytes]]:
        """Where secrets stand, and what to put there; those that overlap are one."""
        hits = self._automaton.find_matches_as_indexes(data, overlapping=True)
        if not hits:
            return []
        merged: list[tuple[int, int, bytes]] = []
        for start, index in sorted((start, index) for index, start, _ in hits):
            # The longest comes first, and those that begin at the same place are part of it.
            found = next((each for each in self._heads[index] if data.startswith(each[0], start)), None)
            if found is None or len(found[0]) < shortest:
                continue
            end, mark = start + len(found[0]), found[1]
            if not merged or start >= merged[-1][1]:
                merged.append((start, end, mark))
            elif end > merged[-1][1]:
                first, _, marks = merged[-1]
                # One that begins with it, or one that overlaps it.
                both = mark if start == first else marks if mark in marks else marks + mark
                merged[-1] = (first, end, both)
        return merged

    def tail(self, data: bytes) -> int:
        """From where on the data may be the beginning of a form that goes on in the next piece."""
        size, heads = len(data), self._begun
        for at in range(max(0, size - self._longest + 1), size):
            begun = heads.get(data[at : at + _START])
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
