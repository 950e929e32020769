"""The thread that writes to a file outlives what happens to the files beside the store."""

import os
import sys
from pathlib import Path

import pytest

from tests.support import fail_after
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.sqlite_store import run_on_connection


def queue_files() -> set[int]:
    """The open descriptors of this process for files in which writers queue."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            is_queue = os.readlink(f"/proc/self/fd/{name}").endswith("-turns")
        except FileNotFoundError:  # that of the directory itself, which is closed again
            continue
        if is_queue:
            found.add(int(name))
    return found


@pytest.mark.promise("EFF-07")
@pytest.mark.skipif(sys.platform != "linux", reason="only there programs queue to write")
async def test_a_store_can_be_used_when_the_file_of_its_queue_was_closed_while_it_wrote(file: Path):
    async with fail_after(3):
        other = SqliteStore(file)  # so that the store queues
        before = queue_files()
        store = SqliteStore(file)
        await run_on_connection(store, lambda connection: None)
        (own,) = queue_files() - before
        await run_on_connection(store, lambda connection: os.close(own))
        for _ in range(2):
            assert await run_on_connection(store, lambda connection: "done") == "done"
        await store.close()
        await other.close()
