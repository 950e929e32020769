"""The handle of a background run. Owns waiting for it, following, cancelling and signalling it, from every process that
has its store open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from toolwright.argument_checks import require_count, require_seconds, require_text
from toolwright.background.background import Background
from toolwright.background.checks import limits_of
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
from toolwright.calls.redactor import Redactor
from toolwright.errors import KeyRefused, RunError
from toolwright.session.open_sessions import require_session_id
from toolwright.session.services.quotas import require_name, to_json
from toolwright.stores.contracts.background_run import BackgroundRun, Status
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.run_store import RunStore, Telling
from toolwright.stores.contracts.waits import WaitKey
from toolwright.tools.outcome import Failure, ToolOutcome


class Run:
    """A background run, to be awaited, followed, cancelled and signalled. It shows the run as it was last read.

    `store` is the part of the store that a call may use, if a call has the handle. `granted` means that it is the run
    of another session, which lets this one await, cancel and signal it.
    """

    def __init__(
        self, background: Background, run: BackgroundRun, store: RunStore | None = None, *, granted: bool = False
    ) -> None:
        self._background = background
        self._run = run
        self._store = store or background.store
        self._granted = granted

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def status(self) -> Status:
        """The status when it was last read: by `wait`, `follow`, `refresh` or when the handle was made."""
        return self._run.status

    @property
    def record(self) -> BackgroundRun:
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
            watch = self._background.watch
            async with watch.watching(self._run.id) as watcher:
                while not (run := await self.refresh()).over:
                    if late is not None and late.done():
                        raise TimeoutError(f"The run {self.id!r} is not finished after {timeout:g} s; it continues")
                    either = {watcher.changed} if late is None else {watcher.changed, late}
                    await asyncio.wait(either, return_when="FIRST_COMPLETED")
                    watch.rearm(watcher)
                assert run.outcome is not None
                return run.outcome
        finally:
            if late is not None:
                late.cancel()

    async def follow(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """The events of the run after an event's number, and those to come, until it is finished."""
        require_count("number of an event", after, 0)
        while True:
            async with self._background.watch.watching(self.id) as watcher:
                events = await self._store.events(self.id, after, PAGE)
                if not events:
                    if (await self.refresh()).over and not await self._store.events(self.id, after, 1):
                        return
                    await watcher.changed
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
        run = await self.refresh()
        text = render(*await printed(self._store, self.id))
        # The reports on a tracked run come one by one: a secret may begin in one and end in the next.
        return await self._background.sessions.redacted(run.session, text) if run.options.tracked else text

    async def cancel(self, reason: str = "the run was cancelled") -> bool:
        """Ask the run and all that it started to stop; False when it was finished already.

        A queued run ends at once, and so does a tracked run: its host learns that when it follows the run or reports on
        it. An active run is stopped by its worker, and gets its grace.
        """
        background, shared = self._background, self._background.shared
        said = await background.sessions.redacted(self._run.session, reason)
        left = await self._store.cancel(self.id, said, shared.clock.now())
        for run in left:
            if run.status == "queued" or run.options.tracked:
                if run.attempts:  # the worker that handed it back left the turns of its sub-agents unfinished
                    core = background.sessions.core(run.session)
                    try:
                        await core.background.end_agents(run.call, said)
                    finally:
                        background.sessions.leave(core)
                outcome = stopped(run, begun=run.attempts > 0 or run.options.tracked)
                redactor = await background.sessions.redactor(run.session) if run.options.tracked else None
                await end(self._store, shared.quotas, run, outcome, shared.clock.now(), redactor=redactor)
        background.poke(begin=False)
        for run in left:
            background.told_cancelled("run", run.id, said)
        background.watch.ring([run.id for run in left])
        await self.refresh()
        return any(run.id == self.id for run in left)

    async def resume(self, *, by: str | None = None) -> None:
        """Let an abandoned run continue, because a person decided that the step in doubt may happen again.

        It is queued for any worker. Its finished steps stay finished; a step or call that the crash cut off runs again,
        with the same idempotency key. `by` names the person who decided, and is stored among its events. Resumed by a
        call, the run is from then on under the restrictions of that call, too.

        Raises:
            RunError: it is not abandoned, is another session's ("not_own"), or its session has as many active runs as
                it may.
        """
        self._require_own()
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

    async def signal(self, name: str, payload: object = None) -> int:
        """Send a signal, which its tool takes by `ctx.receive(name)`; return how many of this name it was sent.

        Raises:
            RunError: the run is finished.
        """
        require_name("name of a signal", name)
        if (await self.refresh()).over:
            raise RunError(f"The run {self.id!r} takes no signals: it is finished", "over")
        if self._run.options.tracked:
            raise RunError(
                f"The run {self.id!r} takes no signals: it happens elsewhere, and no tool receives them; cancel it, or "
                "append an event",
                "tracked",
            )
        self._background.enter(self._run.call)
        key = WaitKey(self._run.call, "signal", name)
        try:
            return await self._background.shared.effects.signal(key, to_json("payload of a signal", payload))
        except KeyRefused as error:
            raise RunError(f"The run {self.id!r} takes no signals: it is {error.why}", error.why) from error

    # --- for its host, which may be in any process

    async def append(self, name: str, payload: object = None, *, key: str | None = None, tell: bool = False) -> int:
        """Append an event of the host's own to a run that is not over, and return its number.

        Args:
            name: the name of the event, such as "approved_by_qa"; not one of the names that every run uses.
            payload: its data, as JSON, up to 256 KiB; without the secrets of the session.
            key: an event of the same key is appended once, and told of once.
            tell: append a message to the session, too, as at the end of a run with `signal_on_completion`.

        Raises:
            RunError: the run is finished ("over"), is another session's ("not_own"), or something is not usable.
            ServiceError: the message exceeds the quota; then there is no event either.
        """
        self._require_own()
        require_event_name(name)
        if key is not None:
            require_name("key of an event", key)
        background, shared, run = self._background, self._background.shared, self._run
        redactor = await background.sessions.redactor(run.session)
        data = require_payload(payload)
        data = data if redactor is None else redactor.json(data)
        telling = Telling(event_message(run, name, event_text(data)), shared.quotas.messages) if tell else None
        number = await self._store.append(self.id, None, name, data, key, shared.clock.now(), telling)
        background.watch.ring([self.id])
        if number is None:
            await self.refresh()
            raise RunError(f"The run {self.id!r} takes no events: it is finished", "over")
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
        """Report on a tracked run: its status, progress and output. False when it is finished.

        Raises:
            RunError: a worker runs it ("not_tracked"), it is another session's ("not_own"), or something is not
                usable.
        """
        run, background = await self._tracked(), self._background
        given = {"status": status, "label": label, "unit": unit, "output": output, "stream": stream}
        said = {
            name: None if text is None else await background.sessions.redacted(run.session, text, name)
            for name, text in given.items()
        }
        report = report_of(
            run,
            background.shared.clock.now(),
            status=said["status"],
            progress=progress_of(progress, total, said["label"], said["unit"]),
            output=said["output"],
            stream=said["stream"] or "output",
            redactor=await background.sessions.redactor(run.session),
        )
        lost = await self._store.report([report])
        background.watch.ring([self.id])
        await self.refresh()
        return not lost

    async def finish(self, value: object = None, *, summary: str | None = None) -> bool:
        """End a tracked run with a value. False when it was finished already: the first end counts.

        `summary` stands in the message to the session; without it, the beginning of the value does.

        Raises:
            RunError: as for `report`, or the value is too large.
            ServiceError: the value has no JSON form.
        """
        run, sessions = await self._tracked(), self._background.sessions
        redactor = await sessions.redactor(run.session)
        said = None if summary is None else await sessions.redacted(run.session, summary, "summary")
        return await self._end(await success(run, value, said, redactor), redactor)

    async def fail(self, failure: Failure | str) -> bool:
        """End a tracked run with a failure, or with the message of one. False when it was finished already.

        Raises:
            RunError: as for `report`.
        """
        run = await self._tracked()
        if not isinstance(failure, Failure):
            failure = Failure(message=require_text("failure", failure), code="failed")
        redactor = await self._background.sessions.redactor(run.session)
        return await self._end(await failure_of(run, failure, redactor), redactor)

    async def _end(self, outcome: ToolOutcome, redactor: Redactor | None) -> bool:
        shared = self._background.shared
        first = await end(self._store, shared.quotas, self._run, outcome, shared.clock.now(), redactor=redactor)
        self._background.watch.ring([self.id])
        await self.refresh()
        return first is not None

    async def _tracked(self) -> BackgroundRun:
        self._require_own()
        run = await self.refresh()
        if not run.options.tracked:
            raise RunError(
                f"The run {self.id!r} is run by a worker, and its tool says how it stands; only a run that was started "
                "by track(...) takes reports",
                "not_tracked",
            )
        return run

    def _require_own(self) -> None:
        if self._granted:
            raise RunError(
                f"The run {self.id!r} belongs to another session, which alone reports on it, resumes it and grants it; "
                "use a handle of its own",
                "not_own",
            )

    async def grant(self, session: str) -> None:
        """Let another session await, follow, cancel and signal the run.

        Raises:
            RunError: it is another session's ("not_own").
        """
        self._require_own()
        require_session_id(session)
        await self._store.grant(self.id, session)

    async def children(self) -> list[Run]:
        """The runs that it started, and the runs below these, each after its parent."""
        tree = await self._store.tree(self.id)
        return [Run(self._background, run, self._store, granted=self._granted) for run in tree if run.id != self.id]

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
        raise RunError(f"There is no run {id!r} in the store; `runs` lists the runs", "not_found")
    return Run(background, found)
