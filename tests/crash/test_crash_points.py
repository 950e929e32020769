"""A process is killed at chosen points of a call; what the next one knows and does."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, ToolCall, ToolContext, tool

PAY = """
@tool
async def pay(amount: int) -> str:
    note(f"pay-{amount}")
    if point == "inside":
        die()
    return f"paid {amount}"

def before(call):
    if point == "before":
        die()

def after(call, outcome):
    if point == "after":
        die()

async def main():
    async with Runtime.open(store, tools=[pay], before=[before], after=[after]) as runtime:
        outcomes = await runtime.session("s").run_batch([ToolCall(id="c1", name="pay", arguments={"amount": 5})])
        say([outcome.value for outcome in outcomes])
        if point == "answered":
            die()
"""
CALL = ToolCall(id="c1", name="pay", arguments={"amount": 5})


@pytest.mark.promise("EFF-04", "EFF-05")
@pytest.mark.parametrize("point", ["inside", "after"])
@pytest.mark.parametrize("way", ["recover", "again", "open"])
async def test_a_call_cut_off_by_a_crash_is_not_run_again_unless_it_says_so(crashes, point, way):
    @tool
    async def pay(amount: int) -> str:
        raise AssertionError("It must not run again.")

    assert crashes.crash(PAY, point=point) == []
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay], recover=way == "open") as runtime:
        if way == "recover":
            (recovered,) = await runtime.recover()
            assert recovered[:5] == ("s", "", "c1", "pay", "interrupted")
            assert await runtime.recover() == []
        (outcome,) = await runtime.session("s").run_batch([CALL])

    assert crashes.ledger == ["pay-5"]
    assert outcome.replayed == (way != "again")
    assert outcome.failure is not None
    assert (outcome.failure.category, outcome.failure.code) == ("interrupted", "interrupted")
    assert "may have run, and was not run again" in outcome.failure.message
    assert (outcome.attempts, outcome.may_have_run) == (1, True)


@pytest.mark.promise("EFF-04", "EFF-05")
async def test_a_call_that_is_not_run_again_keeps_the_instant_of_its_start(crashes):
    @tool
    async def pay(amount: int) -> str:
        raise AssertionError("It must not run again.")

    crashes.crash(PAY, point="inside")
    with crashes.look() as store:
        before = store.execute("SELECT started_at, status FROM calls").fetchall()
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay], recover=True):
        pass
    with crashes.look() as store:
        after = store.execute("SELECT started_at, status FROM calls").fetchall()

    ((started_at, status),) = before
    assert started_at is not None
    assert status is None
    assert after == [(started_at, "failure")]


@pytest.mark.promise("EFF-04", "EFF-05")
@pytest.mark.parametrize("way", ["recover", "again"])
async def test_a_call_that_had_not_begun_is_simply_run(crashes, way):
    ran = []

    @tool
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid now"

    crashes.crash(PAY, point="before")
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay]) as runtime:
        if way == "recover":
            (recovered,) = await runtime.recover()
            assert (recovered.action, recovered.outcome.value) == ("run", "paid now")
        (outcome,) = await runtime.session("s").run_batch([CALL])

    assert crashes.ledger == []
    assert ran == [5]
    assert outcome.value == "paid now"


@pytest.mark.promise("EFF-04", "EFF-08")
async def test_what_was_answered_before_a_crash_is_there_after_it(crashes):
    @tool
    async def pay(amount: int) -> str:
        raise AssertionError("It must not run again.")

    assert crashes.crash(PAY, point="answered") == [["paid 5"]]
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay]) as runtime:
        assert await runtime.recover() == []
        (outcome,) = await runtime.session("s").run_batch([CALL])

    assert crashes.ledger == ["pay-5"]
    assert (outcome.value, outcome.replayed) == ("paid 5", True)


@pytest.mark.promise("EFF-05", "RETRY-02")
@pytest.mark.parametrize("hint", ["readonly", "idempotent"])
async def test_a_call_of_a_repeatable_tool_is_run_again_with_the_same_idempotency_key(crashes, hint):
    keys = []

    @tool(readonly=hint == "readonly", idempotent=hint == "idempotent")
    async def read(ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        return "content"

    crashes.crash(
        """
@tool(**{hint: True})
async def read(ctx: ToolContext) -> str:
    note(ctx.idempotency_key)
    die()

