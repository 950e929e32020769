"""Turns: from a message to the answer of a model, with the calls of tools in between."""
