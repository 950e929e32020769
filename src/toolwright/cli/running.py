"""Running the calls of a command. Owns opening the runtime and Ctrl-C; not what is shown meanwhile."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolwright.calls.batch import Batch
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallRecord
from toolwright.cli.exits import BadInput, exit_code
from toolwright.errors import BatchFailed
from toolwright.hub import Subscription
from toolwright.runtime import Runtime
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.registry import ToolRegistry

Watch = Callable[[Runtime, Batch, Subscription], Awaitable[None]]
"""Shows a batch while it runs: it is given all of the batch's events, and returns once the batch is over."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A batch that is over: one outcome for each call, and the records, those of nested calls among them."""

    outcomes: list[ToolOutcome]
    records: list[CallRecord]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """The code to end the command with."""
        return exit_code(self.outcomes, interrupted=self.interrupted)


async def run_calls(
    calls: Sequence[ToolCall],
    tools: ToolRegistry,
    policy: Policy,
    *,
    events_file: Path | None = None,
    watch: Watch | None = None,
) -> Finished:
    """Run calls as one batch. Ctrl-C cancels it, and what became of each call is still returned.

    Raises:
        BadInput: the events file can not be written.
    """
    try:
        # Nobody could decide while the command waits: it says so instead, and how to let the tool run.
        policy = policy.but(on_ask="deny")
        runtime = await Runtime.open(tools=tools.snapshot().values(), policy=policy, events_file=events_file)
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"The events file {str(events_file)!r} can not be written ({reason}); name another") from None
    try:
        events = None if watch is None else runtime.subscribe(limit=max(10_000, 8 * len(calls)))
        batch = runtime.session("cli").start_batch(calls)
        with cancelled_by_interrupt(batch) as interrupts:
            if watch is not None and events is not None:
                await watch(runtime, batch, events)
            try:
                outcomes = await batch
            except BatchFailed as error:
                outcomes = error.outcomes
        return Finished(outcomes, runtime.log.query(session="cli"), bool(interrupts))
    finally:
        await runtime.close()


@contextmanager
def cancelled_by_interrupt(batch: Batch) -> Iterator[list[int]]:
    """Let the first Ctrl-C cancel the batch instead of ending the program; yields those that came."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: object) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)
        # Also wakes a loop that waits for nothing but the network.
        loop.call_soon_threadsafe(batch.cancel, "interrupted by Ctrl-C")

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
