"""The permissions of background work. Owns the authority of its starter: judging by it, storing it, reading it again.

A run, a schedule or a trigger has the restrictions of the call or program that started it: the authority part of its
policy (`Policy.authority`), and all restrictions that the starter itself was under. They only accumulate. They are
stored as JSON beside the work, because another process may run it under another policy, which applies as well.

A rule with a function (`when=`) has no JSON form. It is stored by its name, and the program that runs the work must
have a rule of that name in its policy; else the work is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from toolwright import jsonx
from toolwright.calls.authorise.authorise import Judge, authorise
from toolwright.calls.policy import Policy, Rule
from toolwright.calls.prepare.prepare import PreparedCall
from toolwright.errors import PolicyError, RuleUnknown, RunRefused
from toolwright.ids import uuid7
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.call import CallSource
from toolwright.tools.outcome import Failure
from toolwright.tools.tool import Tool

SPAWN_BACKGROUND = "toolwright.builtin.spawn_background"
"""The id of the tool by which a model starts runs: these have the source of the tool's own call."""
MOST_REFERRED = 1_000
"""How many rules with a function a process remembers exactly. An older one is looked for by its name."""
_DEFAULTS: dict[str, Any] = {
    "reason": None,
    "level": 0,
    "source": None,
    "mutating": None,
    "capabilities": frozenset(),
    "commands": (),
    "writes": (),
    "unknown": None,
}
"""The parts of a rule that are stored where they differ from these, beside its effect, tools, name and function."""


class Origin(Struct, frozen=True, gc=False):
    """The starter of background work. `policy` has the limits for it, `restrictions` its permissions, `call` the
    calling tool."""

    source: CallSource
    policy: Policy
    restrictions: tuple[Policy, ...]
    call: CallKey | None = None


def restrict(restrictions: Sequence[Policy], *more: Policy) -> tuple[Policy, ...]:
    """Restrictions together with those of further policies; equal ones are stored once."""
    found = list(restrictions)
    for policy in more:
        authority = policy.authority
        if authority not in found:
            found.append(authority)
    return tuple(found)


def require_allowed(
    origin: Origin,
    session: str,
    tool: Tool,
    arguments: bytes,
    *,
    id: str = "",
    source: CallSource | None = None,
    outright: bool = False,
) -> None:
    """Refuse work that its starter may not start. An approval is requested where the work runs; `outright` means that
    it runs where nobody can be asked, so that work that needs an approval is refused.

    Raises:
        RunRefused: a rule denies it, or it needs an approval and nobody can be asked, or a rule could not be decided.
    """
    entry = PreparedCall()
    entry.tool, entry.name, entry.call_id = tool, tool.definition.name, id
    entry.raw, entry.arguments = arguments, tool.validate(arguments)
    entry.source = source or origin.source
    entry.parent_id = None if origin.call is None else origin.call.call_id
    verdict = authorise(entry, _judge(origin, session))
    if entry.outcome is not None and entry.outcome.failure is not None:
        raise refused(entry.outcome.failure, entry.decided_by)
    if verdict is not None and outright:
        raise RunRefused(
            f"{tool.name!r} may not be started without an approval (rule {verdict.rule!r}), and nobody can be asked "
            "for work that happens elsewhere; let a call start it that may",
            "needs_approval",
            verdict.rule,
        )


def require_not_denied(origin: Origin, session: str, tool: Tool) -> None:
    """Refuse a tool that its starter may never start, whatever the arguments will be.

    Raises:
        RunRefused: a rule denies every call of it.
    """
    verdict = _judge(origin, session).denies_always(tool)
    if verdict is not None:
        reason = f": {verdict.reason}" if verdict.reason else ""
        raise RunRefused(f"Tool {tool.name!r} may not run (rule {verdict.rule!r}){reason}", "denied", verdict.rule)


def refused(failure: Failure, rule: str | None = None) -> RunRefused:
    """The error for a starter whose work is refused by a rule of a policy."""
    return RunRefused(failure.message, failure.code, rule)


def _judge(origin: Origin, session: str) -> Judge:
    first, *others = origin.restrictions or (origin.policy.authority,)
    return Judge(first, session, others)


# --- as it is stored


