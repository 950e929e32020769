"""The handle of a background run. Owns waiting for it, following, cancelling and signalling it, from every process that
has its store open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from toolwright.argument_checks import require_count, require_seconds
from toolwright.background.background import Background
from toolwright.background.checks import limits_of
from toolwright.background.ending import end, stopped
from toolwright.background.output import PAGE, printed, render
from toolwright.calls.authorise.authority import combine
from toolwright.errors import KeyRefused, RunError
from toolwright.session.open_sessions import require_session_id
from toolwright.session.services.quotas import require_name, to_json
from toolwright.stores.contracts.background_run import BackgroundRun, Status
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.run_store import RunStore
from toolwright.stores.contracts.waits import WaitKey
from toolwright.tools.outcome import ToolOutcome


class Run:
    """A background run, to be awaited, followed, cancelled and signalled. It shows the run as it was last read.

    `store` is what a call may use of the store, if a call has the handle.
    """

    def __init__(self, background: Background, run: BackgroundRun, store: RunStore | None = None) -> None:
        self._background = background
        self._run = run
        self._store = store or background.store

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def status(self) -> Status:
        """The status when it was last read: by `wait`, `follow`, `refresh` or when the handle was made."""
        return self._run.status

    @property
    def process(self) -> BackgroundRun:
        """All that is known of the run, when it was last read."""
        return self._run

    @property
    def outcome(self) -> ToolOutcome | None:
        """The outcome, once it is known."""
        return self._run.outcome

    async def refresh(self) -> BackgroundRun:
        """Read the run now.

        Raises:
            RunError: it was removed from the store.
        """
        found = await self._store.find(self._run.id)
        if found is None:
            raise RunError(f"The run {self.id!r} is no longer in the store", "not_found")
        self._run = found
        return found

    async def wait(self, timeout: float | None = None, *, cancel: bool = False) -> ToolOutcome:
        """The outcome of the run, when it is finished; at most `timeout` seconds are waited for that.

        With `cancel=True`, cancelling this wait cancels the run too, and the wait ends when the run has stopped.

        Raises:
            TimeoutError: it is not finished yet. It continues.
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
            late = asyncio.ensure_future(self._background.shared.clock.sleep(require_seconds("timeout", timeout)))
        try:
            while True:
                async with self._background.watch.watching(self.id) as changed:
                    run = await self.refresh()
                    if run.over:
                        assert run.outcome is not None
                        return run.outcome
                    await asyncio.wait({changed, *([] if late is None else [late])}, return_when="FIRST_COMPLETED")
                if late is not None and late.done() and not (await self.refresh()).over:
                    raise TimeoutError(f"The run {self.id!r} is not over after {timeout:g} s; it goes on")
        finally:
            if late is not None:
                late.cancel()

    async def follow(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """The events of the run after an event's number, and those to come, until it is finished."""
        require_count("number of an event", after, 0)
        while True:
            async with self._background.watch.watching(self.id) as changed:
                events = await self._store.events(self.id, after, PAGE)
                if not events:
                    if (await self.refresh()).over and not await self._store.events(self.id, after, 1):
                        return
                    await changed
            for event in events:
                after = event.number
                yield event
                if event.last and (await self.refresh()).over and not await self._store.events(self.id, after, 1):
                    return

    async def events(self) -> AsyncIterator[RunEvent]:
        """The events of the run so far."""
        after = 0
        while page := await self._store.events(self.id, after, PAGE):
            for event in page:
                after = event.number
                yield event

    async def log(self) -> str:
        """Its output so far: all of it, or its beginning and its end where it is very much."""
        await self.refresh()
        return render(*await printed(self._store, self.id))

    async def cancel(self, reason: str = "the run was cancelled") -> bool:
        """Ask the run and all that it started to stop; False when it was finished already.

        A run that waits for a worker ends at once; one that runs is told by its worker, and gets its grace.
        """
        background, shared = self._background, self._background.shared
        said = await background.sessions.redacted(self._run.session, reason)
        left = await self._store.cancel(self.id, said, shared.clock.now())
        for run in left:
            if run.status == "queued":
                outcome = stopped(run, begun=run.attempts > 0)
                await end(self._store, shared.quotas, run, outcome, shared.clock.now())
        background.poke(begin=False)
        background.watch.ring([run.id for run in left])
        await self.refresh()
        return any(run.id == self.id for run in left)

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
        run, background, shared = await self.refresh(), self._background, self._background.shared
        under = background.caller_authority()
        authority = None if under is None else combine(run.authority, under)
        limits = limits_of(shared.policy, shared.quotas.resources)
        await self._store.reopen(self.id, by, limits, shared.clock.now(), authority)
        background.enter(run.call)
        background.poke()
        background.watch.ring([self.id])
        await self.refresh()

    async def signal(self, name: str, payload: Any = None) -> int:
        """Send a signal, which its tool takes by `ctx.receive(name)`; return how many of this name it was sent.

        Raises:
            RunError: the run is finished.
        """
        require_name("name of a signal", name)
        if (await self.refresh()).over:
            raise RunError(f"The run {self.id!r} takes no signals: it is over", "over")
        self._background.enter(self._run.call)
        key = WaitKey(self._run.call, "signal", name)
        try:
            return await self._background.shared.effects.signal(key, to_json("payload of a signal", payload))
        except KeyRefused as error:
            raise RunError(f"The run {self.id!r} takes no signals: it is {error.why}", error.why) from error

    async def grant(self, session: str) -> None:
        """Let another session await, follow, cancel and signal the run."""
        require_session_id(session)
        await self._store.grant(self.id, session)

    async def children(self) -> list[Run]:
        """The runs that it started, and those that these did, each after its parent."""
        tree = await self._store.tree(self.id)
        return [Run(self._background, run, self._store) for run in tree if run.id != self.id]

    def to_json(self) -> dict[str, Any]:
        """The run as plain data."""
        return self._run.to_json()

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self._run.tool!r}: {self.status}>"


async def find_run(background: Background, id: str) -> Run:
    """The handle of a run of any session, for the owner of the store.

    Raises:
        RunError: there is none.
    """
    found = await background.store.find(require_name("id of a run", id))
    if found is None:
        raise RunError(f"There is no run {id!r} in the store; `runs` lists those that there are", "not_found")
    return Run(background, found)
