"""A worker that stands still until its lease has passed may write nothing more of what another took over.

The leases pass for the other because its clock is ahead.
"""

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.crash.worker_story import ALL_POINTS, WorkerStory
from tests.crash.workers import HastyClock
from toolwright import Runtime, ToolContext, tool
from toolwright.testing import crash_point, hear, note, say

AHEAD = 60.0
WRITES = [
    "lease",
    "report",
    "outcome",
    "step",
    "sleep",
    "signal",
    "files",
    "kv",
    "messages",
    "attachments",
    "run",
    "call",
]


class Saying(logging.Handler):
    """Tells the test what the worker warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


async def first(what: str) -> None:
    """A worker whose tool writes something when it is told to; then it goes on with another run."""

    @tool(on_crash="rerun", supports_background=True)
    async def slow(ctx: ToolContext) -> str:
        ctx.output("stdout", "early\n")
        await ctx.step("early", str, "early")
        crash_point("inside the run")
        await hear()
        if what == "lease":
            await asyncio.Event().wait()
        elif what == "report":
            ctx.output("stdout", "late\n")
            ctx.progress(99, 100, "late")
            await asyncio.Event().wait()
        elif what == "step":
            await ctx.step("late", note, "late")
        elif what == "sleep":
            await ctx.sleep("late", 0.001)
        elif what == "signal":
            await ctx.receive("late", 0.001)
        elif what == "files":
            await ctx.files.write("/late", "late")
        elif what == "kv":
            await ctx.kv.set("late", "late")
        elif what == "messages":
            await ctx.messages.append("late")
        elif what == "attachments":
            await ctx.attachments.put(b"late", name="late", media_type="text/plain")
        elif what == "run":
            await ctx.runs.spawn("quick", {}, title="late")
        elif what == "call":
            await ctx.call("quick")
        if what != "outcome":
            note("late: the tool went on after its write was refused")
        return "late"

    @tool(supports_background=True)
    async def quick() -> str:
        note("quick")
        return "quick"

    logging.getLogger("toolwright.background").addHandler(Saying())
    # Unless it is about that, its lease is not renewed before it writes: only the write can be refused.
    clock = HastyClock() if what == "lease" else None
    async with Runtime.open("agent.db", tools=[slow, quick], worker=True, clock=clock) as runtime:
        session = runtime.session("s")
        run = await session.spawn("slow", id="r", signal_on_completion=True)
        seen = await run.wait()
        await hear()
        other = await session.spawn("quick", id="r2")
        say([seen.value, (await other.wait()).value])


async def second() -> None:
    """A worker that takes over what the first had, and ends it when it is told to."""

    @tool(on_crash="rerun", supports_background=True)
    async def slow(ctx: ToolContext) -> str:
        say("taken over")
        await hear()
        await ctx.step("mine", note, "mine")
        return "by the second"

    clock = HastyClock(ahead=AHEAD)
    async with Runtime.open("agent.db", tools=[slow], worker=True, clock=clock) as runtime:
        run = await runtime.session("s").run("r")
        say((await run.wait()).value)


@pytest.mark.promise("PROC-04", "PROC-08", "EFF-12")
@pytest.mark.parametrize("when", ["while the other runs it", "after its end"])
@pytest.mark.parametrize("what", WRITES)
def test_what_a_thawed_worker_writes_is_refused_and_the_others_result_stands(crashes, what, when):
    # Where only the lease is to tell it, all that it had to report is written when it is renewed again.
    point, nth = ("after the leases are renewed", 2) if what == "lease" else ("inside the run", 1)
    frozen = crashes.start_frozen(point, first, nth=nth, what=what)
    other = crashes.start(second)
    assert other.hear() == "taken over"
    if when == "after its end":
        other.tell("end it")
        assert other.hear() == "by the second"
        other.wait()

    frozen.thaw()
    frozen.tell("write")
    refused = frozen.hear()
    if when != "after its end":
        other.tell("end it")
        assert other.hear() == "by the second"
        other.wait()

    assert "'r' cannot continue here" in refused or "'r' was taken over" in refused
    frozen.tell("go on with something else")
    assert frozen.hear() == ["by the second", "quick"]
    frozen.wait()
    assert crashes.ledger == ["mine", "quick"]
    with crashes.look() as store:
        assert _all(store, "SELECT id, state, token, attempts, progress FROM processes ORDER BY id") == [
            ("r", "completed", 2, 2, None),
            ("r2", "completed", 1, 1, None),
        ]
        events = _all(store, "SELECT type, payload FROM process_events WHERE process = 'r' ORDER BY number")
        assert [type for type, _ in events].count("completed") == 1
        assert events[-1][0] == "completed"
        starts = [json.loads(payload) for type, payload in events if type == "started"]
        assert [start["attempt"] for start in starts] == [1, 2]
        assert starts[1]["taken_over_from"] == starts[0]["worker"]
        assert "late" not in str(events)
        assert _all(store, "SELECT key FROM key_values") == []
        assert _all(store, "SELECT digest FROM attachments") == []
        assert sorted(path for (path,) in _all(store, "SELECT path FROM files WHERE directory = 0")) == [
            "/.background/r/output.log",
            "/.background/r/result.json",
            "/.background/r2/output.log",
            "/.background/r2/result.json",
        ]
        assert [sender for (sender,) in _all(store, "SELECT sender FROM messages")] == ["runtime"]
        labels = [label for (label,) in _all(store, "SELECT label FROM effects")]
        assert not [label for label in labels if "late" in label]
        assert _all(store, "SELECT tool, status FROM every_call ORDER BY tool") == [
            ("quick", "success"),
            ("slow", "success"),
        ]


async def brief(ahead: float) -> None:
    """A worker that goes on with another run when it is told to."""

    @tool(readonly=True, supports_background=True)
    async def work(n: int) -> int:
        return n

    async with Runtime.open("agent.db", tools=[work], worker=True, clock=HastyClock(ahead=ahead)) as runtime:
        session = runtime.session("s")
        run = await session.spawn("work", {"n": 1}, id="r", signal_on_completion=True)
        await hear()
        other = await session.spawn("work", {"n": 2}, id=f"other-{ahead:g}")
        say((await other.wait()).value)
        say((await run.wait()).value)


@pytest.mark.promise("PROC-04", "PROC-08")
def test_a_run_is_ended_by_the_worker_that_has_it_and_no_other(crashes):
    end = "before the end of a run is written"
    frozen = crashes.start_frozen(end, brief, ahead=0.0)
    holder = crashes.start_frozen(end, brief, ahead=AHEAD)
    frozen.thaw()
    frozen.tell("go on with something else")
    assert frozen.hear() == 2

    with crashes.look() as store:
        assert _all(store, "SELECT state, token FROM processes WHERE id = 'r'") == [("running", 2)]
        assert _all(store, "SELECT sender FROM messages") == []
    holder.thaw()
    assert frozen.hear() == 1
    frozen.wait()
    holder.kill()
    with crashes.look() as store:
        assert _all(store, "SELECT state, token FROM processes WHERE id = 'r'") == [("completed", 2)]
        assert _all(store, "SELECT sender FROM messages") == [("runtime",)]


async def canceller() -> None:
    @tool(readonly=True, supports_background=True)
    async def work() -> None: ...

    async with Runtime.open("agent.db", tools=[work], worker=False) as runtime:
        run = await runtime.session("s").spawn("work", id="r", signal_on_completion=True)
        await run.cancel()
        say(run.status)


@pytest.mark.promise("PROC-02", "PROC-08", "PROC-09")
def test_a_run_that_two_processes_cancel_at_once_ends_once(crashes):
    frozen = crashes.start_frozen("before the end of a run is written", canceller)
    assert crashes.run(canceller).said == ["cancelled"]
    frozen.thaw()
    assert frozen.wait().said == ["cancelled"]

    with crashes.look() as store:
        assert _all(store, "SELECT type FROM process_events ORDER BY number") == [
            ("queued",),
            ("cancel_asked",),
            ("cancelled",),
        ]
        assert _all(store, "SELECT sender FROM messages") == [("runtime",)]


def _all(store: Any, query: str) -> list[Any]:
    found: list[Any] = store.execute(query).fetchall()
    return found


@pytest.mark.promise("PROC-04", "PROC-06", "PROC-08")
@pytest.mark.parametrize("point", [point for point in ALL_POINTS if point != "before a commit"])
def test_a_worker_that_stands_still_at_any_point_completes_nothing_twice(crashes, point):
    # Not before a commit: one that holds the file's lock there holds up everybody, whatever the clock says.
    WorkerStory(crashes, 0, 2, point).check_frozen(AHEAD)
