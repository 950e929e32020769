"""Recovery after a crash. Owns finding unfinished calls and reporting the actions; each call follows its own crash
policy."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolwright.calls.active_call import ActiveCall
from toolwright.calls.batch import Batch
from toolwright.clock import rfc3339
from toolwright.errors import PolicyError, RuleUnknown
from toolwright.plain_data import plain_data
from toolwright.session.children import is_of_agent
from toolwright.session.open_sessions import OpenSessions
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey, Entry, Intent, JournalStore
from toolwright.stores.contracts.turns import TURN_SCOPE
from toolwright.tools.outcome import Failure, ToolOutcome
from toolwright.tools.turn_protocols import TurnClient


class Recovered(NamedTuple):
    """The action of recovery for one call, and the outcome it has now; or a turn that continues.

    `action` is "rerun", "run" where it had not begun, "interrupted", "given_up" where it was running each time that its
    process died, "probed", "asked" where a person must decide, "waiting" where its completion, a connection or a
    person's approval is awaited, or "left" where its tool is not known, its arguments no longer fit, or its batch had a
    rule that is not known here. The outcome of a call that still waits is "pending": the call continues in this
    process. For a turn, `turn` is its id, `action` is "continued", and the fields of a call are empty;
    `runtime.turn(id)` gives its handle.
    """

    session: str
    scope: str
    call_id: str
    tool: str
    action: str
    outcome: ToolOutcome
    turn: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The call and its outcome as plain data."""
        return plain_data(self)


class Unfinished(NamedTuple):
    """A call that a crash cut off and that was not continued yet. `began` means that its tool may have run.

    Calls of one batch have the same `batch`; `position` is the place of a call in it.
    """

    session: str
    scope: str
    batch: str
    position: int
    call_id: str
    tool: str
    parent: str | None
    queued_at: float
    began: bool

    def to_json(self) -> dict[str, Any]:
        """The call as plain data."""
        return {**self._asdict(), "queued_at": rfc3339(self.queued_at)}


async def unfinished(journal: JournalStore, session: str | None, scope: str | None) -> list[Unfinished]:
    """The calls that a crash cut off, of a session and a scope or of all, the oldest first."""
    found = [entry for entry in await journal.unfinished(session) if _is_meant(entry, scope)]
    return [
        Unfinished(
            *entry.intent.key[:2],
            entry.intent.batch,
            entry.intent.position,
            entry.intent.key.call_id,
            entry.intent.tool,
            entry.intent.parent,
            entry.intent.queued_at,
            entry.started_at is not None,
        )
        for entry in found
    ]


async def recover(
    journal: JournalStore,
    sessions: OpenSessions,
    only_session: str | None = None,
    only_scope: str | None = None,
) -> list[Recovered]:
    """Finish the calls that a crash cut off, of a session and a scope or of all, and return the action for each
    call."""
    done: list[Recovered] = []
    seen: set[CallKey] = set()
    while entries := [
        entry
        for entry in await journal.unfinished(only_session)
        if entry.intent.key not in seen and _is_meant(entry, only_scope)
    ]:
        # A call of an unfinished call comes after it: run again, it makes the call itself.
        cut_off = {entry.intent.key for entry in entries}
        groups: dict[tuple[str, str, bytes | None], list[Intent]] = {}
        for intent in [entry.intent for entry in entries]:
            session, scope, _ = intent.key
            if intent.parent is None or CallKey(session, scope, intent.parent) not in cut_off:
                groups.setdefault((session, scope, intent.authority), []).append(intent)
        if not groups:
            break
        for (session, scope, authority), intents in groups.items():
            seen.update(intent.key for intent in intents)
            core = sessions.core(session)
            try:
                batch = core.recovering(intents, scope, authority)
            except PolicyError as error:  # such as a rule of its batch that is not known here
                done += [_left(intent, error) for intent in intents]
            else:
                done += await _finish(batch, session, scope)
            finally:
                sessions.leave(core)
    return done


def continued(turn: TurnClient) -> Recovered:
    """A turn that continues in this process."""
    return Recovered(turn.session_id, "", "", "", "continued", ToolOutcome("", "", "pending"), turn.id)


def _left(intent: Intent, error: PolicyError) -> Recovered:
    """A call whose batch had rules that this program does not have: it stays unfinished."""
    failure = Failure(
        category="permission_denied",
        code="rule_unknown" if isinstance(error, RuleUnknown) else "policy_error",
        message=f"Tool {intent.tool!r} may not run: {error}",
        source="policy",
    )
    session, scope, call_id = intent.key
    outcome = ToolOutcome(call_id, intent.tool, "failure", failure=failure, may_have_run=True)
    return Recovered(session, scope, call_id, intent.tool, "left", outcome)


def _is_meant(entry: Entry, only_scope: str | None) -> bool:
    """True for calls of a scope, or of any but those of background runs, turns and sub-agents, which continue their own
    calls."""
    session, scope, _ = entry.intent.key
    if scope.startswith((RUN_SCOPE, TURN_SCOPE)) or is_of_agent(session):
        return False
    return only_scope in (None, scope)


async def _finish(batch: Batch, session: str, scope: str) -> list[Recovered]:
    calls = batch.calls
    outcomes = await batch.start().quiet()
    return [
        Recovered(session, scope, call.call_id, call.name, _action(call), outcome)
        for call, outcome in zip(calls, outcomes, strict=True)
        if not outcome.replayed  # else another process was first
    ]


def _action(call: ActiveCall) -> str:
    past = call.past
    if past is None:
        return "left"
    if call.asking is not None and past.recovered in ("run", "rerun"):
        return "waiting"  # It would have been run, but needs approval first.
    return past.recovered
