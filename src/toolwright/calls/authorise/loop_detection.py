"""Loop detection: repeated calls. Owns noticing them, and refusing them under a policy that asks for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from toolwright.calls.policy import Policy
from toolwright.calls.prepare.prepare import PreparedCall
from toolwright.tools.outcome import Failure

_Call = TypeVar("_Call", bound=PreparedCall)

ROUNDS = 3
LONGEST = 4
KEPT = LONGEST * ROUNDS
SHORT = 4
"""So few calls are quicker watched one by one."""


class LoopWatch:
    """Remembers the last calls of a session and notices three in a row, or a short cycle gone through three times."""

    __slots__ = ("_raws", "_recent")

    def __init__(self) -> None:
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=KEPT)
        self._raws: set[bytes] = set()

    def all_new(self, raws: list[bytes]) -> bool:
        """True when no two calls with these arguments, nor a recent one and one of these, can be the same."""
        return len(set(raws)) == len(raws) and self._raws.isdisjoint(raws)

    def add(self, latest: list[tuple[str, bytes]]) -> None:
        """Add calls whose arguments are all new; the last `KEPT` of them are enough."""
        self._recent.extend(latest)
        self._raws = {raw for _, raw in self._recent}

    def observe(self, tool: str, raw: bytes) -> str | None:
        """Add a call; return the problem when it closes a loop."""
        call = (tool, raw)
        self._recent.append(call)
        if raw not in self._raws:
            self._raws.add(raw)
            if len(self._raws) > 2 * KEPT:
                self._raws = {known for _, known in self._recent}
            return None
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


def find_loops(watch: LoopWatch, calls: Sequence[_Call], policy: Policy) -> list[tuple[_Call, str]]:
    """Show the unfinished calls to the watch, and return those that close a loop, each with what to warn about.

    Under a policy that refuses loops these calls end here.
    """
    if len(calls) > SHORT:
        raws = [call.raw for call in calls if call.outcome is None and call.answer is None]
        if len(raws) == len(calls) and watch.all_new(raws):
            watch.add([(call.name, call.raw) for call in calls[-KEPT:]])
            return []
    found: list[tuple[_Call, str]] = []
    for call in calls:
        if call.outcome is not None or call.answer is not None:
            continue
        warning = watch.observe(call.name, call.raw)
        if warning is None or (call.tool is not None and call.tool.definition.hints.polling):
            continue
        found.append((call, warning))
        if policy.on_loop == "refuse":
            call.decided_by = "on_loop"
            call.fail(
                Failure(
                    category="permission_denied",
                    code="loop",
                    message=f"{warning}; do something else, or change the arguments",
                    source="policy",
                )
            )
    return found
