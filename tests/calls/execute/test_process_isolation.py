"""Tools in child processes."""

import asyncio
import datetime
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.calls.execute.watching import ended, finished, of_call, record, take_all
from tests.support import fail_after
from toolwright import (
    Attachment,
    Failure,
    Image,
    Policy,
    RetryPolicy,
    Success,
    ToolCall,
    ToolContext,
    ToolError,
    tool,
)
from toolwright.errors import ServiceError

LOCK = threading.Lock()  # can't be copied into another process
SEEN_BY_TOOLS: list[str] = []


@tool(isolation="process", parallel=True)
def uses_globals_of_its_module() -> list:
    """A tool as they stand in modules, not in tests."""
    with LOCK:
        SEEN_BY_TOOLS.append("seen")
        return [len(SEEN_BY_TOOLS), __name__, os.getpid()]


class Pipe:
    """A named pipe that code in children keeps open: the test sees when the last of them is gone."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "pipe")
        os.mkfifo(self.path)
        self._read = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self._loop = asyncio.get_running_loop()
        self.received = b""
        self.changed = asyncio.Event()
        self.over = asyncio.Event()
        self._loop.add_reader(self._read, self._hear)

    def _hear(self) -> None:
        data = os.read(self._read, 65536)
        self.received += data
        self.changed.set()
        if not data:
            self._loop.remove_reader(self._read)
            self.over.set()

    async def line(self) -> str:
        """The first line that anyone wrote."""
        while b"\n" not in self.received:
            self.changed.clear()
            await self.changed.wait()
        return self.received.split(b"\n")[0].decode()

    def close(self) -> None:
        self._loop.remove_reader(self._read)
        os.close(self._read)


@pytest.fixture
async def pipe(tmp_path):
    made = Pipe(tmp_path)
    yield made
    made.close()


async def run(runtime, *calls):
    return await finished(runtime.session("s").start_batch(calls), 20)


@pytest.mark.promise("RUN-08")
async def test_an_isolated_tool_runs_in_another_process_that_the_next_call_uses_again(open_runtime):
    @tool(isolation="process")
    def where() -> int:
        return os.getpid()

    @tool(isolation="process")
    async def where_async() -> int:
        await asyncio.sleep(0)
        return os.getpid()

    runtime = await open_runtime(where, where_async)
    outcomes = await run(runtime, ToolCall(name="where"), ToolCall(name="where_async"), ToolCall(name="where"))
    pids = {outcome.value for outcome in outcomes}
    assert len(pids) == 1
    assert os.getpid() not in pids


@pytest.mark.promise("RUN-08", "TIME-01", "CANCEL-02")
async def test_a_timeout_kills_an_isolated_tool_and_everything_it_started(clock, open_runtime, pipe):
    @tool(isolation="process", timeout=10)
    def hangs(path: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        script = f"import signal, time; signal.signal({int(signal.SIGTERM)}, signal.SIG_IGN); "
        script += f"out = open({path!r}, 'w'); print('here', file=out, flush=True); time.sleep(600)"
        subprocess.run([sys.executable, "-c", script], check=False)

    runtime = await open_runtime(hangs)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="hangs", arguments={"path": pipe.path})])
    async with fail_after(20):
        assert await pipe.line() == "here"
        await clock.advance(10.049)  # it ignores the polite signal
        assert not batch.done
        assert not pipe.over.is_set()
        await clock.advance(0.001)
        (outcome,) = await finished(batch)
        await pipe.over.wait()
    assert (outcome.failure.category, outcome.attempts) == ("timeout", 1)


@pytest.mark.promise("RUN-08", "TIME-01")
async def test_an_isolated_tool_may_clean_up_in_its_grace(clock, open_runtime, pipe):
    @tool(isolation="process", timeout=10, parallel=True)
    def cleans_up(path: str, ctx: ToolContext) -> None:
        with open(path, "w") as out:
            try:
                print("here", file=out, flush=True)
                threading.Event().wait(600)
            finally:
                print(f"cancelled: {ctx.cancelled}", file=out, flush=True)

    runtime = await open_runtime(cleans_up)
    batch = runtime.session("s").start_batch([ToolCall(name="cleans_up", arguments={"path": pipe.path})])
    async with fail_after(20):
        await pipe.line()
        await clock.advance(10)
        await pipe.over.wait()
        (outcome,) = await finished(batch)
    assert pipe.received == b"here\ncancelled: True\n"
    assert outcome.failure.category == "timeout"


@pytest.mark.promise("RUN-08", "CANCEL-01")
async def test_an_isolated_async_tool_may_clean_up_in_its_grace(clock, open_runtime, pipe):
    @tool(isolation="process")
    async def cleans_up(path: str) -> None:
        with open(path, "w") as out:
            try:
                print("here", file=out, flush=True)
                await asyncio.sleep(600)
            finally:
                print("clean", file=out, flush=True)

    runtime = await open_runtime(cleans_up)
    batch = runtime.session("s").start_batch([ToolCall(name="cleans_up", arguments={"path": pipe.path})])
    async with fail_after(20):
        await pipe.line()
        batch.cancel()
        await pipe.over.wait()
        (outcome,) = await finished(batch)
    assert pipe.received == b"here\nclean\n"
    assert (outcome.status, outcome.may_have_run) == ("cancelled", True)


@pytest.mark.promise("RUN-08", "CANCEL-01", "CANCEL-02")
async def test_a_result_inside_the_grace_wins_and_its_child_is_not_used_again(clock, open_runtime, pipe):
    @tool(isolation="process")
    def answers(path: str) -> list:
        with open(path, "w") as out:
            try:
                print("here", file=out, flush=True)
                threading.Event().wait(600)
            except SystemExit:
                return ["half of it", os.getpid()]
        return ["all of it", os.getpid()]

    @tool(isolation="process")
    def where() -> int:
        return os.getpid()

    runtime = await open_runtime(answers, where)
    batch = runtime.session("s").start_batch([ToolCall(name="answers", arguments={"path": pipe.path})])
    async with fail_after(20):
        await pipe.line()
        batch.cancel()
        (outcome,) = await finished(batch)
    word, pid = outcome.value
    assert (outcome.status, word) == ("success", "half of it")
    (following,) = await run(runtime, ToolCall(name="where"))
    assert following.value != pid


@pytest.mark.promise("RUN-08", "CANCEL-01")
async def test_a_cancellation_in_the_middle_of_a_message_does_not_garble_the_answer(clock, open_runtime):
    @tool(isolation="process")
    def talks(ctx: ToolContext) -> str:
        try:
            while True:
                ctx.progress(1, label="y" * 2_000_000)
        except SystemExit:
            return "half of it"

    runtime = await open_runtime(talks)
    events = runtime.subscribe(limit=100)
    batch = runtime.session("s").start_batch([ToolCall(name="talks")])
    async with fail_after(20):
        async for event in events:
            if event.kind == "call.progress":
                break
        batch.cancel()
        (outcome,) = await finished(batch)
    assert (outcome.status, outcome.value) == ("success", "half of it")


@pytest.mark.promise("TIME-01", "RUN-08")
async def test_starting_the_child_is_not_the_tools_time(clock, open_runtime):
    @tool(isolation="process", timeout=10)
    def quick() -> str:
        return "done"

    runtime = await open_runtime(quick)
    batch = runtime.session("s").start_batch([ToolCall(name="quick")])
    await clock.advance(3600)  # an hour, while the interpreter starts
    assert not batch.done
    assert (await finished(batch, 20))[0].value == "done"


@pytest.mark.promise("CANCEL-01", "CANCEL-02", "RUN-08")
@pytest.mark.parametrize("turns", range(8))
async def test_cancelling_while_the_child_starts_leaves_no_process_and_the_tool_did_not_run(
    turns, clock, open_runtime, tmp_path
):
    @tool(isolation="process")
    def leaves_a_trace(path: str) -> None:
        Path(path).write_text("here")

    runtime = await open_runtime(leaves_a_trace)
    trace = tmp_path / "trace"
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="leaves_a_trace", arguments={"path": str(trace)})])
    for _ in range(turns):  # each turn of the loop is another place in the start
        await asyncio.sleep(0)
    batch.cancel()
    await clock.advance(0)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.may_have_run) == ("cancelled", False)
    assert not trace.exists()


@pytest.mark.promise("CANCEL-01", "CANCEL-02", "RUN-08")
async def test_closing_a_runtime_ends_isolated_tools(clock, open_runtime, pipe):
    @tool(isolation="process")
    def hangs(path: str) -> None:
        with open(path, "w") as out:
            print("here", file=out, flush=True)
            threading.Event().wait(600)

    runtime = await open_runtime(hangs)
    runtime.session("s").start_batch([ToolCall(id="c1", name="hangs", arguments={"path": pipe.path})])
    async with fail_after(20):
        await pipe.line()
        await runtime.close()
        await pipe.over.wait()
    outcome = record(runtime, "c1").outcome
    assert (outcome.status, outcome.may_have_run) == ("cancelled", True)


@pytest.mark.promise("RUN-08")
async def test_what_a_tool_leaves_running_in_its_child_ends_with_the_runtime(clock, open_runtime, pipe):
    @tool(isolation="process")
    def starts_a_server(path: str) -> str:
        script = f"import time; out = open({path!r}, 'w'); print('here', file=out, flush=True); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", script])
        return "started"

    runtime = await open_runtime(starts_a_server)
    (outcome,) = await run(runtime, ToolCall(name="starts_a_server", arguments={"path": pipe.path}))
    assert outcome.value == "started"
    async with fail_after(20):
        await pipe.line()
        await runtime.close()
        await pipe.over.wait()


@pytest.mark.promise("RUN-08", "RUN-07")
@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "signal SIGSEGV"),
    ],
    ids=["exits", "is killed", "crashes"],
)
async def test_a_child_that_dies_fails_its_call_alone(end, how, open_runtime, gate):
    @tool(isolation="process", parallel=True)
    def dies() -> None:
        end()

    @tool(parallel=True)
    def sibling() -> str:
        gate.stop_here()
        return "done"

    @tool(isolation="process")
    def following() -> str:
        return "done"

    runtime = await open_runtime(dies, sibling, following)
    batch = runtime.session("s").start_batch(
        [ToolCall(name="dies"), ToolCall(name="sibling"), ToolCall(name="following")]
    )
    async with fail_after(20):
        await gate.reached.wait()
        gate.open()
    first, second, third = await finished(batch, 20)
    assert (first.failure.category, first.failure.code) == ("execution", "process_died")
    assert how in first.failure.message
    assert (second.value, third.value) == ("done", "done")


@pytest.mark.promise("RUN-08", "CANCEL-02")
async def test_a_child_killed_from_outside_takes_along_what_it_started(open_runtime, pipe):
    @tool(isolation="process")
    def hangs(path: str) -> None:
        script = f"import time; out = open({path!r}, 'w'); print({os.getpid()}, file=out, flush=True); time.sleep(600)"
        subprocess.run([sys.executable, "-c", script], check=False)

    runtime = await open_runtime(hangs)
    batch = runtime.session("s").start_batch([ToolCall(name="hangs", arguments={"path": pipe.path})])
    async with fail_after(20):
        os.kill(int(await pipe.line()), signal.SIGKILL)
        (outcome,) = await finished(batch)
        await pipe.over.wait()
    assert "signal SIGKILL" in outcome.failure.message


@pytest.mark.promise("RUN-08")
async def test_a_child_that_died_while_idle_is_replaced(open_runtime):
    @tool(isolation="process")
    def where() -> int:
        return os.getpid()

    runtime = await open_runtime(where)
    (first,) = await run(runtime, ToolCall(name="where"))
    os.kill(first.value, signal.SIGKILL)
    async with fail_after(20):
        await asyncio.to_thread(os.waitid, os.P_PID, first.value, os.WEXITED | os.WNOWAIT)
        (second,) = await run(runtime, ToolCall(name="where"))
    assert second.status == "success"
    assert second.value != first.value


@pytest.mark.promise("RUN-08", "CANCEL-02")
async def test_a_child_and_what_it_started_end_when_the_parent_is_killed(pipe, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import asyncio, subprocess, sys
from toolwright import Runtime, tool

@tool(isolation="process")
def hangs() -> None:
    script = "import time; out = open({pipe.path!r}, 'w'); print('here', file=out, flush=True); time.sleep(600)"
    subprocess.run([sys.executable, "-c", script])

async def main():
    async with Runtime.open(tools=[hangs]) as runtime:
        await runtime.session("s").call("hangs")

asyncio.run(main())
"""
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), env=environment)
    try:
        async with fail_after(20):
            await pipe.line()
            process.kill()
            await pipe.over.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.promise("RUN-08")
