"""What a case is and which values it gets. Owns the few values that cases are written with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from toolwright.stores.contracts.journal import CallKey, Intent
from toolwright.stores.contracts.store import Store
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey, WaitKind
from toolwright.tools.outcome import ToolOutcome


class Database(Protocol):
    """One database, empty at first, that several owners have open."""

    async def open(self) -> Store:
        """Open it as one more owner."""
        ...

    async def kill(self, store: Store) -> None:
        """End an owner as a crash does: from now on everybody takes it for dead.

        It may not know, and try to write: a stopped process that is woken up does.
        """
        ...

    async def close(self) -> None:
        """Close every owner that is left, and release all resources."""
        ...


D = TypeVar("D", bound=Database)


class Case(Struct, Generic[D], frozen=True):
    """One promise of a store."""

    name: str
    check: Callable[[D], Coroutine[Any, Any, None]]

    async def run(self, database: D) -> None:
        """Check the promise on a new database, and close it.

        Raises:
            AssertionError: the store breaks the promise.
        """
        try:
            await self.check(database)
        finally:
            await database.close()

    def __str__(self) -> str:
        return self.name


def cases(*checks: Callable[[D], Coroutine[Any, Any, None]]) -> tuple[Case[D], ...]:
    """A case for each function, of the same name."""
    return tuple(Case(check.__name__, check) for check in checks)


def call(call_id: str = "c1", session: str = "s1", scope: str = "") -> CallKey:
    return CallKey(session, scope, call_id)


def intent(key: CallKey, *, position: int = 0, queued_at: float = 100.0, arguments: bytes = b"{}") -> Intent:
    return Intent(key, "batch", position, "book", "travel.book", arguments, "model", None, queued_at)


def success(key: CallKey, payload: bytes = b'"booked"') -> ToolOutcome:
    return ToolOutcome(call_id=key.call_id, tool="book", status="success", payload=payload, attempts=1)


def wait(key: CallKey, kind: WaitKind = "event", name: str = "", opened_at: float = 100.0) -> Wait:
    return Wait(WaitKey(key, kind, name), opened_at)


def resolved(value: bytes = b"1", at: float = 200.0) -> Resolution:
    return Resolution("ok", at, value)


CANCELLED = Resolution("cancelled", 300.0, reason="no longer needed")
