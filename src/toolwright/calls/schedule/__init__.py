"""Schedule: when a call may start, by its claims and free slots."""
