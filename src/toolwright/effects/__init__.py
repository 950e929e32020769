"""The durable record of calls, so that none is lost and none is repeated."""
