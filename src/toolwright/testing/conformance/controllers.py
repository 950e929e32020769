"""The values of a case about a controller. Owns opening controllers over any store; not their duties."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from toolwright.clock import Clock
from toolwright.effects.controller import CallEffects, EffectController
from toolwright.effects.effect import Effect
from toolwright.effects.step_replay import JournaledController
from toolwright.effects.store_news import StoreNews
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.store import Store
from toolwright.testing.clock import FakeClock
from toolwright.testing.conformance.cases import Database, intent, success

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class Controllers(Protocol):
    """One memory, empty at first, that several processes have a controller on."""

    async def open(self, clock: Clock) -> EffectController:
        """Open it as one more process."""
        ...

    async def begin(self, controller: EffectController, call: CallKey) -> CallEffects:
        """Make this process the owner of a call: a new one, or one of a dead process."""
        ...

    async def finish(self, controller: EffectController, call: CallKey) -> None:
        """The call has its outcome."""
        ...

    async def kill(self, controller: EffectController) -> None:
        """End a process as a crash does. It may not know, and try to write."""
        ...

    async def close(self) -> None:
        """Close all that are left, and release all resources."""
        ...


class OverStore:
    """`Controllers` of `JournaledController` over any store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._opened: list[tuple[JournaledController, Store]] = []
        self._news: list[StoreNews] = []

    async def open(self, clock: Clock) -> JournaledController:
        store = await self._database.open()
        news = StoreNews(store, clock)
        self._news.append(news)
        controller = JournaledController(store.journal, store.waits, clock, news=news)
        self._opened.append((controller, store))
        return controller

    async def begin(self, controller: EffectController, call: CallKey) -> CallEffects:
        (entry,) = await self._store(controller).journal.begin([intent(call)])
        assert entry is None or entry.cut_off, f"{call} is another process's"
        return controller.enter(call, fresh=entry is None)

    async def finish(self, controller: EffectController, call: CallKey) -> None:
        assert await self._store(controller).journal.finish(call, success(call), None, 1.0)

    async def kill(self, controller: EffectController) -> None:
        await self._database.kill(self._store(controller))

    async def close(self) -> None:
        for controller, _ in self._opened:
            await controller.close()
        for news in self._news:
            await news.close()
        await self._database.close()

    def _store(self, controller: EffectController) -> Store:
        return next(store for opened, store in self._opened if opened is controller)


class Bench:
    """The parts of a case: controllers on one memory, and a clock that only the case moves."""

    def __init__(self, controllers: Controllers) -> None:
        self.controllers = controllers
        self.clock = FakeClock()

    async def open(self) -> EffectController:
        """A controller of one more process."""
        return await self.controllers.open(self.clock)

    async def begin(self, call: CallKey) -> tuple[EffectController, CallEffects]:
        """A new process that begins a call, or takes it over."""
        controller = await self.open()
        return controller, await self.controllers.begin(controller, call)

    async def succeed(self, controller: EffectController, call: CallKey) -> tuple[EffectController, CallEffects]:
        """The process dies, and a new one takes the call over."""
        await self.controllers.kill(controller)
        return await self.begin(call)

    async def soon(self, work: Awaitable[T]) -> T:
        """Wait for something that comes without much time passing: threads and polls may be part of it."""
        task = asyncio.ensure_future(work)
        for _ in range(1000):
            if task.done():
                break
            await self.clock.advance(0.01)
            # In real time: a store may work on a thread, which the clock does not move.
            await asyncio.wait((task,), timeout=0.01)
        else:
            task.cancel()
            raise AssertionError("It does not come.")
        return task.result()


class ControllerCase(Struct, frozen=True):
    """One promise of a controller."""

    name: str
    check: Callable[[Bench], Coroutine[Any, Any, None]]

    async def run(self, controllers: Controllers) -> None:
        """Check the promise on a new memory, and close it.

        Raises:
            AssertionError: the controller breaks the promise.
        """
        try:
            await self.check(Bench(controllers))
        finally:
            await controllers.close()

    def __str__(self) -> str:
        return self.name


def controller_cases(*checks: Callable[[Bench], Coroutine[Any, Any, None]]) -> tuple[ControllerCase, ...]:
    """A case for each function, of the same name."""
    return tuple(ControllerCase(check.__name__, check) for check in checks)


class Doing:
    """A function for an effect, which counts how often it ran."""

    def __init__(self, result: bytes = b"1", error: BaseException | None = None) -> None:
        self.ran = 0
        self._result = result
        self._error = error

    async def __call__(self) -> bytes:
        self.ran += 1
        if self._error is not None:
            raise self._error
        return self._result


async def raised(kind: type[E], work: Awaitable[Any]) -> E:
    """The exception that must be raised."""
    try:
        await work
    except kind as error:
        return error
    raise AssertionError(f"It raised no {kind.__name__}.")


class Died(BaseException):
    """Raised where a process ends in the middle of an effect."""


def step(call: CallKey, name: str, given: bytes = b"null") -> Effect:
    return Effect(call, "step", name, given)


def unheard(deadline: float | None) -> None:
    """For waits whose beginning does not matter."""
