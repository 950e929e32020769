"""Long outputs, long files and long arguments: the loop keeps turning."""

import dataclasses
from collections.abc import Callable

import msgspec
import pytest
from pydantic import BaseModel

from tests.loop_watch import MOST_STALL
from tests.support import fail_after
from toolwright import Attachment, Image, Runtime, Success, ToolCall, tool
from toolwright.builtin import default_tools

MIB = 1024 * 1024


class Shape(BaseModel):
    sides: list[str]


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


def doubled(times: int) -> list[object]:
    value: list[object] = []
    for _ in range(times):
        value = [value, value]
    return value


# Made by the test that takes it: each process of the test run imports this file.
HUGE: dict[str, Callable[[], object]] = {
    "numbers": lambda: [1.5] * (5 * MIB),
    "lists": lambda: [[]] * (4 * MIB),
    "one deep list over and over": lambda: [[[[[[[[]]]]]]]] * MIB,
    "texts": lambda: ["x" * 100] * MIB,
    "rows": lambda: {"rows": [{"id": 1, "name": "some name"}] * (2 * MIB)},
    "a text in an object": lambda: {"a": {"b": "x" * (100 * MIB)}},
    "the same list in many places": lambda: [["x" * 1000] * 1000] * 1000,
    "doubled sixty times": lambda: doubled(60),
    "fields": lambda: {f"field {number}": number for number in range(MIB)},
    "bytes": lambda: [b"x" * (50 * MIB)],
    "a text beyond ASCII in rows": lambda: [{"id": 1, "name": "é" * (50 * MIB)}],
    "a key beyond ASCII": lambda: [{"é" * (50 * MIB): 1}],
    "short texts in a table of tables": lambda: [[["x" * 4000] * 4] * 16] * 250,
}


@pytest.mark.promise("SAFE-01", "OUT-05")
@pytest.mark.parametrize("name", HUGE)
async def test_a_huge_value_is_refused_without_being_encoded_whole(loop_watch, name):
    value = HUGE[name]()

    @tool
    async def give() -> object:
        return value

    async with fail_after(60), Runtime.open(tools=[give, *default_tools()]) as runtime:
        await settled(runtime.session("s"), loop_watch)
        outcome = await runtime.session("s").call("give")
        assert outcome.failure is not None
        assert outcome.failure.code == "output_too_long"
        assert outcome.may_have_run


@pytest.mark.promise("SAFE-01", "OUT-05")
@pytest.mark.parametrize("with_secret", [False, True], ids=["plain", "with a secret"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: [1.5] * 490_000,
        lambda: [[]] * 49_000,
        lambda: [{"id": 7, "name": 'some "name"\n'}] * 49_000,
        lambda: {"text": "\n" * (3 * MIB)},
        lambda: "\n" * (3 * MIB),
        lambda: ["é"] * 490_000,
    ],
    ids=["numbers", "lists", "rows", "text in an object", "text", "letters"],
)
async def test_a_large_value_that_fits_leaves_the_loop_alone(loop_watch, tmp_path, make, with_secret):
    value = make()

    @tool
    async def give() -> object:
        return value

    async with fail_after(60), Runtime.open(tmp_path / "agent.db", tools=[give, *default_tools()]) as runtime:
        session = runtime.session("s")
        if with_secret:
            await session.secrets.set("key", "a value that stands nowhere")
        await settled(session, loop_watch)
        outcome = await session.call("give")
        assert outcome.ok
        assert loop_watch.longest <= MOST_STALL
        assert outcome.value == value
        loop_watch.restart()  # To compare the two takes as long as it takes.


@pytest.mark.promise("SAFE-01", "OUT-05")
@pytest.mark.parametrize(
    "make",
    [
        lambda: Success("ok", raw_output="x" * (60 * MIB)),
        lambda: Success("ok", images=[Image("A" * (60 * MIB))]),
        lambda: Success("ok", attachments=[Attachment("a", "A" * (3 * MIB))] * 3),
    ],
    ids=["raw output", "image", "attachments"],
)
async def test_what_is_given_beside_a_value_has_the_same_limit(loop_watch, make):
    given = make()

    @tool
    async def give() -> object:
        return given

    async with fail_after(60), Runtime.open(tools=[give, *default_tools()]) as runtime:
        await settled(runtime.session("s"), loop_watch)
        outcome = await runtime.session("s").call("give")
        assert outcome.failure is not None
        assert outcome.failure.code == "output_too_long"
        assert "raw output, images and attachments" in outcome.failure.message
        assert outcome.raw_output is None
        assert not outcome.images
        assert not outcome.attachments


@pytest.mark.promise("OUT-05")
async def test_a_large_object_of_any_kind_is_encoded_as_a_small_one_is():
    class Part(msgspec.Struct, rename="camel", tag="part", omit_defaults=True):
        long_name: object = None
        other: int = 0

    @dataclasses.dataclass(frozen=True)
    class Whole:
        parts: tuple[Part, ...]
        names: frozenset[str]
        by_number: dict[int, str]

    text = 'quote " slash \\ line \n letter é sign \U0001f600 ' * 5_000
    whole = Whole((Part(text), Part([text, {"a": text}], 3)), frozenset(["x"]), {1: text, 2: "y"})

    @tool
    async def give() -> object:
        return [whole, Shape(sides=[text, "b"]), text]

    async with fail_after(60), Runtime.open(tools=[give]) as runtime:
        outcome = await runtime.session("s").call("give")
        long = [{"type": "part", "longName": text}, {"type": "part", "longName": [text, {"a": text}], "other": 3}]
        first = {"parts": long, "names": ["x"], "by_number": {"1": text, "2": "y"}}
        assert outcome.value == [first, {"sides": [text, "b"]}, text]


@pytest.mark.promise("OUT-05")
async def test_a_value_that_holds_itself_is_refused(loop_watch):
    around: list[object] = []
    around += [around, around]

    @tool
    async def give() -> object:
        return around

    async with fail_after(60), Runtime.open(tools=[give, *default_tools()]) as runtime:
        await settled(runtime.session("s"), loop_watch)
        outcome = await runtime.session("s").call("give")
        assert outcome.failure is not None
        assert outcome.failure.code == "unserialisable_result"
