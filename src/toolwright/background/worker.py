"""The worker. Owns claiming background runs, holding them by leases, handing them back, and counting that; not their
work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

from toolwright.background.change_watch import ChangeWatch
from toolwright.background.claimed_run import ClaimedRun
from toolwright.background.run_reports import ReportWriter
from toolwright.drivers.contract import Driver, HandedBack, WorkResult
from toolwright.errors import StoreError, StoreLost
from toolwright.ids import uuid7
from toolwright.log_fields import log_fields
from toolwright.session.open_sessions import OpenSessions
from toolwright.session.parts import SharedParts
from toolwright.stores.contracts.background_run import BackgroundRun, Status
from toolwright.stores.contracts.run_store import Claimed, Report, RunStore
from toolwright.tools.turn_protocols import TurnAction

log = logging.getLogger("toolwright.background")

LEASE = 30.0
"""Seconds that a worker may be silent before another takes its runs."""
RENEW = 10.0
"""Seconds between two renewals."""
RENEW_IDLE = 20.0
"""Seconds between two renewals of a worker that has no runs: only how much room it has is known by them."""
LOOK = 5.0
"""Seconds between two looks for runs whose lease has ended while their worker lives: no news tells of them."""
LOOK_ALONE = 0.5
"""Seconds between two looks for something to do, where no store tells any news."""
LONGEST_LOOK = 30.0
"""Seconds between two looks for all there may be to do, without any news."""
SHORTEST_PAUSE = 0.1
"""Seconds between two looks, where each finds that something should be done by now."""
RETRY = 1.0
"""Seconds before the next look, where a part of the last one failed."""
FAIR_WAIT = 1.0
"""Seconds for which a worker leaves runs that are beyond its share to others that have room."""
WATCH = 1.0
"""Seconds between two looks at a run that was brought here and that another worker has, or that has no room."""
NO_ROOM = 5.0
"""Seconds after which a run that was brought here and has no room is left to other workers."""

Chore = Callable[[float], Awaitable[bool]]
"""Something else that a worker does each time it looks, at an instant; True when there may be more to do at once."""


WorkerAction = Literal["started", "taken_over", "completed", "failed", "cancelled", "abandoned", "handed_back", "lost"]
"""The actions of a worker on a run. A run that another worker had begun is "started" and "taken_over". A run that
another worker claimed meanwhile is "lost"."""

Listener = Callable[[WorkerAction, BackgroundRun], None]
"""Called at once, on the loop of the worker. The run is as it was when it was claimed."""


TurnListener = Callable[[TurnAction, str, str], None]
"""The same for a turn: called with the action, the id of the turn, and its session."""


class WorkerCounts:
    """The actions of one worker, each with how often it was taken."""

    def __init__(self) -> None:
        # All of them from the beginning: a thread may read this while it changes, and finds the same keys.
        self.by_action: dict[WorkerAction, int] = dict.fromkeys(get_args(WorkerAction), 0)
        self.turns_by_action: dict[TurnAction, int] = dict.fromkeys(get_args(TurnAction), 0)
        self.turns_running = 0
        """How many turns it works on now."""
        self._listeners: list[Listener] = []
        self._turn_listeners: list[TurnListener] = []

    def listen(self, listener: Listener) -> None:
        """Call this listener for every action from now on."""
        self._listeners.append(listener)

    def note(self, action: WorkerAction, run: BackgroundRun) -> None:
        """Count an action, and call the listeners."""
        self.by_action[action] += 1
        for listener in self._listeners:
            listener(action, run)

    def listen_to_turns(self, listener: TurnListener) -> None:
        """Call this listener for every action on a turn from now on."""
        self._turn_listeners.append(listener)

    def note_turn(self, action: TurnAction, turn: str, session: str) -> None:
        """Count an action on a turn, and call the listeners."""
        self.turns_by_action[action] += 1
        self.turns_running += 1 if action == "started" else -1
        for listener in self._turn_listeners:
            listener(action, turn, session)

    def end(self, status: Status | None, run: BackgroundRun) -> None:
        """A run ended with this status, or with none: then it is lost."""
        self.note(next((action for action in self.by_action if action == status), "lost"), run)


class Worker:
    """Runs background runs of one store, up to the policy's number at once, until it is closed.

    Its driver decides what it begins with, and when: it lets it `take` what is there, or brings it a run to `work` on.
    """

    def __init__(
        self,
        store: RunStore,
        shared: SharedParts,
        sessions: OpenSessions,
        watch: ChangeWatch,
        chores: Sequence[Chore],
        driver: Driver,
        next_chore: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.name = f"worker_{uuid7()}"
        self.capacity = shared.policy.background_per_worker
        self.counts = WorkerCounts()
        self._reports = ReportWriter(store, shared.clock, watch, self._lose_reporter)
        self._store = store
        self._shared = shared
        self._sessions = sessions
        self._clock = shared.clock
        self._watch = watch
        self._chores = chores
        self._next_chore = next_chore
        self._next_look = 0.0
        self._failed = False
        """True when a part of the last look failed."""
        self._left_since: float | None = None
        """Since when there are runs that it did not claim."""
        self._told = True
        """True when there was news of something to do since the last look."""
        self._driver = driver
        self._known = asyncio.Event()
        """Set when the store knows of it: before that it may claim nothing."""
        self._claiming = 0
        # A renewal hands back what the worker does not hold: it must not come between a claim and its answer.
        self._leases = asyncio.Lock()
        self._alive: dict[str, ClaimedRun] = {}
        self._held: dict[str, ClaimedRun] = {}
        self._faulty: list[ClaimedRun] = []
        self._wake = asyncio.Event()
        self._fewer = asyncio.Event()
        self._renewed = float("-inf")
        self._stopping = False
        self._until = float("inf")
        self._closing: asyncio.Task[None] | None = None
        self._ended = False
        self.lost: asyncio.Future[StoreLost] = asyncio.get_running_loop().create_future()
        """Done when the file of its store was deleted or replaced: its work can never be written any more."""
        self._listening = shared.news.listen(self.poke)
        self._loop = asyncio.ensure_future(self._serve())

    @property
    def running(self) -> int:
        """How many background runs it runs now."""
        return len(self._held)

    def note_turn(self, action: TurnAction, turn: str, session: str) -> None:
        """Log and count an action on a turn that it took."""
        fields = log_fields(f"turn.{action}", turn_id=turn, session=session, worker=self.name)
        log.info("The turn %r of session %r is %s", turn, session, action.replace("_", " "), extra=fields)
        self.counts.note_turn(action, turn, session)

    def poke(self) -> None:
        """There may be something to do: look now."""
        self._wake.set()

    async def close(self, bound: float = 0.0) -> None:
        """Claim nothing more, let active runs end within `bound` seconds, and hand back the rest.

        Closed again, it waits for the same end, which a smaller bound brings nearer.
        """
        self._stopping = True
        self._driver.stop()
        self._known.set()
        self._until = min(self._until, self._clock.monotonic() + bound)
        self._wake.set()
        self._fewer.set()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # Its loop renews the leases until the last of its runs has ended or is handed back.
        while (self._held or self._claiming) and (left := self._until - self._clock.monotonic()) > 0:
            self._fewer.clear()
            await self._pause(left, self._fewer)
        self._ended = True
        self._listening.stop()
        self._wake.set()
        # Not cancelled: a run that is just being claimed would have no worker until the lease ends.
        await self._loop
        while self._claiming:
            self._fewer.clear()
            await self._fewer.wait()
        held = list(self._held.values())
        for running in held:
            running.release()
        await asyncio.gather(*(running.ended() for running in held))
        held += self._faulty
        try:
            await self._reports.close()
            await self._store.hand_back(self.name, [running.hold for running in held], self._clock.now())
            await self._store.leave(self.name)
        except StoreError as fault:
            log.warning(
                "The worker cannot hand back its runs, whose leases will end: %s",
                fault,
                extra=log_fields("worker.not_handed_back", worker=self.name),
            )
        for running in held:
            if running.released or running.faulty:
                self.counts.note("handed_back", running.run)
        self._watch.ring([running.id for running in held])

    async def _serve(self) -> None:
        while True:
            late = self._clock.monotonic() >= self._next_look
            self._told = late or self._wake.is_set() or not self._shared.news.comes
            self._wake.clear()
            if self._ended:
                return
            self._failed = False
            await self._try(self._hold_on())
            if not self._stopping:
                await self._try(self._driver.look())
            await self._pause(self._patience(), self._wake)

    def _patience(self) -> float:
        """Seconds until something must be done, also without news."""
        look = LOOK if self._shared.news.comes and self._driver.claims else LOOK_ALONE
        if self._left_since is not None:
            look = min(look, FAIR_WAIT)
        patience = min(look, self._renew_at() - self._clock.monotonic())
        next_at = self._next_chore()
        if next_at is not None:
            patience = min(patience, next_at - self._clock.now())
        return max(patience, RETRY if self._failed else SHORTEST_PAUSE)

    def _renew_at(self) -> float:
        return self._renewed + (RENEW if self._held or self._faulty or self._claiming else RENEW_IDLE)

    async def take(self) -> None:
        """Do what is to be done in the store, and claim the runs that there is room for."""
        next_at = self._next_chore()
        if self._told or (next_at is not None and next_at <= self._clock.now()):
            self._next_look = self._clock.monotonic() + LONGEST_LOOK
            for chore in self._chores:
                await self._try(self._do(chore))
        await self._try(self._claim())

    async def work(self, id: str) -> WorkResult:
        """Claim a run that was brought here, and work on it until it has ended. While another worker has it, watch it,
        and where there is no room, wait a little.

        Cancelling this does not stop the run.

        Raises:
            HandedBack: it is to be brought to another worker.
            StoreError: the store cannot be used now.
        """
        until = self._clock.monotonic() + NO_ROOM
        while True:
            run = await self._store.find(id)
            if run is None or run.over:
                return WorkResult(state="ended", status="removed" if run is None else run.status)
            running = self._held.get(id)
            if running is None and not self._stopping:
                running = await self._claim_one(run)
            if running is not None:
                await running.ended()
                if running.released or running.faulty:
                    raise HandedBack(f"The run {id!r} was handed back by {self.name}")
            elif self._stopping:
                raise HandedBack(f"{self.name} stops, and takes no more runs")
            elif run.status == "queued" and self._clock.monotonic() >= until:
                raise HandedBack(f"{self.name} has no room for the run {id!r}")
            else:
                await self._clock.sleep(WATCH)

    async def _try(self, work: Awaitable[None]) -> None:
        """Do one of its duties. An error must cost neither the other duties nor the held runs."""
        try:
            await work
        except StoreLost as fault:
            if not self.lost.done():
                self.lost.set_result(fault)
                log.error(
                    "The worker can do nothing more: %s", fault, extra=log_fields("worker.stopped", worker=self.name)
                )
        except StoreError as fault:
            self._failed = True
            log.warning(
                "The worker cannot use its store, and tries again: %s",
                fault,
                extra=log_fields("worker.store_unavailable", worker=self.name),
            )
        except Exception:  # the edge of the runtime
            self._failed = True
            log.exception(
                "The worker could not do a part of its work, and tries again",
                extra=log_fields("worker.failed", worker=self.name),
            )

    async def _do(self, chore: Chore) -> None:
        if await chore(self._clock.now()):
            self._wake.set()

    async def _hold_on(self) -> None:
        """Renew the leases when it is time, and stop runs that are to be cancelled or that this worker lost."""
        now = self._clock.monotonic()
        if now >= self._renew_at():
            async with self._leases:
                held = list(self._held.values())
                at = self._clock.now()
                holds, faulty = [running.hold for running in held], len(self._faulty)
                found = await self._store.renew(self.name, holds, at, LEASE, self.capacity)
            self._renewed = now
            self._known.set()
            lost = set(found.lost)
            for running in held:
                if running.id in lost:
                    self._lose(running)
            # They are no longer held, and so were handed back: they may fare better the next time.
            for running in self._faulty[:faulty]:
                self.counts.note("handed_back", running.run)
            del self._faulty[:faulty]
            cancelled = found.cancelled
        else:
            cancelled = await self._store.cancelled(self.name) if self._held else {}
        for id, reason in cancelled.items():
            if id in self._held:
                self._held[id].cancel(reason)

    async def stop_cancelled(self, id: str) -> None:
        """Stop a run of this worker now, if it is to be cancelled."""
        running = self._held.get(id)
        reason = (await self._store.cancelled(self.name)).get(id) if running is not None else None
        if running is not None and reason is not None:
            running.cancel(reason)

    async def _claim(self) -> None:
        free = self.capacity - len(self._held) - self._claiming
        tools = self._sessions.tool_names()
        if free <= 0 or not await self._store.work_waits(self.name, tools, LEASE):
            self._left_since = None
            return
        now = self._clock.monotonic()
        if self._left_since is None:
            self._left_since = now
        fair = now - self._left_since < FAIR_WAIT
        if not fair:
            self._left_since = None
        for claimed in await self._store.claim(self.name, tools, self._clock.now(), LEASE, free, fair=fair):
            await self._begin(claimed)

    async def _claim_one(self, run: BackgroundRun) -> ClaimedRun | None:
        """Claim a certain run; None when there is no room for it, or another worker has it.

        Raises:
            HandedBack: its tool is not here.
        """
        tools = self._sessions.tool_names()
        if run.tool not in tools:
            raise HandedBack(f"The run {run.id!r} needs the tool {run.tool!r}, which {self.name} does not have")
        if self.capacity - len(self._held) - self._claiming <= 0:
            return None
        self._claiming += 1
        # A task of its own: a claimed run is begun, also when the driver that brought it is cancelled meanwhile.
        claiming = asyncio.ensure_future(self._claim_now(run.id, tools))
        return await asyncio.shield(claiming)

    async def _claim_now(self, id: str, tools: Sequence[str]) -> ClaimedRun | None:
        try:
            await self._known.wait()
            if self._stopping:
                return None
            async with self._leases:
                found = await self._store.claim(self.name, tools, self._clock.now(), LEASE, 1, [id])
                return await self._begin(found[0]) if found else None
        finally:
            self._claiming -= 1
            self._fewer.set()

    async def _begin(self, claimed: Claimed) -> ClaimedRun:
        if claimed.run.id in self._alive:
            await self._stop(claimed.run.id)
        self.counts.note("started", claimed.run)
        if claimed.before is not None:
            self.counts.note("taken_over", claimed.run)
        running = self._held[claimed.run.id] = ClaimedRun(
            claimed, self._store, self._shared, self._sessions, self._reports
        )
        self._alive[claimed.run.id] = running
        running.task.add_done_callback(partial(self._over, running))
        return running

    async def _stop(self, id: str) -> None:
        """Stop lost runs. The worker may claim a lost run again; but its old work would share the call."""
        before = self._alive.get(id)
        if before is not None:
            before.release()
            await before.ended()

    def _over(self, running: ClaimedRun, _: asyncio.Task[None]) -> None:
        if self._alive.get(running.id) is running:
            del self._alive[running.id]
        if self._held.get(running.id) is running and not running.released:
            del self._held[running.id]
            if running.faulty:
                self._faulty.append(running)
            else:
                self.counts.end(running.ended_as, running.run)
        core = self._sessions.get(running.run.session)
        if core is not None:
            self._sessions.leave(core)
        self._watch.ring([running.id])
        self._wake.set()
        self._fewer.set()

    def _lose(self, running: ClaimedRun) -> None:
        # A run that is about to end may have ended already; and if another worker holds it, its end is refused.
        if self._held.get(running.id) is running and not running.ending:
            del self._held[running.id]
            log.warning(
                "The run %r was taken over by another worker",
                running.id,
                extra=log_fields("run.lost", run_id=running.id, worker=self.name),
            )
            self.counts.note("lost", running.run)
            running.release()

    def _lose_reporter(self, report: Report) -> None:
        running = self._held.get(report.id)
        if running is not None and running.hold == (report.id, report.token):
            self._lose(running)

    async def _pause(self, seconds: float, event: asyncio.Event) -> None:
        """Wait for some time, or for an event."""
        woken = asyncio.ensure_future(event.wait())
        late = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({woken, late}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            late.cancel()

    # --- its state, for an operator

    async def answers(self) -> bool:
        """True when it serves, its leases are held, and its store can be read.

        Raises:
            StoreError: the store cannot be read.
        """
        await self._store.changed(None)
        silent = self.silent_for
        return not self._stopping and not self._loop.done() and silent is not None and silent < LEASE

    @property
    def silent_for(self) -> float | None:
        """Seconds since it last renewed its leases; None before it first did."""
        return None if self._renewed == float("-inf") else self._clock.monotonic() - self._renewed

    def state(self) -> dict[str, Any]:
        """The state of the worker as plain data; another thread may ask for it."""
        return {
            "worker": self.name,
            "capacity": self.capacity,
            "running": len(self._held),
            "stopping": self._stopping,
            "silent_for": self.silent_for,
            "runs": dict(self.counts.by_action),
            "turns_running": self.counts.turns_running,
            "turns": dict(self.counts.turns_by_action),
        }
