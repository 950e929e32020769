"""Steps, waits and approvals of calls whose process was killed in the middle."""

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import Pending, Runtime, ToolCall, ToolContext, tool

TRAVEL = """
def charge(flight):
    note(f"charge:{flight}")
    if dies == "in charge":
        die()
    return f"receipt {flight}"

def ticket(flight):
    note(f"ticket:{flight}")
    if dies == "in ticket":
        die()
    return f"ticket {flight}"

@tool(on_crash="rerun")
async def travel(ctx: ToolContext, flight: str) -> list[str]:
    receipt = await ctx.step("charge", charge, flight)
    if dies == "between":
        die()
    return [receipt, await ctx.step("ticket", ticket, flight)]

async def main():
    async with Runtime.open(store, tools=[travel]) as runtime:
        call = ToolCall(id="c1", name="travel", arguments={"flight": "LH1"})
        (outcome,) = await runtime.session("s").run_batch([call])
        say(outcome.to_json())
"""


@pytest.mark.promise("EFF-06")
async def test_a_step_that_was_done_before_a_crash_is_not_done_again(crashes):
    crashes.crash(TRAVEL, dies="between")
    assert crashes.ledger == ["charge:LH1"]
    (outcome,) = crashes.start(TRAVEL, dies="").wait().said
    assert outcome["value"] == ["receipt LH1", "ticket LH1"]
    assert crashes.ledger == ["charge:LH1", "ticket:LH1"]


@pytest.mark.promise("EFF-06", "EFF-05")
async def test_a_step_that_a_crash_cut_off_is_not_run_again_and_says_so_ever_after(crashes):
    crashes.crash(TRAVEL, dies="in ticket")
    for replayed in (False, True):
        (outcome,) = crashes.start(TRAVEL, dies="").wait().said
        failure = outcome["failure"]
        assert (failure["category"], failure["code"]) == ("interrupted", "interrupted")
        assert "'ticket'" in failure["message"]
        assert outcome["replayed"] is replayed
    assert crashes.ledger == ["charge:LH1", "ticket:LH1"]


@pytest.mark.promise("EFF-06", "EFF-05")
@pytest.mark.parametrize(
    ("policy", "ledger"),
    [("rerun", ["once", "once"]), ("fail", ["once"]), ("found", ["once"]), ("not found", ["once", "once"])],
)
async def test_a_step_that_a_crash_cut_off_follows_its_own_policy(crashes, policy, ledger):
    program = """
def act(what):
    note(what)
    if dies:
        die()
    return "done"

def probe(what):
    assert what == "once"
    return "found" if policy == "found" else None

@tool(on_crash="rerun")
async def work(ctx: ToolContext) -> str:
    on_crash = policy if policy in ("rerun", "fail") else probe
    return await ctx.step("act", act, "once", on_crash=on_crash)

async def main():
    async with Runtime.open(store, tools=[work]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="work", arguments={})])
        say(outcome.to_json())
"""
    crashes.crash(program, dies=True, policy=policy)
    (outcome,) = crashes.start(program, dies=False, policy=policy).wait().said
    assert crashes.ledger == ledger
    expected = {"rerun": "done", "found": "found", "not found": "done"}
    assert outcome.get("value") == expected.get(policy)
    assert (policy == "fail") == (outcome["status"] == "failure")


PENDING = """
from toolwright import Pending

@tool
async def book(ctx: ToolContext, flight: str) -> Pending:
    note(f"book:{flight}")
    say(ctx.completion_key())
    return Pending(deadline=3600)

async def main():
    async with Runtime.open(store, tools=[book]) as runtime:
        events = runtime.subscribe()
        runtime.session("s").start_batch([ToolCall(id="c1", name="book", arguments={"flight": "LH1"})])
        async for event in events:
            if event.kind == "call.waiting":
                die()
"""


@pytest.mark.promise("WAIT-01", "EFF-05")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_pending_call_survives_a_kill_and_is_completed_once(crashes, when):
    @tool
    async def book(ctx: ToolContext, flight: str) -> Pending:
        raise AssertionError("It must not run again.")

    (key,) = crashes.crash(PENDING)
    call = ToolCall(id="c1", name="book", arguments={"flight": "LH1"})
    async with fail_after(10), Runtime.open(crashes.store, tools=[book]) as runtime:
        if when == "before":
            assert (await runtime.resolve(key, "4A")).first
        (recovered,) = await runtime.recover()
        assert recovered.action == "waiting"
        if when == "after":
            assert recovered.outcome.status == "pending"
            assert (await runtime.resolve(key, "4A")).first
        (outcome,) = await runtime.session("s").run_batch([call])
        assert outcome.value == "4A"
        assert not (await runtime.resolve(key, "5B")).first
    assert crashes.ledger == ["book:LH1"]


