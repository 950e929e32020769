"""Text cut to what a model can read. Owns the cut and its marker; does not own where the whole text goes."""

from __future__ import annotations


def within(text: str, max_lines: int, max_bytes: int) -> bool:
    """True when the text needs no cut."""
    size = len(text)
    if size > max_bytes or (size * 4 > max_bytes and len(text.encode("utf-8", "surrogatepass")) > max_bytes):
        return False
    return text.count("\n") < max_lines


def bound(text: str, max_lines: int, max_bytes: int, *, where: str | None = None) -> str:
    """Keep head and tail of a text and say in between exactly what was left out.

    The result has at most `max_lines` lines and `max_bytes` bytes of UTF-8 and splits no character. `where` names
    the place of the whole text, once it is there.
    """
    if within(text, max_lines, max_bytes):
        return text
    data = text.encode("utf-8", "replace")
    # Room for the longest marker this text could get; its numbers only shrink from here.
    room = max_bytes - len(_marker(len(data), data.count(b"\n") + 1, where).encode("utf-8")) - 2
    if room < 2:
        return _cut_head(data, max_bytes)
    head, tail = _ends(data, room)
    head = _first_lines(head, max(0, (max_lines - 1) // 2))
    tail = _last_lines(tail, max(0, max_lines - 1 - (max_lines - 1) // 2))
    omitted = data[len(head) : len(data) - len(tail)]
    marker = _marker(len(omitted), omitted.count(b"\n") + (1 if omitted and not omitted.endswith(b"\n") else 0), where)
    return "\n".join(
        part
        for part in (head.decode("utf-8").removesuffix("\n"), marker, tail.decode("utf-8").removeprefix("\n"))
        if part
    )


def _marker(size: int, lines: int, where: str | None) -> str:
    place = f"; the whole is in {where}" if where else ""
    return f"[… {size} bytes in {lines} lines omitted{place} …]"


def _ends(data: bytes, room: int) -> tuple[bytes, bytes]:
    """The first and last bytes that fit into `room`, cut between characters."""
    head = data[: (room + 1) // 2]
    while head and len(head) < len(data) and data[len(head)] & 0xC0 == 0x80:
        head = head[:-1]
    start = len(data) - room // 2
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return head, data[max(start, len(head)) :]


def _first_lines(data: bytes, count: int) -> bytes:
    place = -1
    for _ in range(count):
        place = data.find(b"\n", place + 1)
        if place < 0:
            return data
    return data[: place + 1]


def _last_lines(data: bytes, count: int) -> bytes:
    place = len(data)
    for _ in range(count):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return data
    return data[place + 1 :] if count else b""


def _cut_head(data: bytes, room: int) -> str:
    return data[:room].decode("utf-8", "ignore")
