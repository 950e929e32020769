"""Fixtures of the hostile corpus: runtimes on every store, and the measure that holds them to their turns."""

from tests.effects.conftest import file, open_runtime, place

__all__ = ["file", "open_runtime", "place"]
