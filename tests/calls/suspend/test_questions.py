"""Questions of a tool to a person: stored, ended by the first answer, which is checked before it is taken."""

import asyncio

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import (
    KeyRefused,
    Policy,
    ReplayMismatch,
    RetryPolicy,
    Runtime,
    ToolCall,
    ToolContext,
    ToolError,
    ToolwrightError,
    tool,
)
from toolwright.testing import FakeClock, slots_in_use

SIZE = {"type": "string", "enum": ["S", "M", "L"]}


@tool
async def order(ctx: ToolContext, item: str, seconds: float | None = None) -> dict:
    try:
        size = await ctx.ask("size", f"Which size of {item}?", SIZE, deadline=seconds)
    except ToolError as error:
        return {"code": error.failure.code, "message": str(error)}
    return {"item": item, "size": size}


CALL = ToolCall(id="c1", name="order", arguments={"item": "shirt"})


async def asked(runtime, events):
    """The only question there is, once it is asked."""
    event = await waiting(events)
    assert (event.what, event.name) == ("question", "size")
    (question,) = await runtime.questions()
    return question


@pytest.mark.promise("WAIT-08")
async def test_a_tool_gets_the_answer_of_a_person_and_holds_no_slot_until_then(place, open_runtime):
    runtime = await open_runtime(place, order, policy=Policy(approval_timeout=60))
    session, events = runtime.session("s"), runtime.subscribe()
    async with fail_after(10):
        batch = session.start_batch([CALL])
        question = await asked(runtime, events)
        assert slots_in_use(session) == 0
        assert (question.session, question.call_id, question.tool, question.name) == ("s", "c1", "order", "size")
        assert (question.message, question.schema) == ("Which size of shirt?", SIZE)
        assert question.deadline - question.asked_at == pytest.approx(60)
        assert (question.decision, question.answer, await runtime.approvals()) == (None, None, [])
        assert (await runtime.questions("other"), await runtime.questions("s")) == ([], [question])
        assert await session.questions() == [question]
        assert [(one.kind, one.name, one.key) for one in await session.waits()] == [("question", "size", question.key)]
        with pytest.raises(KeyRefused, match="not one of session"):
            await runtime.session("other").answer(question.key, "M")
        with pytest.raises(KeyRefused, match="not one of session"):
            await runtime.session("other").decline(question.key)
        first = await session.answer(question.key, "M", by="ann")
        second = await runtime.answer(question.key, "L", by="bob")
        third = await runtime.decline(question.key, "no")
        (outcome,) = await batch
    assert [(one.first, one.status, one.value) for one in (first, second, third)] == [
        (True, "ok", "M"),
        (False, "ok", "M"),
        (False, "ok", "M"),
    ]
    assert outcome.value == {"item": "shirt", "size": "M"}
    assert await runtime.questions() == []


@pytest.mark.promise("WAIT-08")
async def test_an_answer_that_does_not_fit_the_schema_is_refused_and_the_question_stays_open(place, open_runtime):
    runtime = await open_runtime(place, order)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([CALL])
        question = await asked(runtime, events)
        for wrong in ("XL", 3, None, {"size": "M"}, object(), "M" * 100_000):
            with pytest.raises(ToolwrightError, match=r"stays open|no JSON form"):
                await runtime.answer(question.key, wrong)
        assert await runtime.questions() == [question]
        with pytest.raises(ToolwrightError, match="does not say who"):
            await runtime.answer(question.key, "M", by="")
        await runtime.answer(question.key, "M")
        (outcome,) = await batch
    assert outcome.value["size"] == "M"


