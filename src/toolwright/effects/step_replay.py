"""Steps over a journal: replay of a step that is done, doubt after a crash, absolute instants. Written once, for every
store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolwright import jsonx
from toolwright.clock import Clock
from toolwright.effects.controller import AskPerson, CallEffects, EffectFailed, Opened, StepPolicy
from toolwright.effects.effect import Effect, require_same_input
from toolwright.effects.effect_writer import EffectWriter
from toolwright.effects.store_news import StoreNews
from toolwright.effects.wait_keys import KeyRing, failure_of
from toolwright.effects.waiting_room import WaitingRoom
from toolwright.errors import StoreError, ToolwrightError
from toolwright.stores.contracts.journal import CallKey, JournalStore, Kept
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey, WaitStore
from toolwright.tools.outcome import Failure


class JournaledController:
    """`EffectController` over any store. Its verbs about waits are those of its `WaitingRoom`."""

    def __init__(self, journal: JournalStore, waits: WaitStore, clock: Clock, *, news: StoreNews | None = None) -> None:
        """`news` are those of the store; without them no other process can resolve anything."""
        self.journal = journal
        self.waits = waits
        self.clock = clock
        # Where no other process can reach the store, there are no commits to share.
        self.keep = journal.keep if news is None else EffectWriter(journal).keep
        self.room = room = WaitingRoom(waits, clock, news)
        self.wait, self.watch, self.resolve, self.end_wait = room.wait, room.watch, room.resolve, room.end_wait
        self.signal, self.close = room.signal, room.close
        keys = KeyRing(waits.secret)
        self.write_key, self.read_key = keys.write, keys.read

    def enter(self, call: CallKey, *, fresh: bool) -> CallEffects:
        return JournaledEffects(self, call, fresh=fresh)


class JournaledEffects:
    """`CallEffects` over any store: the earlier effects of the call are read once, and held while it runs."""

    def __init__(self, controller: JournaledController, call: CallKey, *, fresh: bool) -> None:
        self._controller = controller
        self._call = call
        self.wait = controller.wait
        self._past: dict[str, Kept] | None = {} if fresh else None
        self._reading: asyncio.Task[list[Kept]] | None = None
        self._attempt = 1
        self._used: set[str] = set()
        self._signals: _Signals | None = None  # until it asks for one

    def begin_attempt(self, attempt: int) -> None:
        if attempt != self._attempt:
            self._attempt = attempt
            self._used.clear()
            if self._signals is not None:
                self._signals.received.clear()
                self._signals.asked.clear()

    # --- steps

    async def run(self, effect: Effect, function: Callable[[], Awaitable[bytes]], on_crash: StepPolicy) -> bytes:
        self._take(effect)
        past = self._past
        kept = (await self._read() if past is None else past).get(effect.label)
        if kept is not None:
            require_same_input(effect, kept)
            if kept.done:
                return _result(kept)
        if kept is not None and kept.failure is None:  # It began, and its end is unknown.
            if on_crash == "fail":
                return _result(await self._keep(effect, done=True, failure=interrupted(effect.kind, effect.name)))
            if isinstance(on_crash, AskPerson):
                refused = await on_crash.ask(kept.at)
                if refused is not None:
                    return _result(await self._keep(effect, done=True, failure=refused))
                await self._keep(effect, done=False)  # It begins again now: another crash is another question.
            elif callable(on_crash):
                return _result(await self._do(effect, on_crash, on_crash))
        elif on_crash != "rerun":
            await self._keep(effect, done=False)
        return _result(await self._do(effect, function, on_crash))

    async def _do(self, effect: Effect, function: Callable[[], Awaitable[bytes]], on_crash: StepPolicy) -> Kept:
        try:
            payload = await function()
        except EffectFailed as error:
            if not error.failure.retry:
                return await self._keep(effect, done=True, failure=error.failure)
            # It says that another attempt may succeed: that attempt must find it neither failed nor in doubt.
            if on_crash != "rerun":
                await self._keep(effect, done=False, failure=error.failure)
            raise
        return await self._keep(effect, done=True, payload=payload)

    async def _keep(
        self, effect: Effect, *, done: bool, payload: bytes = b"null", failure: Failure | None = None
    ) -> Kept:
        controller = self._controller
        kept = Kept(effect.label, effect.input, controller.clock.now(), done, payload, failure)
        if not await controller.keep(self._call, kept):
            raise StoreError(
                f"The call {self._call.call_id!r} is not owned by this process any more, and cannot be recorded"
            )
        past = self._past
        (await self._read() if past is None else past)[effect.label] = kept
        return kept

    async def _read(self) -> dict[str, Kept]:
        """The effects of the call before it was cut off."""
        if self._past is None:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._controller.journal.effects(self._call))
            kept = await asyncio.shield(self._reading)
            if self._past is None:
                self._past = {one.label: one for one in kept}
        return self._past

    def _take(self, effect: Effect) -> None:
        if effect.label in self._used:
            raise ToolwrightError(
                f"The {effect.kind} {effect.name!r} was used before in call {self._call.call_id!r}; "
                "give each its own name"
            )
        self._used.add(effect.label)

    # --- time

    async def sleep(self, effect: Effect, seconds: float, opened: Opened) -> None:
        self._take(effect)
        kept = (await self._read()).get(effect.label)
        if kept is None:
            until = self._controller.clock.now() + seconds
            await self._keep(effect, done=True, payload=jsonx.encode(until))
        else:
            require_same_input(effect, kept)
            until = jsonx.decode(kept.payload, type=float)
        if until <= self._controller.clock.now():
            return
        woken = asyncio.Event()
        opened(until)
        alarm = self._controller.room.alarms.call_at(until, woken.set)
        try:
            await woken.wait()
        finally:
            alarm.cancel()

    # --- questions

    async def ask(self, effect: Effect, wait: Wait, opened: Opened) -> Resolution:
        self._take(effect)
        kept = (await self._read()).get(effect.label)
        if kept is None:
            # Written before the request: an answer is never taken for that to another question.
            await self._keep(effect, done=True)
        else:
            require_same_input(effect, kept)
        return await self.wait(wait, opened)

    # --- signals

    async def receive(self, name: str, seconds: float | None, opened: Opened) -> bytes | None:
        signals = self._signals
        if signals is None:
            signals = self._signals = _Signals()
        if name in signals.waiting:
            raise ToolwrightError(
                f"The call {self._call.call_id!r} waits for signal {name!r} already; receive one after the other"
            )
        signals.waiting.add(name)
        try:
            return await self._receive(signals, name, seconds, opened)
        finally:
            signals.waiting.discard(name)

    async def _receive(self, signals: _Signals, name: str, seconds: float | None, opened: Opened) -> bytes | None:
        asked = signals.asked[name] = signals.asked.get(name, 0) + 1
        effect = Effect(self._call, "receive", f"{name}:{asked}", jsonx.encode(seconds))
        kept = (await self._read()).get(effect.label)
        if kept is not None and kept.done:
            _result(kept)
            return None
        deadline: float | None = None
        if kept is not None:
            deadline = jsonx.decode(kept.payload, type=float)
        elif seconds is not None:
            deadline = self._controller.clock.now() + seconds
            await self._keep(effect, done=False, payload=jsonx.encode(deadline))
        taken = signals.received.get(name, 0)
        key = WaitKey(self._call, "signal", name)
        came = await self._controller.room.next_signal(key, taken, deadline, opened)
        if isinstance(came, bytes):
            signals.received[name] = taken + 1
            return came
        # Once given up, also when it is asked again after a crash.
        _result(
            await self._keep(effect, done=True, failure=None if came is None else failure_of(came, f"signal {name!r}"))
        )
        return None


class _Signals:
    """What a call asked for by `receive`, by the names of the signals."""

    __slots__ = ("asked", "received", "waiting")

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.received: dict[str, int] = {}
        self.waiting: set[str] = set()


def _result(kept: Kept) -> bytes:
    if kept.failure is not None:
        raise EffectFailed(kept.failure)
    return kept.payload


STEP_REMEDY = (
    "Give the step on_crash='rerun' if it may run again, 'ask' to let a person decide, or a function that finds out. "
    "A background run that ended this way is continued by run.resume(), or by `toolwright runs resume`."
)
"""For the owner of the tool, in the private detail of the failure; a model can do nothing with it."""


def interrupted(kind: str, name: str, reason: str | None = None, *, asked: bool = False) -> Failure:
    """The failure of an effect that a crash cut off and that is not run again.

    `asked` means that a person was asked about it: then it has a crash policy already, and needs no remedy.
    """
    return Failure(
        category="interrupted",
        code="interrupted",
        message=f"The {kind} {name!r} was cut off by a crash: it may have run, and was not run again"
        f"{f' ({reason})' if reason else ''}",
        source="runtime",
        detail=STEP_REMEDY if kind == "step" and not asked else None,
    )
