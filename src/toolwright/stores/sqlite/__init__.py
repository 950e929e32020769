"""One SQLite file as the store of a runtime."""
