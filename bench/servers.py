"""The PostgreSQL server of the benchmark: that of the wheel which the tests use, with the syncs that a server has by
default. Its data is in the system's place for temporary files."""

from typing import Any


def postgres_server(**settings: str) -> Any:
    """A server that is not started yet, as a context manager."""
    from tests.postgres_server import PostgresServer

    usual = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB", "autovacuum": "on"}
    return PostgresServer(**usual, **settings)
