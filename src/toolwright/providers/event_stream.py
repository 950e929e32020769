"""Server-sent events. Owns taking events out of bytes that come in any pieces; knows no provider."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One event: its name, empty where the server gives none, and its data."""

    name: str
    data: bytes


class EventReader:
    """Takes bytes as they come, and gives the events that they complete."""

    __slots__ = ("_after_return", "_data", "_name", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._after_return = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that end in these bytes."""
        if self._after_return and chunk[:1] == b"\n":  # the second half of a line's end
            chunk = chunk[1:]
            self._after_return = False
        if not chunk:
            return []
        self._after_return = chunk[-1:] == b"\r"
        lines = chunk.splitlines()
        rest = b"" if chunk[-1:] in (b"\n", b"\r") else lines.pop()
        if lines:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces = []
        if rest:
            self._pieces.append(rest)
        return [event for line in lines if (event := self._line(line)) is not None]

    def end(self) -> list[Event]:
        """The event that the stream broke off in, where all of it but its last line's end has come."""
        line = b"".join(self._pieces)
        self._pieces = []
        first = self._line(line) if line else None
        return [event for event in (first, self._line(b"")) if event is not None]

    def _line(self, line: bytes) -> Event | None:
        if not line:
            if not self._data:
                self._name = ""
                return None
            event = Event(self._name, b"\n".join(self._data))
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None