@pytest.mark.promise("WAIT-08")
async def test_a_question_may_be_declined_expire_or_be_cancelled_and_the_tool_is_told_which(place, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(place, order, clock=clock)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([CALL])
        question = await asked(runtime, events)
        assert (await runtime.decline(question.key, "ask my tailor", by="ann")).first
        (declined,) = await batch
        late = await runtime.answer(question.key, "M")
        assert (late.first, late.status, late.reason) == (False, "error", "ask my tailor")

        timed = ToolCall(id="c2", name="order", arguments={"item": "hat", "seconds": 30})
        batch = runtime.session("s").start_batch([timed])
        question = await asked(runtime, events)
        assert question.deadline - question.asked_at == pytest.approx(30)
        while not batch.done:
            await clock.advance(31)
        (expired,) = await batch

        batch = runtime.session("s").start_batch([ToolCall(id="c3", name="order", arguments={"item": "cap"})])
        await asked(runtime, events)
        await runtime.session("s").cancel_waits("closed for today")
        (cancelled,) = await batch
    assert declined.value["code"] == "declined"
    assert "ask my tailor" in declined.value["message"]
    assert [expired.value["code"], cancelled.value["code"]] == ["expired", "wait_cancelled"]

    decided = await runtime.questions(decided=True)
    assert [(one.call_id, one.decision.verdict, one.decision.by) for one in decided] == [
        ("c3", "cancelled", None),
        ("c2", "expired", None),
        ("c1", "declined", "ann"),
    ]
    assert await runtime.questions(decided=True, limit=1, before=decided[0].number) == [decided[1]]
    assert await runtime.questions("other", decided=True) == []
    assert await runtime.decisions() == []


@pytest.mark.promise("WAIT-08")
async def test_who_answered_and_when_is_kept(place, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(place, order, clock=clock)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([CALL])
        question = await asked(runtime, events)
        await clock.advance(5)
        await runtime.answer(question.key, "S", by="ann")
        await batch
        (decided,) = await runtime.questions(decided=True)
    assert (decided.decision.verdict, decided.decision.by, decided.answer) == ("answered", "ann", "S")
    assert decided.decision.at - question.asked_at == pytest.approx(5)
    assert (decided.key, decided.message) == (question.key, question.message)


@pytest.mark.promise("WAIT-08")
async def test_one_of_many_answers_at_once_is_first(place, open_runtime):
    runtime = await open_runtime(place, order)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([CALL])
        question = await asked(runtime, events)
        said = [("S", "M", "L")[number % 3] for number in range(30)]
        ends = await asyncio.gather(*(runtime.answer(question.key, size) for size in said))
        (outcome,) = await batch
    assert sum(end.first for end in ends) == 1
    assert {end.value for end in ends} == {outcome.value["size"]}


@pytest.mark.promise("WAIT-08")
async def test_several_questions_of_a_call_wait_side_by_side(place, open_runtime):
    @tool
    async def plan(ctx: ToolContext) -> tuple:
        return await asyncio.gather(ctx.ask("where", "Where to?"), ctx.ask("when", "When?", {"type": "integer"}))

    runtime = await open_runtime(place, plan)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="plan")])
        assert {(await waiting(events)).name for _ in range(2)} == {"where", "when"}
        keys = {question.name: question.key for question in await runtime.questions()}
        await runtime.answer(keys["when"], 7)
        await runtime.answer(keys["where"], {"city": "Rome"})
        (outcome,) = await batch
    assert outcome.value == [{"city": "Rome"}, 7]


@pytest.mark.promise("WAIT-08")
async def test_the_keys_of_questions_and_of_other_waits_are_not_taken_for_each_other(place, open_runtime):
    @tool(approval="required")
    async def pay(ctx: ToolContext) -> str:
        return await ctx.ask("sure", "Are you sure?")

    runtime = await open_runtime(place, pay)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="pay")])
        await waiting(events)
        (approval,) = await runtime.approvals()
        assert await runtime.questions() == []
        for verb in (runtime.answer(approval.key, 1), runtime.decline(approval.key)):
            with pytest.raises(KeyRefused, match=r"use runtime\.approve"):
                await verb
        await runtime.approve(approval.key)
        await waiting(events)
        (question,) = await runtime.questions()
        for verb in (runtime.approve(question.key), runtime.deny(question.key), runtime.resolve(question.key)):
            with pytest.raises(KeyRefused, match=r"use runtime\.answer"):
                await verb
        with pytest.raises(KeyRefused, match="altered"):
            await runtime.answer(question.key[:-2] + "xx", 1)
        await runtime.answer(question.key, "yes")
        (outcome,) = await batch
    assert outcome.value == "yes"


