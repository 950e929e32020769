"""Long outputs, long files and long arguments: the loop keeps turning."""

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.builtin import default_tools

MIB = 1024 * 1024


@tool
async def measure(text: str) -> int:
    return len(text)


async def settled(session, loop_watch) -> None:
    """Make what the first use of a session makes, which is nobody's doing, and measure from there on."""
    await session.files.write("/settled", "x")
    await session.call("read_file", path="/settled")
    loop_watch.restart()


@pytest.mark.promise("SAFE-01", "OUT-05")
@pytest.mark.parametrize(
    "line", ["x" * 99 + "\n", "\n", "é\n", "x"], ids=["lines", "empty lines", "letters", "one line"]
)
async def test_a_long_output_leaves_the_loop_alone(loop_watch, tmp_path, line):
    text = line * (3 * MIB // len(line.encode()))

    @tool
    async def give() -> str:
        return text

    async with fail_after(60), Runtime.open(tmp_path / "agent.db", tools=[give, *default_tools()]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        outcome = await session.call("give")
        assert outcome.ok
        assert outcome.spilled_to is not None
        assert (await session.files.stat(outcome.spilled_to)).size == len(text.encode())


@pytest.mark.promise("SAFE-01")
async def test_an_output_that_is_too_long_is_refused_before_anything_is_made_of_it(loop_watch):
    text = "x" * (200 * MIB)

    @tool
    async def give() -> str:
        return text

    async with fail_after(60), Runtime.open(tools=[give, *default_tools()]) as runtime:
        await settled(runtime.session("s"), loop_watch)
        outcome = await runtime.session("s").call("give")
        assert outcome.failure is not None
        assert outcome.failure.code == "output_too_long"


@pytest.mark.promise("SAFE-01")
@pytest.mark.parametrize("line", [b"\n", b"a\n", b"x" * 80 + b"\n", "é\n".encode()], ids=["0", "1", "80", "é"])
async def test_a_long_file_of_short_lines_is_read_without_holding_up_the_loop(loop_watch, tmp_path, line):
    content = line * (15 * MIB // len(line))
    total = len(content) // len(line)
    async with fail_after(60), Runtime.open(tmp_path / "agent.db", tools=default_tools()) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        await session.files.write("/long", content)
        loop_watch.restart()
        for offset in (1, total // 2, total):
            outcome = await session.call("read_file", path="/long", offset=offset, limit=3)
            assert outcome.value["total_lines"] == total
            shown = outcome.value["content"].split("\n")[0]
            assert shown == f"{offset:>6}\t" + line.decode().rstrip("\n")
        beyond = await session.call("read_file", path="/long", offset=total + 1)
        assert beyond.failure.code == "wrong_range"


@pytest.mark.promise("SAFE-01", "RUN-02")
async def test_arguments_that_are_too_long_are_refused_and_long_ones_leave_the_loop_alone(loop_watch):
    async with fail_after(60), Runtime.open(tools=[measure, *default_tools()]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        for size, fits in ((1_000_000, True), (20 * MIB, False)):
            text = "x" * size
            loop_watch.restart()
            (outcome,) = await session.run_batch([ToolCall(name="measure", arguments={"text": text})])
            assert outcome.ok is fits