class RuleBook:
    """Writes restrictions as JSON, and reads them again by the rules that this program has."""

    def __init__(self) -> None:
        # Exactly which rule was meant, as long as this process lives: a name may be given twice.
        self._referred: dict[str, Rule] = {}
        self._references: dict[int, str] = {}

    def write(self, origin: Origin) -> bytes:
        """The stored authority of work that an origin starts."""
        return jsonx.encode(
            {"source": origin.source, "policies": [self._policy(policy) for policy in origin.restrictions]}
        )

    def read(self, stored: bytes | None, programs: Iterable[Policy]) -> tuple[Policy, ...]:
        """The stored restrictions; `programs` are the policies whose rules may be meant by their names.

        Raises:
            RuleUnknown: a rule with a function is not among theirs.
            PolicyError: the stored data cannot be used here.
        """
        if not stored:
            return ()
        rules = [rule for policy in programs for rule in policy.rules if rule.when is not None]
        try:
            written = jsonx.decode(stored)["policies"]
        except (jsonx.DecodeError, TypeError, KeyError) as error:
            raise PolicyError(f"The permissions of the run were stored in an unknown form: {error}") from error
        return tuple(
            Policy(
                rules=[self._rule(rule, rules) for rule in each.get("rules", ())],
                read_only=each.get("read_only", False),
                approve=each.get("approve", "required"),
                on_ask=each.get("on_ask", "wait"),
            )
            for each in written
        )

    def _policy(self, policy: Policy) -> dict[str, Any]:
        written: dict[str, Any] = {}
        if policy.rules:
            written["rules"] = [self._written(rule) for rule in policy.rules]
        if policy.read_only:
            written["read_only"] = True
        if policy.approve != "required":
            written["approve"] = policy.approve
        if policy.on_ask != "wait":
            written["on_ask"] = policy.on_ask
        return written

    def _written(self, rule: Rule) -> dict[str, Any]:
        written = _static_part(rule)
        if rule.when is not None:
            written["when"] = self._refer(rule)
        return written

    def _refer(self, rule: Rule) -> str:
        # By the id of the object, to which this holds a reference: a function need not be hashable.
        reference = self._references.get(id(rule))
        if reference is None:
            reference = self._references[id(rule)] = uuid7()
            self._referred[reference] = rule
            if len(self._referred) > MOST_REFERRED:
                oldest = next(iter(self._referred))
                del self._references[id(self._referred.pop(oldest))]
        return reference

    def _rule(self, written: dict[str, Any], known: Sequence[Rule]) -> Rule:
        reference = written.get("when")
        if reference is None:
            return Rule(**written)
        if (exact := self._referred.get(reference)) is not None:
            return exact
        name = written["name"]
        named = [rule for rule in known if rule.name == name]
        if len(named) > 1:
            parts = {part: value for part, value in written.items() if part != "when"}
            named = [rule for rule in named if _static_part(rule) == parts]
        if not named:
            raise RuleUnknown(
                f"It was started under the rule {name!r}, which is a Python function, and the policy of the program "
                "that runs it has no rule of that name; add the rule to that policy"
            )
        if any(rule != named[0] for rule in named):
            raise RuleUnknown(
                f"It was started under the rule {name!r}, and the policy of the program that runs it has several rules "
                "of that name; give each its own name"
            )
        return named[0]


def combine(stored: bytes | None, more: bytes) -> bytes:
    """The stored authority of work that is under both authorities; it has the source of the first."""
    if not stored:
        return more
    first, second = jsonx.decode(stored), jsonx.decode(more)
    extra = [policy for policy in second["policies"] if policy not in first["policies"]]
    return jsonx.encode({**first, "policies": [*first["policies"], *extra]})


def source_of(stored: bytes | None) -> CallSource | None:
    """The starter of work that is stored with this authority."""
    if not stored:
        return None
    source: CallSource = jsonx.decode(stored)["source"]
    return source


def _static_part(rule: Rule) -> dict[str, Any]:
    """A rule as JSON, without its function."""
    written: dict[str, Any] = {"effect": rule.effect, "tools": list(rule.tools), "name": rule.name}
    for part, default in _DEFAULTS.items():
        value = getattr(rule, part)
        if value != default:
            written[part] = sorted(value) if part == "capabilities" else list(value) if type(value) is tuple else value
    return written
