"""What really happened in a world, as it looks from outside. Owns holding the promises against it while it happens.

Tools write down what they did, and whoever was told something writes down what. Nothing here asks the code under test.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any


class Ledger:
    """The book of one world. `problems` are the promises that were broken."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.problems: list[str] = []
        self.closed = False
        self.effects: Counter[str] = Counter()
        """How often each thing that must not be repeated happened."""
        self.steps: Counter[str] = Counter()
        self.done_steps: set[str] = set()
        self.values: dict[str, set[Any]] = defaultdict(set)
        """What the tools of an order returned."""
        self.told: dict[str, Any] = {}
        """What somebody was told of an order."""
        self.resolved: dict[str, Any] = {}
        """What stands of a wait, as whoever resolved it was told."""
        self.saw: dict[str, Any] = {}
        """What tools saw of a wait."""
        self.keys: dict[str, str] = {}
        """The keys of the waits of tools, by what they wait for."""
        self.sent: dict[str, list[Any]] = defaultdict(list)
        """The signals that were acknowledged."""
        self.maybe_sent: dict[str, set[Any]] = defaultdict(set)
        self.inside: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.messages: set[str] = set()
        self.maybe_messages: set[str] = set()

    def note(self, at: float, who: object, what: str) -> None:
        if not self.closed:
            self.story.append(f"{at:9.3f}  {who!s:8}  {what}")

    def wrong(self, at: float, problem: str) -> None:
        if not self.closed:
            self.problems.append(problem)
            self.note(at, "!!!", problem)