async def main():
    async with Runtime.open(store, tools=[read]) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="c1", name="read")], scope="turn")
""",
        hint=hint,
    )
    async with fail_after(10), Runtime.open(crashes.store, tools=[read]) as runtime:
        (recovered,) = await runtime.recover()

    assert recovered[:5] == ("s", "turn", "c1", "read", "rerun")
    assert recovered.outcome.value == "content"
    assert not recovered.outcome.replayed
    assert crashes.ledger == keys


DELIVER = """
@tool(on_crash="ask" if asks else lambda arguments: None)
async def deliver(parcel: str) -> str:
    note(parcel)
    die()

async def main():
    async with Runtime.open(store, tools=[deliver]) as runtime:
        call = ToolCall(id="c1", name="deliver", arguments={"parcel": "p7"})
        await runtime.session("s").run_batch([call])
"""


@pytest.mark.promise("EFF-05")
async def test_a_probe_that_knows_the_outcome_gives_it(crashes):
    asked = []

    async def probe(arguments):
        asked.append(arguments)
        return {"delivered": True}

    @tool(on_crash=probe)
    async def deliver(parcel: str) -> dict:
        raise AssertionError("It must not run again.")

    crashes.crash(DELIVER, asks=False)
    async with fail_after(10), Runtime.open(crashes.store, tools=[deliver]) as runtime:
        (recovered,) = await runtime.recover()
        (outcome,) = await runtime.session("s").run_batch(
            [ToolCall(id="c1", name="deliver", arguments={"parcel": "p7"})]
        )

    assert asked == [{"parcel": "p7"}]
    assert (recovered.action, recovered.outcome.value) == ("probed", {"delivered": True})
    assert (outcome.value, outcome.attempts, outcome.replayed) == ({"delivered": True}, 1, True)


@pytest.mark.promise("EFF-05")
async def test_a_probe_that_finds_nothing_lets_the_call_run(crashes):
    ran = []

    @tool(on_crash=lambda arguments: None)
    async def deliver(parcel: str) -> str:
        ran.append(parcel)
        return "done"

    crashes.crash(DELIVER, asks=False)
    async with fail_after(10), Runtime.open(crashes.store, tools=[deliver]) as runtime:
        (recovered,) = await runtime.recover()

    assert ran == ["p7"]
    assert (recovered.action, recovered.outcome.value) == ("probed", "done")


@pytest.mark.promise("EFF-05")
async def test_a_probe_that_fails_fails_the_call(crashes):
    def probe(arguments):
        raise ConnectionError("no route")

    @tool(on_crash=probe)
    async def deliver(parcel: str) -> str:
        raise AssertionError("It must not run again.")

    crashes.crash(DELIVER, asks=False)
    async with fail_after(10), Runtime.open(crashes.store, tools=[deliver]) as runtime:
        (recovered,) = await runtime.recover()

    failure = recovered.outcome.failure
    assert failure is not None
    assert (recovered.action, failure.category, failure.code) == ("probed", "internal", "probe_failed")
    assert "no route" not in recovered.outcome.text


@pytest.mark.promise("EFF-05")
async def test_a_call_whose_tool_asks_is_reported_and_not_run_where_nobody_is_asked(crashes):
    @tool(on_crash="ask")
    async def deliver(parcel: str) -> str:
        raise AssertionError("It must not run again.")

    crashes.crash(DELIVER, asks=True)
    policy = Policy(on_ask="deny")
    async with fail_after(10), Runtime.open(crashes.store, tools=[deliver], policy=policy) as runtime:
        (recovered,) = await runtime.recover()

    assert recovered.action == "interrupted"
    assert "may have run, and was not run again" in recovered.outcome.text


@pytest.mark.promise("EFF-05")
async def test_a_call_whose_probe_is_cancelled_is_probed_another_time(crashes):
    asked = []
    probing = asyncio.Event()

    async def probe(arguments):
        asked.append(arguments)
        if len(asked) == 1:
            probing.set()
            await asyncio.Event().wait()
        return "found"

    @tool(on_crash=probe)
    async def deliver(parcel: str) -> str:
        raise AssertionError("It must not run again.")

    crashes.crash(DELIVER, asks=False)
    call = ToolCall(id="c1", name="deliver", arguments={"parcel": "p7"})
    async with fail_after(10), Runtime.open(crashes.store, tools=[deliver]) as runtime:
        batch = runtime.session("s").start_batch([call])
        await probing.wait()
        batch.cancel()
        (stopped,) = await batch
        async with Runtime.open(crashes.store, tools=[deliver]) as other:
            (outcome,) = await other.session("s").run_batch([call])

    assert stopped.status == "cancelled"
    assert outcome.value == "found"


@pytest.mark.promise("EFF-05")
async def test_recovery_leaves_alone_what_it_has_no_tool_for(crashes):
    @tool
    async def pay(amount: int) -> str:
        raise AssertionError("It must not run again.")

    crashes.crash(PAY, point="inside")
    async with fail_after(10), Runtime.open(crashes.store) as runtime:
        (left,) = await runtime.recover()
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay]) as runtime:
        (recovered,) = await runtime.recover()

    assert left.action == "left"
    assert recovered.action == "interrupted"


@pytest.mark.promise("EFF-05")
async def test_recovery_goes_on_after_a_failure_also_where_a_batch_would_stop(crashes):
    @tool
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    crashes.crash("""
@tool
async def pay(amount: int) -> str:
    note(f"pay-{amount}")
    die()

