"""Fixtures of the tests that kill: a folder, and a way to start programs there quickly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.programs import Crashes, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def crashes(zygote: Zygote, tmp_path: Path) -> Crashes:
    return Crashes(zygote, tmp_path)
