"""What calls do to the services of their session, when their process is killed in the middle."""

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, ToolCall, ToolContext, tool

SAYING = """
@tool(on_crash="rerun")
async def work(ctx: ToolContext) -> list:
    first = await ctx.messages.append("one", metadata={"a": 1})
    again = await ctx.messages.append("one", metadata={"a": 1})
    await ctx.resources.upsert("r", kind="run", name="R", status="started")
    info = await ctx.attachments.put(b"content", name="c", media_type="text/plain")
    note("ran")
    if dies == "after the first":
        die()
    await ctx.resources.upsert("r", kind="run", name="R", status="ended")
    gone = await ctx.attachments.delete(info.hash)
    if dies == "at the end":
        die()
    return [first.number, again.number, (await ctx.messages.append("two")).number, gone]

async def main():
    async with Runtime.open(store, tools=[work]) as runtime:
        session = runtime.session("s")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="work", arguments={})])
        resources = [resource.status for resource in await session.resources.list()]
        say([outcome.value, [m.content for m in await session.messages.list()], resources,
            len(await session.attachments.list())])
"""


@pytest.mark.promise("SES-01", "SES-04", "SES-05")
@pytest.mark.parametrize("dies", ["after the first", "at the end"])
async def test_what_a_call_changed_before_a_kill_is_not_changed_again(crashes, dies):
    crashes.crash(SAYING, dies=dies)
    crashes.crash(SAYING, dies=dies)
    (told,) = crashes.start(SAYING, dies="").wait().said
    assert told == [[1, 2, 3, True], ["one", "one", "two"], ["ended"], 0]
    assert crashes.ledger == ["ran"] * 3


STAR = """
from toolwright import ConnectionRequired, Policy

@tool
async def star(ctx: ToolContext) -> str | ConnectionRequired:
    if await ctx.connections.get("github") is None:
        note("asked")
        return ConnectionRequired("github")
    note("starred")
    if dies == "in the tool":
        die()
    return "starred"

async def main():
    async with Runtime.open(store, tools=[star], policy=Policy(on_connection="wait")) as runtime:
        events, session = runtime.subscribe(), runtime.session("s")
        batch = session.start_batch([ToolCall(id="c1", name="star", arguments={})])
        async for event in events:
            if event.kind == "call.waiting":
                if dies == "while it waits":
                    die()
                await session.connect("github")
            if event.kind == "batch.finished":
                break
        say((await batch)[0].to_json())
"""


@pytest.mark.promise("SES-07")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_call_that_waits_for_a_connection_survives_a_kill(crashes, when):
    ran = []

    @tool
    async def star(ctx: ToolContext) -> str:
        ran.append("starred")
        return "starred"

    crashes.crash(STAR, dies="while it waits")
    options = {"tools": [star], "policy": Policy(on_connection="wait")}
    async with fail_after(10), Runtime.open(crashes.store, **options) as runtime:
        session = runtime.session("s")
        if when == "before":
            await session.connect("github")
        (recovered,) = await runtime.recover()
        assert recovered.action == "waiting"
        if when == "after":
            assert (recovered.outcome.status, ran) == ("pending", [])
            await session.connect("github")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="star", arguments={})])
    assert (outcome.value, ran, crashes.ledger) == ("starred", ["starred"], ["asked"])


@pytest.mark.promise("SES-07", "EFF-05")
async def test_a_call_that_was_killed_after_it_was_connected_follows_its_crash_policy(crashes):
    crashes.crash(STAR, dies="in the tool")
    (outcome,) = crashes.start(STAR, dies="").wait().said
    assert outcome["failure"]["code"] == "interrupted"
    assert crashes.ledger == ["asked", "starred"]


RETRIED = """
from toolwright import ConnectionRequired

@tool
async def star(ctx: ToolContext) -> str | ConnectionRequired:
    if await ctx.connections.get("github") is None:
        return ConnectionRequired("github")
    note("starred")
    if dies:
        die()
    return "starred"

async def main():
    async with Runtime.open(store, tools=[star]) as runtime:
        session = runtime.session("s")
        call = ToolCall(id="c1", name="star", arguments={})
        say((await session.run_batch([call]))[0].status)
        await session.connect("github")
        say((await session.run_batch([call]))[0].status)
"""


@pytest.mark.promise("SES-07", "EFF-05")
async def test_a_retried_call_that_is_killed_follows_its_crash_policy(crashes):
    assert crashes.crash(RETRIED, dies=True) == ["connection_required"]
    assert crashes.start(RETRIED, dies=False).wait().said == ["failure", "failure"]
    assert crashes.ledger == ["starred"]


async def test_a_call_that_is_done_keeps_its_outcome_when_its_session_is_disconnected(crashes):
    crashes.start(RETRIED, dies=False).wait()

    @tool
    async def star(ctx: ToolContext) -> str:
        raise AssertionError("It must not run again.")

    async with fail_after(10), Runtime.open(crashes.store, tools=[star]) as runtime:
        session = runtime.session("s")
        await session.disconnect("github")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="star", arguments={})])
    assert (outcome.value, outcome.replayed) == ("starred", True)


CHILD = """
class Model:
    async def complete(self, request):
        note("asked")
        return request.messages[0]["content"] + "!"

@tool
async def work(ctx: ToolContext) -> str:
    note(ctx.session_id.partition("-")[0])
    await ctx.messages.append("worked")
    return ctx.session_id

@tool(on_crash="rerun")
async def delegate(ctx: ToolContext) -> list:
    child = ctx.open_child("c")
    await child.messages.append("same", sender="user")
    await ctx.messages.append("same")
    answer = await ctx.complete("q", "hello")
    ran = (await child.call("work")).value
    if dies:
        die()
    return [answer, ran == child.id, [m.content for m in await child.messages.list()]]

async def main():
    async with Runtime.open(store, tools=[work, delegate], model=Model()) as runtime:
        session = runtime.session("s")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="delegate", arguments={})])
        say([outcome.value, [m.content for m in await session.messages.list()]])
"""


@pytest.mark.promise("SES-08", "SES-09", "EFF-01")
async def test_a_call_finds_its_child_session_and_the_models_answer_again_after_a_kill(crashes):
    crashes.crash(CHILD, dies=True)
    (told,) = crashes.start(CHILD, dies=False).wait().said
    assert told == [["hello!", True, ["same", "worked"]], ["same"]]
    assert crashes.ledger == ["asked", "s/c"]
