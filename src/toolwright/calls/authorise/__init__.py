"""Authorise: whether a call may run, and who decides that."""
