"""Stage 2: authorise. Owns judging a call by the policy, before any claim is taken; hands on a `Verdict`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, final

from msgspec import Struct

from toolwright.calls.authorise.shell.patterns import Match
from toolwright.calls.policy import SEVERITY, Effect, Policy, Request, Rule, precedence
from toolwright.calls.prepare.prepare import PreparedCall, can_change, own_arguments
from toolwright.log_fields import log_fields
from toolwright.tools.outcome import Failure, told
from toolwright.tools.shell_rules import ShellRule
from toolwright.tools.tool import Tool

log = logging.getLogger("toolwright.calls")


@final
class Verdict(Struct, frozen=True):
    """The decision about a call, by which rule, and why."""

    effect: Effect
    rule: str
    reason: str | None = None


ALLOWED = Verdict("allow", "default")
"""No rule applies."""
_NEEDS_APPROVAL = Verdict("ask", "approval", "the tool requires approval")
_SUGGESTS_APPROVAL = Verdict("ask", "approval", "the tool suggests approval, and the policy asks for those too")


_NOBODY_ASKED = "it needs approval, and this policy does not wait for one (on_ask='deny')"


class BrokenRule(Exception):
    """The code of a rule raised; the cause is its exception."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


Test = tuple[Callable[[Request], Any], Verdict]
"""The test of a rule for a call, and the verdict if it passes."""
Tests = tuple[tuple[Test, ...], Verdict, bool]
"""The tests of the rules that look at each call of a tool, the verdict if none passes, and whether one of the tests is
a function of the host."""


class Judge:
    """Judges calls by a policy, and by the restrictions of their starter: the most severe verdict counts.

    Rules that look only at the tool are settled once per tool; a call pays for them with one dict look-up.
    """

    __slots__ = ("_above", "_policy", "_session", "may_ask", "settled")

    def __init__(self, policy: Policy, session: str, restrictions: Sequence[Policy] = ()) -> None:
        self._policy = policy
        own = policy.authority if restrictions else None
        self._above = tuple(Judge(each, session) for each in restrictions if each != own)
        self.may_ask: bool = policy.on_ask == "wait" and all(judge.may_ask for judge in self._above)
        self._session = session
        self.settled: dict[Tool, Verdict | Tests] = {}

    def allows_always(self, tool: Tool) -> str | None:
        """The rule that allows every call of a tool, "" when none needed to; None when calls must be judged."""
        settled = self.settled.get(tool) or self._settle(tool)
        if type(settled) is not Verdict or settled.effect != "allow":
            return None
        if any(judge.allows_always(tool) is None for judge in self._above):
            return None
        return "" if settled is ALLOWED else settled.rule

    def denies_always(self, tool: Tool) -> Verdict | None:
        """The verdict that denies every call of a tool, if there is one."""
        settled = self.settled.get(tool) or self._settle(tool)
        if type(settled) is Verdict and settled.effect == "deny":
            return settled
        return next(filter(None, (judge.denies_always(tool) for judge in self._above)), None)

    def judge(self, prepared: PreparedCall) -> Verdict:
        """Decide about a call whose tool and arguments are known."""
        verdict = self._judge(prepared)
        for judge in self._above:
            other = judge.judge(prepared)
            if SEVERITY[other.effect] > SEVERITY[verdict.effect]:
                verdict = other
        return verdict

    def _judge(self, prepared: PreparedCall) -> Verdict:
        tool = prepared.tool
        assert tool is not None
        settled = self.settled.get(tool) or self._settle(tool)
        if type(settled) is Verdict:
            return settled
        tests, otherwise, asks_host = settled
        # As by `_request`: a call of a method would cost as much as the tests of most rules.
        arguments = MappingProxyType(prepared.arguments or {})
        request = Request(self._session, prepared.call_id, tool, arguments, prepared.source, prepared.parent_id)
        # The code of a rule could change what it looks at, and another rule, or the tool, would see that.
        changeable = asks_host and can_change(arguments)
        verdict = ALLOWED
        try:
            # Sorted by level, then severity: the first rule that matches decides.
            for test, verdict in tests:
                if changeable:
                    request = self._request(prepared, tool)
                if found := test(request):
                    return verdict if type(found) is not Match else _because(verdict, found)
        except BaseException as error:  # the owner's code; when it breaks, the call must not run
            if isinstance(error, KeyboardInterrupt):
                raise
            raise BrokenRule(verdict.rule) from error
        return otherwise

    def shell_rules(self, prepared: PreparedCall, *, approved: bool) -> tuple[tuple[ShellRule, ...], ...]:
        """The rules that apply while the script of an authorised call runs: those of each policy, in their order.

        A policy without rules that look into scripts has none. `approved` means that a person approved the call, and so
        the effects that rules would ask about.
        """
        tool = prepared.tool
        assert tool is not None
        found = [layer for judge in self._above for layer in judge.shell_rules(prepared, approved=approved)]
        rules = [rule for rule in self._policy.rules if rule.concerns(tool)]
        if any(rule.commands or rule.writes for rule in rules):
            matching = [rule for rule in rules if rule.matches(self._request(prepared, tool))]
            found.insert(0, tuple(_kept_inside(rule, approved) for rule in matching))
        return tuple(found)

    def _request(self, prepared: PreparedCall, tool: Tool) -> Request:
        """The call as one rule sees it, with arguments of its own."""
        return Request(
            self._session,
            prepared.call_id,
            tool,
            MappingProxyType(own_arguments(prepared, tool)),
            prepared.source,
            prepared.parent_id,
        )

    def _settle(self, tool: Tool) -> Verdict | Tests:
        """Decide about all calls of a tool, or choose the rules that must look at each."""
        settled: Verdict | Tests
        rules = [rule for rule in self._policy.rules if rule.concerns(tool)]
        if self._policy.read_only and tool.definition.hints.mutating:
            settled = Verdict("deny", "read_only", "the batch is read-only and the tool may change something")
        elif any(rule.depends_on_call for rule in rules):
            tests = [(rule.level, effect, test, rule) for rule in rules for effect, test in rule.tests(tool)]
            # The verdict of a rule about the unknown may be less, or more, severe than the rule itself.
            tests.sort(key=lambda each: precedence(each[0], each[1]))
            judging = [(test, Verdict(effect, rule.name or effect, rule.reason)) for _, effect, test, rule in tests]
            settled = tuple(judging), self._without_rule(tool), any(rule.when is not None for rule in rules)
        else:
            settled = _verdict(rules[0]) if rules else self._without_rule(tool)
        self.settled[tool] = settled
        return settled

    def _without_rule(self, tool: Tool) -> Verdict:
        """The verdict for a call that no rule matches."""
        approval = tool.definition.approval
        if approval == "required":
            return _NEEDS_APPROVAL
        return _SUGGESTS_APPROVAL if approval == "suggest" and self._policy.approve == "suggested" else ALLOWED


