"""Work that outlives the batch: processes, who runs them, and what becomes of them when a worker dies."""
