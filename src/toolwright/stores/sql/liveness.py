"""The contract of who is alive. Each store knows that in its own way: by locks on files, or by those of a server."""

from __future__ import annotations

from typing import Protocol

from toolwright.stores.sql.connection import Connection


class Liveness(Protocol):
    """Which owners of a store are gone. Implemented by `FileLiveness` in `stores/sqlite/core/owners.py`."""

    def dead_among(self, owners: set[str], connection: Connection) -> set[str]:
        """The owners whose process is gone, with the empty name of released calls."""
        ...

    def spares_all(self, connection: Connection) -> bool:
        """True while no process counts as dead and no lease as passed, because the store itself was away."""
        ...
