"""The handle of a process. Owns awaiting, following, cancelling and signalling it from wherever its store is open."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from toolwright.argument_checks import require_count, require_seconds
from toolwright.background.change_watch import Bell
from toolwright.background.ending import end, stopped
from toolwright.background.output import PAGE, printed, render
from toolwright.calls.authorise.authority import combine
from toolwright.clock import Clock
from toolwright.effects.journal_controller import JournaledController
from toolwright.errors import KeyRefused, RunError
from toolwright.session.services.quotas import require_name, to_json
from toolwright.session.session import require_session_id
from toolwright.stores.contracts.background_run import BackgroundRun, Status
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.run_store import Limits, RunStore
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.waits import WaitKey
from toolwright.tools.outcome import ToolOutcome


class Desk:
    """What handles of processes need of their runtime."""

    def __init__(
        self,
        store: RunStore,
        bell: Bell,
        clock: Clock,
        quotas: Quotas,
        effects: JournaledController,
        poke: Callable[..., None],
        enter: Callable[[CallKey], None],
        redacted: Callable[[str, str], Awaitable[str]],
        limits: Limits,
        stop: Callable[[str], Awaitable[None]],
        under: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.store = store
        self.bell = bell
        self.clock = clock
        self.quotas = quotas
        self.effects = effects
        self.poke = poke
        """Says to the worker of this runtime that there may be something to do; with `begin`, that it is to begin."""
        self.enter = enter
        """Says that a call may be spoken to, also before it begins."""
        self.limits = limits
        self.stop = stop
        """Stops a run here that is to be cancelled, before its worker looks for that the next time."""
        self.under = under
        """The authority of the call that uses a handle now; None outside of calls."""
        self.redacted = redacted
        """Takes the secrets of the session of an id out of a text."""

    def guarded(self, store: RunStore) -> Desk:
        """The same for a call, which uses the store only while it may."""
        desk = copy.copy(self)
        desk.store = store
        return desk


class Run:
    """A process that somebody may await, follow, cancel and signal. What it shows is as it was last looked at."""

    def __init__(self, desk: Desk, process: BackgroundRun) -> None:
        self._desk = desk
        self._process = process

    @property
    def id(self) -> str:
        """The id of the process."""
        return self._process.id

    @property
    def status(self) -> Status:
        """The status, when it was last looked at: by `wait`, `follow`, `refresh` or when the handle was made."""
        return self._process.status

    @property
    def process(self) -> BackgroundRun:
        """All that is known of the process, when it was last looked at."""
        return self._process

    @property
    def outcome(self) -> ToolOutcome | None:
        """The outcome, once it is known."""
        return self._process.outcome

    async def refresh(self) -> BackgroundRun:
        """Look at the process now.

        Raises:
            RunError: it was removed from the store.
        """
        found = await self._desk.store.find(self.id)
        if found is None:
            raise RunError(f"The run {self.id!r} is no longer in the store", "not_found")
        self._process = found
        return found

    async def wait(self, timeout: float | None = None, *, cancel: bool = False) -> ToolOutcome:
        """The outcome of the run, when it is over; at most `timeout` seconds are waited for that.

        With `cancel=True`, cancelling this wait cancels the run too, and the wait ends when the run has stopped.

        Raises:
            TimeoutError: it is not over yet. It continues.
        """
        try:
            return await self._wait(timeout)
        except asyncio.CancelledError:
            if cancel:
                await self.cancel("the task that waited for the run was cancelled")
                await self._wait(None)
            raise

    async def _wait(self, timeout: float | None) -> ToolOutcome:
        late = None
        if timeout is not None:
            late = asyncio.ensure_future(self._desk.clock.sleep(require_seconds("timeout", timeout)))
        try:
            while True:
                async with self._desk.bell.watching(self.id) as changed:
                    process = await self.refresh()
                    if process.over:
                        assert process.outcome is not None
                        return process.outcome
                    await asyncio.wait({changed, *([] if late is None else [late])}, return_when="FIRST_COMPLETED")
                if late is not None and late.done() and not (await self.refresh()).over:
                    raise TimeoutError(f"The run {self.id!r} is not over after {timeout:g} s; it goes on")
        finally:
            if late is not None:
                late.cancel()

    async def follow(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """What happened to the process beyond an event's number, and what happens, until it is over."""
        require_count("number of an event", after, 0)
        while True:
            async with self._desk.bell.watching(self.id) as changed:
                events = await self._desk.store.events(self.id, after, PAGE)
                if not events:
                    if (await self.refresh()).over and not await self._desk.store.events(self.id, after, 1):
                        return
                    await changed
            for event in events:
                after = event.number
                yield event
                if event.last and (await self.refresh()).over and not await self._desk.store.events(self.id, after, 1):
                    return

    async def events(self) -> AsyncIterator[RunEvent]:
        """What happened to the process so far."""
        after = 0
        while page := await self._desk.store.events(self.id, after, PAGE):
            for event in page:
                after = event.number
                yield event

    async def log(self) -> str:
        """Its output so far: all of it, or its beginning and its end where it is very much."""
        await self.refresh()
        return render(*await printed(self._desk.store, self.id))

    async def cancel(self, reason: str = "the run was cancelled") -> bool:
        """Ask the process and all that it started to stop; False when it was over already.

        What waits for a worker is over at once; what runs is told by its worker, and gets its grace.
        """
        said = await self._desk.redacted(self._process.session, reason)
        left = await self._desk.store.cancel(self.id, said, self._desk.clock.now())
        for process in left:
            if process.status == "queued":
                outcome = stopped(process, begun=process.attempts > 0)
                await end(self._desk.store, self._desk.quotas, process, outcome, self._desk.clock.now())
        self._desk.poke(begin=False)
        self._desk.bell.ring([process.id for process in left])
        await self.refresh()
        return any(process.id == self.id for process in left)

    async def resume(self, *, by: str | None = None) -> None:
        """Let an abandoned run continue, because a person decided that what was in doubt may happen again.

        It is queued for any worker. Its finished steps stay finished; a step or call that the crash cut off runs
        again, with the same idempotency key. `by` says who decided, and is kept among its events. Resumed by a
        call, the run is from then on under the restrictions of that call, too.

        Raises:
            RunError: it is not abandoned, or its session has as many active runs as it may.
        """
        if by is not None:
            require_name("name of the person", by)
        process, desk = await self.refresh(), self._desk
        under = desk.under()
        authority = None if under is None else combine(process.authority, under)
        await desk.store.reopen(self.id, by, desk.limits, desk.clock.now(), authority)
        desk.enter(process.call)
        desk.poke()
        desk.bell.ring([self.id])
        await self.refresh()

    async def signal(self, name: str, payload: Any = None) -> int:
        """Send a signal, which its tool takes by `ctx.receive(name)`; return how many of this name it was sent.

        Raises:
            RunError: the process is over.
        """
        require_name("name of a signal", name)
        if (await self.refresh()).over:
            raise RunError(f"The run {self.id!r} takes no signals: it is over", "over")
        self._desk.enter(self._process.call)
        key = WaitKey(self._process.call, "signal", name)
        try:
            return await self._desk.effects.signal(key, to_json("payload of a signal", payload))
        except KeyRefused as error:
            raise RunError(f"The run {self.id!r} takes no signals: it is {error.why}", error.why) from error

    async def grant(self, session: str) -> None:
        """Let another session await, follow, cancel and signal the process."""
        require_session_id(session)
        await self._desk.store.grant(self.id, session)

    async def children(self) -> list[Run]:
        """The processes that it started, and those that these did, each after its parent."""
        tree = await self._desk.store.tree(self.id)
        return [Run(self._desk, process) for process in tree if process.id != self.id]

    def to_json(self) -> dict[str, Any]:
        """The process as plain data."""
        return self._process.to_json()

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self._process.tool!r}: {self.status}>"
