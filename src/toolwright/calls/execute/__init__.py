"""Execute: running the code of a tool, with timeouts, retries and cancellation."""
