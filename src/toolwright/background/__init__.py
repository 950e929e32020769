"""Work that outlives the batch: background runs, their workers, and takeover when a worker dies."""
