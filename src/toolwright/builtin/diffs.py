"""Diffs of a file before and after. Owns keeping their cost in bounds; `difflib` does the comparing."""

from __future__ import annotations

import difflib
from collections.abc import Callable

Change = tuple[str, int, int, int, int]
"""An opcode of `difflib`: a kind, a range of the old lines and one of the new."""

CONTEXT = 3
MOST_COMPARED = 1_000
"""Lines of either side that are compared with each other; where more differ, all of them are shown as replaced."""

MOST_SHOWN = 128 * 1024
"""Characters of either side that are shown; where more differ, there is no diff."""
_BLOCK = 64 * 1024


def unified(old: str, new: str, path: str) -> str:
    """The unified diff of two texts; where more differs than can be shown, only how much that is."""
    start, end = _same(old, new)
    if max(len(old), len(new)) - start - end > MOST_SHOWN:
        return (
            f"(left out: from line {old.count(chr(10), 0, start) + 1} on, {len(old) - start - end} characters became "
            f"{len(new) - start - end}; read the file)\n"
        )
    passed = old.count("\n", 0, start)
    before, after = _lines(old[start : len(old) - end]), _lines(new[start : len(new) - end])
    # Equal lines at both ends are left out: comparing takes time by the square of the lines.
    start, end = _common(before, after)
    first, last = max(0, start - CONTEXT), max(0, end - CONTEXT)
    before, after = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(before), len(after)) <= MOST_COMPARED:
        hunks = list(difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(CONTEXT))
    else:
        hunks = [_one_hunk(len(before), len(after), start - first, end - last)]
    first += passed
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


def _same(old: str, new: str) -> tuple[int, int]:
    """How many characters both texts begin with, and end with, in whole lines, less some lines of context.

    Only the lines between are split: most of a long file is the same.
    """
    shorter = min(len(old), len(new))
    start = _alike(shorter, lambda low, high: old.startswith(new[low:high], low))
    start = old.rfind("\n", 0, start) + 1
    end = _alike(
        shorter - start,
        lambda low, high: old.endswith(new[len(new) - high : len(new) - low], 0, len(old) - low),
    )
    place = len(old) - end
    for _ in range(CONTEXT + 1):  # the first of them leads to the beginning of a line
        place = old.find("\n", place) + 1 or len(old)
    for _ in range(CONTEXT):
        start = old.rfind("\n", 0, max(0, start - 1)) + 1
    return start, len(old) - place


def _alike(most: int, same: Callable[[int, int], bool]) -> int:
    """How many of the first characters are the same, as far as `most`."""
    at = 0
    while at < most and same(at, min(at + _BLOCK, most)):
        at = min(at + _BLOCK, most)
    low, high = at, min(at + _BLOCK, most)
    while low < high:
        middle = (low + high + 1) // 2
        if same(at, middle):
            low = middle
        else:
            high = middle - 1
    return low


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
