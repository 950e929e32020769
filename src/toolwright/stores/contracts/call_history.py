"""The contract of the history of calls: batches and calls of a whole store, in pages, the newest first. Owns its rows
and verbs; what a keeper asks once, without a runtime, is in `inspection.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from msgspec import Struct

from toolwright.stores.contracts.inspection import PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import WaitKind

Place = tuple[float, str]
"""Where a page of a list ended: the next one begins behind it."""


class CallFilters(Struct, frozen=True, kw_only=True):
    """The calls of a list: those that match all that is given. `status` is that of `PastCall`."""

    session: str | None = None
    tool: str | None = None
    status: str | None = None
    batch: str | None = None
    text: str | None = None
    """A part of the id of the call, its batch, its tool or its session, in any case, among the newest calls."""


MOST_SEARCHED = 100_000
"""How many calls are searched for a text, the newest."""
MOST_WALKED = 250_000
"""How many calls are looked at for one page of those of a tool or a status."""


class PlacedCall(NamedTuple):
    """A call, and its place in the list."""

    place: Place
    call: PastCall


class CallPage(list[PlacedCall]):
    """A page of calls. With a `rest`, the list continues at that place, although the page has fewer calls than were
    asked for: the store has not looked at all calls yet."""

    def __init__(self, calls: Iterable[PlacedCall] = (), rest: Place | None = None) -> None:
        super().__init__(calls)
        self.rest = rest


class PastStep(Struct, frozen=True):
    """One effect of a call, such as a step. Without `done`, it began and may have happened."""

    kind: str
    name: str
    at: float
    done: bool
    failed: bool


class PastWait(Struct, frozen=True):
    """One thing that a call waited for, or waits for. `status` is how it ended; None while it waits."""

    kind: WaitKind
    name: str
    opened_at: float | None
    deadline: float | None
    open: bool
    status: str | None = None
    resolved_at: float | None = None
    by: str | None = None
    reason: str | None = None


class CallDetail(Struct, frozen=True):
    """A call with its steps and waits, in the order in which they began."""

    call: PastCall
    steps: tuple[PastStep, ...] = ()
    waits: tuple[PastWait, ...] = ()


class CallHistory(Protocol):
    """The calls of a store, or of a runtime in memory.

    Implemented by `stores/sql/calls/history.py` and `runtime/call_history.py`.
    """

    async def list_calls(self, filters: CallFilters, before: Place | None, limit: int) -> CallPage:
        """Calls, the newest first, from a place on."""
        ...

    async def find_call(self, key: CallKey) -> CallDetail | None:
        """One call, with its steps and waits."""
        ...

    async def list_batches(self, session: str, before: Place | None, limit: int) -> list[PastBatch]:
        """The batches of a session, the newest first, from a place on: the `first_at` and id of a batch."""
        ...

    async def batch_calls(self, batch: str, session: str | None = None) -> list[PastCall]:
        """The calls of a batch, of every session and scope that has one of this id, in their order."""
        ...

    async def find_sessions(self, text: str) -> list[str]:
        """The ids of sessions that have calls among the newest, and a text in their id, in any case."""
        ...
