"""Fixtures of the tests about built-in tools."""

from tests.effects.conftest import file, open_runtime, place

__all__ = ["file", "open_runtime", "place"]
