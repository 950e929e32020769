"""The rows of a journal in memory. Owns the stored rows, and their sharing; does not own the verbs over them."""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

from toolwright.stores.contracts.journal import NO_CLAIMS, CallKey, Entry, Kept
from toolwright.stores.contracts.waits import Remembered, Resolution, Wait, WaitKey


class CallRow:
    """One row: a call, its effects, and its waits. A call that only entered has no intent."""

    __slots__ = ("claims", "crashes", "effects", "entry", "over", "owner", "signals", "waits")

    def __init__(self, owner: str, entry: Entry | None = None, claims: str | None = NO_CLAIMS) -> None:
        self.owner = owner
        self.claims = claims
        self.entry = entry
        self.over = False
        # How often it was running when its owner died, the start that was counted last, and the effects done by then.
        self.crashes: tuple[int, float | None, int] = (0, None, 0)
        self.effects: dict[str, Kept] = {}
        self.waits: dict[WaitKey, Wait] = {}
        self.signals: dict[WaitKey, list[bytes]] = {}


class Arrived:
    """What arrived for calls from outside, in the order it came: a number, the call, and the wait that it was for.

    With their calls: a call that was forgotten, and begun again under the same key, has nothing to do with earlier
    input. What arrived for forgotten calls is dropped now and then.
    """

    def __init__(self, calls: dict[CallKey, CallRow]) -> None:
        self._calls = calls
        self._rows: list[tuple[int, CallRow, WaitKey]] = []
        self._most = 1_024
        self.last = 0
        """The number of the newest."""

    def add(self, call: CallRow, key: WaitKey) -> None:
        self.last += 1
        self._rows.append((self.last, call, key))
        if len(self._rows) > self._most:
            self._rows = [*self.after(0)]
            self._most = max(1_024, 2 * len(self._rows))

    def after(self, number: int) -> Iterator[tuple[int, CallRow, WaitKey]]:
        """Those that came after the one of a number, the oldest first."""
        start = bisect_right(self._rows, number, key=itemgetter(0))
        return filter(self._is_known, self._rows[start:])

    def newest_first(self) -> Iterator[tuple[int, CallRow, WaitKey]]:
        return filter(self._is_known, reversed(self._rows))

    def _is_known(self, row: tuple[int, CallRow, WaitKey]) -> bool:
        return self._calls.get(row[2].call) is row[1]


class MemoryDatabase:
    """The data that the stores of several owners share."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.owners: set[str] = set()
        self.writes = 0
        """How often something was written, or an owner ended."""
        self._changed: asyncio.Future[None] | None = None
        self.calls: dict[CallKey, CallRow] = {}
        self.revoked: dict[str, Resolution] = {}
        self.remembered: list[Remembered] = []
        self.resolved = Arrived(self.calls)
        self.signalled = Arrived(self.calls)

    def end(self, owner: str) -> None:
        """An owner has closed its store, or is dead."""
        self.owners.discard(owner)
        self.wrote()

    def wrote(self) -> None:
        """Something was written."""
        self.writes += 1
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    def changed(self) -> asyncio.Future[None]:
        """Done at the next write. All owners are on one event loop."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed
