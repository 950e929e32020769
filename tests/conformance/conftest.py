"""Every store in turn, as the conformance suite wants it."""

from pathlib import Path

import pytest

from tests.conformance.databases import InBundles, InFile, InPostgres
from toolwright.testing.conformance import Database, InMemory


@pytest.fixture(params=["memory", "sqlite", "sqlite with bundles", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, bundled: InBundles) -> Database:
    if request.param == "memory":
        return InMemory()
    if request.param == "postgres":
        return InPostgres(request.getfixturevalue("postgres"))
    return InFile(tmp_path) if request.param == "sqlite" else bundled


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> InBundles:
    monkeypatch.setattr("toolwright.stores.sql.calls.intent_bundles.FEWEST", 1)
    return InBundles(tmp_path)