@pytest.mark.promise("WAIT-08")
async def test_a_question_of_a_finished_call_cannot_be_answered(place, open_runtime):
    runtime = await open_runtime(place, order)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([CALL])
        question = await asked(runtime, events)
        batch.cancel("never mind")
        await batch.settled()
        assert await runtime.questions() == []
        with pytest.raises(KeyRefused):
            await runtime.answer(question.key, "M")
        with pytest.raises(KeyRefused):
            await runtime.decline(question.key)


@pytest.mark.promise("WAIT-08")
async def test_another_attempt_gets_the_answer_without_asking_and_may_not_ask_something_else(place, open_runtime):
    asking = ["Sure?", "Sure?", "Really sure?"]
    seen = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0, jitter=0))
    async def pay(ctx: ToolContext) -> str:
        try:
            seen.append(await ctx.ask("sure", asking[ctx.attempt - 1], {"type": "boolean"}))
        except ReplayMismatch as error:
            return str(error)
        raise ToolError("not yet", retry=True)

    runtime = await open_runtime(place, pay)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="pay")])
        await waiting(events)
        (question,) = await runtime.questions()
        await runtime.answer(question.key, True)
        (outcome,) = await batch
    assert seen == [True, True]
    assert "'sure'" in outcome.value
    assert '"Really sure?" now' in outcome.value
    assert await runtime.questions() == []


@pytest.mark.promise("WAIT-08")
async def test_a_name_is_used_once_in_an_attempt(place, open_runtime):
    @tool
    async def twice(ctx: ToolContext) -> str:
        first = await ctx.ask("a", "One?")
        with pytest.raises(ToolwrightError, match="used before"):
            await ctx.ask("a", "One?")
        return first

    runtime = await open_runtime(place, twice)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="twice")])
        await waiting(events)
        (question,) = await runtime.questions()
        await runtime.answer(question.key, "once")
        (outcome,) = await batch
    assert outcome.value == "once"


def doubling(levels: int) -> dict:
    """A short schema with very many parts: each definition refers twice to the next."""
    parts = {
        f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}, {"$ref": f"#/$defs/a{level + 1}"}]}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**parts, f"a{levels}": {"type": "integer"}}}


TREE = {
    "$ref": "#/$defs/n",
    "$defs": {"n": {"anyOf": [{"items": {"$ref": "#/$defs/n"}}, {"items": {"$ref": "#/$defs/n"}}]}},
}


@pytest.mark.promise("WAIT-08")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("", "What?"), "question name"),
        (("n" * 256, "What?"), "question name"),
        (("a", ""), "for its text"),
        (("a", 3), "for its text"),
        (("a", "x" * 20_000), "20000 characters for its text"),
        (("a", "What?", "text"), "use JSON Schema"),
        (("a", "What?", {"type": "word"}), "invalid JSON Schema"),
        (("a", "What?", {"$ref": "https://example.com/x"}), "leads nowhere"),
        (("a", "What?", {"enum": ["x" * 70_000]}), "bytes and may have"),
        (("a", "What?", {"const": object()}), "no JSON form"),
        (("a", "What?", doubling(25)), "more than 1000 parts"),
        (("a", "What?", TREE), "more than 1000 parts"),
    ],
)
async def test_a_question_that_cannot_be_asked_is_refused_at_once(open_session, arguments, said):
    @tool
    async def bad(ctx: ToolContext) -> str:
        with pytest.raises(ToolwrightError, match=said):
            await ctx.ask(*arguments)
        with pytest.raises(ToolwrightError, match="deadline"):
            await ctx.ask("a", "What?", deadline=-1)
        return "refused"

    session = await open_session(bad)
    async with fail_after(10):
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="bad")])
    assert outcome.value == "refused"


