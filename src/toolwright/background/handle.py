"""The handle of a process. Owns awaiting, following, cancelling and signalling it from wherever its store is open."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from toolwright.argument_checks import require_count, require_seconds, require_text
from toolwright.background.change_watch import Bell
from toolwright.background.ending import end, event_message, stopped
from toolwright.background.output import PAGE, printed, render
from toolwright.background.tracked import (
    event_text,
    failure_of,
    progress_of,
    report_of,
    require_event_name,
    require_payload,
    success,
)
from toolwright.calls.authorise.authority import combine
from toolwright.calls.redact import Redactor, redact_failure
from toolwright.clock import Clock
from toolwright.effects.journal_controller import JournaledController
from toolwright.errors import KeyRefused, RunError
from toolwright.session.services.quotas import require_name, to_json
from toolwright.session.session import require_session_id
from toolwright.stores.contracts.background_run import BackgroundRun, Status
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.run_store import Limits, RunStore, Telling
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.waits import WaitKey
from toolwright.tools.outcome import Failure, ToolOutcome


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
        redactor: Callable[[str], Awaitable[Redactor | None]],
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
        self.redactor = redactor
        """Gives what takes the secrets of the session of an id out of values; None where it has none."""
        self.redacted = redacted
        """Takes the secrets of the session of an id out of a text."""

    def guarded(self, store: RunStore) -> Desk:
        """The same for a call, which uses the store only while it may."""
        desk = copy.copy(self)
        desk.store = store
        return desk


class Run:
    """A process that somebody may await, follow, cancel and signal. What it shows is as it was last looked at."""

    def __init__(self, desk: Desk, process: BackgroundRun, *, granted: bool = False) -> None:
        """`granted` says that the run is another session's, which let this one await, cancel and signal it."""
        self._desk = desk
        self._process = process
        self._granted = granted

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

        What waits for a worker is over at once, and so is a tracked run: its host learns that when it follows the run
        or reports on it. What runs is told by its worker, and gets its grace.
        """
        said = await self._desk.redacted(self._process.session, reason)
        left = await self._desk.store.cancel(self.id, said, self._desk.clock.now())
        for process in left:
            if process.status == "queued" or process.options.tracked:
                outcome = stopped(process, begun=process.attempts > 0 or process.options.tracked)
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
        if self._process.options.tracked:
            raise RunError(
                f"The run {self.id!r} takes no signals: it happens elsewhere, and no tool receives them; cancel it, or "
                "append an event",
                "tracked",
            )
        self._desk.enter(self._process.call)
        key = WaitKey(self._process.call, "signal", name)
        try:
            return await self._desk.effects.signal(key, to_json("payload of a signal", payload))
        except KeyRefused as error:
            raise RunError(f"The run {self.id!r} takes no signals: it is {error.why}", error.why) from error

    # --- for its host, who may be in any process

    async def append(self, name: str, payload: Any = None, *, key: str | None = None, tell: bool = False) -> int:
        """Append an event of the host's own to a run that is not over, and return its number.

        Args:
            name: what happened, such as "approved_by_qa"; not one of the names that every run uses.
            payload: what there is to say of it, as JSON, up to 256 KiB; without the secrets of the session.
            key: an event of the same key is appended once, and told of once.
            tell: append a message to the session, too, as at the end of a run with `signal_on_completion`.

        Raises:
            RunError: the run is over ("over"), is another session's ("not_own"), or something is not usable.
            ServiceError: there is no room for the message; then there is no event either.
        """
        self._require_own()
        require_event_name(name)
        if key is not None:
            require_name("key of an event", key)
        desk, process = self._desk, self._process
        redactor = await desk.redactor(process.session)
        data = require_payload(payload)
        data = data if redactor is None else redactor.json(data)
        telling = Telling(event_message(process, name, event_text(data)), desk.quotas.messages) if tell else None
        number = await desk.store.append(self.id, None, name, data, key, desk.clock.now(), telling)
        desk.bell.ring([self.id])
        if number is None:
            await self.refresh()
            raise RunError(f"The run {self.id!r} takes no events: it is over", "over")
        return number

    async def report(
        self,
        *,
        status: str | None = None,
        progress: float | None = None,
        total: float | None = None,
        label: str | None = None,
        unit: str | None = None,
        output: str | None = None,
        stream: str = "stdout",
    ) -> bool:
        """Say how a tracked run stands: what it does, how far it is, what it printed. False when it is over.

        Raises:
            RunError: a worker runs it ("not_tracked"), it is another session's ("not_own"), or something is not
                usable.
        """
        process, desk = await self._tracked(), self._desk
        said = [
            None if text is None else await desk.redacted(process.session, text) for text in (status, label, output)
        ]
        report = report_of(
            process,
            desk.clock.now(),
            status=said[0],
            progress=progress_of(progress, total, said[1], unit),
            output=said[2],
            stream=stream,
        )
        lost = await desk.store.report([report])
        desk.bell.ring([self.id])
        await self.refresh()
        return not lost

    async def finish(self, value: Any = None, *, summary: str | None = None) -> bool:
        """End a tracked run with a value. False when it was over already: the first to end it decides.

        `summary` stands in the message to the session; without it, the beginning of the value does.

        Raises:
            RunError: as for `report`, or the value is too large.
            ServiceError: the value has no JSON form.
        """
        process, desk = await self._tracked(), self._desk
        data, redactor = to_json("value of a run", value), await desk.redactor(process.session)
        said = None if summary is None else await desk.redacted(process.session, summary)
        return await self._end(success(process, data if redactor is None else redactor.json(data), said))

    async def fail(self, failure: Failure | str) -> bool:
        """End a tracked run with a failure, or with the message of one. False when it was over already.

        Raises:
            RunError: as for `report`.
        """
        process = await self._tracked()
        if not isinstance(failure, Failure):
            failure = Failure(message=require_text("failure", failure), code="failed")
        redactor = await self._desk.redactor(process.session)
        return await self._end(failure_of(process, failure if redactor is None else redact_failure(redactor, failure)))

    async def _end(self, outcome: ToolOutcome) -> bool:
        desk = self._desk
        first = await end(desk.store, desk.quotas, self._process, outcome, desk.clock.now())
        desk.bell.ring([self.id])
        await self.refresh()
        return first

    async def _tracked(self) -> BackgroundRun:
        self._require_own()
        process = await self.refresh()
        if not process.options.tracked:
            raise RunError(
                f"The run {self.id!r} is run by a worker, and its tool says how it stands; only a run that was started "
                "by track(...) takes reports",
                "not_tracked",
            )
        return process

    def _require_own(self) -> None:
        if self._granted:
            raise RunError(
                f"The run {self.id!r} belongs to another session, which alone reports on it; use a handle of its own",
                "not_own",
            )

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
