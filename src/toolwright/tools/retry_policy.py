"""How often a call is tried. Owns the policy and its delays; does not own the trying."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from toolwright.argument_checks import is_number
from toolwright.errors import PolicyError
from toolwright.plain_data import plain_data

_LARGEST_FACTOR = 1_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `attempts` tries, with growing delays between them.

    Only failures that are declared safe to retry are tried again: `ToolError(..., retry=True)`, or an exception of a
    type in `on` (`TimeoutError` stands for the runtime's own timeout too). A failure's `retry_after` wins over backoff.
    """

    attempts: int = 1
    """How often a call is tried at most, the first time included."""
    base_delay: float = 0.2
    """Seconds before the second attempt."""
    factor: float = 2.0
    """By how much each delay is longer than the one before."""
    max_delay: float = 30.0
    """The longest delay in seconds."""
    jitter: float = 0.1
    """The share of a delay by which it is changed at random, 0 to 1."""
    on: tuple[type[BaseException], ...] = ()
    """Exceptions that are worth another attempt."""

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool) or self.attempts < 1:
            raise PolicyError(f"RetryPolicy.attempts is {self.attempts!r}; use a whole number of at least 1")
        for name in ("base_delay", "max_delay"):
            given = getattr(self, name)
            if not (is_number(given) and given >= 0):
                raise PolicyError(f"RetryPolicy.{name} is {given!r:.200}; use a number of seconds, 0 or more")
        if not (is_number(self.factor) and 1 <= self.factor <= _LARGEST_FACTOR):
            raise PolicyError(f"RetryPolicy.factor is {self.factor!r:.200}; use a number from 1 to {_LARGEST_FACTOR}")
        if not (is_number(self.jitter) and 0 <= self.jitter <= 1):
            raise PolicyError(f"RetryPolicy.jitter is {self.jitter!r:.200}; use a share between 0 and 1")
        on: object = self.on
        if not isinstance(on, Iterable) or isinstance(on, type):
            raise PolicyError(f"RetryPolicy.on is {on!r:.200}; use a tuple of exception types, as in on=(OSError,)")
        kinds = tuple(on)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise PolicyError(f"RetryPolicy.on holds {kind!r:.200}; use exception types")
        object.__setattr__(self, "on", kinds)  # a list is taken too, and `isinstance` takes a tuple only

    def delay(self, attempt: int, uniform: Callable[[], float] = random.random) -> float:
        """Seconds to wait after the given attempt (from 1) failed."""
        grown = min(self.max_delay, self.base_delay * self.factor ** min(attempt - 1, 64))
        return min(self.max_delay, grown * (1 + self.jitter * (2 * uniform() - 1)))

    def to_json(self) -> dict[str, Any]:
        """The policy as plain data; exceptions are shown by their names."""
        return {**plain_data(self), "on": [kind.__qualname__ for kind in self.on]}


NEVER = RetryPolicy()
