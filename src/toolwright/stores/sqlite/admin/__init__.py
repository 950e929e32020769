"""History, statistics, checks and pruning of a SQLite store."""
