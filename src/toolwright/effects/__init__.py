"""What is remembered of calls, so that none is lost and none is repeated."""
