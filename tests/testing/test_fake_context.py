"""A tool is tested by calling its function with a context that needs no runtime."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from toolwright import Failure, Pending, Runtime, Success, ToolContext, ToolError, tool
from toolwright.errors import ReplayMismatch, ServiceError, ToolwrightError
from toolwright.testing import Emitted, FakeClock, FakeContext, Output, Progress


async def test_what_a_tool_reports_is_recorded() -> None:
    @tool
    async def upload(ctx: ToolContext, name: str) -> str:
        await ctx.status("Uploading")
        await ctx.progress(1, 2, unit="files")
        await ctx.output("stderr", "slow\n")
        return name.upper()

    ctx = FakeContext(upload)
    assert await upload(ctx, "a") == "A"
    assert ctx.recorded.statuses == ["Uploading"]
    assert ctx.recorded.progress == [Progress(1, 2, None, "files")]
    assert ctx.recorded.output == [Output("stderr", "slow\n")]


def test_a_sync_tool_is_tested_without_an_event_loop() -> None:
    @tool
    def count(ctx: ToolContext[list[int]]) -> int:
        ctx.progress(len(ctx.deps))
        return -1 if ctx.cancelled else len(ctx.deps)

    ctx = FakeContext(count, deps=[1, 2, 3])
    assert count(ctx) == 3
    ctx.cancel()
    assert count(ctx) == -1
    assert [report.current for report in ctx.recorded.progress] == [3, 3]


def test_dependencies_that_were_not_given_are_named() -> None:
    with pytest.raises(ToolwrightError, match=r"'tool' asks for ctx.deps; give FakeContext\(deps="):
        _ = FakeContext().deps
    assert FakeContext(deps=None).deps is None


async def test_the_services_of_the_session_are_the_real_ones_in_memory() -> None:
    @tool
    async def keep(ctx: ToolContext) -> str:
        await ctx.files.write("/out/report.txt", (await ctx.files.read("/in.txt")).upper())
        await ctx.kv.set("runs", 1 + await ctx.kv.get("runs", 0))
        await ctx.messages.append("kept")
        await ctx.resources.upsert("r1", kind="browser", name="Browser", status="open")
        token, shop = await ctx.secrets.get("token"), await ctx.connections.get("shop")
        assert token is not None
        assert shop is not None
        return f"{token[:3]} {shop.detail['user']}"

    ctx = FakeContext(keep)
    await ctx.host.files.write("/in.txt", "text", readonly=True)
    await ctx.host.secrets.set("token", "s3cret-token")
    await ctx.host.messages.append("hello", sender="user")
    await ctx.host.connect("shop", {"user": "ada"})

    assert await keep(ctx) == "s3c ada"
    assert await ctx.host.files.read("/out/report.txt") == "TEXT"
    assert await ctx.host.kv.get("runs") == 1
    assert [(one.sender, one.content) for one in await ctx.host.messages.list()] == [
        ("user", "hello"),
        ("tool", "kept"),
    ]
    with pytest.raises(ServiceError, match="read-only"):
        await ctx.files.write("/in.txt", "other")
    with pytest.raises(ServiceError, match="does not speak as 'user'"):
        await ctx.messages.append("pay", sender="user")
    with pytest.raises(ServiceError, match="no way up"):
        await ctx.files.read("/../etc/passwd")


async def test_two_contexts_have_nothing_in_common() -> None:
    one, other = FakeContext(), FakeContext()
    await one.kv.set("a", 1)
    assert await other.kv.get("a") is None


async def test_the_session_and_the_call_have_the_names_that_the_test_gives() -> None:
    @tool
    async def who(ctx: ToolContext) -> list[Any]:
        return [ctx.session.id, ctx.call_id, ctx.tool, ctx.attempt, ctx.session.tools, await ctx.session.kv.get("k")]

    ctx = FakeContext(who, session_id="home", call_id="call-7", attempt=2)
    await ctx.kv.set("k", "v")
    assert await who(ctx) == ["home", "call-7", "who", 2, ["who"], "v"]
    assert ctx.idempotency_key == FakeContext("other", session_id="home", call_id="call-7").idempotency_key
    assert ctx.idempotency_key != FakeContext(who, session_id="home", call_id="call-8").idempotency_key


async def test_a_step_gives_the_type_its_function_returns_after_a_way_through_json() -> None:
    @dataclass
    class Receipt:
        amount: int
        lines: tuple[str, ...]

    made = Receipt(5, ("tea",))

    @tool
    async def pay(ctx: ToolContext) -> Receipt:
        def charge(amount: int) -> Receipt:
            return made

        return await ctx.step("charge", charge, 5)

    ctx = FakeContext(pay)
    receipt = await pay(ctx)
    assert receipt == made
    assert receipt is not made
    assert ctx.recorded.steps == ["charge"]


async def test_a_step_that_is_finished_does_not_run_in_the_next_attempt() -> None:
    ran: list[str] = []

    @tool
    async def order(ctx: ToolContext) -> str:
        async def charge() -> str:
            ran.append("charge")
            return "c-1"

        async def ship(charge: str) -> str:
            ran.append("ship")
            raise ToolError("the van is late", retry=ctx.attempt == 1)

        return await ctx.step("ship", ship, await ctx.step("charge", charge))

    first = FakeContext(order)
    with pytest.raises(ToolError, match="the van is late"):
        await order(first)
    second = first.next_attempt()
    with pytest.raises(ToolError, match="the van is late"):
        await order(second)
    with pytest.raises(ToolError, match="the van is late"):
        await order(second.next_attempt())

    assert ran == ["charge", "ship", "ship"]
    assert second.attempt == 2
    assert second.recorded is first.recorded
    assert second.recorded.steps == ["charge", "ship", "ship"]
    assert await second.kv.get("none") is None


async def test_a_value_of_a_step_can_be_given() -> None:
    def never() -> int:
        raise AssertionError("It must not run.")

    ctx = FakeContext(steps={"charge": 7})
    assert await ctx.step("charge", never) == 7
    assert ctx.recorded.steps == []


@pytest.mark.parametrize("known", [True, False])
async def test_an_exception_of_a_step_is_the_failure_it_is_in_a_runtime(known: bool) -> None:
    @tool
    async def read(ctx: ToolContext) -> None:
        async def broken() -> None:
            raise KeyError("secret detail")

        await ctx.step("read", broken)

    with pytest.raises(ToolError) as caught:
        await read(FakeContext(read if known else "read"))
    async with Runtime.open(tools=[read]) as runtime:
        outcome = await runtime.session("s1").call("read")
    assert outcome.failure is not None
    assert caught.value.failure.code == outcome.failure.code == "internal_error"
    assert caught.value.failure.message == outcome.failure.message


async def test_steps_refuse_what_they_refuse_in_a_runtime() -> None:
    ctx = FakeContext()

    def same(value: object) -> object:
        return value

    await ctx.step("a", same, 1)
    with pytest.raises(ToolwrightError, match="'a' was used before in this attempt"):
        await ctx.step("a", same, 1)
    with pytest.raises(ReplayMismatch, match="1 before, 2 now"):
        await ctx.next_attempt().step("a", same, 2)
    with pytest.raises(ToolwrightError, match="inputs of step 'b' have no JSON form"):
        await ctx.step("b", same, object())
    with pytest.raises(ToolError, match="returned a object that has no JSON form"):
        await ctx.step("c", object)


async def test_a_sleep_moves_the_clock_and_does_not_wait() -> None:
    ctx = FakeContext(clock=FakeClock(1_000.0))
    await ctx.sleep("a night", 28_800)
    assert ctx.now() == 29_800.0
    await ctx.next_attempt().sleep("a night", 28_800)
    assert ctx.now() == 29_800.0
    assert ctx.recorded.sleeps == {"a night": 28_800}


async def test_a_tool_waits_for_the_answers_it_was_given() -> None:
    @tool
    async def sell(ctx: ToolContext) -> list[Any]:
        paid = await ctx.wait(ctx.event_key("paid"))
        return [paid, await ctx.receive("hurry"), await ctx.receive("hurry")]

    ctx = FakeContext(sell, answers={"paid": {"by": "card"}}, signals={"hurry": ["a bit", "a lot"]})
    assert await sell(ctx) == [{"by": "card"}, "a bit", "a lot"]
    assert "event:paid" in ctx.recorded.keys


async def test_a_wait_without_an_answer_never_hangs() -> None:
    ctx = FakeContext("sell", clock=FakeClock(0.0))
    for wait in (lambda: ctx.wait(ctx.event_key("paid"), 60), lambda: ctx.receive("hurry", 60)):
        with pytest.raises(ToolError) as caught:
            await wait()
        assert caught.value.failure.code == "expired"
    assert ctx.now() == 120.0
    with pytest.raises(ToolwrightError, match=r"event 'paid' for ever; give FakeContext\(answers={'paid'"):
        await ctx.wait(ctx.event_key("paid"))
    with pytest.raises(ToolwrightError, match=r"signal 'hurry' for ever; give FakeContext\(signals={'hurry'"):
        await ctx.receive("hurry")
    with pytest.raises(ToolwrightError, match="its own events only"):
        await ctx.wait("made up")


async def test_an_event_can_be_rejected() -> None:
    ctx = FakeContext(answers={"paid": Failure(message="the card was refused", code="refused")})
    with pytest.raises(ToolError, match="the card was refused"):
        await ctx.wait(ctx.event_key("paid"))


async def test_a_completion_key_is_given_out_and_the_same_in_every_attempt() -> None:
    sent: list[str] = []

    @tool
    async def deliver(ctx: ToolContext) -> Pending:
        sent.append(ctx.completion_key())
        return Pending()

    ctx = FakeContext(deliver)
    assert isinstance(await deliver(ctx), Pending)
    await deliver(ctx.next_attempt())
    assert sent == [ctx.recorded.keys["completion"]] * 2


async def test_events_are_checked_by_what_the_tool_declares() -> None:
    @tool(events={"sold": {"type": "object", "required": ["item"]}})
    async def sell(ctx: ToolContext, name: str, payload: Any) -> None:
        await ctx.emit(name, payload, key="k")

    ctx = FakeContext(sell)
    await sell(ctx, "sold", {"item": "tea"})
    assert ctx.recorded.events == [Emitted("sold", {"item": "tea"}, "k")]
    with pytest.raises(ServiceError, match="'sell' has no event 'lost'"):
        await sell(ctx, "lost", None)
    with pytest.raises(ServiceError, match="does not fit its schema"):
        await sell(ctx, "sold", {})
    await FakeContext("sell").emit("anything", 1)


@pytest.mark.parametrize(
    ("given", "value", "status"),
    [
        (21, 21, "success"),
        (Success([1]), [1], "success"),
        (lambda arguments: arguments["days"] * 2, 6, "success"),
        (Failure(message="no network"), None, "failure"),
    ],
)
async def test_other_tools_answer_what_the_test_says(
    given: int | Success | Failure | Callable[..., Any], value: Any, status: str
) -> None:
    @tool
    async def plan(ctx: ToolContext) -> list[Any]:
        outcome = await ctx.call("weather", days=3)
        return [outcome.status, outcome.value]

    ctx = FakeContext(plan, outcomes={"weather": given})
    assert await plan(ctx) == [status, value]
    assert [(call.name, call.arguments) for call in ctx.recorded.calls] == [("weather", {"days": 3})]


async def test_a_tool_that_was_not_expected_to_be_called_is_named() -> None:
    with pytest.raises(ToolwrightError, match=r"'plan' calls 'weather'; give FakeContext\(outcomes={'weather'"):
        await FakeContext("plan").run_batch([{"name": "weather"}])


async def test_the_model_is_a_function_of_the_test() -> None:
    async def answer(request: Any) -> str:
        await asyncio.sleep(0)
        return request.messages[0]["content"].upper()

    ctx = FakeContext("summary", model=answer)
    assert await ctx.complete("first", "hello", size="small") == "HELLO"
    assert [(one.tool, one.options) for one in ctx.recorded.questions] == [("summary", {"size": "small"})]
    assert await ctx.next_attempt().complete("first", "hello", size="small") == "HELLO"
    assert len(ctx.recorded.questions) == 1
    with pytest.raises(ToolwrightError, match=r"give FakeContext\(model="):
        await FakeContext().complete("first", "hello")


def test_what_needs_a_runtime_says_so_and_can_be_doubled() -> None:
    with pytest.raises(ToolwrightError, match=r"ctx\.runs needs a runtime; give a double"):
        _ = FakeContext().runs
    with pytest.raises(ToolwrightError, match=r"ctx\.open_child needs a runtime"):
        FakeContext().open_child("a")
    with pytest.raises(ToolwrightError, match="no part 'files' to double"):
        FakeContext(doubles={"files": None})
    runs = object()
    ctx = FakeContext(doubles={"runs": runs, "open_child": str.upper})
    assert ctx.runs is runs
    assert str(ctx.open_child("a")) == "A"
    assert ctx.shell_rules() == ()
    ctx.refused_by("no deletes")
    assert ctx.recorded.refused_by == ["no deletes"]


async def test_a_question_takes_the_answer_of_the_test_which_must_fit_its_schema() -> None:
    size = {"type": "string", "enum": ["S", "M"]}

    @tool
    async def order(ctx: ToolContext, item: str, deadline: float | None = None) -> str:
        try:
            return await ctx.ask("size", f"Which size of {item}?", size, deadline=deadline)
        except ToolError as error:
            return error.failure.code

    ctx = FakeContext(answers={"size": "M"})
    assert await order(ctx, item="hat") == "M"
    assert ctx.recorded.asked == [("size", "Which size of hat?", size, None)]
    assert await order(ctx.next_attempt(), item="hat") == "M"
    assert len(ctx.recorded.asked) == 1
    with pytest.raises(ReplayMismatch):
        await order(ctx.next_attempt(), item="coat")
    with pytest.raises(ToolwrightError, match="used before"):
        await order(ctx, item="hat")

    assert await order(FakeContext(), item="hat", deadline=60) == "expired"
    declined = Failure(message="no", code="declined")
    assert await order(FakeContext(answers={"size": declined}), item="hat") == "declined"
    with pytest.raises(ToolwrightError, match="answers"):
        await order(FakeContext(), item="hat")
    with pytest.raises(ToolwrightError, match="does not fit"):
        await order(FakeContext(answers={"size": "XXL"}), item="hat")
    with pytest.raises(ToolwrightError, match="for its text"):
        await FakeContext().ask("a", "")
