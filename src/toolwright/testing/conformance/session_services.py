"""Support for cases about session services. Owns finding the stores of a database, and the values of the cases."""

from __future__ import annotations

import hashlib

from toolwright.stores.contracts.sessions import PIECE, Content, Mark, Quota, Sealed, Writing
from toolwright.stores.contracts.store import BackgroundStores, Store
from toolwright.testing.conformance.cases import Database, call, intent

WIDE = Quota(1_000, 100 * PIECE)
"""A quota for all that a case writes."""


def services_of(store: Store) -> BackgroundStores:
    """The services of a store."""
    services = store.services
    assert services is not None, "The store has no `services`: it keeps calls only, and these cases are not for it."
    return services


async def open_services(database: Database) -> BackgroundStores:
    """Open the services of a database as one more owner."""
    return services_of(await database.open())


async def marked(store: Store, label: str = "change:1") -> Mark:
    """The mark of a change that a call of this owner makes."""
    await store.journal.begin([intent(call())])
    return Mark(call(), label)


def content(data: bytes) -> Content:
    """Bytes that are to be written."""
    return Content(data, None, hashlib.sha256(data).digest(), len(data))


def writing(
    at: float = 100.0,
    *,
    quota: Quota = WIDE,
    expected: str | None = None,
    readonly: bool | None = None,
    host: bool = False,
) -> Writing:
    return Writing(at, quota, expected, readonly, host)


def sealed(text: bytes = b"value", master: str = "key-1") -> Sealed:
    return Sealed(master, b"wrapped " + text, b"sealed " + text)
