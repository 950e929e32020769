"""Ids that are made by the million and sorted by text."""

import time
import uuid

from toolwright import ids
from toolwright.ids import uuid7


def test_ids_of_one_process_sort_in_the_order_they_were_made():
    made = [uuid7() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_an_id_is_a_uuid_of_version_seven_with_the_millisecond_in_front(monkeypatch):
    # Far ahead, so that no id that was made before stands in the way.
    monkeypatch.setattr(time, "time_ns", lambda: 7_000_000_000_123_456_789)
    monkeypatch.setattr(ids, "_last", 0)  # to be put back: later tests need ids of today
    found = uuid.UUID(uuid7())
    assert (found.version, found.variant, found.int >> 80) == (7, uuid.RFC_4122, 7_000_000_000_123)


def test_a_clock_that_is_put_back_keeps_the_order_of_ids(monkeypatch):
    monkeypatch.setattr(ids, "_last", 0)  # to be put back: later tests need ids of today
    monkeypatch.setattr(time, "time_ns", lambda: 2_000_000_000_000_000_000)
    before = uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000_000)
    assert uuid7() > before
