"""The turns of sub-agents: turns that run as part of a call, in a session that the call opened. Owns the identity of
such X

A call that is run again after a crash asks the same question, finds the same turn and continues it. The turn above is
the one that the call, or a call above it, is part of: it counts what its sub-agents use, and they stop when it has
nothing left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, identity, nesting_of
from toolwright.errors import TurnError
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.turns import TURN_SCOPE
from toolwright.tools.model import ModelClient
from toolwright.tools.turn_protocols import AskOptions
from toolwright.turns.event_log import TurnLog
from toolwright.turns.model_call import model_spec
from toolwright.turns.structured import AnswerForm
from toolwright.turns.turn_run import TurnRun

Find = Callable[[str, str], TurnRun | None]
"""Gives the turn of a session and an id that this process works on."""


class Caller(NamedTuple):
    """The call whose sub-agent a turn is; the turn above, and the scope of its calls, if there is one."""

    key: CallKey
    above: TurnRun | None
    scope: str | None


def caller_of(call: ActiveCall, find: Find) -> Caller:
    """A call as the caller of a sub-agent."""
    key = identity(call)
    upper: ActiveCall | None = call
    while upper is not None:
        scope = upper.owner.scope
        if scope.startswith(TURN_SCOPE):
            id, _, _ = scope.removeprefix(TURN_SCOPE).rpartition("/")
            return Caller(key, find(upper.env.session_id, id), scope)
        upper = upper.owner.parent
    return Caller(key, None, None)


def turn_id(call: ActiveCall, session: str, message: str, options: AskOptions) -> str:
    """The id of the turn of a question: the same when the call is run again, and another for each further question."""
    given = options.get("answer")
    asked = [session, message, None if given is None else AnswerForm.of(given).schema]
    digest = jsonx.digest(jsonx.encode(asked))[:32]
    asked_before, counted = nesting_of(call).agents, f"{call.attempt}:{digest}"
    asked_before[counted] = count = asked_before.get(counted, 0) + 1
    return f"turn_{digest}" if count == 1 else f"turn_{digest}_{count}"


def require_depth(caller: Caller) -> None:
    """Refuse a sub-agent that is nested too deeply.

    Raises:
        TurnError: the budget of a turn above does not allow it ("too_deep").
    """
    if caller.above is not None and caller.above.depth <= 0:
        raise TurnError(
            "Sub-agents are nested as deep as the budget of the turn allows; answer without another one, or let the "
            "owner raise Budget(depth=...)",
            "too_deep",
        )


def require_price(caller: Caller, model: ModelClient) -> None:
    """Refuse a model without a price below a turn whose budget has a cost.

    Raises:
        TurnError: the use of the model could not be counted ("no_price").
    """
    above = caller.above
    while above is not None:
        if above.budget.cost is not None and getattr(model, "price", None) is None:
            raise TurnError(
                f"The budget of the turn above has a cost, and the model {model_spec(model)} has no price; give it one",
                "no_price",
            )
        above = above.above


def tell_above(run: TurnRun, call: ActiveCall, events: TurnLog) -> None:
    """Let the events of a sub-agent be seen in the log of the turn above it."""
    if run.above is not None:
        about: dict[str, Any] = {
            "agent": call.name,
            "parent_call_id": call.call_id,
            "session": run.session,
            "turn": run.id,
        }
        events.tell_above(run.above.log, about)
