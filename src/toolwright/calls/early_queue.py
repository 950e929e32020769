"""Calls that stand in the order before the journal has written their intents. Owns their way until it has answered.

The journal writes that a call starts together with its intent, in one commit, if its turn has come by then: decision
0040. So nothing of a call that was queued early runs before the journal has answered. If the journal knows a call of
the batch, or the batch was stopped, those whose start is not written leave the order, and are judged by what is known.
Those that conflict with calls of other processes wait for them first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from toolwright.calls.active_call import NEW, QUEUED, STARTED, ActiveCall
from toolwright.calls.execute.execute import CallTicket, Lane
from toolwright.calls.execute.timeout import end_queue_time
from toolwright.calls.schedule.admission import Admission


class EarlyQueue:
    """The calls of one batch that are queued early. While it is open, their lane starts none of them."""

    __slots__ = ("_admission", "_lane", "_one_is_known")

    def __init__(self, lane: Lane, admission: Admission) -> None:
        self._lane = lane
        self._admission = admission
        self._one_is_known = False
        lane.waits_for_journal = True

    def leave(self, calls: Sequence[ActiveCall]) -> None:
        """Take calls out of the order again: the journal knows them, and they hold nothing that others wait for."""
        self._one_is_known = True
        self._withdraw(calls)

    def close(self, calls: Sequence[ActiveCall], stopped: Collection[ActiveCall]) -> None:
        """The journal has answered about these calls: start those whose turn it is. Some were stopped meanwhile."""
        if self._one_is_known or stopped:
            self._withdraw([call for call in calls if not call.start_written or call in stopped])
        self._lane.waits_for_journal = False
        for call in calls:
            if call.phase is STARTED and isinstance(call.ticket, CallTicket):
                call.ticket.start()

    def _withdraw(self, calls: Sequence[ActiveCall]) -> None:
        for call in reversed(calls):  # the last first, so that none gets the turn of another
            if call.ticket is not None and call.phase in (QUEUED, STARTED):
                self._admission.withdraw(call.ticket)
                if call.queue_deadline is not None:
                    end_queue_time(call)
                call.ticket, call.elsewhere, call.phase = None, None, NEW
