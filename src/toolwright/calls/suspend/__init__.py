"""Suspend: steps and waits of a call that is running."""
