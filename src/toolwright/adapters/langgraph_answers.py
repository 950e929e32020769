"""The calls of one answer in LangGraph, where each may have a task of its own that starts again after an interrupt.

Owns starting them as one batch, one task for each call or one for all, and when a task may say that its call waits.
Does not own interrupts. Everything here runs on the loop of the session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolwright.calls.active_call import CURRENT
from toolwright.calls.batch import Batch
from toolwright.calls.policy import PolicySettings
from toolwright.errors import KeyRefused
from toolwright.session.open_waits import OpenWait, Resolved
from toolwright.session.session import Session
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome

PATIENCE = 0.01
"""Seconds without another call of an answer after which those that came are started without the others."""
TICKS = 20
"""Iterations of the loop that must pass beside, so that a slow machine does not count as a missing call."""
LONG = 0.1
"""Seconds after which a batch is watched for calls that wait behind another batch."""
COMES_WITHIN = 5.0
"""Seconds within which the task of a call comes that other calls of its answer wait behind."""
WOKEN_WITHIN = 5.0
"""Seconds within which a call continues that was decided about in another process."""
MOST_KEPT = 64
"""Answers that are kept before finished ones are looked for."""


@dataclass(frozen=True, slots=True)
class Place:
    """A call of an answer: its id, and its index among the calls. A model may give one id twice."""

    call_id: str
    index: int


class Waiting(NamedTuple):
    """A call that waits for something outside, or behind another call (no `waits`)."""

    waits: tuple[OpenWait, ...]
    told_elsewhere: bool
    """Whether the task of another call of the answer tells what this one waits for."""


class _Running:
    """A batch with the futures of its calls: each has the outcome, or "pending" when the batch is quiet."""

    def __init__(self, session: Session, batch: Batch, size: int) -> None:
        self.batch = batch
        self._session = session
        self._size = size
        self._futures: list[asyncio.Future[ToolOutcome]] | None = None

    def outcome(self, position: int) -> asyncio.Future[ToolOutcome]:
        """The future of one call; a new one when the call was pending before."""
        futures = self._futures
        if futures is None or futures[position].done():
            loop, outcome = asyncio.get_running_loop(), self.batch.outcome_of(position)
            if outcome is not None:
                finished: asyncio.Future[ToolOutcome] = loop.create_future()
                finished.set_result(outcome)
                return finished
            futures = self._futures = [loop.create_future() for _ in range(self._size)]
            self.batch.tell(futures)
            if not self.batch.done and CURRENT.get() is None:  # a call of a session cannot wait until that is idle
                loop.call_later(LONG, self._look, futures)
        return futures[position]

    def _look(self, futures: list[asyncio.Future[ToolOutcome]]) -> None:
        unfinished = [future for future in futures if not future.done()]
        if unfinished:
            self.batch.env.hold_task(asyncio.get_running_loop().create_task(self._watch(unfinished)))

    async def _watch(self, unfinished: list[asyncio.Future[ToolOutcome]]) -> None:
        """Also tell calls that wait behind a call of another batch that waits: their own batch does not know that."""
        idle = asyncio.ensure_future(self._session.wait_for_idle())
        try:
            ended = asyncio.gather(*unfinished, return_exceptions=True)
            waited: set[asyncio.Future[Any]] = {idle, ended}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if idle.done() and not idle.cancelled() and idle.exception() is None:
                for future in unfinished:
                    if not future.done():
                        future.set_result(ToolOutcome("", "", "pending"))
        finally:
            idle.cancel()


class _Started(NamedTuple):
    running: _Running
    position: int


class OpenAnswers:
    """The answers of one session whose calls are unfinished in this process, by scope."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._answers: dict[str, OpenAnswer] = {}

    def of(self, scope: str) -> OpenAnswer:
        """The answer of a scope."""
        answer = self._answers.get(scope)
        if answer is None:
            if len(self._answers) >= MOST_KEPT:
                self._answers = {key: each for key, each in self._answers.items() if not each.finished}
            answer = self._answers[scope] = OpenAnswer(self.session, scope)
        return answer

    def drop_finished(self, answer: OpenAnswer) -> None:
        """Forget an answer when all its calls have their outcomes, and no task is here for them."""
        if answer.finished:
            self._answers.pop(answer.scope, None)


