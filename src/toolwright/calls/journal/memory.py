"""What calls remember without a store. Owns the identities of one session's calls, for the life of the process."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from toolwright.calls.execute.execute import ActiveCall
from toolwright.calls.journal.replay import AGAIN, require_same
from toolwright.effects.memory import MemoryStore
from toolwright.errors import ReplayMismatch
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.outcome import ToolOutcome


class Met(Struct, gc=False):
    """A call that was given an id, as it was given: a hook may replace its arguments later.

    `end` is its run until it has an outcome. The garbage collector never sees it, so the end must come.
    """

    tool_id: str
    arguments: bytes
    end: ActiveCall | ToolOutcome | None


class MemoryJournal:
    """What the calls of one session remember for the life of the process.

    Only calls that were given an id can come again, so only these are kept.
    """

    takes_time = False

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._scopes: dict[str, dict[str, Met]] = {}

    def meet(self, runs: Iterable[ActiveCall], scope: str) -> bool:
        """Let the calls of a batch that were given an id meet their past, all or none; True when one has a past.

        Raises:
            ReplayMismatch: an identity was used before, for something else.
        """
        calls, met, past = self._scopes.setdefault(scope, {}), [], False
        try:
            for run in runs:
                if not run.named or run.repeated:
                    continue
                known = calls.get(run.call_id)
                if known is None:
                    tool_id = "" if run.tool is None else run.tool.definition.id
                    run.key = calls[run.call_id] = Met(tool_id, run.raw, run)
                else:
                    past = True
                    self._meet(run, known)
                met.append(run)
        except ReplayMismatch:
            for run in met:
                if run.key is not None and run.before is not None:
                    run.key.end = run.before
                elif run.key is not None:
                    del calls[run.call_id]
                    run.key.end = None
                if run.shares is not None:
                    run.shares.sharers = tuple(other for other in run.shares.sharers if other is not run)
            raise
        return past

    def clear(self) -> None:
        """Remember nothing. No call of the session may be running."""
        self._scopes.clear()

    def _meet(self, run: ActiveCall, known: Met) -> None:
        past = known.end
        assert past is not None
        if isinstance(past, ActiveCall):
            require_same(run, past.name, known.tool_id, known.arguments)
            run.outcome = None  # of a call that could not run now: what the other one gives stands
            run.shares = past
            past.sharers = (*past.sharers, run)
        else:
            require_same(run, past.tool, known.tool_id, known.arguments)
            again = run.outcome is None and past.status == "connection_required"
            if again and past.provider in run.env.connected:
                run.key, known.end, run.before, run.recovered = known, run, past, AGAIN
            else:
                run.outcome = replace(past, replayed=True)

    def enter(self, key: CallKey) -> None:
        """A call begins to use effects."""
        self._store.enter(key)

    def leave(self, key: CallKey) -> None:
        """Such a call is over."""
        self._store.leave(key)

    def will_keep(self, run: ActiveCall, outcome: ToolOutcome) -> bool:
        """True when a call ends with this outcome, or may run anew; False when it is left as a crash leaves it."""
        return True

    def keep(self, run: ActiveCall, outcome: ToolOutcome) -> None:
        """Keep the outcome of a call."""
        if outcome.status == "cancelled" and not outcome.may_have_run and run.before is not None:
            run.key.end = run.before
        elif outcome.status == "cancelled" and (not outcome.may_have_run or _may_run_again(run)):
            self._scopes[run.owner.scope].pop(run.call_id, None)
            run.key.end = None
        else:
            run.key.end = outcome


def _may_run_again(run: ActiveCall) -> bool:
    """True for a call that a fault of the machine stopped, and whose tool may simply run again."""
    return run.fault is not None and run.tool is not None and run.tool.definition.on_crash == "rerun"
