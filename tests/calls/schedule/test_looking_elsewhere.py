"""Looking for calls of other processes, while the store fails."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Runtime, StoreError, ToolCall, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase


@pytest.mark.promise("EFF-12", "SCHED-05")
@pytest.mark.parametrize("error", [StoreError("the disk is full"), RuntimeError("an error of a library")], ids=repr)
async def test_a_call_that_waits_for_another_process_goes_on_when_looking_failed_once(error: Exception):
    entered, opened, failed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Failing(MemoryStore):
        async def holders(self, sessions):
            if not failed.is_set():
                failed.set()
                raise error
            return await super().holders(sessions)

    @tool
    async def hold() -> str:
        entered.set()
        await opened.wait()
        return "held"

    @tool
    async def follow() -> str:
        return "followed"

    rows = MemoryDatabase()
    async with (
        fail_after(3),
        Runtime.open(MemoryStore(rows), tools=[hold]) as first,
        Runtime.open(Failing(rows), tools=[follow]) as second,
    ):
        holding = first.session("s").start_batch([ToolCall(id="a", name="hold", arguments={})])
        await entered.wait()
        following = second.session("s").start_batch([ToolCall(id="b", name="follow", arguments={})])
        await failed.wait()
        opened.set()
        (held,), (followed,) = await holding, await following

    assert (held.value, followed.value) == ("held", "followed")
