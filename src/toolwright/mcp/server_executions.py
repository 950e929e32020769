"""A served call on its way, in a batch or as a background run. Owns waiting for either in the same way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from toolwright.background.handle import Run
from toolwright.calls.batch import Batch
from toolwright.tools.outcome import ToolOutcome

FIRST_LOOK, LONGEST_LOOK = 0.05, 1.0
"""Seconds between two looks at a run that may have begun to wait."""


class Execution(Protocol):
    """A call that runs, and may wait for something outside."""

    @property
    def scope(self) -> str:
        """The scope of everything that the call does."""
        ...

    @property
    def call_id(self) -> str: ...

    @property
    def done(self) -> bool: ...

    async def quiet(self) -> ToolOutcome | None:
        """The outcome, when there is one; None when the call waits for something outside."""
        ...

    def change(self) -> asyncio.Future[None]:
        """Done when the call ends, or waits no longer. The code that asks for it cancels it."""
        ...

    async def cancel(self, reason: str) -> None:
        """Stop the call."""
        ...

    async def settled(self) -> None:
        """Wait for the end of the call."""
        ...


@dataclass(eq=False, slots=True)
class BatchExecution:
    """A call in a batch of its own."""

    call_id: str
    scope: str
    batch: Batch

    @property
    def done(self) -> bool:
        """True when it has its outcome."""
        return self.batch.done

    async def quiet(self) -> ToolOutcome | None:
        """The outcome, or None while it waits."""
        if not self.batch.done:
            (outcome,) = await self.batch.quiet()
            if outcome.status == "pending" and not self.batch.done:
                return None
        (outcome,) = await self.batch.wait()
        return outcome

    def change(self) -> asyncio.Future[None]:
        """The next change of the batch."""
        return self.batch.next_change()

    async def cancel(self, reason: str) -> None:
        """Cancel the batch."""
        self.batch.cancel(reason)

    async def settled(self) -> None:
        """Wait for the end of the batch."""
        await self.batch.settled()


@dataclass(eq=False, slots=True)
class RunExecution:
    """A call as a background run, which another process may work on."""

    run: Run

    @property
    def call_id(self) -> str:
        """The id of the call of the run."""
        return self.run.record.call.call_id

    @property
    def scope(self) -> str:
        """The scope of the run."""
        return self.run.record.call.scope

    @property
    def done(self) -> bool:
        """True when it was finished, as it was last read."""
        return self.run.record.over

    async def quiet(self) -> ToolOutcome | None:
        """The outcome, or None while it waits."""
        seconds = FIRST_LOOK
        while True:
            try:
                return await self.run.wait(seconds)
            except TimeoutError:
                if self.run.status == "waiting":
                    return None
            seconds = min(seconds * 2, LONGEST_LOOK)

    def change(self) -> asyncio.Future[None]:
        """Done when it waits no longer."""
        return asyncio.ensure_future(self._until_changed())

    async def _until_changed(self) -> None:
        waiting = True
        while waiting:
            try:
                await self.run.wait(FIRST_LOOK)
                return
            except TimeoutError:
                waiting = self.run.status == "waiting"

    async def cancel(self, reason: str) -> None:
        """Cancel the run."""
        await self.run.cancel(reason)

    async def settled(self) -> None:
        """Wait for the end of the run."""
        await self.run.wait()
