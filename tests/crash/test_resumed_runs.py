"""Runs that were abandoned after a crash, and continue because a person decided so."""

import pytest

JOB = """
from toolwright import ToolError


@tool
async def book(what: str) -> str:
    note(f"book {what}")
    if dies == "in a nested call":
        die()
    return f"booked {what}"


def charge(amount: int) -> str:
    note(f"charge {amount}")
    if dies == "in a step":
        die()
    return f"charged {amount}"


@tool(on_crash="rerun", supports_background=True)
async def travel(ctx: ToolContext) -> list[str]:
    note(f"key {ctx.idempotency_key}")
    first = await ctx.step("charge", charge, 5)
    await ctx.step("charge more", charge, 7)
    booked = await ctx.call("book", what="hotel")
    if not booked.ok:
        raise ToolError(booked.failure.message, code=booked.failure.code, category="interrupted")
    return [first, booked.value]


async def main():
    async with Runtime.open(store, tools=[travel, book], worker=True) as runtime:
        session = runtime.session("s")
        if begin:
            await session.spawn("travel", id="trip", signal_on_completion=True)
        run = await session.run("trip")
        if resume:
            await run.resume(by="ann")
        outcome = await run.wait()
        events = [event.type async for event in run.events()]
        say([run.status, outcome.to_json(), events, len(await session.messages.list())])
"""


@pytest.mark.promise("PROC-04", "PROC-09", "EFF-06")
async def test_an_abandoned_run_continues_with_its_finished_steps_when_a_person_says_so(crashes):
    crashes.crash(JOB, dies="in a step", begin=True, resume=False)
    ((status, outcome, _, told),) = crashes.start(JOB, dies="", begin=False, resume=False).wait().said
    assert (status, outcome["failure"]["code"], told) == ("abandoned", "interrupted", 1)
    assert crashes.ledger[1:2] == ["charge 5"]
    ((status, outcome, events, told),) = crashes.start(JOB, dies="", begin=False, resume=True).wait().said
    assert (status, outcome["value"], told) == ("completed", ["charged 5", "booked hotel"], 2)
    assert events[-4:] == ["reopened", "started", "status", "completed"]
    keys = {line for line in crashes.ledger if line.startswith("key")}
    assert len(keys) == 1
    assert [line for line in crashes.ledger if not line.startswith("key")] == [
        "charge 5",
        "charge 5",
        "charge 7",
        "book hotel",
    ]


@pytest.mark.promise("PROC-04", "PROC-09")
async def test_a_nested_call_that_was_cut_off_runs_again_and_the_steps_before_it_do_not(crashes):
    crashes.crash(JOB, dies="in a nested call", begin=True, resume=False)
    ((status, outcome, _, _),) = crashes.start(JOB, dies="never", begin=False, resume=False).wait().said
    assert status == "abandoned", outcome
    ((status, outcome, _, _),) = crashes.start(JOB, dies="never", begin=False, resume=True).wait().said
    assert (status, outcome["value"]) == ("completed", ["charged 5", "booked hotel"])
    done = [line for line in crashes.ledger if not line.startswith("key")]
    assert (done.count("charge 5"), done.count("book hotel")) == (1, 2)


@pytest.mark.promise("PROC-09")
async def test_a_run_that_is_not_abandoned_is_not_resumed(crashes):
    crashes.start(JOB, dies="", begin=True, resume=False).wait()
    program = """
from toolwright import ToolwrightError
@tool(supports_background=True)
async def travel() -> None: ...

async def main():
    async with Runtime.open(store, tools=[travel], worker=False) as runtime:
        run = await runtime.run("trip")
        try:
            await run.resume()
        except ToolwrightError as error:
            say(str(error))
"""
    (said,) = crashes.start(program).wait().said
    assert said == "The run 'trip' is completed; only an abandoned run can be resumed"