@pytest.mark.promise("WAIT-08")
async def test_an_answer_with_too_many_parts_for_its_schema_is_refused_in_no_time(place, open_runtime):
    @tool
    async def long(ctx: ToolContext) -> int:
        return len(await ctx.ask("a", "Which?", {"items": {"$ref": "#/$defs/a0"}, "$defs": doubling(6)["$defs"]}))

    runtime = await open_runtime(place, long)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="long")])
        await waiting(events)
        (question,) = await runtime.questions()
        with pytest.raises(ToolwrightError, match="too many parts"):
            await runtime.answer(question.key, ["x"] * 10_000)
        await runtime.answer(question.key, [1, 2])
        (outcome,) = await batch
    assert outcome.value == 2


@pytest.mark.promise("WAIT-08")
async def test_an_object_with_very_many_problems_is_refused_by_its_first_one(place, open_runtime):
    @tool
    async def wide(ctx: ToolContext) -> dict:
        part = {"allOf": [{"type": "integer", "minimum": number} for number in range(400)]}
        return await ctx.ask("a", "Which?", {"additionalProperties": part})

    runtime = await open_runtime(place, wide)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="wide")])
        await waiting(events)
        (question,) = await runtime.questions()
        with pytest.raises(ToolwrightError, match="stays open") as refused:
            await runtime.answer(question.key, {f"k{number}": "x" for number in range(300)})
        assert str(refused.value).count("wrong type") == 1  # all 120,000 would take seconds to be found
        await runtime.answer(question.key, {f"k{number}": 400 for number in range(300)})
        (outcome,) = await batch
    assert len(outcome.value) == 300


@pytest.mark.promise("WAIT-08")
async def test_a_key_of_a_call_that_was_deleted_decides_nothing_for_one_that_comes_again(place, open_runtime):
    going, may_ask = asyncio.Event(), asyncio.Event()
    may_ask.set()

    @tool
    async def slow(ctx: ToolContext) -> str:
        going.set()
        await may_ask.wait()
        return await ctx.ask("a", "Which?")

    runtime = await open_runtime(place, slow)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="slow")])
        await waiting(events)
        (question,) = await runtime.questions()
        await runtime.answer(question.key, "first")
        await batch
        await runtime.delete_session("s")
        assert await runtime.questions(decided=True) == []
        going.clear()
        may_ask.clear()
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="slow")])
        await going.wait()
        for verb in (runtime.answer(question.key, "late"), runtime.decline(question.key)):
            with pytest.raises(KeyRefused, match="not open here"):
                await verb
        may_ask.set()
        await waiting(events)
        (question,) = await runtime.questions()
        await runtime.answer(question.key, "second")
        (outcome,) = await batch
    assert outcome.value == "second"


@pytest.mark.promise("WAIT-08")
async def test_where_nobody_is_asked_a_question_is_declined_at_once(place, open_runtime):
    runtime = await open_runtime(place, order, policy=Policy(on_ask="deny"))
    async with fail_after(10):
        (outcome,) = await runtime.session("s").run_batch([CALL])
    assert (outcome.value["code"], await runtime.questions()) == ("declined", [])


