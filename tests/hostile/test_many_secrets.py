"""Secrets that cost a lot to look for: many of them, long ones, and text that is almost one. The loop keeps turning."""

import random

import pytest

from tests.loop_watch import MOST_STALL
from tests.support import fail_after
from toolwright import ToolCall, ToolContext, tool
from toolwright.errors import ServiceError

LONG = 16_000


def text_of(size: int, seed: int, letters: str = 'abcdefghijklmnop0123456789é/+"') -> str:
    return "".join(random.Random(seed).choices(letters, k=size - 100)) + f"{seed:050d}" * 2


async def settle(session, loop_watch) -> None:
    """Make what the first use of a session makes, which is nobody's doing, and measure from there on."""
    await session.secrets.set("settled", "correct horse battery staple")
    await session.call("echo", text="x")
    loop_watch.restart()


@tool
async def echo(text: str) -> str:
    return text


@pytest.mark.promise("SAFE-01", "SES-03")
async def test_long_secrets_that_replace_each_other_leave_the_loop_alone(open_runtime, place, loop_watch):
    values = [text_of(LONG - 600, seed) for seed in range(43)]

    @tool
    async def keep(ctx: ToolContext, number: int) -> str:
        await ctx.secrets.set("k", values[number])
        return values[number][:50] + values[number]

    runtime = await open_runtime(place, keep, echo)
    session = runtime.session("s")
    await settle(session, loop_watch)
    async with fail_after(120):
        for number in range(43):
            outcome = await session.call("keep", number=number)
            assert outcome.text == values[number][:50] + "[secret:k]"
        assert (await session.call("echo", text=values[-1])).value == "[secret:k]"


@pytest.mark.promise("SAFE-01", "SES-03")
async def test_many_calls_that_are_given_long_secrets_leave_the_loop_alone(open_runtime, place, loop_watch):
    @tool(secret="pin")
    async def use(pin: str) -> str:
        return f"used {pin}"

    runtime = await open_runtime(place, use, echo)
    session = runtime.session("s")
    pins = [text_of(LONG // 4, seed) for seed in range(40)]
    await settle(session, loop_watch)
    async with fail_after(120):
        outcomes = await session.run_batch([ToolCall(name="use", arguments={"pin": pin}) for pin in pins])
    assert {outcome.value for outcome in outcomes} == {"used [secret:pin]"}


@pytest.mark.promise("SAFE-01", "SES-03")
@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("a" * 8_000 + "b" + "a" * 8_000, "a" * 200_000),
        ("\n".join(f"aaaaaaaaaaaa{number:03d}" for number in range(1_000)), "aaaaaaaaaaaa999!" * 12_000),
        ("\\" * 16_000, "\\" * 200_000),
        ("aaaa", "a" * 200_000),
        ("correct horse", "correct\n" * 30_000),
    ],
    ids=["one letter", "many lines that begin alike", "backslashes", "over and over", "many lines"],
)
async def test_text_that_is_almost_a_secret_leaves_the_loop_alone(open_runtime, loop_watch, secret, text):
    runtime = await open_runtime(":memory:", echo)
    session = runtime.session("s")
    await settle(session, loop_watch)
    await session.secrets.set("k", secret)
    async with fail_after(120):
        outcome = await session.call("echo", text=text)
    assert outcome.ok
    assert secret not in outcome.value


@pytest.mark.promise("SAFE-01", "SES-03")
async def test_more_than_can_be_looked_for_is_refused_and_does_not_count(open_runtime, loop_watch):
    runtime = await open_runtime(":memory:", echo)
    session = runtime.session("s")
    lines = ["\n".join(text_of(112, 1_000 * number + line) for line in range(140)) for number in range(60)]
    await settle(session, loop_watch)
    # Compiling as many as there may be holds the interpreter's lock for 20 to 45 ms, and beside other tests for 90.
    loop_watch.most = 2 * MOST_STALL
    async with fail_after(120):
        refused = None
        for number, value in enumerate(lines):
            try:
                await session.secrets.set(f"k{number}", value)
            except ServiceError as error:
                refused = error
                break
        assert refused is not None
        assert (refused.code, "too many" in str(refused)) == ("quota", True)
        kept = [info.key for info in await session.secrets.list()]
        await session.secrets.delete(kept[0])
        await session.secrets.set("other", "correct horse")
        assert (await session.call("echo", text="correct horse")).value == "[secret:other]"


@pytest.mark.promise("SES-03")
async def test_a_call_that_is_given_a_secret_too_long_to_be_redacted_fails_before_it_runs(open_runtime):
    @tool(secret="pin")
    async def use(pin: str) -> str:
        raise AssertionError("it ran")

    session = (await open_runtime(":memory:", use)).session("s")
    (outcome,) = await session.run_batch([ToolCall(name="use", arguments={"pin": "x" * 20_000})])
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.attempts) == ("secret_too_long", 0)
    assert "xxxx" not in repr(outcome)
