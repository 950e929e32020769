"""The way of one call: prepare, authorise, schedule, execute, finalise, record; `batch` is the spine."""
