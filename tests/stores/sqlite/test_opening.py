"""Opening a store inside async code: the event loop goes on while the file is read, migrated or waited for."""

import asyncio

import apsw
import pytest

from tests.stores.sqlite.older_schemas import make_version_1
from tests.support import fail_after
from toolwright import Runtime
from toolwright.errors import StoreError
from toolwright.stores import SqliteStore, open_store
from toolwright.testing.conformance.cases import call, intent


@pytest.mark.promise("EFF-09", "EFF-20")
@pytest.mark.parametrize("version", ["this version", "an older version"])
async def test_a_store_that_another_program_holds_is_opened_without_holding_the_event_loop(file, version):
    if version == "an older version":  # it is migrated when the other program is done
        make_version_1(file)
    else:
        await SqliteStore(file).close()
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    async with fail_after(8):  # less than the store waits for the other program
        opening = asyncio.ensure_future(open_store(file))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not opening.done()
        other.execute("ROLLBACK")  # by this loop, which would never come to it
        store = await opening
        assert await store.journal.begin([intent(call())]) == [None]
        await store.close()
    other.close()


@pytest.mark.promise("EFF-20")
async def test_a_store_whose_opening_is_cancelled_is_closed_again(file):
    await SqliteStore(file).close()
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    async with fail_after(8):
        opening = asyncio.ensure_future(SqliteStore.open(file))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await opening
    other.close()
    assert [path.name for path in file.parent.iterdir()] == [file.name]  # no owner is left


@pytest.mark.promise("EFF-20")
async def test_a_store_that_cannot_be_opened_says_why(tmp_path):
    with pytest.raises(StoreError, match="there is no directory"):
        await SqliteStore.open(tmp_path / "nowhere" / "agent.db")
    with pytest.raises(StoreError, match="there is no directory"):
        async with Runtime.open(tmp_path / "nowhere" / "agent.db"):
            pass
