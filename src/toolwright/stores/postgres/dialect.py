"""The shared statements in the words of PostgreSQL. Owns rewriting each of them once; has no statements of its own.

The shared queries are written in the SQL that both databases have in common, with `?` for values. What is left is
listed here: a statement that needs more does not belong among the shared ones.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolwright.stores.postgres.values import Texts

_PLACEHOLDER = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\?(\d*)")
_JSON_LIST = re.compile(r"IN \(SELECT value FROM json_each\(\$(\d+)\)\)")
_NULL = re.compile(r"\$(\d+) IS (NOT )?NULL")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # Numbers of the event log come from a sequence, whose steps leave room for the events of one row.
    (
        re.compile(r"\(SELECT coalesce\(max\(number\), 0\) FROM events\) \+ (\$\d+)"),
        r"nextval('event_numbers') + 0 * \1",
    ),
    (
        re.compile(r"INSERT OR REPLACE INTO turn_events (VALUES .*)"),
        r"INSERT INTO turn_events \1 ON CONFLICT (turn, last) DO UPDATE SET data = excluded.data",
    ),
    # Counters have a table of their own, since values here have one type.
    (re.compile(r"\bmeta\b(?=.*name = '(?:arrived|changed)')"), "counters"),
    (re.compile(r"SELECT seq FROM sqlite_sequence"), "SELECT value FROM counters"),
    # The plus keeps SQLite from an index that it would choose.
    (re.compile(r"(?<=[ (])\+(?=[a-z_]+\b)"), ""),
    # A call is found by its key, and not among all unfinished ones, of which a session may have very many.
    (
        re.compile(r"(call_id = \$\d+ AND (?:owner = (?:\$\d+|'') AND )?)outcome IS NULL"),
        r"\1(outcome IS NULL)::int = 1",
    ),
    # The list of the calls of a session is in the order of an index of its own.
    (re.compile(r"(rowid < \$\d+ AND )session = "), r"\1session || '' = "),
    (re.compile(r"CAST\('null' AS BLOB\)"), "'null'::bytea"),
    (re.compile(r"CAST\((substr\([^()]*\)) AS BLOB\)"), r"\1"),
    (re.compile(r"\bjson_group_object\(([^()]*)\)"), r"CAST(json_object_agg(\1) AS TEXT)"),
    (re.compile(r"\binstr\("), "strpos("),
    (re.compile(r"\bmax\(([a-z_.]+), ([^()]*)\)"), r"greatest(\1, \2)"),
)


class Statement(NamedTuple):
    """A statement of PostgreSQL. `lists` are the places of values that are JSON lists of text, and `nulls` the places
    of those that it compares with NULL."""

    text: str
    lists: tuple[int, ...]
    nulls: tuple[int, ...]

    def text_for(self, values: Sequence[Any]) -> str:
        """The statement for certain values: what is NULL is decided here, where PostgreSQL cannot know the type."""
        return _without_nulls(self.text, tuple(i for i in self.nulls if values[i] is None)) if self.nulls else self.text

    def bind(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values as the statement wants them."""
        if not self.lists:
            return values
        bound = list(values)
        for place in self.lists:
            if bound[place] is not None:
                bound[place] = Texts.of(json.loads(bound[place]))
        return bound


@functools.lru_cache(maxsize=2_000)
def _without_nulls(text: str, nulls: tuple[int, ...]) -> str:
    def decide(found: re.Match[str]) -> str:
        is_null = int(found.group(1)) - 1 in nulls
        return "false" if is_null is bool(found.group(2)) else "true"

    return _NULL.sub(decide, text)


@functools.lru_cache(maxsize=2_000)
def rewritten(statement: str) -> Statement:
    """A shared statement in the words of PostgreSQL."""
    highest = 0

    def place(found: re.Match[str]) -> str:
        nonlocal highest
        if found.group(1) is None:
            return found.group()  # text or a name in quotes
        number = int(found.group(1)) if found.group(1) else highest + 1
        highest = max(highest, number)
        return f"${number}"

    text = _PLACEHOLDER.sub(place, statement)
    lists = tuple(int(number) - 1 for number in dict.fromkeys(_JSON_LIST.findall(text)))
    text = _JSON_LIST.sub(r"= ANY ($\1::text[])", text)
    for pattern, words in _RULES:
        text = pattern.sub(words, text)
    return Statement(text, lists, tuple({int(number) - 1 for number, _ in _NULL.findall(text)}))
