"""The crash points stand where the runtime really passes, and one that lost its place is noticed."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.crash_seams import crash_seams
from toolwright.errors import ToolwrightError
from toolwright.stores.contracts.journal import JournalStore
from toolwright.stores.contracts.run_store import RunStore
from toolwright.stores.contracts.waits import WaitStore
from toolwright.testing.crash_points import JOURNAL_VERBS, POINTS, RUN_POINTS, RUN_VERBS, WAIT_VERBS, CrashingStore


async def pass_every_point() -> None:
    """One call of each kind that passes points of its own, and a worker that is drained while it runs."""
    hangs = asyncio.Event()

    @tool
    async def pay(ctx: ToolContext) -> str:
        await ctx.step("charge", lambda: 5)
        key = ctx.event_key("paid")
        paid = asyncio.ensure_future(ctx.wait(key))
        await runtime.resolve(key, "yes")
        return str(await paid)

    @tool
    async def hang() -> None:
        hangs.set()
        await asyncio.Event().wait()

    @tool(readonly=True, supports_background=True)
    async def work(seconds: float) -> str:
        if seconds:
            hangs.set()
            await asyncio.Event().wait()
        return "done"

    async with fail_after(30), Runtime.open("agent.db", tools=[pay, hang, work], worker=True) as runtime:
        session = runtime.session("s")
        # Both are exclusive: the start of the second is written when the first has ended.
        for outcome in await session.run_batch([ToolCall(name="pay"), ToolCall(name="pay")]):
            assert outcome.value == "yes"

        # Both are exclusive: the second has not begun when the batch is cancelled.
        batch = session.start_batch([ToolCall(name="hang"), ToolCall(name="hang")])
        await hangs.wait()
        batch.cancel()
        await batch

        run = await session.spawn("work", {"seconds": 0})
        assert (await run.wait()).value == "done"
        hangs.clear()
        await session.spawn("work", {"seconds": 1})
        await hangs.wait()
        await runtime.drain(0.0)

    hangs.clear()
    async with fail_after(30), Runtime.open("agent.db", tools=[hang]) as runtime:
        runtime.session("s").start_batch([ToolCall(name="hang")])
        await hangs.wait()


@pytest.mark.promise("EFF-05")
def test_every_crash_point_is_passed_by_a_program_that_does_everything(crashes):
    passed = {name for name, _ in crashes.points(pass_every_point)}

    assert passed == {*POINTS, *RUN_POINTS}


@pytest.mark.parametrize(
    ("contract", "verbs"), [(JournalStore, JOURNAL_VERBS), (WaitStore, WAIT_VERBS), (RunStore, RUN_VERBS)]
)
def test_the_verbs_with_crash_points_are_those_of_the_contracts(contract, verbs):
    assert [verb for verb in verbs if not callable(getattr(contract, verb, None))] == []


def test_a_store_whose_verb_has_another_name_is_refused_by_the_crash_kit():
    class Renamed:
        def __getattr__(self, name):
            if name in ("finish", "services"):
                raise AttributeError(name)
            return lambda: None

    class Store:
        journal = waits = Renamed()

    with pytest.raises(ToolwrightError, match="'the outcome is written' have no place: Renamed has no verb 'finish'"):
        CrashingStore(Store())


def test_a_place_that_the_runtime_does_not_have_cannot_be_filled():
    with pytest.raises(AttributeError):
        crash_seams.outcomes = print  # type: ignore[attr-defined]


async def test_no_place_is_filled_outside_the_crash_kit():
    assert {name: getattr(crash_seams, name) for name in crash_seams.__slots__} == {
        "commits": None,
        "store": None,
        "tool_code": None,
    }
