"""toolwright as it is measured: everything on, as a program that cares for its tools would run it.

Arguments are validated, judged by a policy with rules, scheduled under the default limits, run with a
deadline, and recorded; one subscriber takes every event. Owns that setup; does not measure.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from bench.pairing import Subject
from bench.workload import FUNCTIONS, TURN_ANSWER, TURN_CALLS, TURN_QUESTION, TURN_STEPS, requests, turn_requests
from toolwright import Budget, Policy, Rule, Runtime, Tool, ToolCall, ToolOutcome, TurnOutcome, tool
from toolwright.stores import Store
from toolwright.tools.model import ModelRequest
from toolwright.tools.tracing import Tracing

POLICY = Policy(
    timeout=30,
    rules=(
        Rule("deny", "delete_*", reason="nothing is deleted here"),
        Rule("ask", "add", when=lambda request: request.arguments["a"] < 0),
    ),
)
TOOLS = [tool(readonly=True)(function) for function in FUNCTIONS.values()]

# One more model call than the steps of a turn: it ends the turn.
BUDGET = Budget(model_calls=TURN_STEPS + 1)

# Room for every event of the largest sample: a dropped event would be work that was not done.
EVENTS_HELD = 200_000

MakeCalls = Callable[[int, int], list[ToolCall]]
ToolwrightSubject = Subject[list[ToolCall], Sequence[ToolOutcome]]


def workload_calls(size: int, start: int) -> list[ToolCall]:
    """The shared workload from number `start` on, as a provider would hand it over."""
    return [ToolCall(id=call_id, name=name, arguments=given) for call_id, name, given in requests(size, start)]


class TurnModel:
    """The model of a turn: it calls tools in one step after the other, and then answers with text."""

    provider, name = "bench", "script"

    def __init__(self, steps: int = TURN_STEPS, calls: int = TURN_CALLS) -> None:
        self._answers: list[list[ToolCall] | str] = [
            *[
                [ToolCall(id=id, name=name, arguments=given) for id, name, given in step]
                for step in turn_requests(steps, calls)
            ],
            TURN_ANSWER,
        ]

    async def complete(self, request: ModelRequest) -> list[ToolCall] | str:
        """The answer that follows those of the conversation."""
        return self._answers[request.number]


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

    def expect_batches(self, count: int = 1) -> None:
        """Count batches whose events `settle` will wait for."""
        self._expected += count

    async def settle(self) -> None:
        """Return once every event of every expected batch was taken."""
        while self._finished < self._expected:  # noqa: ASYNC110 - an event would cost the watcher a check each time
            await asyncio.sleep(0)
        if self._subscription.dropped:
            raise RuntimeError(f"{self._subscription.dropped} events were dropped; hold more than {EVENTS_HELD}.")


class Contestant:
    """An open runtime that gives subjects to measure."""

    def __init__(self, runtime: Runtime, watcher: Watcher) -> None:
        self._runtime = runtime
        self._session = runtime.session("bench")
        self._watcher = watcher
        self._next_call = 0
        self._next_turn = 0

    def subject(self, size: int, make_calls: MakeCalls = workload_calls) -> ToolwrightSubject:
        """Run batches of `size` calls, made by `make_calls(size, start)`."""

        def prepare() -> list[ToolCall]:
            # An id runs once and is replayed afterwards, so no number is used twice.
            start, self._next_call = self._next_call, self._next_call + size
            return make_calls(size, start)

        return Subject(calls=size, prepare=prepare, run=self._run, count=_successes, settle=self._watcher.settle)

    def turn_subject(self) -> Subject[str, TurnOutcome]:
        """Run turns, each in a session of its own, so that each begins with an empty conversation."""

        def prepare() -> str:
            self._next_turn += 1
            return f"turn {self._next_turn}"

        async def run(session: str) -> TurnOutcome:
            self._watcher.expect_batches(TURN_STEPS)
            return await self._runtime.session(session).ask(TURN_QUESTION, budget=BUDGET)

        def count(outcome: TurnOutcome) -> int:
            return _successes(outcome.calls) if outcome.text == TURN_ANSWER else 0

        calls = TURN_STEPS * TURN_CALLS
        return Subject(calls=calls, prepare=prepare, run=run, count=count, settle=self._watcher.settle)

    async def _run(self, calls: list[ToolCall]) -> Sequence[ToolOutcome]:
        self._watcher.expect_batches()
        return await self._session.run_batch(calls)


@contextlib.asynccontextmanager
async def open_contestant(
    tools: Iterable[Tool] = TOOLS,
    store: str | Path | Store = ":memory:",
    sync: Literal["full", "normal"] = "full",
    telemetry: Tracing | None = None,
    at_once: int | None = None,
) -> AsyncIterator[Contestant]:
    """A runtime with these tools, the policy, and its watcher; in memory unless a file is named.

    `at_once` is how many calls may run at once; without it, the default limits hold.
    """
    policy = POLICY
    if at_once is not None:
        policy = replace(POLICY, max_concurrency=at_once, session_concurrency=at_once, runtime_concurrency=at_once)
    async with Runtime.open(
        store, tools=[*tools], policy=policy, sync=sync, model=TurnModel(), telemetry=telemetry
    ) as runtime:
        watcher = Watcher(runtime)
        watching = asyncio.create_task(watcher.watch())
        try:
            yield Contestant(runtime, watcher)
        finally:
            watching.cancel()


def _successes(outcomes: Sequence[ToolOutcome]) -> int:
    return sum(outcome.status == "success" for outcome in outcomes)
