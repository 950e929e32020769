"""What a runtime and a session are set up with. Owns refusing an option of the wrong kind where it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from toolwright.calls.hooks import is_projector
from toolwright.calls.policy import Policy
from toolwright.errors import ToolwrightError
from toolwright.session.store import Quotas
from toolwright.tools.capability import Capability

Fits = Callable[[Any], bool]


def _is(*kinds: type) -> Fits:
    return lambda given: isinstance(given, kinds)


def _has(*names: str) -> Fits:
    return lambda given: all(callable(getattr(given, name, None)) for name in names)


def _or_none(fits: Fits) -> Fits:
    return lambda given: given is None or fits(given)


_OPTIONS: dict[str, tuple[Fits, str]] = {
    "tools": (lambda given: _is(Iterable)(given) or _has("snapshot")(given), "a list of tools, or a registry"),
    "policy": (_or_none(_is(Policy)), "Policy(...)"),
    "before": (_is(Iterable), "a list of functions"),
    "after": (_is(Iterable), "a list of functions"),
    "projector": (_or_none(is_projector), "a function of an outcome, or of an outcome and its call, sync or async"),
    "call_log": (_or_none(_has("open", "close")), "an object with open(record) and close(record)"),
    "events_file": (_or_none(_is(str, Path)), "the path of a file"),
    "clock": (_or_none(_has("now", "monotonic", "call_at", "sleep")), "a Clock, such as SystemClock()"),
    "sync": (lambda given: isinstance(given, str) and given in ("full", "normal"), "'full' or 'normal'"),
    "recover": (_is(bool), "True or False"),
    "quotas": (_or_none(_is(Quotas)), "Quotas(...)"),
    "master_key": (_or_none(_has("current", "key")), "an object with current() and key(id)"),
    "capabilities": (_is(Iterable, Capability), "a list of names or Capability(...)"),
    "automatic": (_or_none(_is(Iterable)), "a list of Capability(...)"),
    "model": (_or_none(_has("complete")), "an object with an async complete(request)"),
    "worker": (_or_none(_is(bool)), "True, False or None"),
}
"""What fits each option, and what to use instead of what does not."""


def check_options(**given: Any) -> None:
    """Refuse an option that could never work.

    Raises:
        ToolwrightError: one is of the wrong kind.
    """
    for name, value in given.items():
        fits, use = _OPTIONS[name]
        if not fits(value):
            raise ToolwrightError(f"{name}={value!r:.200} is not usable; use {use}")
