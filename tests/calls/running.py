"""Running calls with a bound on real time. Owns giving up on a batch that hangs; does not own its cause."""

import asyncio
from itertools import count
from typing import Any

import pytest

from toolwright import Session, ToolCall

PATIENCE = 60.0  # seconds of real time, for a batch that never ends

scopes = count()


def fresh_scope() -> str:
    """A scope that no batch had yet, so that a test may use an id again."""
    return f"scope {next(scopes)}"


async def run(session: Session, *calls: ToolCall, **changes: Any) -> list[Any]:
    """The outcomes of a batch; unlike a cancelled wait, giving up on it does not wait for it to stop."""
    waiting = asyncio.ensure_future(session.run_batch(calls, **{"scope": fresh_scope(), **changes}))
    await asyncio.wait([waiting], timeout=PATIENCE)
    if not waiting.done():
        pytest.fail(f"The batch still runs after {PATIENCE} s.")
    return await waiting


async def run_one(session: Session, name: str, arguments: Any = None, **changes: Any) -> Any:
    """The outcome of one call, whose id is "c1"."""
    (outcome,) = await run(session, ToolCall(id="c1", name=name, arguments=arguments), **changes)
    return outcome