@pytest.mark.promise("WAIT-08", "SES-03")
async def test_secrets_are_neither_in_a_question_nor_in_what_is_shown_of_an_answer(place, open_runtime):
    got = []

    @tool
    async def login(ctx: ToolContext) -> str:
        token = await ctx.secrets.get("token")
        got.append(await ctx.ask("who", f"Who are you? Not {token}", {"type": "string", "default": token}))
        return "in"

    runtime = await open_runtime(place, login)
    session, events = runtime.session("s"), runtime.subscribe()
    await session.secrets.set("token", "hunter2-hunter2")
    async with fail_after(10):
        batch = session.start_batch([ToolCall(id="c1", name="login")])
        await waiting(events)
        (question,) = await runtime.questions()
        assert question.message == "Who are you? Not [secret:token]"
        with pytest.raises(ToolwrightError) as refused:
            await runtime.answer(question.key, {"token": "hunter2-hunter2"})
        stands = await runtime.answer(question.key, "ann hunter2-hunter2", by="ann")
        await batch
        (decided,) = await runtime.questions(decided=True)
    assert got == ["ann hunter2-hunter2"]
    assert stands.value == decided.answer == "ann [secret:token]"
    assert "hunter2" not in f"{question} {refused.value} {stands} {decided} {decided.to_json()}"


@pytest.mark.promise("WAIT-08", "SES-03")
@pytest.mark.parametrize("secret", ["message", "schema", "tool"])
async def test_a_secret_that_is_a_word_of_the_stored_question_changes_no_more_than_its_text(
    place, open_runtime, secret
):
    @tool
    async def asks(ctx: ToolContext) -> int:
        return await ctx.ask("a", f"Which {secret}?", {"type": "integer", "title": secret})

    runtime = await open_runtime(place, asks)
    session, events = runtime.session("s"), runtime.subscribe()
    await session.secrets.set("key", secret)
    async with fail_after(10):
        batch = session.start_batch([ToolCall(id="c1", name="asks")])
        await waiting(events)
        (question,) = await runtime.questions()
        assert question.message == "Which [secret:key]?"
        assert question.schema == {"type": "integer", "title": "[secret:key]"}
        with pytest.raises(ToolwrightError, match="stays open"):
            await runtime.answer(question.key, "no number")
        await runtime.answer(question.key, 1)
        (outcome,) = await batch
    assert outcome.value == 1


@pytest.mark.promise("WAIT-08", "SES-03")
@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["blue", "hunter2-hunter2"]},
        {"const": {"title": "hunter2-hunter2"}},
        {"properties": {"title": {"pattern": "hunter2-hunter2"}}},
        {"properties": {"hunter2-hunter2": {"type": "string"}}},
    ],
    ids=["enum", "const", "pattern", "name"],
)
async def test_a_question_is_not_asked_where_answers_would_be_checked_without_a_secret(place, open_runtime, schema):
    @tool
    async def asks(ctx: ToolContext) -> str:
        with pytest.raises(ToolwrightError, match="has a secret of the session") as refused:
            await ctx.ask("a", "Which?", schema)
        return str(refused.value)

    runtime = await open_runtime(place, asks)
    session = runtime.session("s")
    await session.secrets.set("key", "hunter2-hunter2")
    async with fail_after(10):
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="asks")])
    assert (outcome.status, await runtime.questions()) == ("success", [])
    assert "hunter2" not in outcome.text


@pytest.mark.promise("WAIT-08", "SES-03")
async def test_secrets_are_not_in_the_reason_for_declining_nor_in_what_who_declines_late_is_told(place, open_runtime):
    runtime = await open_runtime(place, order)
    session, events = runtime.session("s"), runtime.subscribe()
    await session.secrets.set("token", "hunter2-hunter2")
    async with fail_after(10):
        batch = session.start_batch([CALL])
        question = await asked(runtime, events)
        with pytest.raises(ToolwrightError, match="17000 characters and may have 16384"):
            await runtime.decline(question.key, "x" * 17_000)
        said = await runtime.decline(question.key, "my key is hunter2-hunter2")
        (outcome,) = await batch
        assert said.reason == "my key is [secret:token]"
        assert "hunter2" not in f"{outcome} {await runtime.questions(decided=True)}"

        @tool
        async def which(ctx: ToolContext) -> int:
            return len(await ctx.ask("size", "Which?"))

        runtime.tools.register(which)
        batch = session.start_batch([ToolCall(id="c2", name="which")])
        question = await asked(runtime, events)
        await runtime.answer(question.key, "hunter2-hunter2")
        late = await runtime.decline(question.key)
        assert (await batch)[0].value == len("hunter2-hunter2")
    assert (late.first, late.value) == (False, "[secret:token]")


