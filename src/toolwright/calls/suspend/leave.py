"""Leaving calls that only wait for a person before they run. Owns which calls can be left, and that they hold nothing
in this process afterwards; does not own who lets them run again.

A call that was left is in the journal as a call of a process that ended: unfinished, with its request in the inbox.
The same call in a batch of the same scope finds both again.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolwright.calls.active_call import ASKING, CONCLUDED, ActiveCall
from toolwright.stores.contracts.waits import WaitKey
from toolwright.tools.outcome import ToolOutcome


def requests_of(calls: Sequence[ActiveCall]) -> list[WaitKey] | None:
    """The requests that calls wait for, if they do nothing else and can be left; None otherwise."""
    requests: list[WaitKey] = []
    for call in calls:
        request = None if call.suspension is None else call.suspension.request
        if request is None or not call.waiting or not _can_be_left(call):
            return None
        requests.append(request)
    return requests


def _can_be_left(call: ActiveCall) -> bool:
    tool = call.tool
    if call.phase is not ASKING or call.key is None or tool is None or tool.prepare is not None:
        return False
    if not call.env.journal.lasting:
        return False
    if call.shares is not None or call.sharers or call.nested or call.ticket is not None:
        return False
    # The start of a call that may simply run again is not written: it would seem to have run.
    return tool.definition.on_crash != "rerun" or tool.definition.hints.readonly


def leave(calls: Sequence[ActiveCall]) -> None:
    """Leave calls that `requests_of` found. They have no outcome here."""
    for call in calls:
        call.env.journal.leave(call)
        call.phase = CONCLUDED
        call.record.outcome = ToolOutcome(call.call_id, call.name, "pending")
        if call.span is not None:
            call.span.ended(call.record)
        if call.asking is not None:
            call.asking.cancel()
            call.asking = None
