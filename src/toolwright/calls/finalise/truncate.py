"""Text cut to a length that a model can read. Owns the cut and its marker; does not own where the whole text goes."""

from __future__ import annotations

from collections.abc import Callable


def within(text: str, max_lines: int, max_bytes: int) -> bool:
    """True when the text needs no cut."""
    size = len(text)
    if size > max_bytes or (size * 4 > max_bytes and len(text.encode()) > max_bytes):
        return False
    return text.count("\n") < max_lines


def bound(text: str, max_lines: int, max_bytes: int, *, where: str | None = None) -> str:
    """Cut the middle out of a text, and mark exactly how much was left out.

    The result has at most `max_lines` lines and `max_bytes` bytes of UTF-8 (256 at least) and splits no character.
    `where` names the place of the whole text, once it is there; a name too long to be shown is left out.
    """
    if within(text, max_lines, max_bytes):
        return text
    cut = _Cut(text, max_lines, where)
    room = max_bytes - cut.longest_marker() - 2
    if room < 0:
        return bound(text, max_lines, max_bytes)
    return cut.to(room)


def bound_within(message: str, wrap: Callable[[str], str], max_lines: int, max_bytes: int, where: str | None) -> str:
    """Bound a message so that the text around it stays whole and all of it fits, whatever `wrap` escapes."""
    cut = _Cut(message, max_lines, where)
    if where is not None and len(wrap(cut.to(0)).encode()) > max_bytes:
        return bound_within(message, wrap, max_lines, max_bytes, None)
    least, most = 0, max_bytes
    while least < most:
        middle = (least + most + 1) // 2
        if len(wrap(cut.to(middle)).encode()) <= max_bytes:
            least = middle
        else:
            most = middle - 1
    return wrap(cut.to(least))


class _Cut:
    """A text that is too long, and the ways to cut it. The kept and the omitted parts add up to the whole."""

    __slots__ = ("_data", "_head_lines", "_newlines", "_tail_lines", "_where")

    def __init__(self, text: str, max_lines: int, where: str | None) -> None:
        self._data = text.encode()
        self._newlines = self._data.count(b"\n")
        self._where = where
        self._head_lines = (max_lines - 1) // 2
        self._tail_lines = max_lines - 1 - self._head_lines

    def longest_marker(self) -> int:
        """The most bytes a marker for this text can have; its numbers only shrink from there."""
        return len(_marker(len(self._data), self._newlines + 1, self._where).encode())

    def to(self, room: int) -> str:
        """The text with at most `room` bytes of it, half of them from its end."""
        data, half = self._data, room // 2
        start, end = min(room - half, len(data)), max(len(data) - half, 0)
        while 0 < start < len(data) and data[start] & 0xC0 == 0x80:
            start -= 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        start = self._after_lines(self._head_lines, start)
        end = max(start, self._before_lines(self._tail_lines, end))
        if start == end:
            return data.decode()
        lines = self._newlines - data.count(b"\n", 0, start) - data.count(b"\n", end)
        marker = _marker(end - start, lines + (data[end - 1] != 0x0A), self._where)
        head, tail = data[:start].decode(), data[end:].decode()
        before = "" if not head or head.endswith("\n") else "\n"
        after = "" if not tail or tail.startswith("\n") else "\n"
        return f"{head}{before}{marker}{after}{tail}"

    def _after_lines(self, count: int, limit: int) -> int:
        place = 0
        for _ in range(count):
            place = self._data.find(b"\n", place, limit) + 1
            if not place:
                return limit
        return place

    def _before_lines(self, count: int, limit: int) -> int:
        place = len(self._data)
        for _ in range(count):
            place = self._data.rfind(b"\n", limit, place)
            if place < 0:
                return limit
        return place + 1 if count else len(self._data)


def _marker(size: int, lines: int, where: str | None) -> str:
    place = f"; the whole is in {where}" if where else ""
    return f"[… {size} bytes in {lines} lines omitted{place} …]"
