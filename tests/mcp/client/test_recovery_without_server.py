"""Calls that a crash cut off, recovered while their server is down, and when it is back."""

import shutil
from pathlib import Path

import pytest

from tests.crash.conftest import Crashes
from tests.mcp.client.conftest import RAW, call, lines, stdio
from tests.support import until

SENT = """
import asyncio, os, signal, sys
from pathlib import Path

from toolwright import App, ToolCall
from toolwright.mcp import McpServer

async def main():
    server = McpServer.stdio("plain", sys.executable, [raw, folder, "silent"], connect_timeout=30.0)
    async with App(tools=[server]).open(store) as runtime:
        call = ToolCall(id="c1", name="plain__effect", arguments={"text": "c1"})
        runtime.session("s").start_batch([call])
        while not (Path(folder) / "effects").exists():
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def cut_off(crashes: Crashes, folder: Path) -> Path:
    """A store with one call that was sent to a server, and never answered."""
    crashes.crash(SENT, raw=str(RAW), folder=str(folder))
    return crashes.folder / "agent.db"


def is_back(program: Path) -> None:
    """Let a server that could not be started be there."""
    beside = program.with_suffix(".new")
    shutil.copy(RAW, beside)
    beside.replace(program)


@pytest.mark.promise("MCP-03", "EFF-05")
@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_call_is_left_while_its_server_is_down_and_settled_when_it_is_back(
    opened, cut_off, folder, tmp_path, repeatable
):
    program = tmp_path / "gone.py"
    options = {"tools": {"effect": {"idempotent": True}}} if repeatable else {}
    server = stdio(folder, program=program, args=("fine",), **options)
    runtime = await opened(server, store=str(cut_off), recover=True)
    assert runtime.servers()[0].state != "connected"
    [left] = await runtime.recover()
    assert (left.call_id, left.tool, left.action) == ("c1", "plain__effect", "left")
    assert left.outcome.failure.code == "unknown_tool"
    # Asked for meanwhile, it is not said that it did not run; and what is said is not recorded.
    outcome = await call(runtime, "effect", id="c1", text="c1")
    assert outcome.may_have_run
    assert "may have run" in outcome.text
    assert lines(folder / "effects") == ["c1"]

    is_back(program)
    await until(lambda: runtime.servers()[0].state == "connected")

    async def recovered() -> bool:  # which goes by itself
        return not await runtime.unfinished()

    await until(recovered)
    outcome = await call(runtime, "effect", id="c1", text="c1")
    assert outcome.replayed
    if repeatable:
        assert (outcome.value, lines(folder / "effects")) == ("done", ["c1", "c1"])
    else:
        assert outcome.failure.code == "interrupted"
        assert lines(folder / "effects") == ["c1"]


@pytest.mark.promise("EFF-05")
async def test_without_recover_a_call_waits_for_whoever_asks(opened, cut_off, folder, tmp_path):
    program = tmp_path / "gone.py"
    runtime = await opened(stdio(folder, program=program, args=("fine",)), store=str(cut_off))
    is_back(program)
    await until(lambda: runtime.servers()[0].state == "connected")
    assert [each.call_id for each in await runtime.unfinished()] == ["c1"]
    [done] = await runtime.recover()
    assert (done.action, done.outcome.failure.code) == ("interrupted", "interrupted")
    assert await runtime.unfinished() == []