@pytest.mark.promise("WAIT-08")
async def test_a_text_with_half_a_character_is_asked_in_a_form_that_can_be_stored(place, open_runtime):
    @tool
    async def asks(ctx: ToolContext) -> str:
        return await ctx.ask("a", "Which \ud83d?")

    runtime = await open_runtime(place, asks)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="asks")])
        await waiting(events)
        (question,) = await runtime.questions()
        await runtime.answer(question.key, "this")
        (outcome,) = await batch
    assert (question.message, outcome.value) == ("Which \\ud83d?", "this")


@pytest.mark.promise("WAIT-08")
async def test_a_call_asks_no_more_than_a_thousand_questions(open_session):
    @tool
    async def endless(ctx: ToolContext) -> str:
        for number in range(1_000):
            with pytest.raises(ToolError):
                await ctx.ask(f"q{number}", "Which?", deadline=0)
        with pytest.raises(ToolwrightError, match="asked 1000 questions"):
            await ctx.ask("one more", "Which?", deadline=0)
        return "enough"

    session = await open_session(endless)
    async with fail_after(30):
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="endless")])
    assert outcome.value == "enough"


async def test_a_program_that_is_not_async_answers_too():
    with Runtime.open_blocking(tools=[order]) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("s").start_batch([CALL])
        assert next(event for event in events if event.kind == "call.waiting").what == "question"
        (question,) = runtime.questions()
        assert runtime.answer(question.key, "L", by="ann").first
        (outcome,) = batch.wait()
    assert outcome.value["size"] == "L"


@pytest.mark.promise("WAIT-08")
async def test_a_reason_to_decline_is_bounded_and_without_secrets(open_runtime):
    runtime = await open_runtime(order)
    session, events = runtime.session("s"), runtime.subscribe()
    await session.secrets.set("token", "hunter2-hunter2")
    async with fail_after(10):
        batch = session.start_batch([CALL])
        question = await asked(runtime, events)
        with pytest.raises(ToolwrightError, match="may have 16384"):
            await runtime.decline(question.key, "x" * 20_000)
        stands = await runtime.decline(question.key, "hunter2-hunter2 is mine")
        (outcome,) = await batch
    assert stands.reason == "[secret:token] is mine"
    assert "[secret:token] is mine" in outcome.value["message"]


@pytest.mark.promise("WAIT-08")
async def test_a_call_asks_only_so_many_questions(open_runtime):
    @tool
    async def flood(ctx: ToolContext) -> str:
        for number in range(1_001):
            try:
                await ctx.ask(f"q{number}", "And now?", deadline=0)
            except ToolError:
                continue
            except ToolwrightError as error:
                return f"{number}: {error}"
        return "never refused"

    runtime = await open_runtime(flood)
    async with fail_after(30):
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="flood")])
    assert outcome.value.startswith("1000: The call 'c1' asked 1000 questions")


@pytest.mark.promise("WAIT-08")
async def test_a_recorded_answer_is_given_also_where_nobody_is_asked_any_more(file, open_runtime):
    @tool(on_crash="rerun")
    async def pay(ctx: ToolContext) -> bool:
        return await ctx.ask("sure", "Sure?", {"type": "boolean"})

    async with fail_after(10):
        async with Runtime.open(file, tools=[pay]) as first:
            events = first.subscribe()
            first.session("s").start_batch([ToolCall(id="c1", name="pay")])
            await waiting(events)
            (question,) = await first.questions()
        async with Runtime.open(file) as second:
            await second.answer(question.key, True)
        runtime = await open_runtime(file, pay, policy=Policy(on_ask="deny"))
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="pay")])
    assert outcome.value is True
