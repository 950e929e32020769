"""A completion is acknowledged, and the process that would have taken it is killed."""

from typing import Any

import pytest

from tests.support import fail_after, until
from toolwright import Pending, Resolved, Runtime, ToolCall, ToolContext, ToolError, tool
from toolwright.stores.sqlite.admin.history import calls

ORDER = """
from toolwright import Pending, ToolContext

@tool(on_crash=on_crash, supports_background=True)
async def order(ctx: ToolContext) -> Pending:
    note("ordered")
    say(ctx.completion_key())
    if when == "before it parks":
        await hear()
    return Pending()

async def main():
    async with Runtime.open(store, tools=[order], worker=True) as runtime:
        if run:
            await (await runtime.session("s").spawn("order", id="r1", disposition=disposition)).wait()
        else:
            await runtime.session("s").run_batch([ToolCall(id="c1", name="order")])
"""


@tool(name="order", supports_background=True)
async def forbidden(ctx: ToolContext) -> Pending:
    raise AssertionError("Its completion has come.")


async def resolve_unseen(runtime: Runtime, crashes: Any, key: str, owner: Any, when: str) -> Any:
    """Resolve a completion that its owner never sees, because it is killed before it looks."""
    if when == "while it waits":

        async def waits() -> bool:
            return any(call.waits_for for call in await calls(crashes.store, session="s"))

        await until(waits)
        owner.kill()
    resolved = await runtime.resolve(key, "from outside")
    owner.kill()
    return resolved


@pytest.mark.promise("WAIT-07", "EFF-08")
@pytest.mark.parametrize("when", ["before it parks", "while it waits"])
@pytest.mark.parametrize("on_crash", ["fail", "rerun", "ask"])
async def test_a_call_ends_with_its_completion_when_its_process_dies_before_it_has_seen_it(crashes, when, on_crash):
    owner = crashes.start(ORDER, when=when, on_crash=on_crash, run=False, disposition="resume")
    key = owner.hear()
    async with fail_after(20), Runtime.open(crashes.store, tools=[forbidden]) as runtime:
        resolved = await resolve_unseen(runtime, crashes, key, owner, when)
        (recovered,) = await runtime.recover()
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="order")])

    assert (resolved.first, recovered.outcome.value, outcome.value) == (True, "from outside", "from outside")
    assert crashes.ledger == ["ordered"]


@pytest.mark.promise("WAIT-07", "EFF-05")
@pytest.mark.parametrize("after", ["probe", "rerun", "rerun that raises"])
async def test_a_completion_that_comes_while_its_call_is_recovered_is_the_outcome_of_the_call(crashes, after):
    """The key is from the process that died; the one that recovers the call has not handed it out."""
    owner = crashes.start(ORDER, when="before it parks", on_crash="fail", run=False, disposition="resume")
    key = owner.hear()
    owner.kill()

    async def found(arguments: object) -> str:
        resolved.append(await runtime.resolve(key, "from outside"))
        return "found"

    @tool(name="order", on_crash=found if after == "probe" else "rerun")
    async def order(ctx: ToolContext) -> str:
        resolved.append(await runtime.resolve(key, "from outside"))
        if after == "rerun that raises":
            raise ToolError("it is broken", code="broken")
        return "its own end"

    resolved: list[Resolved] = []
    async with fail_after(20), Runtime.open(crashes.store, tools=[order]) as runtime:
        (recovered,) = await runtime.recover()
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="order")])

    assert [one.first for one in resolved] == [True]
    assert (recovered.outcome.value, outcome.value) == ("from outside", "from outside")


@pytest.mark.promise("WAIT-07", "EFF-08")
@pytest.mark.parametrize("when", ["before it parks", "while it waits"])
@pytest.mark.parametrize("disposition", ["resume", "rerun", "abandon"])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_run_ends_with_its_completion_when_its_worker_dies_and_also_when_it_is_cancelled_then(
    crashes, when, disposition, cancelled
):
    owner = crashes.start(ORDER, when=when, on_crash="fail", run=True, disposition=disposition)
    key = owner.hear()
    async with fail_after(20), Runtime.open(crashes.store, tools=[forbidden], worker=False) as runtime:
        resolved = await resolve_unseen(runtime, crashes, key, owner, when)
        if cancelled:
            await (await runtime.session("s").run("r1")).cancel("no longer wanted")
    async with fail_after(20), Runtime.open(crashes.store, tools=[forbidden], worker=True) as runtime:
        run = await runtime.session("s").run("r1")
        outcome = await run.wait()

    assert resolved.first
    assert (run.status, outcome.value) == ("completed", "from outside")
    assert crashes.ledger == ["ordered"]
