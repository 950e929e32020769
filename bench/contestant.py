"""toolwright as it is measured: everything on, as a program that cares for its tools would run it.

Arguments are validated, judged by a policy with rules, scheduled under the default limits, run with a
deadline, and recorded; one subscriber takes every event. Owns that setup; does not measure.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from bench.pairing import Subject
from bench.workload import FUNCTIONS, requests
from toolwright import Policy, Rule, Runtime, Tool, ToolCall, ToolOutcome, tool

POLICY = Policy(
    timeout=30,
    rules=(
        Rule("deny", "delete_*", reason="nothing is deleted here"),
        Rule("ask", "add", when=lambda request: request.arguments["a"] < 0),
    ),
)
TOOLS = [tool(readonly=True)(function) for function in FUNCTIONS.values()]

# Room for every event of the largest sample: a dropped event would be work that was not done.
EVENTS_HELD = 200_000

MakeCalls = Callable[[int, int], list[ToolCall]]
ToolwrightSubject = Subject[list[ToolCall], Sequence[ToolOutcome]]


def workload_calls(size: int, start: int) -> list[ToolCall]:
    """The shared workload from number `start` on, as a provider would hand it over."""
    return [ToolCall(id=call_id, name=name, arguments=given) for call_id, name, given in requests(size, start)]


class Watcher:
    """A subscriber that takes every event as it comes."""

    def __init__(self, runtime: Runtime) -> None:
        self._subscription = runtime.subscribe(limit=EVENTS_HELD)
        self._expected = 0
        self._finished = 0

    async def watch(self) -> None:
        """Take events until the runtime closes."""
        async for event in self._subscription:
            if event.kind == "batch.finished":
                self._finished += 1

    def expect_batch(self) -> None:
        """Count a batch whose events `settle` will wait for."""
        self._expected += 1

    async def settle(self) -> None:
        """Return once every event of every expected batch was taken."""
        while self._finished < self._expected:  # noqa: ASYNC110 - an event would cost the watcher a check each time
            await asyncio.sleep(0)
        if self._subscription.dropped:
            raise RuntimeError(f"{self._subscription.dropped} events were dropped; hold more than {EVENTS_HELD}.")


class Contestant:
    """An open runtime that gives subjects to measure."""

    def __init__(self, runtime: Runtime, watcher: Watcher) -> None:
        self._session = runtime.session("bench")
        self._watcher = watcher
        self._next_call = 0

    def subject(self, size: int, make_calls: MakeCalls = workload_calls) -> ToolwrightSubject:
        """Run batches of `size` calls, made by `make_calls(size, start)`."""

        def prepare() -> list[ToolCall]:
            # An id runs once and is replayed afterwards, so no number is used twice.
            start, self._next_call = self._next_call, self._next_call + size
            return make_calls(size, start)

        return Subject(calls=size, prepare=prepare, run=self._run, count=_successes, settle=self._watcher.settle)

    async def _run(self, calls: list[ToolCall]) -> Sequence[ToolOutcome]:
        self._watcher.expect_batch()
        return await self._session.run_batch(calls)


@contextlib.asynccontextmanager
async def open_contestant(
    tools: Iterable[Tool] = TOOLS, store: str | Path = ":memory:", sync: Literal["full", "normal"] = "full"
) -> AsyncIterator[Contestant]:
    """A runtime with these tools, the policy, and its watcher; in memory unless a file is named."""
    async with Runtime.open(store, tools=[*tools], policy=POLICY, sync=sync) as runtime:
        watcher = Watcher(runtime)
        watching = asyncio.create_task(watcher.watch())
        try:
            yield Contestant(runtime, watcher)
        finally:
            watching.cancel()


def _successes(outcomes: Sequence[ToolOutcome]) -> int:
    return sum(outcome.status == "success" for outcome in outcomes)
