"""The services of sessions in SQLite."""