async def test_printing_in_a_child_reaches_the_terminal_and_corrupts_nothing(open_runtime, capfd, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    @tool(isolation="process")
    def prints() -> str:
        print("x" * 100_000)
        print("to the side", file=sys.stderr)
        os.write(1, b"past every buffer\n")
        print("last words")
        return "done"

    runtime = await open_runtime(prints)
    (outcome,) = await run(runtime, ToolCall(name="prints"))
    await runtime.close()
    assert outcome.value == "done"
    written = capfd.readouterr()
    assert "x" * 100_000 in written.out
    assert "past every buffer" in written.out
    assert "last words" in written.out
    assert "to the side" in written.err


@pytest.mark.promise("RUN-08")
async def test_huge_arguments_and_results_pass(open_runtime):
    @tool(isolation="process")
    def double(text: str) -> str:
        return text + text

    policy = Policy(max_argument_bytes=10_000_000)
    runtime = await open_runtime(double, policy=policy)
    (outcome,) = await run(runtime, ToolCall(name="double", arguments={"text": "é" * 2_000_000}))
    assert outcome.value == "é" * 4_000_000
    assert len(outcome.text.encode()) <= 50 * 1024


@pytest.mark.promise("RUN-07", "RUN-08")
async def test_what_cannot_leave_its_process_fails_its_call_alone_and_the_child_lives_on(open_runtime):
    @tool(isolation="process")
    def returns_a_lock() -> object:
        return threading.Lock()

    @tool(isolation="process")
    def returns_a_process_number() -> int:
        return os.getpid()

    runtime = await open_runtime(returns_a_lock, returns_a_process_number)
    before, first, after = await run(
        runtime,
        ToolCall(name="returns_a_process_number"),
        ToolCall(name="returns_a_lock"),
        ToolCall(name="returns_a_process_number"),
    )
    assert (first.status, first.failure.code) == ("failure", "unserialisable_result")
    assert "has no JSON form" in first.failure.message
    assert before.value == after.value


@pytest.mark.promise("RUN-07", "RUN-08")
async def test_a_tool_that_cannot_enter_a_process_fails_alone(open_runtime):
    lock = threading.Lock()

    @tool(isolation="process")
    def holds_a_lock() -> None:
        with lock:
            pass

    @tool(isolation="process")
    def following() -> str:
        return "done"

    runtime = await open_runtime(holds_a_lock, following)
    first, second = await run(runtime, ToolCall(name="holds_a_lock"), ToolCall(name="following"))
    assert (first.status, first.failure.category) == ("failure", "internal")
    assert second.value == "done"


@pytest.mark.promise("RUN-08")
async def test_closures_methods_and_local_types_travel(open_runtime):
    secret = {"of": "the closure"}

    @dataclass
    class Point:
        x: int
        y: int

    class Counter:
        def __init__(self, start: int) -> None:
            self.start = start

        def count(self, by: int) -> Point:
            """Count."""
            return Point(self.start, self.start + by)

    @tool(isolation="process", parallel=True)
    def reads_closure() -> dict:
        return secret

    @tool(isolation="process", parallel=True)
    def returns_local_type(x: int) -> Point:
        return Point(x, 2)

    counts = tool(isolation="process", parallel=True)(Counter(5).count)
    runtime = await open_runtime(reads_closure, returns_local_type, counts)
    outcomes = await run(
        runtime,
        ToolCall(name="reads_closure"),
        ToolCall(name="returns_local_type", arguments={"x": 1}),
        ToolCall(name="count", arguments={"by": 2}),
    )
    assert [outcome.value for outcome in outcomes] == [{"of": "the closure"}, {"x": 1, "y": 2}, {"x": 5, "y": 7}]


@pytest.mark.promise("RUN-08")
async def test_a_tool_of_a_module_travels_by_name_and_finds_the_modules_own_globals(open_runtime):
    runtime = await open_runtime(uses_globals_of_its_module)
    outcomes = []
    for _ in range(2):
        outcomes += await run(runtime, ToolCall(name="uses_globals_of_its_module"))
    assert [outcome.status for outcome in outcomes] == ["success", "success"]
    (first, name, pid), (second, _, same_pid) = (outcome.value for outcome in outcomes)
    assert (first, second) == (1, 2)  # the child's own module, and it stays
    assert (name, pid) == (__name__, same_pid)
    assert SEEN_BY_TOOLS == []


@pytest.mark.promise("RUN-08")
async def test_everything_a_tool_may_return_survives_the_trip(open_runtime):
    @tool(isolation="process", parallel=True)
    def succeeds() -> Success:
        return Success(
            {"a": [1, None, "é"]},
            raw_output="raw",
            images=(Image.from_bytes(b"png"),),
            attachments=(Attachment("a.txt", "aGk=", "text/plain"),),
        )

    @tool(isolation="process", parallel=True)
    def fails() -> Failure:
        return Failure(message="no", category="external", code="down", detail="private")

    @tool(isolation="process", parallel=True)
    def raises() -> None:
        raise ToolError("busy", category="unavailable", code="busy", retry_after=5, detail="private")

    runtime = await open_runtime(succeeds, fails, raises)
    first, second, third = await run(
        runtime, ToolCall(name="succeeds"), ToolCall(name="fails"), ToolCall(name="raises")
    )
    assert (first.value, first.raw_output) == ({"a": [1, None, "é"]}, "raw")
    assert (first.images[0].data, first.attachments[0].name) == ("cG5n", "a.txt")
    assert (second.failure.category, second.failure.code, second.failure.detail) == ("external", "down", "private")
    assert (third.failure.category, third.failure.retry_after) == ("unavailable", 5)


class Abort(BaseException):
    pass


class NeedsTwo(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


WAYS_TO_BREAK = {
    "an exception": lambda: ValueError("broken"),
    "sys.exit": lambda: SystemExit(3),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(),
    "a BaseException": lambda: Abort("stop"),
    "StopIteration": lambda: StopIteration(5),
    "GeneratorExit": lambda: GeneratorExit(),
    "CancelledError": lambda: asyncio.CancelledError(),
    "an exception that can't be copied": lambda: NeedsTwo("one", "two"),
}


@pytest.mark.promise("RUN-07", "RUN-08")
async def test_an_isolated_tool_that_breaks_fails_alone_and_its_child_lives_on(open_runtime):
    @tool(isolation="process")
    def breaks(way: str) -> None:
        raise WAYS_TO_BREAK[way]()

    @tool(isolation="process")
    def where() -> int:
        return os.getpid()

    runtime = await open_runtime(breaks, where)
    calls = [ToolCall(name="breaks", arguments={"way": way}) for way in WAYS_TO_BREAK]
    before, *outcomes, after = await run(runtime, ToolCall(name="where"), *calls, ToolCall(name="where"))
    for way, outcome in zip(WAYS_TO_BREAK, outcomes, strict=True):
        assert (way, outcome.status, outcome.failure.code) == (way, "failure", "internal_error")
        assert "in breaks" in outcome.failure.detail  # the traceback comes along, for the log
        assert "in breaks" not in outcome.text
    assert before.value == after.value


@pytest.mark.promise("RETRY-01", "RETRY-02", "RUN-08")
async def test_errors_of_local_types_in_on_are_tried_again(open_runtime):
    class Flaky(Exception):
        pass

    @tool(isolation="process", idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0, jitter=0, on=(Flaky,)))
    def flaky(ctx: ToolContext) -> list:
        if ctx.attempt < 3:
            raise Flaky("not yet")
        return [ctx.attempt, ctx.max_attempts, ctx.call_id, ctx.session_id, ctx.tool]

    runtime = await open_runtime(flaky)
    (outcome,) = await run(runtime, ToolCall(id="c1", name="flaky"))
    assert outcome.value == [3, 3, "c1", "s", "flaky"]


@pytest.mark.promise("RUN-08", "RUN-10")
async def test_progress_from_a_child_and_its_threads_lies_between_start_and_finish_in_order(open_runtime):
    @tool(isolation="process")
    def reports(ctx: ToolContext) -> str:
        for number in range(50):
            ctx.progress(number, total=50, label="é")
        ctx.output("stdout", "a line\n")
        threads = [
            # More than a socket takes at once, so that each message goes in pieces.
            threading.Thread(target=lambda: [ctx.progress(1000, label="y" * 500_000) for _ in range(5)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "done"

    runtime = await open_runtime(reports)
    events = runtime.subscribe()
    (outcome,) = await run(runtime, ToolCall(id="c1", name="reports"))
    assert outcome.value == "done"
    taken = take_all(events)
    kinds = of_call(taken, "c1")
    assert (kinds[0], kinds[-1]) == ("call.started", "call.finished")
    assert kinds[1:-1] == ["call.progress"] * 50 + ["call.output"] + ["call.progress"] * 20
    progress = [event for event in taken if event.kind == "call.progress"]
    assert [(event.current, event.total, event.label) for event in progress[:50]] == [
        (number, 50, "é") for number in range(50)
    ]
    assert all(event.label == "y" * 500_000 for event in progress[50:])


@pytest.mark.promise("RUN-08", "RUN-10")
async def test_what_a_thread_of_an_earlier_call_reports_is_not_the_next_calls(open_runtime):
    @tool(isolation="process")
    def leaves_a_thread(ctx: ToolContext) -> int:
        def report() -> None:
            while True:
                ctx.progress(1, label="late")

        threading.Thread(target=report, daemon=True).start()
        return os.getpid()

    @tool(isolation="process")
    def following(ctx: ToolContext) -> int:
        ctx.progress(2, label="mine")
        return os.getpid()

    runtime = await open_runtime(leaves_a_thread, following)
    events = runtime.subscribe()
    first, second = await run(runtime, ToolCall(id="c1", name="leaves_a_thread"), ToolCall(id="c2", name="following"))
    assert first.value == second.value
    labels = [event.label for event in take_all(events) if event.kind == "call.progress" and event.call_id == "c2"]
    assert labels == ["mine"]


@pytest.mark.promise("RUN-08")
async def test_an_isolated_tool_cannot_call_others_and_hears_why(open_runtime):
    @tool(isolation="process")
    async def calls_another(ctx: ToolContext) -> str:
        try:
            await ctx.call("nobody")
        except RuntimeError as error:
            return str(error)
        return "it could"

    runtime = await open_runtime(calls_another)
    (outcome,) = await run(runtime, ToolCall(name="calls_another"))
    assert "drop the isolation" in outcome.value


@pytest.mark.promise("RUN-08")
async def test_a_child_has_the_parents_environment_path_and_folder_and_adds_nothing(
    open_runtime, monkeypatch, tmp_path
):
    @tool(isolation="process")
    def looks_around() -> list:
        return [os.environ.get("MARK"), os.environ.get("PYTHONPATH"), os.getcwd(), sys.path]

    monkeypatch.setenv("MARK", "here")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "extra"))
    runtime = await open_runtime(looks_around)
    (outcome,) = await run(runtime, ToolCall(name="looks_around"))
    mark, python_path, folder, path = outcome.value
    assert (mark, python_path, folder) == ("here", None, str(tmp_path))
    assert path == sys.path


@pytest.mark.promise("RUN-08")
async def test_isolated_tools_overlap(open_runtime, tmp_path):
    # Each waits for the other: they can only end if they run at the same time.
    os.mkfifo(tmp_path / "there")
    os.mkfifo(tmp_path / "back")

    @tool(isolation="process", parallel=True)
    def one() -> str:
        (tmp_path / "there").write_text("ping")
        return str((tmp_path / "back").read_text())

    @tool(isolation="process", parallel=True)
    def other() -> str:
        text = str((tmp_path / "there").read_text())
        (tmp_path / "back").write_text("pong")
        return text

    runtime = await open_runtime(one, other)
    outcomes = await run(runtime, ToolCall(name="one"), ToolCall(name="other"))
    assert [outcome.value for outcome in outcomes] == ["pong", "ping"]


@pytest.mark.promise("RUN-08")
async def test_what_a_child_gives_is_never_unpickled_in_the_parent(open_runtime, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / f"made-in-{os.getpid()}"),)

    class TrapError(Exception):
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / f"made-in-{os.getpid()}"),)

    @tool(isolation="process")
    def returns_a_trap() -> object:
        return Trap()

    @tool(isolation="process")
    def raises_a_trap() -> object:
        raise TrapError("sprung")

    runtime = await open_runtime(returns_a_trap, raises_a_trap)
    first, second = await run(runtime, ToolCall(name="returns_a_trap"), ToolCall(name="raises_a_trap"))
    assert first.failure.code == "unserialisable_result"
    assert second.failure.code == "internal_error"
    assert "TrapError: sprung" in second.failure.detail
    assert list(tmp_path.iterdir()) == []


