"""The judgement on a call that is not started. Owns `Judgement`, and asking the stages before the schedule for one.

Does not own a rule: prepare, authorise and the remembered decisions are those that a started call meets.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from toolwright.calls.active_call import ActiveCall
from toolwright.calls.authorise.authorise import authorise
from toolwright.calls.policy import Effect
from toolwright.calls.redact import off_loop, redact_fields, weight
from toolwright.calls.suspend.approvals import remembered_for, remembered_rule
from toolwright.plain_data import plain_data
from toolwright.tools.outcome import Failure


class Judgement(Struct, frozen=True):
    """What would happen to a call that is started now: it runs, waits for a person, or is refused."""

    unsearched: ClassVar[frozenset[str]] = frozenset({"effect", "rule"})

    effect: Effect
    """"allow", "ask" or "deny"."""
    rule: str | None = None
    """The rule that decides; None where no rule applies, or the call is refused before any is asked."""
    reason: str | None = None
    """Why, as the rule says it."""
    failure: Failure | None = None
    """The failure of a call that is refused and no rule decided so: an unknown tool, invalid arguments, or a rule that
    raised an error."""

    def to_json(self) -> dict[str, Any]:
        """The judgement as plain data."""
        return plain_data(self)


async def judge(call: ActiveCall) -> Judgement:
    """Judge a prepared call of a batch that is not started. Nothing is written."""
    judgement = await _judged(call)
    redactor = call.env.redactor
    if redactor is None:
        return judgement
    return await off_loop(weight(judgement), redact_fields, redactor, judgement)


async def _judged(call: ActiveCall) -> Judgement:
    refused = call.answer if isinstance(call.answer, Failure) else None
    if call.outcome is not None:
        refused = call.outcome.failure
    if refused is not None:
        return Judgement("deny", failure=refused)
    verdict = authorise(call, call.owner.context.judge)
    if call.outcome is not None:
        if verdict is None:
            return Judgement("deny", call.decided_by, failure=call.outcome.failure)
        return Judgement("deny", verdict.rule, verdict.reason)
    if verdict is None:
        return Judgement("allow", call.decided_by)
    remembered = await remembered_for(call)
    if remembered is None:
        return Judgement("ask", verdict.rule, verdict.reason)
    return Judgement(remembered.effect, remembered_rule(remembered), remembered.reason)
