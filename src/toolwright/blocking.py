"""The runtime for code that is not async. Owns one thread with an event loop; the API is the async one, reflected."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from toolwright.events import Subscription


class BlockingPortal:
    """Stands for an object that lives on the loop's thread: its methods run there, and their results are waited for."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            return run_on(self._loop, lambda: found(*args, **kwargs))

        return call

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"


def run_on(loop: asyncio.AbstractEventLoop, make: Callable[[], Any]) -> Any:
    """Call `make` on the loop's thread, wait for what it gives, and reflect objects that live there."""

    async def run() -> Any:
        result = make()
        return await result if inspect.isawaitable(result) else result

    result = asyncio.run_coroutine_threadsafe(run(), loop).result()
    lives_there = type(result).__name__ in ("Session", "Batch") or isinstance(result, Subscription)
    return BlockingPortal(result, loop) if lives_there else result


class BlockingRuntime(BlockingPortal):
    """A runtime on a thread of its own. Use it in a `with` block, or close it."""

    def __init__(self, open_runtime: Callable[[], Any]) -> None:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="toolwright-loop", daemon=True)
        self._thread.start()
        try:
            runtime = run_on(loop, open_runtime)
        except BaseException:
            self._stop(loop)
            raise
        super().__init__(runtime, loop)

    def close(self) -> None:
        """Close the runtime and end its thread."""
        if self._thread.is_alive():
            run_on(self._loop, self._target.close)
            self._stop(self._loop)

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    def __enter__(self) -> BlockingRuntime:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
