"""The rules of a policy that a tool with a sandbox of its own applies while a script runs. Owns matching a pattern.

The text of a script is judged before it runs, but a text can be spelled in endless ways. A sandbox sees each command
with its expanded words, and each written path: there the same rules are applied to the real effects.
"""

from __future__ import annotations

import fnmatch
import posixpath
import unicodedata
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

_ROOT = "/workspace"


class ShellRule(Struct, frozen=True):
    """A rule as it applies to one call. Of the rules of a policy, in order, the first that matches an effect decides.

    Where several policies restrict a call, an effect must be allowed by each.

    `commands` and `writes` are None in a rule that looks into no script: it matches every effect. `asks` means that the
    rule would have asked a person, and nobody was asked about this call.
    """

    effect: Literal["allow", "deny"]
    name: str
    reason: str | None = None
    asks: bool = False
    commands: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None

    def matches_write(self, path: str) -> bool:
        """True when the rule speaks of this path; absolute, and as the session spells it."""
        return self.writes is None or any(_matches(pattern, path) for pattern in self.writes)

    def refusal(self, what: str) -> str:
        """The text for the model about an effect that the rule does not allow."""
        reason = f" ({self.reason})" if self.reason else ""
        if self.asks:
            return (
                f"The script {what}, which needs a person's approval (rule {self.name!r}{reason}), and nobody was "
                "asked, because the text of the script does not show it; write it plainly, so that a person can decide"
            )
        return f"The script {what}, which is not allowed (rule {self.name!r}{reason}); do without it"


Policies = Sequence[Sequence[ShellRule]]


def write_refused_by(policies: Policies, path: str) -> ShellRule | None:
    """The rule that refuses a write to a path; None when it may be written."""
    for rules in policies:
        rule = next((rule for rule in rules if rule.matches_write(path)), None)
        if rule is not None and rule.effect == "deny":
            return rule
    return None


def command_rules(policies: Policies) -> list[list[list[object]]]:
    """The rules on commands as plain data, for another process: effect, name, and patterns as regular expressions.

    There are none where no rule can refuse a command.
    """
    if not any(rule.effect == "deny" and rule.commands != () for rules in policies for rule in rules):
        return []
    return [
        [
            [rule.effect, rule.name, None if rule.commands is None else [_expressions(each) for each in rule.commands]]
            for rule in rules
        ]
        for rules in policies
    ]


def _expressions(pattern: str) -> list[str | None]:
    name, _, rest = pattern.partition(" ")
    return [fnmatch.translate(name), fnmatch.translate(pattern) if rest else None]


def _matches(pattern: str, path: str) -> bool:
    # One file has one spelling in a session, whichever form of its characters a script or a rule uses.
    pattern, path = unicodedata.normalize("NFC", pattern), unicodedata.normalize("NFC", path)
    if "/" not in pattern:
        return fnmatch.fnmatchcase(posixpath.basename(path), pattern)
    if pattern == _ROOT or pattern.startswith(f"{_ROOT}/"):
        pattern = pattern[len(_ROOT) :]
    if pattern.startswith("~/"):
        pattern = f"*{pattern[1:]}"  # in any home
    elif not pattern.startswith("*"):
        pattern = f"/{pattern.lstrip('/')}"
    # A pattern for the content of a directory also applies to the directory: removing it changes its content.
    return fnmatch.fnmatchcase(path, pattern) or (pattern.endswith("/*") and path == pattern.rstrip("*").rstrip("/"))
