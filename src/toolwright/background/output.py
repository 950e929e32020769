"""The output of a run. Owns gathering it into few pieces, its bounds, and the text of the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from toolwright.stores.contracts.run_store import HEAD, LIVE, TAIL, Piece, RunStore

LARGEST = 16 * 1024
"""The characters of a piece: output in small parts is gathered up to this."""
PAGE = 500
"""Events that are read at once."""


class Gathered:
    """Output since it was last taken: its head, as long as the log has room for it, and its tail.

    `logged` is how much the log has already. However much comes, no more than head and tail is held.
    """

    __slots__ = ("_dropped", "_first", "_last", "_last_cost", "_length", "_logged", "_parts", "_stream")

    def __init__(self, logged: int) -> None:
        self._logged = logged
        self._first: list[Piece] = []
        self._last: deque[Piece] = deque()
        self._last_cost = 0
        self._dropped = 0
        self._stream = ""
        self._parts: list[str] = []
        self._length = 0

    def add(self, stream: str, text: str) -> None:
        """Take a piece of any length."""
        if stream != self._stream or self._length + len(text) > LARGEST:
            self._seal()
            self._stream = stream
            for start in range(0, len(text) - LARGEST, LARGEST):
                self._keep(Piece(stream, text[start : start + LARGEST]))
            text = text[-(len(text) % LARGEST or LARGEST) :] if len(text) > LARGEST else text
        if text:
            self._parts.append(text)
            self._length += len(text)

    @property
    def is_empty(self) -> bool:
        """True when nothing came since it was last taken."""
        return not (self._parts or self._first or self._last)

    def take(self) -> tuple[list[Piece], int]:
        """All that is held, and how many characters came between head and tail and are not."""
        self._seal()
        pieces, dropped = [*self._first, *self._last], self._dropped
        self._first, self._last_cost, self._dropped = [], 0, 0
        self._last.clear()
        return pieces, dropped

    def _seal(self) -> None:
        if self._parts:
            self._keep(Piece(self._stream, "".join(self._parts)))
            self._parts, self._length = [], 0

    def _keep(self, piece: Piece) -> None:
        room = HEAD - self._logged - (piece.cost - len(piece.text))
        if 0 < room < len(piece.text):
            # Filled to the last character: the part that does not fit into the head begins the tail, and only that.
            self._keep(Piece(piece.stream, piece.text[:room]))
            piece = Piece(piece.stream, piece.text[room:])
        if self._logged + piece.cost <= HEAD and not self._last:
            self._first.append(piece)
        else:
            self._last.append(piece)
            self._last_cost += piece.cost
            while self._last_cost > TAIL:
                gone = self._last.popleft().cost
                self._last_cost -= gone
                self._dropped += gone
        self._logged += piece.cost


class LogText:
    """The text of a log: a piece begins with the name of its stream where that is not the one before."""

    __slots__ = ("_ended", "_stream")

    def __init__(self, tail: str = "") -> None:
        self._stream = ""
        self._ended = not tail or tail.endswith("\n")

    @property
    def at_line_start(self) -> bool:
        """True when the next text begins a line."""
        return self._ended

    def of(self, pieces: Iterable[Piece]) -> str:
        """The text of the next pieces."""
        parts: list[str] = []
        for stream, text in pieces:
            if stream != self._stream:
                parts.append(f"[{stream}] " if self._ended else f"\n[{stream}] ")
                self._stream = stream
            parts.append(text)
            self._ended = text.endswith("\n")
        return "".join(parts)


def render(pieces: Iterable[Piece], logged: int) -> str:
    """The whole log of a run with this much output: all of it, or its head, a line about the gap, and its tail."""
    kept = list(pieces)
    missing = logged - sum(piece.cost for piece in kept)
    text, parts, cost = LogText(), [], 0
    for index, piece in enumerate(kept):
        if missing > 0 and cost + piece.cost > HEAD:
            parts.append(f"\n[system] {missing} characters of output were left out here\n")
            parts.append(LogText().of(kept[index:]))
            break
        parts.append(text.of([piece]))
        cost += piece.cost
    return "".join(parts)


def capped(text: str) -> str:
    """A text that takes the place of the log, within the same bounds."""
    if len(text) <= HEAD + TAIL:
        return text
    missing = len(text) - HEAD - TAIL
    return f"{text[:HEAD]}\n[system] {missing} characters of output were left out here\n{text[-TAIL:]}"


async def printed(store: RunStore, id: str) -> tuple[list[Piece], int]:
    """The stored output of a run, and the length of all its output."""
    pieces: list[Piece] = []
    after = 0
    while page := await store.events(id, after, PAGE):
        after = page[-1].number
        pieces += [Piece(**event.payload) for event in page if event.type == "output"]
    run = await store.find(id)
    return pieces, 0 if run is None else run.log_chars


def live_tail(tail: str, pieces: Iterable[Piece], text: LogText) -> str:
    """The end of the output, with these pieces added to it."""
    return (tail + text.of(pieces))[-LIVE:]
