"""Finalise: from a returned value to the outcome that a model reads."""
