"""The journal of calls and their waits in SQLite."""
