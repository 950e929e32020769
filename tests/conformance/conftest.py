"""Every store in turn, as the conformance suite wants it."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("toolwright.testing.conformance")

from tests.conformance.databases import InFile  # noqa: E402
from toolwright.testing.conformance import Database, InMemory  # noqa: E402


@pytest.fixture(params=["memory", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return InMemory() if request.param == "memory" else InFile(tmp_path)
