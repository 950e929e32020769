"""What tests of tools and of toolwright itself lean on. Nothing in the package imports it."""

from toolwright.testing.clock import FakeClock
from toolwright.testing.crash import CrashKit, StoredCall
from toolwright.testing.programs import Ended, Running, Zygote
from toolwright.testing.stage import crash_point, die, hear, note, say

__all__ = [
    "CrashKit",
    "Ended",
    "FakeClock",
    "Running",
    "StoredCall",
    "Zygote",
    "crash_point",
    "die",
    "hear",
    "note",
    "say",
]
