"""The runtime for code that is not async. Owns one thread with an event loop; the API is the async one, reflected."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from toolwright.background.handle import Run
from toolwright.calls.batch import Batch
from toolwright.calls.record import MemoryCallLog
from toolwright.errors import RuntimeClosed, ToolwrightError
from toolwright.event_bus import Subscription
from toolwright.log_fields import log_fields
from toolwright.schedules.schedules import ScheduleHandle
from toolwright.session.secrets.secrets import Secrets
from toolwright.session.services.attachments import Attachments
from toolwright.session.services.details import Details
from toolwright.session.services.files import Files
from toolwright.session.services.keyvalue import KeyValue
from toolwright.session.services.messages import Messages
from toolwright.session.services.resources import Resources
from toolwright.session.session import Session
from toolwright.session.tool_catalogue import SessionCatalogue
from toolwright.tools.registry import ScopedRegistry, ToolRegistry
from toolwright.turns.turns import Turn

if TYPE_CHECKING:
    from toolwright.blocking_types import BlockingRuntime

T = TypeVar("T")

log = logging.getLogger("toolwright.blocking")

_SERVICES = (Attachments, Details, Files, KeyValue, Messages, Resources, Secrets, SessionCatalogue)
_LIVES_THERE = (
    Session,
    Batch,
    Run,
    ScheduleHandle,
    Subscription,
    Turn,
    MemoryCallLog,
    ToolRegistry,
    ScopedRegistry,
    AsyncGeneratorType,
    *_SERVICES,
)
_PATIENCE = 5.0
_CLOSED = "The runtime is closed; open another"


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._answers: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._work, name="toolwright-loop", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _work(self) -> None:
        try:
            asyncio.run(self._live())
        finally:
            with self._lock:
                self._closed = True
            for answer in tuple(self._answers):  # of calls that came too late to be heard
                with suppress(InvalidStateError):
                    answer.set_exception(RuntimeClosed(_CLOSED))

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._ready.set()
        await self._end.wait()

    def run(self, make: Callable[[], Awaitable[T] | T]) -> T:
        """Call `make` on the thread, wait for its result, and wrap objects that live there.

        Raises:
            RuntimeClosed: the thread has ended, or ends while this waits.
            ToolwrightError: this is the thread itself, which would wait for ever.
        """
        if threading.current_thread() is self._thread:
            raise ToolwrightError("A blocking runtime was used on its own loop; use a sync tool, which has a thread")
        answer: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        async def call() -> T:
            result = make()
            # A batch can be awaited, but the caller of `start_batch` wants to hold it.
            if inspect.isawaitable(result) and not isinstance(result, _LIVES_THERE):
                return await cast("Awaitable[T]", result)
            return result

        def start() -> None:
            tasks.append(asyncio.create_task(call()))
            tasks[0].add_done_callback(lambda task: _answer(answer, task))

        try:
            with self._lock:
                if self._closed:
                    raise RuntimeClosed(_CLOSED)
                self._answers.add(answer)
                self._loop.call_soon_threadsafe(start)
            answer.exception()
        except BaseException:  # an interrupt of the caller also stops the operation it waited for
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise
        finally:
            self._answers.discard(answer)
        return self.reflect(answer.result())

    def reflect(self, thing: T) -> T:
        """The thing itself, or a portal to it when it belongs to the thread; in a list or tuple, to each that does."""
        reflected: object = thing
        if isinstance(thing, list):
            reflected = [self.reflect(item) for item in thing]
        elif isinstance(thing, tuple) and type(thing) is tuple:  # a named one is a value
            reflected = tuple(self.reflect(item) for item in thing)
        elif isinstance(thing, _LIVES_THERE):
            reflected = BlockingPortal(thing, self)
        return cast("T", reflected)  # a portal has the same methods, and waits for their results

    def close(self) -> None:
        """End the loop and its thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            log.warning(
                "A tool does not stop; its thread is left behind and ends with the program",
                extra=log_fields("thread.left_behind"),
            )


def _answer(answer: Future[T], task: asyncio.Task[T]) -> None:
    with suppress(InvalidStateError):
        if task.cancelled():  # by the end of the loop: an interrupted caller no longer waits
            answer.set_exception(RuntimeClosed(_CLOSED))
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())


class BlockingPortal:
    """Stands for an object that lives on the loop's thread: its methods run there, and their results are waited for."""

    def __init__(self, target: Any, thread: LoopThread) -> None:
        self._target = target
        self._loop_thread = thread

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(self._target, name)
        if not callable(found) or isinstance(found, type):
            return self._loop_thread.reflect(found)

        def call(*args: object, **kwargs: object) -> object:
            return self._loop_thread.run(lambda: found(*args, **kwargs))

        return call

    def __iter__(self) -> Iterator[object]:
        if not hasattr(self._target, "__aiter__"):
            yield from self._loop_thread.run(lambda: list(self._target))
            return
        while True:
            try:
                item = self._loop_thread.run(self._target.__anext__)
            except StopAsyncIteration:
                return
            except RuntimeClosed:
                if not isinstance(self._target, Subscription):
                    raise
                # Its thread is gone, so the queued items can be taken from here.
                while (item := self._target.take()) is not None:
                    yield item
                return
            yield item

    def __len__(self) -> int:
        return self._loop_thread.run(lambda: len(self._target))

    def __bool__(self) -> bool:
        return True

    def __contains__(self, item: object) -> bool:
        return self._loop_thread.run(lambda: bool(item in self._target))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop_thread.run(self._target.close)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"


def open_blocking(open_runtime: Callable[[], Awaitable[object]]) -> BlockingRuntime:
    """Open a runtime on a thread of its own, and return its portal."""
    return cast("BlockingRuntime", _RuntimePortal(open_runtime))


class _RuntimePortal(BlockingPortal):
    """A runtime on a thread of its own. Use it in a `with` block, or close it."""

    def __init__(self, open_runtime: Callable[[], Awaitable[object]]) -> None:
        async def opened() -> Any:
            return await open_runtime()

        thread = LoopThread()
        try:
            super().__init__(thread.run(opened), thread)
        except BaseException:
            thread.close()
            raise

    def close(self) -> None:
        """Close the runtime and end its thread; the second time does nothing."""
        try:
            self._loop_thread.run(self._target.close)
        except RuntimeClosed:
            return
        finally:
            self._loop_thread.close()

    def __exit__(self, *exc: object) -> None:
        self.close()
