"""Fixtures of the tests that kill: a folder, and a way to start programs there quickly."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolwright.testing import CrashKit, Zygote


class Crashes(CrashKit):
    """The crash kit, and what only our own tests look at."""

    def crash(self, program: str, **given: Any) -> list[Any]:
        """Run a program that kills itself; return what it said."""
        ended = self.start(program, **given).wait()
        assert ended.killed
        return ended.said

    def owners(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("agent.db-owner-*"))


@pytest.fixture
def crashes(zygote: Zygote, tmp_path: Path) -> Iterator[Crashes]:
    with Crashes(tmp_path, zygote=zygote) as kit:
        yield kit
