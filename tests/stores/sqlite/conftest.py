"""Fixtures of the tests of the SQLite store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolwright.stores.sqlite.store import SqliteStore


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(file)
    yield store
    await store.close()
