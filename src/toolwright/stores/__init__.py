"""Stores: opening and maintaining them, and the contracts of another store.

`open_store` and `inspect_store` take a path or a URL; `register_scheme` lets URLs name stores of another package. The
contracts are in `toolwright.stores.contracts`, and docs/writing-a-store.md explains them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolwright.stores.contracts.inspection import (
        Named,
        PastBatch,
        PastCall,
        Pruned,
        Retention,
        Stats,
        StoreInspector,
    )
    from toolwright.stores.contracts.scheme import StoreOptions, StoreScheme
    from toolwright.stores.contracts.store import Store
    from toolwright.stores.copying import Copied, CopyProgress, copy_store
    from toolwright.stores.maintenance import batches, calls, check, migrate, prune, stats
    from toolwright.stores.opening import inspect_store, open_store, register_scheme
    from toolwright.stores.sqlite.store import SqliteStore

_INSPECTION = "toolwright.stores.contracts.inspection"
_MAINTENANCE = "toolwright.stores.maintenance"
_OPENING = "toolwright.stores.opening"
_COPYING = "toolwright.stores.copying"
# Each name is imported when it is first asked for: contracts are used below the rooms that the stores use.
_HOMES = {
    "Copied": _COPYING,
    "CopyProgress": _COPYING,
    "Named": _INSPECTION,
    "PastBatch": _INSPECTION,
    "PastCall": _INSPECTION,
    "Pruned": _INSPECTION,
    "Retention": _INSPECTION,
    "SqliteStore": "toolwright.stores.sqlite.store",
    "Stats": _INSPECTION,
    "Store": "toolwright.stores.contracts.store",
    "StoreInspector": _INSPECTION,
    "StoreOptions": "toolwright.stores.contracts.scheme",
    "StoreScheme": "toolwright.stores.contracts.scheme",
    "batches": _MAINTENANCE,
    "calls": _MAINTENANCE,
    "check": _MAINTENANCE,
    "copy_store": _COPYING,
    "inspect_store": _OPENING,
    "migrate": _MAINTENANCE,
    "open_store": _OPENING,
    "prune": _MAINTENANCE,
    "register_scheme": _OPENING,
    "stats": _MAINTENANCE,
}

__all__ = [
    "Copied",
    "CopyProgress",
    "Named",
    "PastBatch",
    "PastCall",
    "Pruned",
    "Retention",
    "SqliteStore",
    "Stats",
    "Store",
    "StoreInspector",
    "StoreOptions",
    "StoreScheme",
    "batches",
    "calls",
    "check",
    "copy_store",
    "inspect_store",
    "migrate",
    "open_store",
    "prune",
    "register_scheme",
    "stats",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
