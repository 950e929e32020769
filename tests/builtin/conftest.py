"""Fixtures of the tests of the tools in the box: a session with all of them, on every store."""

from typing import Any

import jsonschema_rs
import pytest

from toolwright import Session
from toolwright.builtin import arithmetic, todos, weather
from toolwright.builtin import file_editing as editing
from toolwright.builtin import file_reading as reading
from toolwright.builtin import kv_and_secrets as storage
from toolwright.builtin import time_and_echo as basics
from toolwright.tools.tool import Tool

HOMES: tuple[Any, ...] = (arithmetic, basics, editing, reading, storage, todos, weather)
TOOLS = [thing for home in HOMES for thing in vars(home).values() if isinstance(thing, Tool)]


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
