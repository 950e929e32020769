"""Events written to a file, one line of JSON each."""

import asyncio
import json
import logging
from datetime import UTC, datetime

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, ToolCall, ToolContext, ToolError, tool


def lines(path) -> list[dict]:
    text = path.read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.promise("RUN-10")
async def test_every_event_becomes_a_line_in_order(tmp_path):
    path = tmp_path / "events.jsonl"

    @tool
    async def work(ctx: ToolContext, name: str) -> str:
        await ctx.progress(1, total=2, label="é\nline")
        await ctx.output("stdout", "text\n")
        if name == "b":
            raise ToolError("no", code="denied", detail="private")
        return name

    async with Runtime.open(tools=[work], events_file=path) as runtime, fail_after(5):
        await runtime.session("s").run_batch(
            [ToolCall(id=name, name="work", arguments={"name": name}) for name in "ab"]
        )
    found = lines(path)
    assert [(line["kind"], line.get("call_id")) for line in found] == [
        ("batch.started", None),
        ("call.started", "a"),
        ("call.progress", "a"),
        ("call.output", "a"),
        ("call.finished", "a"),
        ("call.started", "b"),
        ("call.progress", "b"),
        ("call.output", "b"),
        ("call.finished", "b"),
        ("batch.finished", None),
    ]
    assert {line["session"] for line in found} == {"s"}
    assert len({line["batch"] for line in found}) == 1
    assert all(datetime.fromisoformat(line["at"]).tzinfo is UTC for line in found)
    assert found[1]["arguments"] == {"name": "a"}
    assert (found[2]["current"], found[2]["total"], found[2]["label"]) == (1, 2, "é\nline")
    assert (found[3]["stream"], found[3]["text"]) == ("stdout", "text\n")
    assert (found[4]["arguments"], found[4]["outcome"]["value"]) == ({"name": "a"}, "a")
    assert found[8]["outcome"]["failure"]["message"] == "no"
    assert (found[4]["status"], found[8]["status"], found[8]["code"]) == ("success", "failure", "denied")
    assert found[9]["statuses"] == {"success": 1, "failure": 1}
    assert "private" not in path.read_text(encoding="utf-8")


@pytest.mark.promise("RUN-10")
async def test_a_file_that_exists_is_appended_to(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind":"earlier"}\n')

    @tool
    async def work() -> None: ...

    for _ in range(2):
        async with Runtime.open(tools=[work], events_file=str(path)) as runtime, fail_after(5):
            await runtime.session("s").call("work")
    kinds = [line["kind"] for line in lines(path)]
    assert kinds == ["earlier", *["batch.started", "call.started", "call.finished", "batch.finished"] * 2]


@pytest.mark.promise("RUN-10")
async def test_nothing_is_lost_when_the_runtime_closes_at_once(tmp_path):
    path = tmp_path / "events.jsonl"

    @tool(parallel=True)
    async def work(number: int) -> int:
        return number

    async with Runtime.open(tools=[work], events_file=path, policy=Policy(on_loop="ignore")) as runtime, fail_after(5):
        await runtime.session("s").run_batch(
            [ToolCall(name="work", arguments={"number": number}) for number in range(1000)]
        )
    kinds = [line["kind"] for line in lines(path)]
    assert len(kinds) == 2002
    assert kinds.count("call.finished") == 1000
    assert kinds[-1] == "batch.finished"


@pytest.mark.promise("RUN-10", "CANCEL-01")
async def test_the_end_of_calls_that_closing_cancels_is_written_too(tmp_path):
    path = tmp_path / "events.jsonl"
    started = asyncio.Event()

    @tool
    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    async with fail_after(5), Runtime.open(tools=[hangs], events_file=path) as runtime:
        runtime.session("s").start_batch([ToolCall(name="hangs"), ToolCall(name="hangs")])
        await started.wait()
    found = lines(path)
    assert [line["status"] for line in found if line["kind"] == "call.finished"] == ["cancelled", "cancelled"]


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.promise("RUN-10")
@pytest.mark.parametrize(
    "label",
    [object(), {1, 2}, b"\xff", "\ud800", float("nan"), Unspeakable(), {"a": Unspeakable()}],
    ids=["object", "set", "bytes", "half a character", "nan", "unspeakable", "inside"],
)
async def test_what_a_tool_reports_cannot_break_the_file(label, tmp_path):
    path = tmp_path / "events.jsonl"

    @tool
    async def odd(ctx: ToolContext) -> str:
        await ctx.progress(1, label=label)
        await ctx.progress(2, label="fine")
        return "done"

    async with Runtime.open(tools=[odd], events_file=path) as runtime, fail_after(5):
        assert (await runtime.session("s").call("odd")).value == "done"
    found = lines(path)
    assert [line["label"] for line in found if line["kind"] == "call.progress"][-1] == "fine"
    assert found[-1]["kind"] == "batch.finished"


@pytest.mark.promise("RUN-10")
async def test_a_disk_that_is_full_is_logged_and_stops_no_call(caplog):
    @tool
    async def work() -> str:
        return "done"

    with caplog.at_level(logging.ERROR, "toolwright.events"):
        async with Runtime.open(tools=[work], events_file="/dev/full") as runtime, fail_after(5):
            for _ in range(3):
                assert (await runtime.session("s").call("work")).value == "done"
    assert "/dev/full" in caplog.text


async def test_a_file_that_cannot_be_opened_is_reported_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        await Runtime.open(events_file=tmp_path / "no such folder" / "events.jsonl")
