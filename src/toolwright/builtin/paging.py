"""Text shown page by page, with numbered lines. Owns the size of a page; does not own where the text comes from."""

from __future__ import annotations

import operator
from typing import Any

PAGE_BYTES = 40_000  # with its line numbers and JSON around it, a page fits the text that a model is shown at once
LINE_CHARS = 2_000
_SMALL = 64 * 1024  # characters of a text that is simply split into its lines


def _number(line: int) -> str:
    return f"{line:>6}\t"


_NUMBERS = tuple(map(_number, range(1, 2_001)))  # Formatting numbers would be most of the cost of a small page.


def count_lines(text: str) -> int:
    """How many lines a text has."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def page_of(text: str, offset: int, limit: int) -> dict[str, Any] | None:
    """Numbered lines from `offset` on, as many as fit; None when there is no such line."""
    if len(text) <= _SMALL:
        lines = text.split("\n")
        if not lines[-1]:
            del lines[-1]
        total = len(lines)
        chosen = lines[offset - 1 : offset - 1 + limit]
    else:
        total, chosen = _window(text, offset, limit)
    if offset > max(total, 1):
        return None
    if max(map(len, chosen), default=0) > LINE_CHARS:
        chosen = [_shortened(line) for line in chosen]
    last = offset - 1 + len(chosen)
    numbers = _NUMBERS[offset - 1 : last] if last <= len(_NUMBERS) else map(_number, range(offset, last + 1))
    shown = list(map(operator.add, numbers, chosen))
    content = "\n".join(shown)
    if len(content) > PAGE_BYTES or not content.isascii():
        del shown[_fitting(shown) :]
        content = "\n".join(shown)
    page: dict[str, Any] = {"content": content, "offset": offset, "lines": len(shown), "total_lines": total}
    if offset + len(shown) <= total:
        page["next_offset"] = offset + len(shown)
    return page


def _window(text: str, offset: int, limit: int) -> tuple[int, list[str]]:
    """The number of lines of a long text, and the wanted lines. The text is never split into all of its lines: millions
    of them would take long, all in one call that lets no other thread run."""
    total, start, passed = 0, None, 0
    for at in range(0, len(text), _SMALL):
        found = text.count("\n", at, at + _SMALL)
        if start is None and passed + found >= offset - 1:
            start = at
            for _ in range(offset - 1 - passed):
                start = text.index("\n", start) + 1
        elif start is None:
            passed += found
        total += found
    total += not text.endswith("\n")
    chosen: list[str] = []
    while start is not None and start < len(text) and len(chosen) < limit:
        end = text.find("\n", start)
        chosen.append(text[start : len(text) if end < 0 else end])
        start = len(text) if end < 0 else end + 1
    return total, chosen


def _shortened(line: str) -> str:
    beyond = len(line) - LINE_CHARS
    return line if beyond <= 0 else f"{line[:LINE_CHARS]}… [{beyond} more characters on this line]"


def _fitting(lines: list[str]) -> int:
    """How many lines fit a page; at least one."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line.encode()) + 1
        if count and size > PAGE_BYTES:
            return count
    return len(lines)
