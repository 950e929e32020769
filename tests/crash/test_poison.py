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


NESTING = """
import os, signal

@tool(on_crash="rerun")
async def part(n: int) -> str:
    if f"part {n}" == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"part {n}"

@tool(on_crash="rerun")
async def whole(ctx: ToolContext) -> list[str]:
    found = []
    for n in range(6):
        outcome = await ctx.call("part", n=n)
        found.append(outcome.value if outcome.ok else outcome.failure.code)
        if f"after {n}" == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
    return found

async def main():
    async with Runtime.open(store, tools=[part, whole]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="whole")])
        say(outcome.value if outcome.ok else outcome.failure.code)
"""
PARTS = [f"part {n}" for n in range(6)]


@pytest.mark.promise("EFF-14")
def test_a_call_whose_calls_end_one_after_the_other_is_not_given_up(crashes):
    for n in range(5):
        assert crashes.crash(NESTING, deadly=f"after {n}") == []
    assert crashes.run(NESTING, deadly=None).said == [PARTS]


@pytest.mark.promise("EFF-14")
def test_the_call_that_another_one_made_is_given_up_and_not_the_other(crashes):
    for _ in range(3):
        assert crashes.crash(NESTING, deadly="part 4") == []
    assert crashes.run(NESTING, deadly="part 4").said == [[*PARTS[:4], "given_up", "part 5"]]


@pytest.mark.promise("EFF-14")
def test_a_call_that_ends_its_process_each_time_after_the_same_call_is_given_up(crashes):
    for _ in range(3):
        assert crashes.crash(NESTING, deadly="after 4") == []
    assert crashes.run(NESTING, deadly="after 4").said == ["given_up"]


APPROVED = """
import os, signal

@tool(approval="required", on_crash="rerun")
async def part() -> str:
    return "approved"

@tool(on_crash="rerun")
async def whole(ctx: ToolContext) -> str:
    return (await ctx.call("part")).value

async def main():
    async with Runtime.open(store, tools=[part, whole]) as runtime:
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="whole")])
        await batch.quiet()
        (approval,) = await runtime.approvals()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        await runtime.approve(approval.key)
        (outcome,) = await batch
        say(outcome.value if outcome.ok else outcome.failure.code)
"""


@pytest.mark.promise("EFF-14")
def test_a_death_while_a_call_of_the_call_waits_does_not_count(crashes):
    for _ in range(5):
        assert crashes.crash(APPROVED, dies=True) == []
    assert crashes.run(APPROVED, dies=False).said == ["approved"]


ASKING_RUN = """
import os, signal
from toolwright import App
from toolwright.testing import FunctionModel

@tool(on_crash="rerun")
async def part(n: int) -> int:
    if f"part {n}" == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return n

def child(request):
    if f"child {request.number}" == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    n = request.number
    return [ToolCall(id=f"p{n}", name="part", arguments={"n": n})] if n < 3 else "through"

@tool(supports_background=True, on_crash="rerun", timeout=None)
async def asks(ctx: ToolContext) -> str:
    return (await ctx.open_child("child").ask("Go.", tools=[part], model=FunctionModel(child, name="child"))).text

async def main():
    if cancels:  # before a worker takes it
        async with App(tools=[asks, part]).open(store, worker=False) as runtime:
            await (await runtime.session("s").run("bg_asks")).cancel("enough")
    async with App(tools=[asks, part]).open(store, worker=True) as runtime:
        run = await runtime.session("s").spawn("asks", id="bg_asks")
        await run.wait()
        say([run.status, run.outcome.value if run.outcome.ok else run.outcome.failure and run.outcome.failure.code])
        say([[info.state, info.reason] for info in await runtime.turns()])
"""


@pytest.mark.promise("PROC-04", "EFF-14")
def test_a_run_whose_sub_agent_gets_further_each_time_is_not_given_up(crashes):
    for deadly in ("child 0", "part 0", "child 1", "part 1", "child 2", "part 2", "child 3"):
        assert crashes.crash(ASKING_RUN, deadly=deadly, cancels=False) == []
    said = crashes.run(ASKING_RUN, deadly=None, cancels=False).said
    assert said == [["completed", "through"], [["answered", None]]]


@pytest.mark.promise("PROC-04", "TURN-12")
def test_a_run_that_is_cancelled_after_its_worker_died_ends_the_turn_of_its_sub_agent(crashes):
    assert crashes.crash(ASKING_RUN, deadly="part 1", cancels=False) == []
    said = crashes.run(ASKING_RUN, deadly=None, cancels=True).said
    assert said == [["cancelled", None], [["cancelled", "enough"]]]


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