def _kept_inside(rule: Rule, approved: bool) -> ShellRule:
    looks_inside = bool(rule.commands or rule.writes)
    return ShellRule(
        effect="allow" if rule.effect == "allow" or (rule.effect == "ask" and approved) else "deny",
        name=rule.name or rule.effect,
        reason=rule.reason,
        asks=rule.effect == "ask",
        commands=tuple(rule.commands) if looks_inside else None,
        writes=tuple(rule.writes) if looks_inside else None,
    )


def _verdict(rule: Rule) -> Verdict:
    return Verdict(rule.effect, rule.name or rule.effect, rule.reason)


def _because(verdict: Verdict, match: Match) -> Verdict:
    reason = match.why if verdict.reason is None else f"{verdict.reason} ({match.why})"
    return Verdict(verdict.effect, verdict.rule, reason)


def allowed_by(prepared: PreparedCall, judge: Judge) -> str | None:
    """The rule that allows a call, "" when none needed to; None when it must be asked about, or may not run."""
    try:
        verdict = judge.judge(prepared)
    except BrokenRule:
        return None
    if verdict is ALLOWED:
        return ""
    return verdict.rule if SEVERITY[verdict.effect] == 0 else None


def authorise(prepared: PreparedCall, judge: Judge, *, approved: bool = False) -> Verdict | None:
    """Let the call continue, or return the verdict by which it must not: a question to be asked first, or a refusal.

    A refused call has its failure as its outcome. `approved` means that a person was asked, and approved it: then only
    a rule that denies it stops it.
    """
    try:
        verdict = judge.judge(prepared)
    except BrokenRule as broken:
        error = broken.__cause__
        assert error is not None
        log.error(
            "The rule %r failed for call %r",
            broken.rule,
            prepared.call_id,
            exc_info=error,
            extra=log_fields("call.rule_failed", call_id=prepared.call_id, tool=prepared.name, rule=broken.rule),
        )
        prepared.decided_by = broken.rule
        prepared.fail(
            Failure(
                category="internal",
                code="policy_error",
                message=f"The rule {broken.rule!r} could not be decided; its details are in the log.",
                source="policy",
                detail=told(error),
            )
        )
        return None
    if verdict is ALLOWED:
        return None
    if approved and verdict.effect == "ask":
        return None
    prepared.decided_by = verdict.rule
    if SEVERITY[verdict.effect] == 0:
        return None
    if verdict.effect == "ask" and judge.may_ask:
        return verdict
    code = "denied"
    if verdict.effect == "ask":
        code = "needs_approval"
        cause = f"{verdict.reason}; " if verdict.reason else ""
        verdict = Verdict("deny", verdict.rule, f"{cause}{_NOBODY_ASKED}")
    reason = f": {verdict.reason}" if verdict.reason else ""
    prepared.fail(
        Failure(
            category="permission_denied",
            code=code,
            message=f"Tool {prepared.name!r} may not run (rule {verdict.rule!r}){reason}",
            source="policy",
        )
    )
    return verdict
