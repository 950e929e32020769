"""The calls of one model answer as one batch, where a framework hands them over one by one, each in a task of its own.

Owns collecting them, cancelling one of them, and finding and answering what a pending call waits for. Does not own
scopes, nor what a framework does with an outcome: the adapter of the framework does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from toolwright.errors import KeyRefused

if TYPE_CHECKING:  # Importing an adapter costs little more than importing its framework.
    from toolwright.calls.batch import Batch
    from toolwright.calls.policy import PolicySettings
    from toolwright.calls.suspend.approvals import Approval
    from toolwright.session.open_waits import OpenWait
    from toolwright.session.session import Session
    from toolwright.tools.call import ToolCall
    from toolwright.tools.outcome import ToolOutcome


class _Collected:
    """A call that was handed over; it has a batch, and its position in it, when that is started."""

    __slots__ = ("batch", "call", "outcome", "place", "position")

    def __init__(self, call: ToolCall, place: int, outcome: asyncio.Future[ToolOutcome]) -> None:
        self.call = call
        self.place = place
        self.outcome = outcome
        self.batch: Batch | None = None
        self.position = 0


class AnswerBatches:
    """Runs calls that a framework hands over one by one: those of one answer together, as one batch of a session.

    Calls of one scope that come within the same tick of the loop are the calls of one answer. One that comes later
    gets a batch of its own; it keeps its order by the claims of the session, and its replay by its identity.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._collecting: dict[str, list[_Collected]] = {}
        # A framework wants the outcome of each call: one that fails does not stop the others.
        self._changes: PolicySettings = {} if session.policy.continue_on_failure else {"continue_on_failure": True}

    async def run(self, call: ToolCall, scope: str, place: int = 0) -> ToolOutcome:
        """Run one call; `place` is its place among the calls of its answer, if the framework tells it.

        The outcome is "pending" when the call waits for something outside, itself or behind a call that does: it
        continues in the session, and running the same call again waits for its outcome. A task that is cancelled here
        cancels its call, and ends when the call has stopped.
        """
        loop = asyncio.get_running_loop()
        collected = _Collected(call, place, loop.create_future())
        waiting = self._collecting.get(scope)
        if waiting is None:
            self._collecting[scope] = [collected]
            loop.call_soon(self._start, scope)
        else:
            waiting.append(collected)
        try:
            outcome = await collected.outcome
        except asyncio.CancelledError:
            await _stop(collected)
            raise
        if collected.batch is not None and (fault := collected.batch.fault) is not None:
            raise fault
        return outcome

    async def finish(self, call: ToolCall, scope: str) -> ToolOutcome:
        """Wait for the outcome of a pending call, however long that takes; cancelling the wait cancels the call."""
        (outcome,) = await self.session.start_batch([call], scope=scope, **self._changes)
        return outcome

    async def run_all(self, calls: Sequence[ToolCall], scope: str) -> list[ToolOutcome]:
        """Run the calls of an answer that the framework hands over at once; as `run` otherwise."""
        batch = self.session.start_batch(list(calls), scope=scope, **self._changes)
        try:
            return await batch.quiet()
        except asyncio.CancelledError:
            batch.cancel("the framework cancelled it")
            await batch.settled()
            raise

    def _start(self, scope: str) -> None:
        # A call whose task was cancelled meanwhile is not started.
        collected = [each for each in self._collecting.pop(scope) if not each.outcome.done()]
        if not collected:
            return
        collected.sort(key=attrgetter("place"))
        try:
            batch = self.session.start_batch([each.call for each in collected], scope=scope, **self._changes)
        except Exception as error:  # such as a runtime that was closed: the tasks that wait must learn of it
            for each in collected:
                each.outcome.set_exception(error)
            return
        for position, each in enumerate(collected):
            each.batch, each.position = batch, position
        batch.tell([each.outcome for each in collected])

    # --- what pending calls wait for

    async def waits(self, scope: str, call_id: str) -> list[OpenWait]:
        """What a pending call waits for outside; nothing where it only waits behind another call."""
        return [wait for wait in await self.session.waits() if (wait.scope, wait.call_id) == (scope, call_id)]

    async def approval(self, scope: str, call_id: str) -> Approval | None:
        """The request for approval of a call, while it is open."""
        approvals = await self.session.approvals()
        return next((each for each in approvals if (each.scope, each.call_id) == (scope, call_id)), None)

    async def approve(
        self, approval: Approval, *, arguments: Mapping[str, Any] | None = None, by: str | None = None
    ) -> bool:
        """Let a call run that a person approved in the framework; False when it was decided elsewhere before."""
        try:
            return (await self.session.approve(approval.key, arguments=arguments, by=by)).first
        except KeyRefused:  # its call ended meanwhile
            return False

    async def deny(self, approval: Approval, *, reason: str | None = None, by: str | None = None) -> bool:
        """Deny a call that a person denied in the framework; False when it was decided elsewhere before."""
        try:
            return (await self.session.deny(approval.key, reason=reason, by=by)).first
        except KeyRefused:
            return False


async def _stop(collected: _Collected) -> None:
    """Cancel a call, and wait until it has stopped: its grace bounds that, and cancelling the wait does not end it."""
    batch, position = collected.batch, collected.position
    if batch is None:
        return
    batch.cancel_call(position, "the framework cancelled it")
    while batch.outcome_of(position) is None:
        with contextlib.suppress(asyncio.CancelledError):
            await batch.next_change()
