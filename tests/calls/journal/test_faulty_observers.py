"""Those who watch calls may fail: the calls that follow in the order begin all the same."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from tests.support import fail_after
from toolwright import App, ToolCall, tool
from toolwright.telemetry import Telemetry


class FaultyProcessor(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise RuntimeError("the processor of spans failed")


class FaultyLog:
    """A log of calls that fails at each end of a call."""

    def __init__(self) -> None:
        self.closed = 0

    def open(self, record: Any) -> None:
        pass

    def close(self, record: Any) -> None:
        self.closed += 1
        raise RuntimeError("the log of calls failed")


@pytest.mark.promise("SCHED-01", "EFF-07")
async def test_a_call_begins_after_one_whose_observers_failed(file: Path):
    @tool(idempotent=True)
    async def work(n: int) -> int:
        return n

    provider, call_log = TracerProvider(shutdown_on_exit=False), FaultyLog()
    provider.add_span_processor(FaultyProcessor())
    app = App(tools=[work], telemetry=Telemetry(tracer_provider=provider))
    async with fail_after(5), app.open(file, call_log=call_log) as runtime:
        calls = [ToolCall(id=f"c{n}", name="work", arguments={"n": n}) for n in range(3)]
        first, second = (runtime.session("s").start_batch(calls, scope=scope) for scope in ("one", "two"))
        outcomes = [*await first, *await second]

    assert [outcome.value for outcome in outcomes] == [0, 1, 2, 0, 1, 2]
    assert call_log.closed == 6