def socket_of_this_child() -> int:
    return int(sys.argv[1])


def frame(message: bytes) -> bytes:
    return struct.pack(">Q", len(message)) + message


RUBBISH = {
    "a length beyond all memory": b"\xff" * 8,
    "a length of 3 GB": struct.pack(">Q", 3 * 1024**3) + b"x" * 4096,
    "text": frame(b"what"),
    "bytes that are no text": frame(b"\xff\xfe\xfd\xfc"),
    "a message of another kind": frame(b'["become_root",1]'),
    "an answer to another call": frame(b'["value",999999,"forged",null,[],[],null]'),
    "too few fields": frame(b'["value",2]'),
    "a failure of no known kind": frame(b'["failed",2,{"message":"no","category":"treason"}]'),
    "a value that is no text": frame(b'["value",2,"\xff",null,[],[],null]'),
    "a value that is too deep": frame(b'["value",2,' + b"[" * 200_000 + b"]" * 200_000 + b",null,[],[],null]"),
    "a whole number that is too long": frame(b'["value",2,' + b"9" * 5000 + b",null,[],[],null]"),
    "a number that is too large": frame(b'["value",2,[1e400],null,[],[],null]'),
    "a number that is too large in another way": frame(b'["value",2,' + b"9" * 400 + b".5,null,[],[],null]"),
    "a pickle": frame(pickle.dumps(("value", "forged"))),
}


