"""The price of a model's tokens. Owns the cost of one call; knows no provider's price list."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from toolwright.errors import ToolwrightError
from toolwright.tools.model import Usage

_MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True):
    """The price of a million tokens, in any currency.

    Tokens that the provider had cached cost `cached`, and tokens that it wrote to its cache cost `cache_write`; without
    these, both cost as much as any other input.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name in ("cached", "cache_write"):
                continue
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise ToolwrightError(f"Price {name}={value!r:.80} is not usable; give a number of at least 0")

    def applied(self, usage: Usage) -> Usage:
        """The same usage with its cost."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        plain = max(0, usage.input - usage.cache_read - usage.cache_write)
        cost = plain * self.input + usage.cache_read * cached + usage.cache_write * written + usage.output * self.output
        return replace(usage, cost=cost / _MILLION)
