"""Deadlock: calls that would wait for each other for ever. Owns finding them; not which call waits for which.

`admission` says what a call waits for, and refuses a nested call that could never start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)
Needs = Callable[[_Node], tuple[Collection[_Node], bool]]
"""What must end before something can, and whether all of that must or any one."""


def can_end(start: _Node, needs: Needs[_Node]) -> bool:
    """True unless `start` waits, in the end, for itself.

    `needs` returns the tickets that a ticket waits for, and whether for all of these or for any one. A ticket that
    waits for nothing can end, and so can a ticket that waits for such ones; the others wait for each other for ever.
    """
    missing: dict[_Node, int] = {}
    behind: dict[_Node, list[_Node]] = {}
    ending: list[_Node] = []
    stack = [start]
    while stack:
        current = stack.pop()
        if current in missing:
            continue
        others, every = needs(current)
        missing[current] = (len(others) if every else 1) if others else 0
        if not others:
            ending.append(current)
        for other in others:
            behind.setdefault(other, []).append(current)
            stack.append(other)
    while ending:
        current = ending.pop()
        if current is start:
            return True
        for waiter in behind.get(current, ()):
            missing[waiter] -= 1
            if missing[waiter] == 0:
                ending.append(waiter)
    return False
