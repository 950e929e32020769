"""Questions to a person whose process was killed: answered while nobody runs the call, and never asked again."""

import pytest

from toolwright import Runtime, ToolwrightError

ASKING = """
from toolwright import Policy

@tool(on_crash="rerun")
async def order(ctx: ToolContext, item: str) -> str:
    note(f"runs:{ctx.call_id}")
    size = await ctx.ask("size", f"Which size of {item}?", {"type": "string", "maxLength": 3})
    note(f"got:{size}")
    if dies == "answered":
        die()
    return f"{item} in {size}"

async def main():
    policy = Policy(on_ask="deny" if dies == "nobody" else "wait")
    async with Runtime.open(store, tools=[order], policy=policy) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="order", arguments={"item": "shirt"})])
        async for event in events:
            if event.kind == "call.waiting":
                (question,) = await runtime.questions()
                say([event.what, question.key, question.message, question.deadline])
                if dies == "open":
                    die()
                await runtime.answer(question.key, "M", by="ann")
            if event.kind == "call.finished":
                break
        say((await batch)[0].to_json())
"""


@pytest.mark.promise("WAIT-08")
async def test_a_question_is_answered_while_no_process_lives_and_the_next_one_continues(crashes):
    ((what, key, message, deadline),) = crashes.crash(ASKING, dies="open")
    assert (what, message) == ("question", "Which size of shirt?")
    async with Runtime.open(crashes.store) as runtime:  # has no tool, and does not run the call
        (question,) = await runtime.questions()
        assert (question.key, question.message, question.deadline) == (key, message, deadline)
        with pytest.raises(ToolwrightError, match="stays open"):
            await runtime.answer(key, "enormous")
        assert (await runtime.answer(key, "XL", by="zoe")).first
        assert (await runtime.answer(key, "S")).value == "XL"
        assert await runtime.questions() == []
    (outcome,) = crashes.start(ASKING, dies="").wait().said  # it is not asked again: nothing waits
    assert outcome["value"] == "shirt in XL"
    assert crashes.ledger == ["runs:c1", "runs:c1", "got:XL"]
    async with Runtime.open(crashes.store) as runtime:
        (decided,) = await runtime.questions(decided=True)
    assert (decided.answer, decided.decision.by) == ("XL", "zoe")


@pytest.mark.promise("WAIT-08")
async def test_a_question_that_is_open_after_a_kill_keeps_its_deadline_and_its_key(crashes):
    (first,) = crashes.crash(ASKING, dies="open")
    (second,) = crashes.crash(ASKING, dies="open")
    assert first == second
    (third, outcome) = crashes.start(ASKING, dies="").wait().said
    assert (third, outcome["value"]) == (first, "shirt in M")


@pytest.mark.promise("WAIT-08")
async def test_an_answer_that_the_tool_got_before_a_kill_is_the_answer_after_it(crashes):
    crashes.crash(ASKING, dies="answered")
    (outcome,) = crashes.start(ASKING, dies="").wait().said
    assert outcome["value"] == "shirt in M"
    assert crashes.ledger == ["runs:c1", "got:M", "runs:c1", "got:M"]


@pytest.mark.promise("WAIT-08")
async def test_an_answer_stands_where_nobody_is_asked_any_more(crashes):
    crashes.crash(ASKING, dies="answered")
    (outcome,) = crashes.start(ASKING, dies="nobody").wait().said
    assert outcome["value"] == "shirt in M"
