"""A host that ends a wait as if its deadline had passed, and tools without a timeout."""

import asyncio
import math

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import NO_TIMEOUT, Pending, Policy, ToolCall, ToolContext, ToolDefinition, ToolError, tool
from toolwright.testing import FakeClock, failing_tool


@pytest.mark.promise("WAIT-01", "WAIT-02")
async def test_a_host_lets_a_wait_expire(place, open_runtime):
    keys = []

    @tool(parallel=True)
    async def order(ctx: ToolContext) -> Pending:
        """Wait for a completion."""
        keys.append(ctx.completion_key())
        return Pending()

    @tool(parallel=True)
    async def ask(ctx: ToolContext) -> str:
        """Wait for an event."""
        keys.append(key := ctx.event_key("answer"))
        try:
            return str(await ctx.wait(key, deadline=1_000))
        except ToolError as error:
            return error.failure.code

    runtime = await open_runtime(place, order, ask)
    async with fail_after(10):
        with runtime.subscribe() as events:
            batch = runtime.session("s").start_batch([ToolCall(name="order"), ToolCall(name="ask")])
            for _ in range(2):
                await waiting(events)
        for key in keys:
            resolved = await runtime.expire(key)
            assert (resolved.first, resolved.status) == (True, "expired")
            assert not (await runtime.resolve(key, 1)).first
        pending, asked = await batch
    assert pending.failure is not None
    assert (pending.failure.category, pending.failure.code) == ("timeout", "expired")
    assert asked.value == "expired"


@pytest.mark.promise("TOOL-05")
async def test_a_tool_without_a_timeout_outlives_that_of_the_policy(open_runtime):
    clock, go = FakeClock(), asyncio.Event()

    @tool(timeout=NO_TIMEOUT)
    async def patient() -> str:
        """Take long."""
        await go.wait()
        return "done"

    assert ToolDefinition.from_json(patient.definition.to_json()).timeout == math.inf
    runtime = await open_runtime(":memory:", patient, clock=clock, policy=Policy(timeout=1, long_timeout=2))
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(name="patient")])
        await clock.settle()
        await clock.advance(100_000)
        assert not batch.done
        go.set()
        (outcome,) = await batch
    assert outcome.value == "done"


async def test_a_failing_tool_fails_as_it_is_told(open_runtime):
    runtime = await open_runtime(
        ":memory:",
        failing_tool("closed", "The shop is closed", category="unavailable", code="closed"),
        failing_tool("broken", "the cable is cut", unexpected=True),
    )
    closed, broken = await runtime.session("s").run_batch([ToolCall(name="closed"), ToolCall(name="broken")])
    assert (closed.failure.category, closed.failure.code) == ("unavailable", "closed")
    assert "The shop is closed" in closed.text
    assert broken.status == "failure"
    assert "cable" not in broken.text
