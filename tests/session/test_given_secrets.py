"""Secrets that are given to a tool as an argument: what it echoes, reports and fails with is redacted."""

import asyncio
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.session.leaks import files_beside
from tests.support import fail_after
from toolwright import Tool, ToolCall, ToolContext, tool
from toolwright.session.secrets.redactor import FORMER
from toolwright.stores.sql.sessions.secrets import SqlSecretStore
from toolwright.tools.outcome import ToolError

PIN = "PIN-98765-0"


class HeldThread(ThreadPoolExecutor):
    """One thread for the work of `asyncio.to_thread`. While it holds, each piece of work waits for its event, and the
    events come in the order of the work."""

    def __init__(self) -> None:
        super().__init__(1)
        self.holds = True
        self.waiting: asyncio.Queue[threading.Event] = asyncio.Queue()

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        let = threading.Event()
        if self.holds:
            self.waiting.put_nowait(let)
        else:
            let.set()
        return super().submit(lambda: let.wait() and work(*args, **kwargs))


@tool(secret="pin")
async def act(ctx: ToolContext, pin: str, way: str) -> str:
    """Give the secret away, in one of many ways."""
    assert pin == PIN  # A tool gets the value.
    if way == "output":
        ctx.output("stdout", f"typing {pin}")
        ctx.progress(1, 2, f"typing {pin}")
    if way == "refuse":
        raise ToolError(f"wrong pin {pin}", code=pin)
    if way == "crash":
        raise ValueError(f"no door for {pin}")
    if way == "step":
        await ctx.step("type", lambda: f"typed {pin}")
    if way == "nested":
        return (await ctx.call("act", pin=pin, way="echo")).value
    return f"opened with {pin}"


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("way", ["echo", "output", "refuse", "crash", "step", "nested"])
async def test_what_a_tool_tells_of_a_secret_it_was_given_is_redacted(file, open_runtime, caplog, way):
    runtime = await open_runtime(file, act)
    session = runtime.session("s")
    seen = session.subscribe()
    with caplog.at_level(logging.DEBUG):
        (outcome,) = await session.run_batch([ToolCall(name="act", arguments={"pin": PIN, "way": way})])
    session_events = []
    while (event := seen.take()) is not None:
        session_events.append(repr(event))
    await runtime.close()

    told = [outcome.text, repr(outcome), *session_events, caplog.text, repr(runtime.log.query(session="s"))]
    assert not [text for text in told if PIN in text]
    assert not [name for name, content in files_beside(file) if PIN.encode() in content]
    assert "[secret:pin]" in "".join(told)


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize(
    ("given", "told"), [(98765, "98765"), ({"a": ["word-of-mouth"]}, "word-of-mouth"), ("abc", "abc"), (None, "None")]
)
async def test_secrets_of_other_kinds_are_looked_for_where_they_are_long_enough(open_runtime, given, told):
    async def echo(args: dict) -> str:
        return f"<{told}>"

    any_kind = Tool.from_schema(name="echo", handler=echo, secret="pin")
    session = (await open_runtime(":memory:", any_kind)).session("s")
    (outcome,) = await session.run_batch([ToolCall(name="echo", arguments={"pin": given})])
    assert outcome.value == ("<[secret:pin]>" if len(told) > 4 else f"<{told}>")


@pytest.mark.promise("SES-03")
async def test_another_session_says_the_same_words_freely(open_runtime):
    @tool
    async def say(words: str) -> str:
        return words

    runtime = await open_runtime(":memory:", act, say)
    await runtime.session("s").run_batch([ToolCall(name="act", arguments={"pin": PIN, "way": "echo"})])
    (outcome,) = await runtime.session("other").run_batch([ToolCall(name="say", arguments={"words": PIN})])
    assert outcome.value == PIN


@pytest.mark.promise("SES-03")
async def test_a_secret_that_a_tool_gives_while_another_is_learnt_is_redacted(open_runtime):
    go = asyncio.Event()

    @tool(secret="pin", parallel=True)
    async def echo(pin: str) -> str:
        await go.wait()
        return f"<{pin}>"

    @tool(parallel=True)
    async def outer() -> None:
        setting = asyncio.ensure_future(session.secrets.set("other", "another-secret"))
        let, thread.holds = await thread.waiting.get(), False
        batch = session.start_batch([ToolCall(name="echo", arguments={"pin": PIN})])
        let.set()
        await setting
        go.set()
        told.extend([each.text for each in await batch])

    told: list[str] = []
    session = (await open_runtime(":memory:", echo, outer)).session("s")
    asyncio.get_running_loop().set_default_executor(thread := HeldThread())
    async with fail_after(10):
        await session.call("outer")
    assert told == ["<[secret:pin]>"]


@pytest.mark.promise("SES-03")
async def test_a_batch_that_is_cancelled_while_secrets_are_learnt_takes_none_of_another_batch_with_it(open_runtime):
    @tool(secret="pin", parallel=True)
    async def echo(pin: str) -> str:
        return f"<{pin}>"

    @tool(parallel=True)
    async def outer() -> None:
        await session.call("echo", pin="PIN-12345-6")

    session = (await open_runtime(":memory:", echo, outer)).session("s")
    asyncio.get_running_loop().set_default_executor(thread := HeldThread())
    async with fail_after(10):
        first = session.start_batch([ToolCall(name="outer")])
        let = await thread.waiting.get()
        second = session.start_batch([ToolCall(name="echo", arguments={"pin": PIN})])
        let.set()
        let, thread.holds = await thread.waiting.get(), False  # the first learns the secret of the second, too
        first.cancel("no longer needed")
        await first.settled()
        let.set()
        (outcome,) = await second
    assert outcome.text == "<[secret:pin]>"


@pytest.mark.promise("SES-03")
async def test_a_secret_whose_writer_was_cancelled_meanwhile_stays_redacted(open_runtime, monkeypatch):
    written, set_secret = asyncio.Event(), SqlSecretStore.set_secret

    async def set_without_an_answer(self, *args):
        await set_secret(self, *args)
        written.set()
        await asyncio.Event().wait()

    @tool(secret="pin", parallel=True)
    async def enter(pin: str) -> None:
        """Enter it."""

    @tool
    async def read(ctx: ToolContext) -> str:
        return await ctx.files.read("/notes.txt")

    session = (await open_runtime(":memory:", enter, read)).session("s")
    await session.files.write("/notes.txt", "with a-token-of-ours")
    monkeypatch.setattr(SqlSecretStore, "set_secret", set_without_an_answer)
    setting = asyncio.ensure_future(session.secrets.set("token", "a-token-of-ours"))
    async with fail_after(10):
        await written.wait()
        setting.cancel()
        await asyncio.wait({setting})
        assert [info.key for info in await session.secrets.list()] == ["token"]
        # More values than stay known when they are not among the secrets of the session.
        for number in range(2 * FORMER):
            await session.call("enter", pin=f"PIN-{number:05}")
    assert (await session.call("read")).value == "with [secret:token]"
