"""The runtime for code that is not async."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolwright import (
    BatchFailed,
    Policy,
    Runtime,
    RuntimeClosed,
    ToolCall,
    ToolContext,
    ToolError,
    ToolwrightError,
    tool,
)


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "toolwright-loop"]


@pytest.mark.promise("RUN-01", "RUN-08")
def test_code_that_is_not_async_runs_calls_and_gets_one_outcome_each():
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool
    def shout(text: str) -> str:
        return text.upper()

    with Runtime.open_blocking(tools=[add, shout]) as runtime:
        session = runtime.session("s")
        outcomes = session.run_batch(
            [
                ToolCall(id="c1", name="add", arguments={"a": 1, "b": 2}),
                ToolCall(id="c2", name="shout", arguments={"text": "hi"}),
                ToolCall(id="c3", name="nobody"),
            ]
        )
        assert [outcome.status for outcome in outcomes] == ["success", "success", "failure"]
        assert [outcome.value for outcome in outcomes[:2]] == [3, "HI"]
        assert session.call("add", a=3, b=4).value == 7
        assert session.id == "s"
        assert session.run_batch([]) == []


@pytest.mark.promise("SES-03")
def test_code_that_is_not_async_uses_every_service_of_a_session():
    @tool
    async def work() -> str:
        return "done"

    with Runtime.open_blocking(tools=[work]) as runtime:
        session = runtime.session("s")
        session.files.write("/a.txt", "soup")
        assert session.files.read("/a.txt") == "soup"
        assert b"".join(session.files.stream("/a.txt")) == b"soup"
        session.kv.set("day", 1)
        assert session.kv.get("day") == 1
        session.secrets.set("till", "correct horse")
        assert session.secrets.get("till") == "correct horse"
        session.messages.append("hello")
        assert [message.content for message in session.messages.list()] == ["hello"]
        assert session.attachments.list() == []
        assert session.resources.list() == []
        assert "work" in [definition.name for definition in session.catalogue.list()]


@pytest.mark.promise("CANCEL-02")
def test_closing_ends_the_thread_and_a_closed_runtime_says_so():
    @tool
    async def work() -> str:
        return "done"

    runtime = Runtime.open_blocking(tools=[work])
    session = runtime.session("s")
    assert session.call("work").value == "done"
    assert len(loop_threads()) == 1
    runtime.close()
    assert loop_threads() == []
    runtime.close()
    with pytest.raises(RuntimeClosed):
        session.call("work")
    with pytest.raises(RuntimeClosed):
        runtime.session("s")


@pytest.mark.promise("CANCEL-02")
def test_a_runtime_that_cannot_be_opened_leaves_no_thread():
    with pytest.raises(ToolwrightError, match="nowhere"):
        Runtime.open_blocking("nowhere://at.all")
    assert loop_threads() == []


@pytest.mark.promise("RUN-06")
def test_errors_of_the_async_api_are_raised_as_they_are():
    @tool
    async def fails() -> None:
        raise ToolError("no")

    with Runtime.open_blocking(tools=[fails], policy=Policy(continue_on_failure=False)) as runtime:
        with pytest.raises(BatchFailed) as caught:
            runtime.session("s").run_batch([ToolCall(name="fails")])
        assert [outcome.status for outcome in caught.value.outcomes] == ["failure"]


@pytest.mark.promise("CANCEL-01")
def test_a_started_batch_can_be_cancelled_and_waited_for():
    started = threading.Event()

    @tool
    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    with Runtime.open_blocking(tools=[hangs]) as runtime:
        batch = runtime.session("s").start_batch([ToolCall(name="hangs")])
        assert started.wait(60)
        assert not batch.done
        batch.cancel("enough")
        (outcome,) = batch.wait()
        assert (outcome.status, outcome.reason, outcome.may_have_run) == ("cancelled", "enough", True)
        assert batch.done


@pytest.mark.promise("CANCEL-01")
def test_closing_stops_what_other_threads_wait_for():
    started = threading.Event()

    @tool
    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    runtime = Runtime.open_blocking(tools=[hangs])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(runtime.session("s").call, "hangs")
        assert started.wait(60)
        runtime.close()
        outcome = waiting.result(5)
    assert (outcome.status, outcome.may_have_run) == ("cancelled", True)


@pytest.mark.promise("RUN-08")
def test_threads_share_a_blocking_runtime():
    meeting = threading.Barrier(4)

    @tool(parallel=True)
    def meets(number: int) -> int:
        meeting.wait(60)
        return number

    with Runtime.open_blocking(tools=[meets]) as runtime, ThreadPoolExecutor(4) as pool:
        session = runtime.session("s")
        outcomes = list(pool.map(lambda number: session.call("meets", number=number), range(4)))
    assert [outcome.value for outcome in outcomes] == [0, 1, 2, 3]


@pytest.mark.promise("SCHED-06")
def test_a_sync_tool_may_call_others_through_the_portal_as_part_of_its_call():
    @tool
    async def inner() -> str:
        return "inner"

    @tool
    def outer() -> str:
        return str(runtime.session("s").call("inner").value)

    with Runtime.open_blocking(tools=[inner, outer]) as runtime:
        outcome = runtime.session("s").call("outer")
        (nested,) = runtime.log.query(tool="inner")
    assert outcome.value == "inner"
    assert nested.parent == outcome.call_id


@pytest.mark.promise("SCHED-06", "RUN-08")
def test_a_sync_tool_that_holds_the_only_thread_may_call_sync_tools_through_the_portal():
    @tool(parallel=True)
    def inner() -> str:
        return "inner"

    @tool(parallel=True)
    def outer() -> str:
        return str(runtime.session("s").call("inner").value)

    with Runtime.open_blocking(tools=[inner, outer], policy=Policy(runtime_concurrency=1)) as runtime:
        assert runtime.session("s").call("outer").value == "inner"


@pytest.mark.promise("RUN-08")
def test_using_the_portal_on_its_own_loop_is_refused_before_it_waits_for_itself():
    @tool
    async def waits_for_itself() -> str:
        try:
            runtime.session("s").call("waits_for_itself")
        except ToolwrightError as error:
            return str(error)
        return "it could"

    with Runtime.open_blocking(tools=[waits_for_itself]) as runtime:
        assert "its own loop" in runtime.session("s").call("waits_for_itself").value


@pytest.mark.promise("RUN-10")
def test_events_can_be_iterated_and_end_with_the_subscription():
    @tool
    async def reports(ctx: ToolContext) -> None:
        await ctx.progress(1)

    with Runtime.open_blocking(tools=[reports]) as runtime:
        session = runtime.session("s")
        with session.subscribe() as events:
            session.call("reports")
            kinds = []
            for event in events:
                kinds.append(event.kind)
                if event.kind == "batch.finished":
                    break
        assert list(events) == []
    assert kinds == ["batch.started", "call.started", "call.progress", "call.finished", "batch.finished"]


@pytest.mark.promise("RUN-10")
def test_events_that_were_not_read_yet_can_be_read_after_the_end():
    @tool
    async def work() -> None: ...

    with Runtime.open_blocking(tools=[work]) as runtime:
        events = runtime.subscribe()
        runtime.session("s").call("work")
    assert [event.kind for event in events] == ["batch.started", "call.started", "call.finished", "batch.finished"]


@pytest.mark.promise("RUN-10")
def test_an_iteration_on_another_thread_ends_when_the_runtime_closes():
    @tool
    async def work() -> None: ...

    runtime = Runtime.open_blocking(tools=[work])
    events = runtime.subscribe()
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(lambda: [event.kind for event in events])
        runtime.session("s").call("work")
        runtime.close()
        kinds = watching.result(5)
    assert kinds == ["batch.started", "call.started", "call.finished", "batch.finished"]


@pytest.mark.promise("RUN-09")
def test_records_and_tools_are_reached_through_the_portal_too():
    @tool
    async def work() -> str:
        return "done"

    @tool
    async def more() -> str:
        return "more"

    with Runtime.open_blocking(tools=[work]) as runtime:
        session = runtime.session("s")
        session.call("work")
        assert len(runtime.log) == 1
        assert [record.tool for record in runtime.log] == ["work"]
        assert runtime.log.statistics().by_status == {"success": 1}
        runtime.tools.register(more)
        assert "more" in runtime.tools
        assert session.call("more").value == "more"


@pytest.mark.promise("RUN-09")
def test_records_can_be_read_while_calls_are_made():
    @tool(parallel=True)
    async def work(number: int) -> int:
        return number

    with Runtime.open_blocking(tools=[work], policy=Policy(on_loop="ignore")) as runtime:
        session = runtime.session("s")
        calls = [ToolCall(name="work", arguments={"number": number}) for number in range(500)]
        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(lambda: [session.run_batch(calls) for _ in range(5)])
            while not working.done():
                runtime.log.query(status="success")
                runtime.log.statistics()
            working.result(5)
        assert len(runtime.log.query(status="success")) == 2500


@pytest.mark.promise("CANCEL-01")
def test_an_interrupt_of_the_caller_stops_the_calls_it_waits_for():
    ended = threading.Event()

    @tool
    async def hangs() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with Runtime.open_blocking(tools=[hangs]) as runtime:
        session = runtime.session("s")
        with pytest.raises(KeyboardInterrupt):
            session.call("hangs")
        assert ended.wait(60)
        (record,) = runtime.log.query(tool="hangs")
    assert record.status == "cancelled"


@pytest.mark.promise("CANCEL-02")
def test_a_tool_that_does_not_stop_does_not_keep_the_program_from_closing():
    release = threading.Event()
    started = threading.Event()

    @tool(timeout=0.01)
    def stuck() -> None:
        started.set()
        release.wait(30)

    runtime = Runtime.open_blocking(tools=[stuck])
    try:
        assert runtime.session("s").call("stuck").failure.code == "timeout"
        assert started.wait(60)
        runtime.close()
        assert loop_threads() == []
    finally:
        release.set()