class Person(BaseModel):
    name: str
    born: datetime.date


@pytest.mark.promise("RUN-07", "RUN-08")
@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH.keys())
async def test_a_child_that_writes_rubbish_fails_its_call_and_is_replaced(open_runtime, rubbish):
    @tool(isolation="process")
    def writes() -> None:
        os.write(socket_of_this_child(), rubbish)
        threading.Event().wait(600)

    @tool(isolation="process")
    def where() -> int:
        return os.getpid()

    runtime = await open_runtime(writes, where)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first, second, third = await run(runtime, ToolCall(name="where"), ToolCall(name="writes"), ToolCall(name="where"))
    assert second.failure.code in ("process_broke", "output_too_long")
    assert third.status == "success"
    assert third.value != first.value
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # kilobytes


LONG_WORDS = {
    "an exception": b'["raised",1,["x.%s"],"%s","%s",null]',
    "an exception that says what a model may read": b'["raised",1,["x.%s"],"%s","",{"message":"%s"}]',
    "a failure": b'["failed",1,{"message":"%s","code":"%s","detail":"%s"}]',
    "data of a failure": b'["failed",1,{"message":"%s","code":"%s","data":["%s"]}]',
    "a provider": b'["unconnected",1,"%s%s%s"]',
}


@pytest.mark.promise("RUN-07", "RUN-08")
@pytest.mark.parametrize("words", LONG_WORDS.values(), ids=LONG_WORDS.keys())
async def test_what_a_child_says_is_bounded_also_where_it_does_not_keep_to_the_bounds(open_runtime, caplog, words):
    message = frame(words % ((b"x" * 4_000_000,) * 3))

    @tool(isolation="process")
    def writes() -> None:
        with open(socket_of_this_child(), "wb", closefd=False) as out:
            out.write(message)
        threading.Event().wait(600)

    runtime = await open_runtime(writes)
    (outcome,) = await run(runtime, ToolCall(name="writes"))
    told = [outcome.text, outcome.provider or "", *map(repr, filter(None, [outcome.failure])), caplog.text]
    assert sum(map(len, told)) < 3_500_000


