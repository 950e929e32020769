"""Fixtures of the tests of the tools in the box: runtimes on every store, and services in memory."""

from collections import defaultdict
from functools import partial
from typing import Any

import jsonschema_rs
import pytest

from tests.builtin.fakes import FakeFiles, FakeSecrets
from tests.effects.conftest import file, open_runtime, place
from toolwright import Runtime
from toolwright.session.services import SessionServices

__all__ = ["fakes", "file", "files", "open_runtime", "place", "run"]


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Services in memory, by kind and session. To use the real ones, leave this out."""
    made: dict[str, Any] = {"files": defaultdict(FakeFiles), "secrets": defaultdict(FakeSecrets)}
    for kind, by_session in made.items():
        monkeypatch.setattr(SessionServices, kind, property(partial(_of, by_session)), raising=False)
    return made


def _of(by_session: dict[str, Any], services: Any) -> Any:
    return by_session[services._session]


@pytest.fixture
def files(fakes):
    """The files of the session "s"."""
    return fakes["files"]["s"]


@pytest.fixture
async def run(place, open_runtime):
    """Call a tool of the box in the session "s", and give its outcome. Its value must have the shape that it says."""
    runtimes: dict[str, Runtime] = {}

    async def call(tool: Any, **arguments: Any):
        if tool.name not in runtimes:
            runtimes[tool.name] = await open_runtime(place if not runtimes else ":memory:", tool)
        outcome = await runtimes[tool.name].session("s").call(tool.name, **arguments)
        if outcome.ok:
            assert tool.definition.output_schema is not None
            jsonschema_rs.validate(tool.definition.output_schema, outcome.value)
        return outcome

    return call
