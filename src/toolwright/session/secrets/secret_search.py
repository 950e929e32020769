"""Finding secrets in text. Owns the search for every form of every value; does not own which values there are.

All of it works on UTF-8: a form that is whole there begins and ends where a character does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from types import ModuleType
from typing import NoReturn

from toolwright.errors import SecretsError
from toolwright.session.secrets.encodings import Forms, forms

Pair = tuple[str, str]
"""The name of a secret and its value."""
Found = tuple[int, int, bytes]
"""The position of a secret, and its replacement."""

_BLOCK = 64 * 1024
"""Bytes that are searched at a time, so that the matches fit into memory whatever a tool prints, and so that other
threads run in between."""
_HEAD = 6
"""Bytes of a form that the automaton looks for."""
_FEW = 1_000
"""Up to so many heads, the fastest machine takes a few megabytes at most; beyond, a smaller one is made."""
MOST_HEADS = 4_000
"""How many heads one automaton has. Building one of that size takes about as long as one tick of the loop may take."""
_UNSAFE = re.compile(r'["\\\[\]<>&%\'\s]')
_BREAKS = re.compile(rb"[\r\n]")
_ARMOUR = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_=-"
_ARMOURED = (re.compile(rb"\n(?<=[A-Za-z0-9+/_=-]{32}\n)"), re.compile(rb"\n(?<=[A-Za-z0-9+/_=-]{32}\r\n)"))


def handle(name: str) -> str:
    """The handle of a secret, which stands in its place. It fits into JSON, HTML and a URL as it is."""
    return f"[secret:{_UNSAFE.sub('_', name)}]"


class Table:
    """Some forms, compiled. It does not change, and any thread may use it.

    The automaton looks for the first bytes of forms, and each place where it finds some is compared with the forms that
    begin so: an automaton for a few bytes of each form is small enough to be the fastest there is.
    """

    __slots__ = ("_automaton", "_begun", "_heads", "_longest")

    def __init__(self, owners: Mapping[bytes, bytes]) -> None:
        self._longest = max(map(len, owners), default=0)
        heads: dict[bytes, dict[int, dict[bytes, bytes]]] = {}
        for form in sorted(owners, key=len, reverse=True):
            heads.setdefault(form[:_HEAD], {}).setdefault(len(form), {})[form] = owners[form]
        # Of forms with the same head, the longest first, and those of one length together: there may be a great many.
        self._heads = [list(each.items()) for each in heads.values()]
        library = require_library()
        kind = library.Implementation.DFA if len(heads) <= _FEW else library.Implementation.ContiguousNFA
        self._automaton = library.BytesAhoCorasick(list(heads), implementation=kind)
        # The possible forms at the end of a piece, if too few bytes have come for a head.
        self._begun = {form[:size] for form in owners for size in range(1, min(_HEAD, len(form)))}

    def find(self, data: bytes, shortest: int) -> list[Found]:
        """The positions of forms; of forms that begin at the same position, the longest."""
        found: list[Found] = []
        mark: bytes | None
        for index, start, _ in self._automaton.find_matches_as_indexes(data, overlapping=True):
            for length, same in self._heads[index]:
                if len(same) == 1:
                    ((form, mark),) = same.items()
                    mark = mark if data.startswith(form, start) else None
                else:
                    mark = same.get(data[start : start + length])
                if mark is not None:
                    if length >= shortest:
                        found.append((start, start + length, mark))
                    break
        return found

    def tail(self, data: bytes) -> int:
        """From where on the data may be the beginning of a form that continues in the next piece."""
        size = len(data)
        first = max(0, size - self._longest + 1)
        window = data[first:]
        earliest = size
        for index, start, _ in self._automaton.find_matches_as_indexes(window, overlapping=True):
            if first + start < earliest:
                rest = len(window) - start
                for length, same in self._heads[index]:
                    if length <= rest:
                        break
                    if any(form.startswith(window[start:]) for form in same):
                        earliest = first + start
                        break
        for at in range(max(first, size - _HEAD + 1), earliest):
            if data[at:] in self._begun:
                return at
        return earliest


class Shard:
    """Some secrets, compiled. The secrets of a session are in several of these, so that a new one costs little."""

    __slots__ = ("broken", "marks", "pairs", "size", "whole")

    def __init__(self, pairs: Mapping[Pair, Forms]) -> None:
        self.pairs = dict(pairs)
        self.marks = {handle(name).encode() for name, _ in pairs}
        self.size = heads_of(pairs.values())
        whole: dict[bytes, bytes] = {}
        broken: dict[bytes, bytes] = {}
        for (name, _), known in pairs.items():
            mark = handle(name).encode()
            for form in known.whole:
                whole.setdefault(form, mark)
            for form in known.broken:
                broken.setdefault(form, mark)
        self.whole, self.broken = _tables(whole), _tables(broken)


def _tables(owners: dict[bytes, bytes]) -> tuple[Table, ...]:
    ordered = sorted(owners)  # so that those with the same head are in one table
    return tuple(
        Table({form: owners[form] for form in ordered[at : at + MOST_HEADS]})
        for at in range(0, len(ordered), MOST_HEADS)
    )


def heads_of(known: Iterable[Forms]) -> int:
    """The size of the search: the number of paths in an automaton."""
    return sum(len({form[:_HEAD] for form in each.whole}) + len(each.broken) for each in known)


def compiled(shards: tuple[Shard, ...], new: Collection[Pair], gone: Collection[Pair]) -> tuple[Shard, ...]:
    """The shards with some secrets more and some fewer. It takes its time, and any thread may do it."""
    kept: list[Shard] = []
    for shard in shards:
        if not gone or shard.pairs.keys().isdisjoint(gone):
            kept.append(shard)
        elif left := {pair: known for pair, known in shard.pairs.items() if pair not in gone}:
            kept.append(Shard(left))
    growing: dict[Pair, Forms] = {}
    if kept and kept[-1].size < MOST_HEADS:
        growing = kept.pop().pairs
    size = heads_of(growing.values())
    for pair in new:
        known = forms(pair[1])
        added = heads_of([known])
        if growing and size + added > MOST_HEADS:
            kept.append(Shard(growing))
            growing, size = {}, 0
        growing[pair] = known
        size += added
    return (*kept, Shard(growing)) if growing else tuple(kept)


class Patterns:
    """Every form of some secrets. It does not change, and any thread may use it."""

    __slots__ = ("_broken", "_marks", "_shards", "_whole")

    def __init__(self, shards: Collection[Shard]) -> None:
        self._shards = tuple(shards)
        self._whole = tuple(table for shard in shards for table in shard.whole)
        self._broken = tuple(table for shard in shards for table in shard.broken)
        self._marks: re.Pattern[bytes] | None = None

    def without_handles(self, data: bytes) -> bytes:
        """The data without the handles of redacted secrets: a name is not a secret, whatever its text."""
        if self._marks is None:
            marks = sorted({mark for shard in self._shards for mark in shard.marks}, key=len, reverse=True)
            self._marks = re.compile(b"|".join(map(re.escape, marks)))
        return self._marks.sub(b"\0", data)

    def spans(self, data: bytes, shortest: int = 0) -> list[Found]:
        """The positions of secrets and their replacements; overlapping ones are joined."""
        found: list[Found] = []
        for table in self._whole:
            found += table.find(data, shortest)
        if self._broken and _may_be_broken(data):
            found += self._across_lines(data, shortest)
        if not found:
            return found
        merged: list[Found] = []
        for start, end, mark in sorted(found, key=_first_and_longest):
            if not merged or start >= merged[-1][1]:
                merged.append((start, end, mark))
            elif end > merged[-1][1]:
                first, _, marks = merged[-1]
                merged[-1] = (first, end, marks if mark in marks else marks + mark)
        return merged

    def _across_lines(self, data: bytes, shortest: int) -> list[Found]:
        """Where secrets stand in base64 or hex that is broken into lines, wherever the lines end."""
        flat = data.translate(None, b"\r\n")
        found = [each for table in self._broken for each in table.find(flat, shortest)]
        if found:
            place = _Places(data)
            found = [(place.of(start), place.of(end - 1) + 1, mark) for start, end, mark in found]
        return found

    def tail(self, data: bytes) -> int:
        """From where on the data may be the beginning of a form that continues in the next piece."""
        earliest = min((table.tail(data) for table in self._whole), default=len(data))
        if self._broken and _may_be_broken(data):
            flat = data.translate(None, b"\r\n")
            begun = min(table.tail(flat) for table in self._broken)
            if begun < len(flat):
                earliest = min(earliest, _place_from_end(data, len(flat) - begun))
        return earliest

    def redact(self, data: bytes, shortest: int = 0) -> bytes:
        """The data without secrets; the same object when it has none."""
        if len(data) > _BLOCK:
            scrubber = Scrubber()
            parts = [scrubber.feed(self, data[at : at + _BLOCK], shortest) for at in range(0, len(data), _BLOCK)]
            parts.append(scrubber.end(self, shortest))
            return b"".join(parts) if scrubber.changed else data
        spans = self.spans(data, shortest)
        if not spans:
            return data
        parts, at = [], 0
        for start, end, mark in spans:
            parts += [data[at:start], mark]
            at = end
        return b"".join([*parts, data[at:]])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a redactor is not pickled; it is made of secrets")


def _may_be_broken(data: bytes) -> bool:
    """True where a line may be one of base64 or hex; the first may have begun before the data does."""
    first = data.find(b"\n")
    if first < 0:
        return False
    if first <= 33 and not data[:first].rstrip(b"\r").translate(None, _ARMOUR):
        return True
    return any(pattern.search(data) for pattern in _ARMOURED)


def _first_and_longest(found: Found) -> tuple[int, int]:
    return found[0], -found[1]


def _place_from_end(data: bytes, count: int) -> int:
    """Where the last so many bytes of the data begin, its line breaks not counted."""
    size = count + count // 16 + 16
    while len(flat := data[-size:].translate(None, b"\r\n")) < count:
        size *= 2
    window = data[-size:]
    return len(data) - len(window) + _Places(window).of(len(flat) - count)


class _Places:
    """Maps positions in data without line breaks to positions in the data."""

    __slots__ = ("_removed",)

    def __init__(self, data: bytes) -> None:
        self._removed = [found.start() - before for before, found in enumerate(_BREAKS.finditer(data))]

    def of(self, place: int) -> int:
        return place + bisect_right(self._removed, place)


class Scrubber:
    """Data without secrets, piece by piece: a secret that is split across pieces is found too.

    It holds back only the possible beginning of a secret.
    """

    __slots__ = ("_covered", "_held", "changed")

    def __init__(self) -> None:
        self._held = b""
        self._covered = 0  # of the held data, how much belongs to a secret whose handle was given out
        self.changed = False

    def feed(self, patterns: Patterns, data: bytes, shortest: int = 0) -> bytes:
        """The data that can be given out now."""
        data = self._held + data
        return self._give(patterns, data, patterns.tail(data), shortest)

    def end(self, patterns: Patterns, shortest: int = 0) -> bytes:
        """The remaining data."""
        return self._give(patterns, self._held, len(self._held), shortest)

    def _give(self, patterns: Patterns, data: bytes, cut: int, shortest: int) -> bytes:
        given, at = [], self._covered
        for start, end, mark in patterns.spans(data, shortest):
            if start >= cut:
                break
            if end > at:
                given += [data[at:start], mark] if start > at else [mark]
                at = end
                self.changed = True
        if at < cut:
            given.append(data[at:cut])
            at = cut
        self._held, self._covered = data[cut:], at - cut
        return b"".join(given)


def require_library() -> ModuleType:
    """The library that searches for many texts at once.

    Raises:
        SecretsError: it is missing.
    """
    try:
        import ahocorasick_rs
    except ImportError as error:
        raise SecretsError("Secrets need the library 'ahocorasick_rs'; pip install 'toolwright[secrets]'") from error
    return ahocorasick_rs