async def main():
    async with Runtime.open(store, tools=[pay]) as runtime:
        calls = [ToolCall(id=f"c{n}", name="pay", arguments={"amount": n}) for n in range(3)]
        await runtime.session("s").run_batch(calls)
""")
    policy = Policy(continue_on_failure=False)
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay], policy=policy) as runtime:
        recovered = await runtime.recover()

    assert [(one.call_id, one.action) for one in recovered] == [("c0", "interrupted"), ("c1", "run"), ("c2", "run")]
    assert [one.outcome.value for one in recovered] == [None, "paid 1", "paid 2"]


@pytest.mark.promise("EFF-05")
async def test_a_call_made_by_a_tool_that_runs_again_is_recovered_through_it(crashes):
    ran = []

    @tool(idempotent=True)
    async def trip(ctx: ToolContext) -> str:
        (outcome,) = await ctx.run_batch([ToolCall(id="inner", name="leg")])
        return f"trip with {outcome.value}"

    @tool(idempotent=True)
    async def leg() -> str:
        ran.append("leg")
        return "leg"

    crashes.crash("""
@tool(idempotent=True)
async def trip(ctx: ToolContext) -> str:
    await ctx.run_batch([ToolCall(id="inner", name="leg")])

@tool(idempotent=True)
async def leg() -> str:
    die()

async def main():
    async with Runtime.open(store, tools=[trip, leg]) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="outer", name="trip")])
""")
    async with fail_after(10), Runtime.open(crashes.store, tools=[trip, leg]) as runtime:
        recovered = await runtime.recover()

    assert ran == ["leg"]
    assert [(one.call_id, one.outcome.value) for one in recovered] == [("outer", "trip with leg")]


@pytest.mark.promise("EFF-05")
async def test_what_a_dead_process_left_beside_the_store_is_removed_when_its_calls_are_recovered(crashes):
    @tool
    async def pay(amount: int) -> str:
        return "paid"

    crashes.crash(PAY, point="inside")
    assert crashes.owners() == ["agent.db-owner-1"]
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay]) as runtime:
        await runtime.recover()
        assert crashes.owners() == ["agent.db-owner-2"]

    assert sorted(path.name for path in crashes.folder.glob("agent*")) == ["agent.db"]


NESTED = """
@tool
async def pay(amount: int) -> str:
    note(f"pay-{amount}")
    die()

@tool(idempotent=True)
async def shop(ctx: ToolContext) -> str:
    return (await ctx.call("pay", amount=7)).text

async def main():
    async with Runtime.open(store, tools=[pay, shop]) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="c1", name="shop")])
"""


@pytest.mark.promise("EFF-03", "EFF-05")
async def test_a_call_made_by_a_tool_that_runs_again_is_not_itself_run_again(crashes):
    @tool
    async def pay(amount: int) -> str:
        raise AssertionError("It must not run again.")

    @tool(idempotent=True)
    async def shop(ctx: ToolContext) -> str:
        return (await ctx.call("pay", amount=7)).text

    crashes.crash(NESTED)
    async with fail_after(10), Runtime.open(crashes.store, tools=[pay, shop]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="shop")])
    assert crashes.ledger == ["pay-7"]
    assert "may have run, and was not run again" in outcome.text