@pytest.mark.promise("RUN-08")
async def test_a_result_too_long_to_cross_is_a_failure_that_says_so_and_the_child_lives_on(open_runtime):
    @tool(isolation="process")
    def much() -> str:
        return "x" * (17 * 1024 * 1024)

    @tool(isolation="process")
    def where() -> int:
        return os.getpid()

    runtime = await open_runtime(much, where)
    first, second, third = await run(runtime, ToolCall(name="where"), ToolCall(name="much"), ToolCall(name="where"))
    assert (second.failure.category, second.failure.code) == ("resource_limit", "output_too_long")
    assert "write it to a file" in second.failure.message
    assert first.value == third.value


@pytest.mark.promise("RUN-08", "OUT-01")
async def test_a_value_has_the_same_json_form_from_a_child_as_from_here(open_runtime):
    @dataclass
    class Point:
        x: int
        y: float

    def give(what: str) -> Any:
        """Give something."""
        values: dict[str, Any] = {
            "model": [Person(name="é", born=datetime.date(2020, 2, 2))],
            "dataclass": {"at": Point(1, 2.5)},
            "bytes": b"\x00\xff",
            "set": {1},
            "path": Path("a/b"),
            "big": 2**70,
            "time": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
            "success": Success(Point(3, 4), raw_output="raw \ud800"),
            "bad image": Success(1, images=("no image",)),  # type: ignore[arg-type]
            "lock": threading.Lock(),
            "surrogate": "\ud800",
            "nan": float("nan"),
        }
        return values[what]

    here = tool(name="here", parallel=True)(give)
    there = tool(name="there", parallel=True, isolation="process")(give)
    runtime = await open_runtime(here, there)
    names = "model dataclass bytes set path big time success lock surrogate nan"
    for what in (*names.split(), "bad image"):
        one, other = await run(
            runtime,
            ToolCall(name="here", arguments={"what": what}),
            ToolCall(name="there", arguments={"what": what}),
        )
        assert (what, one.status, one.text, one.raw_output) == (what, other.status, other.text, other.raw_output)
        if one.failure is not None:
            assert one.failure.code == other.failure.code


