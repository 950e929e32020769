"""Pools: threads and child processes for the code of tools that does not run on the event loop."""
