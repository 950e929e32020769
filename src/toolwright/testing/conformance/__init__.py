"""What every store must do, as cases that anybody can run. Owns the promises of `Store`, one case each.

A case needs a `Database`: something that several owners can open, and where one can be killed. How to run them is in
`docs/writing-a-store.md`. Nothing here needs pytest.
"""

from toolwright.testing.conformance.arrivals import ARRIVALS
from toolwright.testing.conformance.calls import CALLS
from toolwright.testing.conformance.cases import Case, Database
from toolwright.testing.conformance.decisions import DECISIONS
from toolwright.testing.conformance.effects import EFFECTS
from toolwright.testing.conformance.memory import InMemory
from toolwright.testing.conformance.model import play_random_verbs
from toolwright.testing.conformance.owners import OWNERS
from toolwright.testing.conformance.waits import WAITS

CASES: tuple[Case, ...] = (*CALLS, *OWNERS, *EFFECTS, *WAITS, *DECISIONS, *ARRIVALS)
"""All of them."""

__all__ = [
    "ARRIVALS",
    "CALLS",
    "CASES",
    "DECISIONS",
    "EFFECTS",
    "OWNERS",
    "WAITS",
    "Case",
    "Database",
    "InMemory",
    "play_random_verbs",
]