ASKING = """
@tool(approval="required", on_crash="ask")
async def rm(path: str) -> str:
    note(path)
    if dies == "in the tool":
        die()
    return "removed"

async def main():
    async with Runtime.open(store, tools=[rm]) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="rm", arguments={"path": "/a"})])
        async for event in events:
            if event.kind == "call.waiting":
                if dies == "while it asks":
                    die()
                (approval,) = await runtime.approvals()
                say(approval.cause)
                await runtime.approve(approval.key)
            if event.kind == "batch.finished":
                break
        say((await batch)[0].to_json())
"""


@pytest.mark.promise("AUTH-04")
async def test_a_request_survives_a_kill(crashes):
    crashes.crash(ASKING, dies="while it asks")
    assert crashes.ledger == []
    cause, outcome = crashes.start(ASKING, dies="").wait().said
    assert (cause, outcome["value"], crashes.ledger) == ("policy", "removed", ["/a"])


@pytest.mark.promise("EFF-05", "AUTH-04")
async def test_a_call_that_was_cut_off_runs_again_only_with_leave_each_time(crashes):
    assert crashes.crash(ASKING, dies="in the tool") == ["policy"]
    assert crashes.crash(ASKING, dies="in the tool") == ["crash"]
    cause, outcome = crashes.start(ASKING, dies="").wait().said
    assert (cause, outcome["value"]) == ("crash", "removed")
    assert crashes.ledger == ["/a"] * 3


@pytest.mark.promise("EFF-05")
async def test_a_call_that_was_cut_off_and_denied_is_interrupted(crashes):
    @tool(approval="required", on_crash="ask")
    async def rm(path: str) -> str:
        raise AssertionError("It must not run again.")

    crashes.crash(ASKING, dies="in the tool")
    call = ToolCall(id="c1", name="rm", arguments={"path": "/a"})
    async with fail_after(10), Runtime.open(crashes.store, tools=[rm]) as runtime:
        events = runtime.subscribe()
        (recovered,) = await runtime.recover()
        assert (recovered.action, recovered.outcome.status) == ("asked", "pending")
        assert (await waiting(events)).what == "crash"
        (approval,) = await runtime.approvals()
        assert (approval.cause, approval.arguments) == ("crash", {"path": "/a"})
        await runtime.deny(approval.key, reason="it is gone already")
        (outcome,) = await runtime.session("s").run_batch([call])
    assert (outcome.failure.category, outcome.failure.code) == ("interrupted", "interrupted")
    assert "it is gone already" in outcome.failure.message
    assert (outcome.attempts, outcome.may_have_run) == (1, True)


@pytest.mark.promise("EFF-06", "WAIT-05", "EFF-01")
async def test_a_tool_that_is_run_again_receives_the_same_signals_and_events_again(crashes):
    program = """
@tool(on_crash="rerun")
async def listen(ctx: ToolContext) -> list[str]:
    say([ctx.signal_key("news"), ctx.event_key("door")])
    heard = [await ctx.receive("news"), await ctx.wait(ctx.event_key("door"))]
    note(" ".join(heard).replace(" ", "+"))
    if dies:
        die()
    return [*heard, await ctx.receive("news")]

async def main():
    async with Runtime.open(store, tools=[listen]) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="listen", arguments={})])
        say((await batch)[0].value)
"""
    first = crashes.start(program, dies=True)
    signal_key, event_key = first.hear()
    async with fail_after(10), Runtime.open(crashes.store) as runtime:
        await runtime.signal(signal_key, "one")
        await runtime.signal(signal_key, "two")
        await runtime.resolve(event_key, "open")
        first.wait()
        assert crashes.start(program, dies=False).wait().said == [[signal_key, event_key], ["one", "open", "two"]]
    assert crashes.ledger == ["one+open", "one+open"]


@pytest.mark.promise("EFF-07")
async def test_a_step_that_cannot_be_recorded_is_no_outcome(crashes):
    program = """
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.sqlite_store import run_on_connection

@tool(idempotent=True)
async def work(ctx: ToolContext) -> str:
    note("work")
    if full:
        await run_on_connection(opened, lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchall())
    try:
        return await ctx.step("act", lambda: "x" * 200_000)
    except Exception as error:
        return f"swallowed {error}"

async def main():
    global opened
    opened = SqliteStore(store)
    async with Runtime.open(opened, tools=[work]) as runtime:
        call = ToolCall(id="c1", name="work", arguments={})
        try:
            (outcome,) = await runtime.session("s").run_batch([call])
            say(len(outcome.value))
        except StoreError as error:
            say(str(error))
"""
    (told,) = crashes.start(program, full=True).wait().said
    assert "the disk is full" in told
    assert crashes.start(program, full=False).wait().said == [200_000]
    assert crashes.ledger == ["work", "work"]


