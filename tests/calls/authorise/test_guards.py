"""Code of the host that guards a call, and misbehaves."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Policy, Rule, Runtime, ToolCall, tool


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize("store", [":memory:", "a.db"])
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, GeneratorExit])
async def test_a_rule_that_breaks_in_any_way_refuses_its_call_and_no_other(tmp_path, store, error):
    @tool(readonly=True)
    async def look() -> str:
        return "seen"

    def when(call):
        if call.call_id == "c2":
            raise error
        return False

    place = store if store == ":memory:" else tmp_path / store
    policy = Policy(rules=[Rule("deny", "look", name="guard", when=when)])
    async with fail_after(5), Runtime.open(place, tools=[look], policy=policy) as runtime:
        calls = [ToolCall(id=name, name="look") for name in ("c1", "c2", "c3")]
        first, second, third = await runtime.session("s").run_batch(calls)
    assert (first.value, third.value) == ("seen", "seen")
    assert (second.failure.code, second.decided_by) == ("policy_error", "guard")


@pytest.mark.promise("RUN-04")
@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_hook_that_never_ends_ends_its_call_when_the_time_is_up(where):
    @tool(readonly=True)
    async def look() -> str:
        return "seen"

    async def hang(*seen):
        await asyncio.Event().wait()

    hooks = {where: [hang]}
    async with fail_after(5), Runtime.open(tools=[look], policy=Policy(timeout=0.01), **hooks) as runtime:
        outcome = await runtime.session("s").call("look")
    assert (outcome.failure.category, outcome.failure.code) == ("internal", "hook_error")


@pytest.mark.promise("CANCEL-01", "TIME-01")
@pytest.mark.parametrize("after", [(), [lambda call, outcome: None]], ids=["alone", "with a hook"])
async def test_a_failure_of_a_tool_that_ran_says_that_it_may_have_had_an_effect(after):
    @tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    @tool
    async def wrong(n: int) -> None: ...

    async with fail_after(5), Runtime.open(tools=[slow, wrong], after=after) as runtime:
        ran, refused = await runtime.session("s").run_batch([ToolCall(name="slow"), ToolCall(name="wrong")])
    assert (ran.failure.category, ran.may_have_run) == ("timeout", True)
    assert (refused.failure.category, refused.may_have_run) == ("invalid_arguments", False)
