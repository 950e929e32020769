"""Whole turns over a provider: from a message over calls of tools to the answer, through the real library."""

import pytest

from tests.providers.dialects import CHAT, MESSAGES
from tests.providers.loopback import whole
from tests.support import fail_after
from toolwright import App, RetryPolicy, ToolCall, ToolContext, tool
from toolwright.errors import MissingRequirement
from toolwright.testing import FakeClock
from toolwright.tools.model import ModelAnswer, Usage

CALLS = (ToolCall("get_weather", '{"city": "Rome"}', "call_1"), ToolCall("get_weather", '{"city": "Oslo"}', "call_2"))


@tool(readonly=True)
async def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


@pytest.mark.promise("TURN-02", "TURN-09")
async def test_a_turn_goes_through_a_provider(dialect, server):
    server.will(
        dialect.reply(
            ModelAnswer(text="I look.", reasoning="Hm.", calls=CALLS, stop="calls", usage=Usage(input=9, output=3))
        ),
        dialect.reply(ModelAnswer(text="Sunny in both.", usage=Usage(input=20, output=4))),
    )
    app = App(tools=[get_weather], model=dialect.model(server), instructions="You tell the weather.")
    async with fail_after(20), app.open() as runtime:
        outcome = await runtime.session("s1").ask("Weather in Rome and Oslo?")
    assert (outcome.status, outcome.text) == ("answered", "Sunny in both.")
    assert (outcome.usage.input, outcome.usage.output) == (29, 7)
    assert server.connections == 1  # kept for the whole runtime
    for asked in server.asked:
        dialect.check(asked.body)
    last = str(server.asked[1].body)
    assert "sunny in Rome" in last
    assert "sunny in Oslo" in last
    assert "You tell the weather." in last
    assert "get_weather" in last


@pytest.mark.promise("TURN-02")
async def test_a_provider_that_is_overloaded_is_asked_again_after_the_time_it_names(dialect, server):
    clock = FakeClock()
    server.will(whole({"error": {"message": "busy"}}, 529, retry_after="20"), dialect.reply(ModelAnswer(text="Hi")))
    async with fail_after(20), App(tools=[], model=dialect.model(server)).open(clock=clock) as runtime:
        turn = await runtime.session("s1").start_turn("Hello")
        async for event in turn.follow():
            if event.kind == "model.retrying":
                break
        await clock.advance(20)
        assert (await turn).text == "Hi"
    assert len(server.asked) == 2


async def test_a_tool_asks_a_provider(dialect, server):
    @tool
    async def research(ctx: ToolContext, topic: str) -> str:
        """Research a topic."""
        return await ctx.complete("plan", [{"role": "user", "content": f"Where to begin with {topic}?"}], max_tokens=50)

    server.will(dialect.reply(ModelAnswer(text="At the beginning")))
    async with fail_after(20), App(tools=[research], model=dialect.model(server)).open() as runtime:
        [outcome] = await runtime.session("s1").run_batch([ToolCall("research", {"topic": "cats"}, "c1")])
    assert outcome.value == "At the beginning"
    assert "Where to begin with cats?" in str(server.asked[0].body)


async def test_a_tool_whose_model_is_over_its_limit_fails_for_a_while(dialect, server):
    @tool
    async def research(ctx: ToolContext) -> str:
        """Research."""
        return await ctx.complete("plan", "Where to begin?")

    server.will(whole({"error": {"message": "slower, sk-0123456789"}}, 429, retry_after="7"))
    async with fail_after(20), App(tools=[research], model=dialect.model(server)).open() as runtime:
        [outcome] = await runtime.session("s1").run_batch([ToolCall("research", {}, "c1")])
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.retry, outcome.failure.retry_after) == ("rate_limited", True, 7)
    assert outcome.failure.message == "The model that 'research' asks could not answer (rate_limited)"


@pytest.mark.promise("TURN-02")
async def test_a_tool_that_is_retried_asks_its_model_again(dialect, server):
    @tool(idempotent=True, retry=RetryPolicy(attempts=2))
    async def research(ctx: ToolContext) -> str:
        """Research."""
        return await ctx.complete("plan", "Where to begin?")

    server.will(whole({"error": {"message": "busy"}}, 529, retry_after="0"), dialect.reply(ModelAnswer(text="Here")))
    async with fail_after(20), App(tools=[research], model=dialect.model(server)).open() as runtime:
        [outcome] = await runtime.session("s1").run_batch([ToolCall("research", {}, "c1")])
    assert outcome.value == "Here"
    assert len(server.asked) == 2


@pytest.mark.promise("APP-05")
async def test_an_app_without_a_key_cannot_be_opened(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(MissingRequirement, match="Model 'openai:gpt-5' needs a key, and there is none; set OPENAI_API"):
        async with App(tools=[get_weather], model="openai:gpt-5").open():
            pass


async def test_a_session_is_continued_by_another_provider(server):
    server.will(
        CHAT.reply(ModelAnswer(calls=CALLS, stop="calls", reasoning="Hm.")),
        CHAT.reply(ModelAnswer(text="Sunny.")),
        MESSAGES.reply(ModelAnswer(text="You asked for the weather.")),
    )
    async with fail_after(20), App(tools=[get_weather], model=CHAT.model(server)).open() as runtime:
        session = runtime.session("s1")
        assert (await session.ask("Weather?")).text == "Sunny."
        other = await session.ask("What did I ask?", model=MESSAGES.model(server))
    assert other.text == "You asked for the weather."
    MESSAGES.check(server.asked[-1].body)
    assert "sunny in Rome" in str(server.asked[-1].body)