@pytest.mark.promise("RUN-08", "OUT-02")
async def test_errors_of_a_child_say_the_same_as_those_from_here(open_runtime):
    def fail(way: str) -> None:
        """Fail."""
        if way == "service":
            raise ServiceError("there is no such thing", "not_found")
        if way == "connection":
            raise ConnectionResetError("reset")
        raise ToolError("busy", category="unavailable", code="busy", retry_after=5, detail="private")

    here = tool(name="here", parallel=True)(fail)
    there = tool(name="there", parallel=True, isolation="process")(fail)
    runtime = await open_runtime(here, there)
    for way in ("service", "connection", "tool"):
        one, other = await run(
            runtime,
            ToolCall(name="here", arguments={"way": way}),
            ToolCall(name="there", arguments={"way": way}),
        )
        told = [(it.failure.category, it.failure.code, it.failure.message, it.failure.retry) for it in (one, other)]
        assert told[0] == told[1]


@pytest.mark.promise("WAIT-02", "RETRY-02")
async def test_a_completion_between_two_attempts_of_an_isolated_tool_is_the_outcome(clock, open_runtime, pipe):
    @tool(isolation="process", idempotent=True, retry=RetryPolicy(attempts=2, base_delay=10, jitter=0))
    def order(path: str, ctx: ToolContext) -> str | dict[str, str]:
        if ctx.attempt == 2:
            return "a value of its own"
        Path(path).write_text(ctx.completion_key() + "\n")
        raise ToolError("the connection broke", retry=True)

    runtime = await open_runtime(order)
    retrying = (event async for event in runtime.subscribe() if event.kind == "call.retrying")
    async with fail_after(20):
        batch = runtime.session("s").start_batch([ToolCall(name="order", arguments={"path": pipe.path})])
        await anext(retrying)
        resolved = await runtime.resolve(await pipe.line(), {"from": "outside"})
        await clock.advance(10)
        (outcome,) = await finished(batch, 20)
    assert resolved.first
    assert (outcome.status, outcome.value) == ("success", {"from": "outside"})
