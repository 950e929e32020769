"""Fixtures of the adapters' tests: programs that are killed, in processes that have the frameworks imported."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolwright.testing import CrashKit, Zygote


@pytest.fixture(scope="module")
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    """A module names in PRELOADED what its programs import."""
    made = Zygote(*request.module.PRELOADED)
    yield made
    made.close()


@pytest.fixture
def crashes(zygote: Zygote, tmp_path: Path) -> Iterator[CrashKit]:
    with CrashKit(tmp_path, zygote=zygote) as kit:
        yield kit
