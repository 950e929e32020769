"""The lifespan of an opened app. Owns entering and leaving the user's context manager in one task, so that it may use
task groups and timeouts, whichever tasks open and close the runtime."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from toolwright.app_options import Lifespan
from toolwright.errors import ToolwrightError
from toolwright.log_fields import log_fields

log = logging.getLogger("toolwright.runtime.lifespan")


class LifespanTask:
    """The task that is inside of a lifespan from opening to closing."""

    def __init__(self, lifespan: Lifespan) -> None:
        self._lifespan = lifespan
        self._leave = asyncio.Event()
        self._value: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> object:
        """Enter the lifespan and return its value.

        Raises:
            ToolwrightError: it is no async context manager.
            BaseException: the error of the lifespan itself.
        """
        self._task = asyncio.create_task(self._stay(), name="toolwright-lifespan")
        self._task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(self._value)
        except asyncio.CancelledError:
            self._leave.set()  # also for a lifespan that catches the cancellation and enters nevertheless
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._entered:
                self._value.exception()  # retrieved: the opening was cancelled, and nothing else waits for it
            raise

    async def exit(self) -> None:
        """Leave the lifespan, if it was entered, and wait until it is closed.

        Raises:
            BaseException: the error of its closing.
        """
        task = self._task
        self._leave.set()
        if task is None or not self._entered:
            return
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _stay(self) -> None:
        manager = self._lifespan()
        if not hasattr(manager, "__aenter__") or not hasattr(manager, "__aexit__"):
            raise ToolwrightError(
                f"The lifespan {self._lifespan!r:.200} gave {manager!r:.200}, which is not an async context manager; "
                "write it under @contextlib.asynccontextmanager"
            )
        async with manager as value:
            if not self._value.done():
                self._value.set_result(value)
            await self._leave.wait()

    @property
    def _entered(self) -> bool:
        value = self._value
        return value.done() and value.exception() is None

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if not self._value.done():
            self._value.set_exception(
                error or ToolwrightError("The lifespan of the app was cancelled as it was entered")
            )
        elif self._entered and not self._leave.is_set():
            log.error(
                "The lifespan of the app ended while its runtime is open",
                exc_info=error,
                extra=log_fields("lifespan.ended"),
            )
