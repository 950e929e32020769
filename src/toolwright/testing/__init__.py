"""Support for tests of tools and of toolwright itself. Nothing in the package imports it."""

from toolwright.testing.clock import FakeClock
from toolwright.testing.crash import CrashKit, StoredCall
from toolwright.testing.failing_tool import failing_tool
from toolwright.testing.fake_context import Asked, Emitted, FakeContext, Output, Progress, Recorded
from toolwright.testing.inside_program import crash_point, die, hear, note, say
from toolwright.testing.leftovers import is_idle, left_over, slots_in_use
from toolwright.testing.models import FunctionModel, ScriptedModel
from toolwright.testing.programs import Ended, Running, Zygote

__all__ = [
    "Asked",
    "CrashKit",
    "Emitted",
    "Ended",
    "FakeClock",
    "FakeContext",
    "FunctionModel",
    "Output",
    "Progress",
    "Recorded",
    "Running",
    "ScriptedModel",
    "StoredCall",
    "Zygote",
    "crash_point",
    "die",
    "failing_tool",
    "hear",
    "is_idle",
    "left_over",
    "note",
    "say",
    "slots_in_use",
]
