"""Fixtures of the tests about session services: runtimes on every store, closed at the end within a bound."""

from tests.effects.conftest import file, open_runtime, place

__all__ = ["file", "open_runtime", "place"]
