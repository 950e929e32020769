"""The store contract. Owns what a runtime opens and closes: one journal and the waits of its calls, in one place."""

from __future__ import annotations

from typing import Protocol

from toolwright.effects.journal import JournalStore
from toolwright.effects.waits import WaitStore


class Store(Protocol):
    """One database as one owner has it open. Its journal and its waits see each other's writes at once."""

    @property
    def journal(self) -> JournalStore:
        """What is kept of calls."""
        ...

    @property
    def waits(self) -> WaitStore:
        """What is kept of their waits."""
        ...

    async def close(self) -> None:
        """Write what is queued and let go of the store: what its owner left unfinished is anybody's from then on.

        A store that is closed already stays so.
        """
        ...
