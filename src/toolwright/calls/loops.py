"""Calls that go round in circles. Owns noticing them; does not own what is done about it."""

from __future__ import annotations

from collections import deque

ROUNDS = 3
LONGEST = 4


class LoopWatch:
    """Remembers the last calls of a session and notices three in a row, or a short cycle gone through three times."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=LONGEST * ROUNDS)

    def observe(self, tool: str, raw: bytes) -> str | None:
        """Add a call; return what is wrong when it closes a loop."""
        recent = self._recent
        call = (tool, raw)
        recent.append(call)
        held = len(recent)
        for length in range(1, LONGEST + 1):
            needed = length * ROUNDS
            if held < needed:
                return None
            # The cheap test first: most calls differ from the one a cycle earlier.
            if recent[-1 - length] != call:
                continue
            tail = list(recent)[-needed:]
            if tail[:length] == tail[length : 2 * length] == tail[2 * length :]:
                if length == 1:
                    return f"Tool {tool!r} was called {ROUNDS} times in a row with the same arguments"
                names = " → ".join(repr(name) for name, _ in tail[:length])
                return f"The calls {names} were repeated {ROUNDS} times with the same arguments"
        return None
