"""Diffs of a file before and after. Owns keeping their cost in bounds; `difflib` does the comparing."""

from __future__ import annotations

import difflib

Change = tuple[str, int, int, int, int]
"""What `difflib` calls an opcode: a kind, a range of the old lines and one of the new."""

CONTEXT = 3
MOST_COMPARED = 1_000
"""Lines of either side that are compared with each other; where more differ, all of them are shown as replaced."""


def unified(old: str, new: str, path: str) -> str:
    """The unified diff of two texts."""
    before, after = _lines(old), _lines(new)
    # What is the same at both ends is left out: comparing takes time by the square of the lines.
    start, end = _common(before, after)
    first, last = max(0, start - CONTEXT), max(0, end - CONTEXT)
    before, after = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(before), len(after)) <= MOST_COMPARED:
        hunks = list(difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(CONTEXT))
    else:
        hunks = [_one_hunk(len(before), len(after), start - first, end - last)]
    lines = [f"--- {path}", f"+++ {path}"]
    for hunk in hunks:
        _, i1, _, j1, _ = hunk[0]
        _, _, i2, _, j2 = hunk[-1]
        lines.append(f"@@ -{_range(first + i1, first + i2)} +{_range(first + j1, first + j2)} @@")
        for kind, i1, i2, j1, j2 in hunk:
            if kind == "equal":
                lines += [f" {line}" for line in before[i1:i2]]
            else:
                lines += [f"-{line}" for line in before[i1:i2]]
                lines += [f"+{line}" for line in after[j1:j2]]
    return "\n".join(lines) + "\n"


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    else:
        del lines[-1]
    return lines


def _common(before: list[str], after: list[str]) -> tuple[int, int]:
    """How many lines are the same at the start, and how many of the others at the end."""
    shorter = min(len(before), len(after))
    start = end = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end


def _one_hunk(olds: int, news: int, head: int, tail: int) -> list[Change]:
    return [
        ("equal", 0, head, 0, head),
        ("replace", head, olds - tail, head, news - tail),
        ("equal", olds - tail, olds, news - tail, news),
    ]


def _range(start: int, stop: int) -> str:
    count = stop - start
    # An empty range stands after the line before it.
    return f"{start + 1 if count else start},{count}"
