"""Text shown page by page, with numbered lines. Owns what fits a page; does not own where the text comes from."""

from __future__ import annotations

import operator
from typing import Any

PAGE_BYTES = 40_000  # with its line numbers and JSON around it, a page fits what a model is shown at once
LINE_CHARS = 2_000


def _number(line: int) -> str:
    return f"{line:>6}\t"


_NUMBERS = tuple(map(_number, range(1, 2_001)))  # Writing out numbers would be most of what a small page costs.


def count_lines(text: str) -> int:
    """How many lines a text has."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def page_of(text: str, offset: int, limit: int) -> dict[str, Any] | None:
    """Numbered lines from `offset` on, as many as fit; None when there is no such line."""
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    total = len(lines)
    if offset > max(total, 1):
        return None
    chosen = lines[offset - 1 : offset - 1 + limit]
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
