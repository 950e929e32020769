"""Running the calls of a command. Owns opening the runtime and Ctrl-C; does not own the display."""

from __future__ import annotations

import asyncio
import shlex
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolwright.app import App
from toolwright.calls.batch import Batch
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallRecord
from toolwright.cli.display.output import echo
from toolwright.cli.exits import BadInput, exit_code
from toolwright.errors import BatchFailed
from toolwright.event_bus import Subscription
from toolwright.events import CallWaiting
from toolwright.runtime.runtime import Runtime
from toolwright.stores.contracts.background_run import PREFIX
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import INBOX
from toolwright.stores.opening import MEMORY, inspect_store
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome

Watch = Callable[[Runtime, Batch, Subscription], Awaitable[None]]
"""Shows a batch while it runs: it gets all of the batch's events, and returns once the batch is finished."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished batch: one outcome for each call, and the records, those of nested calls among them."""

    outcomes: list[ToolOutcome]
    records: list[CallRecord]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """The code to end the command with."""
        return exit_code(self.outcomes, interrupted=self.interrupted)


async def run_calls(
    calls: Sequence[ToolCall],
    app: App,
    *,
    store: str | None = None,
    session: str = "cli",
    scope: str = "",
    events_file: Path | None = None,
    watch: Watch | None = None,
) -> Finished:
    """Run calls as one batch. Ctrl-C stops it, and the outcome of each call is still returned.

    With a store, calls wait for approvals and events, and after Ctrl-C unfinished calls can be continued.

    Raises:
        BadInput: the events file cannot be written.
        StoreError: the store cannot be used.
    """
    try:
        if store is None:
            # No person could decide while the command waits: it fails instead, and says how to let the tool run.
            app = app.but(policy=(app.policy or Policy()).but(on_ask="deny"))
        runtime = await app.open(store or MEMORY, events_file=events_file)
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"The events file {str(events_file)!r} cannot be written ({reason}); name another") from None
    try:
        room = max(10_000, 8 * len(calls))
        events = None if watch is None else runtime.subscribe(limit=room)
        waits = runtime.subscribe(limit=room)
        seen_to = end_what_waits(waits, runtime) if store is None else _say_what_waits(waits, store)
        looking = asyncio.ensure_future(seen_to)
        batch = runtime.session(session).start_batch(calls, scope=scope)
        with interruptible(runtime, batch, leave=store is not None) as interrupts:
            if watch is not None and events is not None:
                await watch(runtime, batch, events)
            try:
                outcomes = await batch
            except BatchFailed as error:
                outcomes = error.outcomes
        looking.cancel()
        if store is not None and interrupts:
            await runtime.close()
            outcomes = await _with_what_is_left(outcomes, store, session, scope)
        return Finished(outcomes, runtime.log.query(session=session), bool(interrupts))
    finally:
        await runtime.close()


async def _with_what_is_left(outcomes: list[ToolOutcome], store: str, session: str, scope: str) -> list[ToolOutcome]:
    """The outcomes, with "pending" for calls that stay unfinished in the store: these were not cancelled for good."""
    left = {call.key for call in await inspect_store(store).calls(session=session) if call.outcome is None}
    return [
        ToolOutcome(outcome.call_id, outcome.tool, "pending")
        if outcome.status == "cancelled" and CallKey(session, scope, outcome.call_id) in left
        else outcome
        for outcome in outcomes
    ]


async def end_what_waits(events: Subscription, runtime: Runtime, *, decided_here: bool = False) -> None:
    """Cancel waits that nobody can answer: a wait in memory cannot be reached by another process.

    A tool may be prepared for an event or a signal that does not come in time, and may send signals to a run itself.
    With `decided_here`, a person at this terminal decides about approvals.
    """
    async for event in events:
        if not isinstance(event, CallWaiting) or (event.what != "completion" and event.deadline is not None):
            continue
        if decided_here and event.what in INBOX:
            continue
        if event.what != "signal" or not event.call_id.startswith(PREFIX):
            what = f"{event.what} {event.name!r}" if event.name else event.what
            reason = f"it cannot get its {what} without a store; wait for it with --db"
            await runtime.session(event.session).cancel_waits(reason)


async def _say_what_waits(events: Subscription, store: str) -> None:
    """Print to stderr the actions that a person must take for a call to continue."""
    async for event in events:
        if isinstance(event, CallWaiting) and event.what != "sleep":
            told = told_wait(event.call_id, event.tool, event.what, event.name, store)
            echo(told if event.what in INBOX else f"{told}; Ctrl-C leaves it waiting", err=True)


def told_wait(call_id: str, tool: str, what: str, name: str, store: str) -> str:
    """A line about a call that waits, with the command by which a person lets it continue."""
    who = f"Call {call_id!r} of tool {tool!r}"
    if what in INBOX:
        if what == "question":
            command = shown_command("approvals", store, "answer", call_id, "JSON")
            return f"{who} waits for a person, as it asks{f' {name!r}' if name else ''}: {command}"
        why = "it was cut off by a crash, and may have run" if what == "crash" else "it needs approval"
        return f"{who} waits for a person, as {why}: {shown_command('approvals', store, 'approve', call_id)}"
    return f"{who} waits for its {what}{f' {name!r}' if name else ''}"


def shown_command(name: str, store: str, *words: str) -> str:
    """A command over a store as it may be typed."""
    return shlex.join(["toolwright", name, *words, "--db", store])


@contextmanager
def interruptible(runtime: Runtime, batch: Batch, *, leave: bool) -> Iterator[list[int]]:
    """Let the first Ctrl-C cancel the batch instead of ending the program; yields the list of signals that came.

    `leave` closes the runtime instead: unfinished calls stay unfinished in the store, and can be continued.
    """
    seen: list[int] = []
    closing: list[asyncio.Task[None]] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: object) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)
        # Also wakes a loop that waits for nothing but the network.
        if leave:
            loop.call_soon_threadsafe(lambda: closing.append(loop.create_task(runtime.close())))
        else:
            loop.call_soon_threadsafe(batch.cancel, "interrupted by Ctrl-C")

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
