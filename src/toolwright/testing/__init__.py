"""What tests of tools and of toolwright itself lean on. Nothing in the package imports it."""

from toolwright.testing.clock import FakeClock

__all__ = ["FakeClock"]
