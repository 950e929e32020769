"""Calls that a crash cut off are recovered under what their batch was allowed to do, and not under more."""

import pytest

NESTED = """
import os, signal
from toolwright import Policy, Rule

@tool(destructive=True)
async def wipe() -> None:
    say("wiped")

@tool(readonly=True)
async def look(ctx: ToolContext) -> str:
    if not os.path.exists(f"{store}.killed"):
        open(f"{store}.killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    (inner,) = await ctx.run_batch([ToolCall(name="wipe", arguments={})])
    return inner.status if inner.failure is None else inner.failure.code
"""

READ_ONLY = (
    NESTED
    + """
async def main():
    async with Runtime.open(store, tools=[wipe, look]) as runtime:
        session = runtime.session("s")
        for recovered in await runtime.recover():
            say([recovered.action, recovered.outcome.value])
        if not os.path.exists(f"{store}.killed"):
            calls = [ToolCall(id=f"c{n}", name="look", arguments={}) for n in range(CALLS)]
            await session.run_batch(calls, read_only=True)
"""
)


@pytest.mark.promise("APP-04", "EFF-16")
@pytest.mark.parametrize("calls", [1, 9], ids=["a row for each call", "one row for all"])
def test_a_recovered_call_of_a_read_only_batch_changes_nothing(crashes, calls):
    program = READ_ONLY.replace("CALLS", str(calls))
    assert crashes.crash(program) == []
    assert crashes.run(program).said == [["rerun", "denied"]] * calls


OWN_POLICY = (
    NESTED
    + """
async def main():
    async with Runtime.open(store, tools=[wipe, look]) as runtime:
        if not os.path.exists(f"{store}.killed"):
            session = runtime.session("s", policy=Policy(rules=[Rule("deny", "wipe")]))
            await session.run_batch([ToolCall(id="c1", name="look", arguments={})])
        for recovered in await runtime.recover():
            say([recovered.action, recovered.outcome.value])
"""
)


@pytest.mark.promise("APP-04", "EFF-16")
def test_a_session_with_a_policy_of_its_own_is_recovered_under_it_by_a_program_that_does_not_know_it(crashes):
    assert crashes.crash(OWN_POLICY) == []
    assert crashes.run(OWN_POLICY).said == [["rerun", "denied"]]


KILLED_BEFORE_THE_REFUSAL = """
import os, signal
from toolwright import App, Policy, Rule

@tool(ON_TOOL)
async def wipe() -> None:
    say("wiped")

async def before(call):
    if not os.path.exists(f"{store}.killed"):
        open(f"{store}.killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

def never(request):
    return True

async def main():
    first = not os.path.exists(f"{store}.killed")
    async with Runtime.open(store, tools=[wipe], before=[before]) as runtime:
        if first:
            await runtime.session("s").run_batch([ToolCall(id="c1", name="wipe", arguments={})], RULES)
        for recovered in await runtime.recover():
            say([recovered.action, recovered.outcome.failure.code])
        say([call.call_id for call in await runtime.unfinished()])
"""


@pytest.mark.promise("APP-04", "EFF-16")
@pytest.mark.parametrize("on_tool", ["idempotent=True", "destructive=True"])
@pytest.mark.parametrize("rules", ["read_only=True", "rules=[Rule('deny', 'wipe')]"])
def test_a_call_that_its_batch_refuses_is_refused_by_the_recovery(crashes, on_tool, rules):
    program = KILLED_BEFORE_THE_REFUSAL.replace("ON_TOOL", on_tool).replace("RULES", rules)
    assert crashes.crash(program) == []
    action = "rerun" if "idempotent" in on_tool else "run"
    assert crashes.run(program).said == [[action, "denied"], []]


@pytest.mark.promise("APP-04", "EFF-16")
def test_a_call_whose_batch_had_a_rule_that_is_not_known_here_is_left_as_it_is(crashes):
    program = KILLED_BEFORE_THE_REFUSAL.replace("ON_TOOL", "").replace(
        "RULES", "rules=[Rule('deny', 'wipe', when=never, name='never')]"
    )
    assert crashes.crash(program) == []
    assert crashes.run(program).said == [["left", "rule_unknown"], ["c1"]]
