"""A call or run that ends its process each time, and a store that was put in the place of another."""

import pytest

POISON_RUN = """
import os, signal

@tool(supports_background=True, idempotent=True)
async def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Runtime.open(store, tools=[poison], worker=True) as runtime:
        run = await runtime.session("s").spawn("poison", id="bg_poison")
        await run.wait()
        say([run.status, run.record.crashes, run.outcome.failure.code])
"""


@pytest.mark.promise("PROC-04")
def test_a_run_that_ends_its_worker_each_time_is_given_up(crashes):
    for _ in range(3):
        assert crashes.crash(POISON_RUN) == []
    (said,) = crashes.run(POISON_RUN).said
    assert said == ["abandoned", 3, "interrupted"]


STEPPING_RUN = """
import os, signal

@tool(supports_background=True, idempotent=True)
async def steps(ctx: ToolContext) -> str:
    async def note(n):
        say(n)
    for n in range(5):
        await ctx.step(f"step {n}", note, n)
        if not os.path.exists(f"{store}.{n}"):
            open(f"{store}.{n}", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    return "through"

async def main():
    async with Runtime.open(store, tools=[steps], worker=True) as runtime:
        run = await runtime.session("s").spawn("steps", id="bg_steps")
        await run.wait()
        say(run.status)
"""


@pytest.mark.promise("PROC-04")
def test_a_run_that_gets_a_step_further_each_time_is_not_given_up(crashes):
    for number in range(5):
        assert crashes.crash(STEPPING_RUN) == [number]
    assert crashes.run(STEPPING_RUN).said == ["completed"]


POISON_CALL = """
import os, signal
from toolwright import Policy

{tool}
async def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@tool(idempotent=True)
async def innocent(n: int) -> int:
    return n

async def main():
    async with Runtime.open(store, tools=[poison, innocent], policy=Policy({policy})) as runtime:
        if {again}:
            innocents = [ToolCall(id=f"i{{n}}", name="innocent", arguments={{"n": n}}) for n in range(20)]
            first, *others = await runtime.session("s").run_batch([ToolCall(id="c1", name="poison"), *innocents])
            assert all(one.ok for one in others), others
        else:
            first = (await runtime.recover())[0]
            say(first.action)
            first = first.outcome
        say([first.failure.category, first.failure.code, first.may_have_run])
        assert "given up" in first.text
        (again, *_) = await runtime.session("s").run_batch([ToolCall(id="c1", name="poison")])
        assert again.replayed and again.failure.code == "given_up"
"""


@pytest.mark.promise("EFF-14")
@pytest.mark.parametrize("again", [True, False], ids=["its batch run again", "recover"])
@pytest.mark.parametrize(
    ("declaration", "policy", "deaths"),
    [
        ("@tool(idempotent=True)", "", 3),
        ('@tool(on_crash="rerun")', "max_crashes=2", 2),
        ("@tool(on_crash=lambda arguments: None)", "", 3),
    ],
    ids=["rerun", "two deaths", "probe"],
)
def test_a_call_that_ends_its_process_each_time_is_given_up_and_says_so(crashes, declaration, policy, deaths, again):
    first = POISON_CALL.format(tool=declaration, policy=policy, again=True)
    program = POISON_CALL.format(tool=declaration, policy=policy, again=again)
    assert crashes.crash(first) == []
    for _ in range(deaths - 1):
        assert crashes.crash(program) == []
    said = crashes.run(program).said
    assert said == [*([] if again else ["given_up"]), ["interrupted", "given_up", True]]


PROBE = """
import os, signal

def probe(arguments):
    os.kill(os.getpid(), signal.SIGKILL)

@tool(on_crash=probe)
async def work() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Runtime.open(store, tools=[work]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="work")])
        say(outcome.failure.code)
"""


@pytest.mark.promise("EFF-14")
def test_a_probe_that_ends_its_process_each_time_is_given_up(crashes):
    for _ in range(3):
        assert crashes.crash(PROBE) == []
    assert crashes.run(PROBE).said == ["given_up"]


CLOSED = """
@tool(idempotent=True)
async def work() -> str:
    say("running")
    if {ends}:
        return "done"
    await asyncio.Event().wait()

async def main():
    async with Runtime.open(store, tools=[work]) as runtime:
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work")])
        if {ends}:
            (outcome,) = await batch
            say(outcome.value)
        else:
            while batch.calls[0].phase.name != "RUNNING":
                await asyncio.sleep(0.01)
"""


@pytest.mark.promise("EFF-14")
def test_a_program_that_is_closed_does_not_count_as_a_death(crashes):
    for _ in range(4):
        assert crashes.run(CLOSED.format(ends=False)).said == ["running"]
    assert crashes.run(CLOSED.format(ends=True)).said == ["running", "done"]


WAITING = """
import os, signal

async def news(ctx):
    key = ctx.event_key("news")
    open(f"{{store}}.key", "w").write(key)
    await ctx.wait(key)

@tool(idempotent=True)
async def waits(ctx: ToolContext) -> str:
    {wait}
    return "woken"

async def main():
    async with Runtime.open(store, tools=[waits]) as runtime:
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="waits")])
        await batch.quiet()
        if {ends}:
            {resolve}
            (outcome,) = await batch
            say(outcome.value)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.promise("EFF-14")
@pytest.mark.parametrize(
    ("wait", "resolve"),
    [
        ("await news(ctx)", 'await runtime.resolve(open(f"{store}.key").read(), value=1)'),
        ('await ctx.sleep("nap", 3600)', 'say("woken"); return'),
    ],
    ids=["an event", "a sleep"],
)
def test_a_death_while_a_call_waits_does_not_count(crashes, wait, resolve):
    for _ in range(5):
        assert crashes.crash(WAITING.format(wait=wait, resolve="pass", ends=False)) == []
    assert crashes.run(WAITING.format(wait=wait, resolve=resolve, ends=True)).said == ["woken"]


QUEUED = """
import os, signal

@tool(on_crash="rerun")
async def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@tool(on_crash="rerun")
async def waits_its_turn() -> str:
    return "done"

async def main():
    async with Runtime.open(store, tools=[dies, waits_its_turn]) as runtime:
        calls = [ToolCall(id="c1", name="dies"), ToolCall(id="c2", name="waits_its_turn")]
        first, second = await runtime.session("s").run_batch(calls)
        say([first.failure.code, second.value])
"""


@pytest.mark.promise("EFF-14")
def test_a_call_that_only_waited_for_its_turn_is_not_given_up_with_the_one_that_died(crashes):
    for _ in range(3):
        assert crashes.crash(QUEUED) == []
    assert crashes.run(QUEUED).said == [["given_up", "done"]]


@pytest.mark.promise("EFF-12")
def test_a_store_in_the_place_of_one_that_is_still_used_is_refused_and_not_waited_for(crashes):
    holder = """
async def main():
    async with Runtime.open(store) as runtime:
        say("open")
        await asyncio.Event().wait()
"""
    again = """
from toolwright.errors import StoreError

async def main():
    try:
        async with Runtime.open(store):
            say("opened")
    except StoreError as error:
        say(str(error))
"""
    running = crashes.start(holder)
    assert running.hear() == "open"
    for name in ("", "-wal", "-shm"):
        crashes.store.with_name(crashes.store.name + name).unlink(missing_ok=True)
    (said,) = crashes.run(again).said
    assert "a program still uses another store that was here before" in said
    running.kill()
