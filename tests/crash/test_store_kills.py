"""What the store acknowledged about effects, waits and signals is there after a kill."""

import pytest

from toolwright.stores.contracts.journal import CallKey, Intent, Kept
from toolwright.stores.contracts.waits import Resolution, Standing, Wait, WaitKey
from toolwright.stores.sqlite.store import SqliteStore

PROGRAM = """
from toolwright.stores.contracts.journal import CallKey, Intent, Kept
from toolwright.stores.contracts.waits import Remembered, Resolution, Wait, WaitKey
from toolwright.stores.sqlite.store import SqliteStore

key = CallKey("s", "", "c1")

async def main():
    opened = SqliteStore(store)
    waits = opened.waits
    await opened.journal.begin([Intent(key, "b", 0, "book", "app.book", b"{}", "model", None, 1.0)])
    await opened.journal.keep(key, Kept("step:pay", b"1", 2.0, True, b"3"))
    await waits.open_wait(Wait(WaitKey(key, "completion"), 4.0, 64.0, b'"detail"'))
    decision = Remembered("s", "app.book", "allow", b"{}", 5.0)
    await waits.resolve(WaitKey(key, "approval"), Resolution("ok", 5.0), decision)
    await waits.signal(WaitKey(key, "signal", "go"), b"6", 6.0)
    await waits.cancel_waits("other", Resolution("cancelled", 7.0), revoke=True)
    say(waits.secret.hex())
    die()
"""


@pytest.mark.promise("EFF-08", "EFF-10", "WAIT-02", "AUTH-04")
async def test_what_was_acknowledged_about_a_call_that_waits_is_there_after_a_kill(crashes):
    (secret,) = crashes.crash(PROGRAM)
    key = CallKey("s", "", "c1")
    store = SqliteStore(crashes.store)
    try:
        (entry,) = await store.journal.begin([Intent(key, "b", 0, "book", "app.book", b"{}", "model", None, 9.0)])
        assert (entry.cut_off, entry.pending) == (True, True)
        assert await store.journal.effects(key) == [Kept("step:pay", b"1", 2.0, True, b"3")]
        assert await store.waits.waiting() == [Wait(WaitKey(key, "completion"), 4.0, 64.0, b'"detail"')]
        second = await store.waits.resolve(WaitKey(key, "approval"), Resolution("cancelled", 9.0))
        assert second == Standing(False, Resolution("ok", 5.0))
        assert await store.waits.signals(WaitKey(key, "signal", "go")) == [b"6"]
        assert [decision.effect for decision in await store.waits.remembered("s")] == ["allow"]
        await store.journal.begin([Intent(CallKey("other", "", "c1"), "b", 0, "t", "t", b"{}", "model", None, 9.0)])
        stands = await store.waits.open_wait(Wait(WaitKey(CallKey("other", "", "c1"), "event"), 9.0))
        assert stands.resolution == Resolution("cancelled", 7.0)
        assert store.waits.secret.hex() == secret
    finally:
        await store.close()