class OpenAnswer:
    """The calls of one answer, from the first that comes until all have their outcomes."""

    def __init__(self, session: Session, scope: str) -> None:
        self.scope = scope
        self._session = session
        # A framework wants the outcome of each call: one that fails does not stop the others.
        self._changes: PolicySettings = {} if session.policy.continue_on_failure else {"continue_on_failure": True}
        self._started: dict[Place, _Started] = {}
        # The tasks that are here, by the call of each: True while one only waits behind another call.
        self._here: dict[Place, bool] = {}
        self._gathered: list[tuple[Place, ToolCall]] = []
        self._start: asyncio.Future[None] | None = None
        # How often a task came or went, and the number at which each call's task went the last time.
        self._moves = 0
        self._went: dict[str, int] = {}
        self._settlements = 0
        self._change: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        """True when every call that was started has its outcome, and no task is here."""
        return not self._here and all(started.running.batch.done for started in self._started.values())

    # --- one task for all calls

    async def outcomes(self, calls: Sequence[ToolCall]) -> list[ToolOutcome]:
        """Run all calls as one batch, until each has its outcome or waits: that has the outcome "pending"."""
        places = [Place(call.id or "", index) for index, call in enumerate(calls)]
        self._begin([(place, call) for place, call in zip(places, calls, strict=True) if place not in self._started])
        try:
            outcomes = [await self._future(place) for place in places]
        except asyncio.CancelledError:
            await self._cancel(places)
            raise
        for started in self._started.values():
            _raise_fault(started.running.batch)
        return outcomes

    # --- one task for each call

    async def outcome(self, call: ToolCall, place: Place, unfinished: int) -> ToolOutcome | Waiting:
        """Run one of the calls; those of the other tasks are in the same batch. `unfinished` is how many there are.

        A task that gets `Waiting` with waits then calls `settle` or `leave`; one without waits is no longer here.
        """
        came = self._moves = self._moves + 1
        self._here[place] = False
        try:
            await self._gather(place, call, unfinished)
            while True:
                outcome = await self._future(place)
                _raise_fault(self._started[place].running.batch)
                if outcome.status != "pending":
                    self._gone(place)
                    return outcome
                waits = await self.waits()
                own = tuple(wait for wait in waits if wait.call_id == call.id)
                if own:
                    return Waiting(own, True)
                if not await self._another_is_settled(place, {wait.call_id for wait in waits}, came):
                    self._gone(place)
                    return Waiting((), bool(waits))
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                await self._cancel([place])
            self._gone(place)
            raise

    def leave(self, place: Place) -> None:
        """The task of a call that waits ends without an answer; the call goes on waiting."""
        self._gone(place)

    # --- what calls wait for

    async def waits(self) -> list[OpenWait]:
        """What the calls of the answer wait for outside, oldest first."""
        return [wait for wait in await self._session.waits() if wait.scope == self.scope]

    async def settle(self, decide: Callable[[], Awaitable[Resolved]]) -> None:
        """Answer what a call waits for, and wait until it continues. What was answered elsewhere before stays.

        Raises:
            ToolwrightError: the answer cannot be taken; nothing was decided.
        """
        changes = [batch.next_change() for batch in self._batches() if not batch.done]
        try:
            with contextlib.suppress(KeyRefused):  # its call ended meanwhile
                await decide()
                if changes:
                    # Until the call has woken, its batch still looks as if it only waited.
                    await asyncio.wait(changes, timeout=WOKEN_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for change in changes:
                change.cancel()
        self._settlements += 1
        self._tell_change()

    # --- starting

    async def _gather(self, place: Place, call: ToolCall, unfinished: int) -> None:
        """Wait for the tasks that come at about the same time, and start their calls together."""
        loop = asyncio.get_running_loop()
        self._gathered.append((place, call))
        if self._start is None:
            self._start = loop.create_future()
            loop.call_later(PATIENCE, self._look, self._start, 0, TICKS)
        start = self._start
        here = {gathered for gathered, _ in self._gathered}
        ended = sum(
            started.running.batch.outcome_of(started.position) is not None
            for known, started in self._started.items()
            if known not in here
        )
        if len(here) + ended >= unfinished:
            self._start_gathered(start)
        await asyncio.shield(start)

    def _look(self, start: asyncio.Future[None], came: int, ticks: int) -> None:
        """Start what was gathered when nothing came for a while."""
        if start.done():
            return
        loop = start.get_loop()
        if came != len(self._gathered):
            loop.call_later(PATIENCE, self._look, start, len(self._gathered), TICKS)
        elif ticks:
            loop.call_soon(self._look, start, came, ticks - 1)
        else:
            self._start_gathered(start)

    def _start_gathered(self, start: asyncio.Future[None]) -> None:
        gathered, self._gathered, self._start = self._gathered, [], None
        try:
            # A task that was cancelled meanwhile is not here any more; one that came again has started its call.
            fresh = [each for each in gathered if each[0] in self._here and each[0] not in self._started]
            self._begin(sorted(fresh, key=lambda each: each[0].index))
        except Exception as error:  # such as a runtime that was closed: every task learns of it
            if not start.done():
                start.set_exception(error)
            return
        if not start.done():
            start.set_result(None)

    def _begin(self, calls: Sequence[tuple[Place, ToolCall]]) -> None:
        if not calls:
            return
        batch = self._session.start_batch([call for _, call in calls], scope=self.scope, **self._changes)
        running = _Running(self._session, batch, len(calls))
        for position, (place, _) in enumerate(calls):
            self._started[place] = _Started(running, position)

    # --- waiting

    def _future(self, place: Place) -> asyncio.Future[ToolOutcome]:
        started = self._started[place]
        return started.running.outcome(started.position)

    def _batches(self) -> list[Batch]:
        return list({id(each.running): each.running.batch for each in self._started.values()}.values())

    async def _another_is_settled(self, place: Place, waiting: set[str], came: int) -> bool:
        """Wait until the tasks of other calls have decided, or ended; False when no call continues by that.

        `waiting` are the calls of the answer that wait themselves: their tasks come, if they were not here yet.
        """
        loop, before = asyncio.get_running_loop(), self._settlements
        self._here[place] = True
        self._tell_change()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                while self._settlements == before:
                    here = {each.call_id for each, blocked in self._here.items() if not blocked}
                    missing = any(self._went.get(call, 0) < came for call in waiting - here)
                    if not here and not missing:
                        break
                    limit.reschedule(loop.time() + COMES_WITHIN if missing else None)
                    if self._change is None:
                        self._change = loop.create_future()
                    await asyncio.shield(self._change)
        self._here[place] = False
        return self._settlements != before

    def _gone(self, place: Place) -> None:
        if self._here.pop(place, None) is not None:
            self._moves += 1
            self._went[place.call_id] = self._moves
            self._tell_change()

    def _tell_change(self) -> None:
        if self._change is not None:
            self._change.set_result(None)
            self._change = None

    async def _cancel(self, places: Iterable[Place]) -> None:
        """Cancel calls, and wait until they have stopped: their grace bounds that."""
        stopping = [self._started[place] for place in places if place in self._started]
        for running, position in stopping:
            running.batch.cancel_call(position, "the graph was cancelled")
        for running, position in stopping:
            while running.batch.outcome_of(position) is None:
                with contextlib.suppress(asyncio.CancelledError):
                    await running.batch.next_change()


def _raise_fault(batch: Batch) -> None:
    """Raise why calls could not be recorded or run, if that is so."""
    fault = batch.fault
    if fault is not None:
        raise fault
