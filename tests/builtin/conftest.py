"""Fixtures of the tests of the tools in the box: a session with all of them, on every store."""

from collections import defaultdict
from functools import partial
from typing import Any

import jsonschema_rs
import pytest

from tests.builtin.fakes import FakeFiles, FakeSecrets
from tests.effects.conftest import file, open_runtime, place
from toolwright import Session
from toolwright.builtin import arithmetic, basics, editing, reading, storage, todos, weather
from toolwright.session.services import SessionServices
from toolwright.tools.tool import Tool

__all__ = ["fake_files", "file", "files", "open_runtime", "place", "run", "services", "session"]

HOMES: tuple[Any, ...] = (arithmetic, basics, editing, reading, storage, todos, weather)
TOOLS = [thing for home in HOMES for thing in vars(home).values() if isinstance(thing, Tool)]


@pytest.fixture(autouse=True)
def services(monkeypatch: pytest.MonkeyPatch) -> None:
    """The services that sessions do not have yet, in memory. Those that they have are used."""
    for kind, fake in (("files", FakeFiles), ("secrets", FakeSecrets)):
        if not hasattr(SessionServices, kind):
            _replace(monkeypatch, kind, defaultdict(fake))


@pytest.fixture
def fake_files(monkeypatch: pytest.MonkeyPatch) -> FakeFiles:
    """The files of the session "s", in memory, for tests that must hold a change up."""
    made: dict[str, FakeFiles] = defaultdict(FakeFiles)
    _replace(monkeypatch, "files", made)
    return made["s"]


def _replace(monkeypatch: pytest.MonkeyPatch, kind: str, made: dict[str, Any]) -> None:
    monkeypatch.setattr(SessionServices, kind, property(partial(_of, made, "_session")), raising=False)
    monkeypatch.setattr(Session, kind, property(partial(_of, made, "id")), raising=False)


def _of(made: dict[str, Any], name: str, owner: Any) -> Any:
    return made[getattr(owner, name)]


@pytest.fixture
async def session(place, open_runtime) -> Session:
    return (await open_runtime(place, *TOOLS)).session("s")


@pytest.fixture
def files(session: Any) -> Any:
    return session.files


@pytest.fixture
def run(session: Session) -> Any:
    """Call a tool of the box, and give its outcome. What it gives must have the shape that it says."""

    async def call(tool: Any, **arguments: Any) -> Any:
        outcome = await session.call(tool.name, **arguments)
        if outcome.ok:
            assert tool.definition.output_schema is not None
            jsonschema_rs.validate(tool.definition.output_schema, outcome.value)
        return outcome

    return call
