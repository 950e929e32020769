"""A runtime belongs to the event loop that it was opened in."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolwright import Runtime, ToolCall, tool
from toolwright.errors import ToolwrightError


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_a_session_that_is_used_from_another_event_loop_says_so_at_once(tmp_path: Path, place: str):
    ran = []

    @tool
    async def work() -> str:
        ran.append(1)
        return "done"

    store: Any = ":memory:" if place == "memory" else tmp_path / "agent.db"
    async with Runtime.open(store, tools=[work]) as runtime:
        session = runtime.session("s")
        uses = {
            "a batch": lambda: session.run_batch([ToolCall(id="c1", name="work")]),
            "another session": lambda: _get(runtime, "t"),
            "a service": lambda: session.kv.set("k", 1),
            "a run": lambda: session.spawn("work"),
        }
        for what, use in uses.items():

            async def elsewhere(use: Any = use) -> Any:
                return await use()

            with pytest.raises(ToolwrightError, match=r"opened in another event loop.*; use it there") as told:
                await asyncio.to_thread(asyncio.run, elsewhere())
            assert told.value is not None, what
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="work")])

    assert (outcome.value, ran) == ("done", [1])


async def _get(runtime: Runtime, id: str) -> Any:
    return runtime.session(id)
