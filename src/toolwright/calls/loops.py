"""Calls that go round in circles. Owns noticing them; does not own what is done about it."""

from __future__ import annotations

from collections import deque

ROUNDS = 3
LONGEST = 4
SHORT = 4
"""So few calls are quicker watched one by one."""


class LoopWatch:
    """Remembers the last calls of a session and notices three in a row, or a short cycle gone through three times."""

    __slots__ = ("_raws", "_recent")

    def __init__(self) -> None:
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=LONGEST * ROUNDS)
        self._raws: set[bytes] = set()

    def observe_all(self, tools: list[str], raws: list[bytes]) -> bool:
        """Add calls whose arguments are all new; False when some are not, and need `observe`, one by one."""
        if len(set(raws)) < len(raws) or not self._raws.isdisjoint(raws):
            return False
        kept = LONGEST * ROUNDS
        self._recent.extend(zip(tools[-kept:], raws[-kept:], strict=True))
        self._raws = {raw for _, raw in self._recent}
        return True

    def observe(self, tool: str, raw: bytes) -> str | None:
        """Add a call; return what is wrong when it closes a loop."""
        call = (tool, raw)
        self._recent.append(call)
        self._raws.add(raw)
        if len(self._raws) > 2 * LONGEST * ROUNDS:
            self._raws = {known for _, known in self._recent}
        if self._recent.count(call) < ROUNDS:
            return None
        calls = list(self._recent)
        for length in range(1, min(LONGEST, len(calls) // ROUNDS) + 1):
            tail = calls[-length * ROUNDS :]
            if tail[:length] == tail[length : 2 * length] == tail[2 * length :]:
                if length == 1:
                    return f"Tool {tool!r} was called {ROUNDS} times in a row with the same arguments"
                names = " → ".join(repr(name) for name, _ in tail[:length])
                return f"The calls {names} were repeated {ROUNDS} times with the same arguments"
        return None
