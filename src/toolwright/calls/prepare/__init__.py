"""Prepare: from a model's words to a validated call."""
