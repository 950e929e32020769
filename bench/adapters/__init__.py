"""Probes of the adapters: an agent of a framework with toolwright's tools, beside the same agent with its own."""