async def test_a_step_of_a_tool_keeps_its_error_through_a_crash(crashes):
    program = """
from toolwright import ToolError

def charge():
    note("charge")
    raise ToolError("no money", code="declined", category="external")

@tool(on_crash="rerun")
async def pay(ctx: ToolContext) -> str:
    try:
        await ctx.step("charge", charge)
    except ToolError as error:
        if dies:
            die()
        return error.failure.code
    return "paid"

async def main():
    async with Runtime.open(store, tools=[pay]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="pay", arguments={})])
        say(outcome.value)
"""
    crashes.crash(program, dies=True)
    assert crashes.start(program, dies=False).wait().said == ["declined"]
    assert crashes.ledger == ["charge"]


ASKED = """
def act():
    note("act")
    if dies:
        die()
    return "done"

@tool(on_crash="rerun")
async def careful(ctx: ToolContext) -> str:
    return await ctx.step("act", act, on_crash="ask")

async def main():
    async with Runtime.open(store, tools=[careful]) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="careful", arguments={})])
        if decide:
            async for event in events:
                if event.kind == "call.waiting":
                    break
            (approval,) = await runtime.approvals()
            say([approval.tool, approval.cause, approval.reason])
            await (runtime.approve if decide == "approve" else runtime.deny)(approval.key)
        (outcome,) = await batch
        say(outcome.to_json())
        if decide:
            say(outcome.failure.detail if outcome.failure else None)
"""


@pytest.mark.promise("EFF-06", "EFF-05")
@pytest.mark.parametrize("decide", ["approve", "deny"])
async def test_a_person_decides_about_a_step_that_a_crash_cut_off(crashes, decide):
    crashes.crash(ASKED, dies=True, decide="")
    asked, outcome, detail = crashes.start(ASKED, dies=False, decide=decide).wait().said
    assert asked[:2] == ["careful", "crash"]
    assert "its step 'act' was cut off by a crash and may have happened" in asked[2]
    if decide == "approve":
        assert (outcome["value"], crashes.ledger) == ("done", ["act", "act"])
    else:
        assert (outcome["failure"]["code"], crashes.ledger) == ("interrupted", ["act"])
        assert detail is None, "a person decided; there is nothing to mend in the program"
    (again,) = crashes.start(ASKED, dies=False, decide="").wait().said
    assert again["replayed"]


@pytest.mark.promise("EFF-06", "EFF-05")
async def test_a_step_that_is_cut_off_again_asks_again(crashes):
    crashes.crash(ASKED, dies=True, decide="")
    crashes.crash(ASKED, dies=True, decide="approve")
    asked, outcome, _ = crashes.start(ASKED, dies=False, decide="approve").wait().said
    assert (asked[1], outcome["value"], crashes.ledger) == ("crash", "done", ["act"] * 3)


SCOPES = """
import asyncio
from pathlib import Path

def ledger():
    return Path("ledger").read_text().splitlines() if Path("ledger").exists() else []

def call(number, *where):
    return ToolCall(id=f"c{number}", name="work", arguments={"name": f"{where} {number}"})

@tool(parallel=True)
async def work(name: str) -> str:
    note(name)
    if dies:
        await asyncio.Event().wait()
    return name

async def main():
    async with Runtime.open(store, tools=[work]) as runtime:
        if dies:
            for session, scope in (("s", "m1"), ("s", "m2"), ("t", "m1")):
                calls = [call(number, session, scope) for number in (1, 2)]
                runtime.session(session).start_batch(calls, scope=scope)
            while len(ledger()) < 6:
                await asyncio.sleep(0.01)
            die()
        found = await runtime.unfinished("s", scope="m2")
        say([[one.session, one.scope, one.call_id, one.tool, one.position, one.began] for one in found])
        done = await runtime.recover("s", scope="m2")
        say([[one.session, one.scope, one.call_id, one.action] for one in done])
        say(sorted({(one.session, one.scope) for one in await runtime.unfinished()}))
        say(len(await runtime.unfinished("t")))
"""


@pytest.mark.promise("EFF-05", "EFF-11")
async def test_what_a_crash_cut_off_is_listed_and_finished_by_session_and_scope(crashes):
    crashes.crash(SCOPES, dies=True)
    found, done, left, of_t = crashes.start(SCOPES, dies=False).wait().said
    assert found == [["s", "m2", "c1", "work", 0, True], ["s", "m2", "c2", "work", 1, True]]
    assert done == [["s", "m2", "c1", "interrupted"], ["s", "m2", "c2", "interrupted"]]
    assert (left, of_t) == ([["s", "m1"], ["t", "m1"]], 2)
