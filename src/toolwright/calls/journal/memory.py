"""The journal without a store. Owns the identities of one session's calls, for the life of the process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from toolwright.calls.active_call import ActiveCall, Past, Remembered
from toolwright.calls.journal.replay import require_same
from toolwright.calls.journal_contract import Concluded, Entered, Started
from toolwright.effects.memory import MemoryStore
from toolwright.errors import ReplayMismatch
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.outcome import ToolOutcome

_Key = str | tuple[str, str]
"""The id of a call, with its scope if it has one. Where each call has a scope of its own, a dict for each scope would
be one for each call; most have none, and their id is at hand."""


class MemoryJournal:
    """The records of one session's calls, for the life of the process.

    Only calls that were given an id can come again, so only these are remembered.
    """

    lasting = False

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._calls: dict[_Key, Remembered] = {}

    def admit(self, calls: Sequence[ActiveCall]) -> Coroutine[Any, Any, None] | None:
        scope, remembered = calls[0].owner.scope, self._calls
        lacked_connection: list[ActiveCall] = []
        try:
            for call in calls:
                if not call.named or call.repeated:
                    continue
                key: _Key = (scope, call.call_id) if scope else call.call_id
                known = remembered.get(key)
                if known is None:
                    tool_id = "" if call.tool is None else call.tool.definition.id
                    call.remembered = remembered[key] = Remembered(tool_id, call.raw, call)
                elif self._replay(call, known):
                    lacked_connection.append(call)
        except ReplayMismatch:
            for call in calls:  # also those that were not yet remembered: there is nothing to forget of them
                self._forget(call)
            raise
        return self._run_again(lacked_connection) if lacked_connection else None

    def _replay(self, call: ActiveCall, known: Remembered) -> bool:
        """Give a call its outcome of before, or let it share the execution; True when it perhaps runs again."""
        before = known.end
        if isinstance(before, ActiveCall):
            require_same(call, before.name, known.tool_id, known.arguments)
            call.outcome = None  # of a call that could not run now: the outcome of the other one stands
            call.shares = before
            if call.span is not None and before.span is not None:
                call.span.link(before.span.mark, "shared")
            before.sharers = (*before.sharers, call)
            return False
        require_same(call, before.tool, known.tool_id, known.arguments)
        if call.span is not None:
            call.span.link(known.span, "replay")
        again = call.outcome is None and before.status == "connection_required"
        call.outcome = replace(before, replayed=True)
        return again

    async def _run_again(self, calls: list[ActiveCall]) -> None:
        """Let calls that ended without a connection run once more, if there is one now."""
        for call in calls:
            provider = None if call.outcome is None else call.outcome.provider
            if provider is None or call.concluded or await call.env.connected_since(provider) is None:
                continue
            known = self._calls[_key(call)]
            before = known.end
            call.outcome = None
            if isinstance(before, ActiveCall) or before.status != "connection_required":
                self._replay(call, known)  # another batch was faster
            else:
                known.end, call.remembered, call.past = call, known, Past("again", before=before)

    def _forget(self, call: ActiveCall) -> None:
        """A call did not run: the next one with its id finds the same state as this one."""
        if call.remembered is not None:
            if call.past is not None and call.past.before is not None:
                call.remembered.end = call.past.before
            else:
                del self._calls[_key(call)]
            call.remembered = None
        if call.shares is not None:
            call.shares.sharers = tuple(other for other in call.shares.sharers if other is not call)

    def is_known(self, call: ActiveCall) -> bool:
        return True

    def started(self, call: ActiveCall, then: Started[ActiveCall]) -> bool:
        return True

    def enter_order(self, calls: Sequence[ActiveCall], then: Entered[ActiveCall]) -> None:
        raise NotImplementedError("Only this process has its calls.")

    def wait_elsewhere(self, call: ActiveCall, free: Callable[[], None]) -> None:
        raise NotImplementedError("Only this process has its calls.")

    def will_record(self, call: ActiveCall, outcome: ToolOutcome) -> bool:
        return True

    def concluded(self, call: ActiveCall, outcome: ToolOutcome, then: Concluded[ActiveCall]) -> bool:
        remembered = call.remembered
        if remembered is not None:
            if outcome.status == "cancelled" and (not outcome.may_have_run or _may_run_again(call)):
                self._forget(call)
            else:
                remembered.end = outcome
                if call.span is not None:
                    remembered.span = call.span.mark
        suspension = call.suspension
        if suspension is not None and not (call.remembered and outcome.status == "connection_required"):
            self._store.leave(suspension.key)  # else it may run again
        return True

    def leave(self, call: ActiveCall) -> None:
        raise NotImplementedError("Only this process remembers its calls.")

    def uses_effects(self, key: CallKey) -> None:
        self._store.enter(key)

    def forget_finished(self) -> None:
        self._calls.clear()

    def close(self) -> None:
        pass  # Nothing outlives the process.


def _key(call: ActiveCall) -> _Key:
    scope = call.owner.scope
    return (scope, call.call_id) if scope else call.call_id


def _may_run_again(call: ActiveCall) -> bool:
    """True for a call that a fault of the machine stopped, and whose tool may simply run again."""
    return call.fault is not None and call.tool is not None and call.tool.definition.on_crash == "rerun"
