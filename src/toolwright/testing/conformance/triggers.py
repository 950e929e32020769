"""Triggers and occurrences: once by key, with all the runs that they start, or not at all."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.triggers import Occurrence, Start
from toolwright.testing.conformance.background import (
    PLENTY,
    QUEUEING,
    TimedServices,
    claim,
    open_services,
    refusal,
    registration,
    trigger,
)
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.limits import TWO


async def triggers_are_read_as_they_were_added(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    young, old = trigger("t1", created_at=200.5), trigger("t2", created_at=100.5)
    theirs, elsewhere = trigger("t1", session="s2", created_at=150.5), trigger("t3", topic="parcel")
    for new in (young, old, theirs, elsewhere):
        assert await stores.triggers.add_trigger(new, 9) == new
    assert await other.triggers.list_triggers("s1") == [elsewhere, old, young]
    assert await other.triggers.triggers_of("order") == [old, theirs, young]
    assert await other.triggers.list_triggers("s3") == await other.triggers.triggers_of("nothing") == []


async def a_trigger_of_the_same_id_and_content_is_the_same(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    first = await stores.triggers.add_trigger(trigger(created_at=100.0), 1)
    assert await other.triggers.add_trigger(trigger(created_at=200.0), 1) == first
    for another in (
        replace(first, topic="parcel"),
        replace(first, tool="other"),
        replace(first, arguments={}),
        replace(first, match={}),
        replace(first, payload_as=None),
        replace(first, title="Other"),
        replace(first, timeout=None),
        replace(first, signal_on_completion=False),
    ):
        assert await refusal(other.triggers.add_trigger(another, 9)) == "conflict"
    assert await other.triggers.list_triggers("s1") == [first]


async def a_session_at_its_limit_is_refused_more_triggers(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id in ("t1", "t2"):
        await stores.triggers.add_trigger(trigger(id), 2)
    assert await refusal(other.triggers.add_trigger(trigger("t3"), 2)) == "trigger_limit"
    await other.triggers.add_trigger(trigger("t3", session="s2"), 2)
    assert await stores.triggers.remove_trigger("s1", "t1")
    tried = await asyncio.gather(
        *(one.triggers.add_trigger(trigger(f"new {index}"), 2) for index, one in enumerate((stores, other))),
        return_exceptions=True,
    )
    assert sum(isinstance(found, Exception) for found in tried) == 1
    assert len(await other.triggers.list_triggers("s1")) == 2


async def a_trigger_is_removed_from_its_session_and_no_other(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for session in ("s1", "s2"):
        await stores.triggers.add_trigger(trigger(session=session), 9)
    assert not await other.triggers.remove_trigger("s3", "t1")
    assert await other.triggers.remove_trigger("s1", "t1")
    assert not await stores.triggers.remove_trigger("s1", "t1")
    assert [found.session for found in await stores.triggers.triggers_of("order")] == ["s2"]


async def an_occurrence_is_written_with_all_runs_that_it_starts(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    assert await _occur(stores, "p1", "p2") == ["p1", "p2"]
    assert sorted(run.id for run in await claim(other)) == ["p1", "p2"]
    assert await _occur(stores, key="k2") == []
    held = Start(registration("p3"), QUEUEING)
    assert await stores.triggers.occur(_occurrence("k3"), [], [held]) == ["p3"]
    assert await claim(other) == []


async def an_occurrence_with_a_known_key_starts_nothing(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    known = await stores.triggers.add_trigger(trigger(), 9)
    starts = [Start(registration(id), PLENTY) for id in ("p1", "p2", "p3", "p4")]
    assert await stores.triggers.occur(_occurrence(), [known], starts[:1]) == ["p1"]
    assert await other.triggers.occur(_occurrence(), [known], starts[1:2]) == ["p1"]
    await stores.triggers.remove_trigger("s1", "t1")
    assert await other.triggers.occur(_occurrence(), [], []) == ["p1"]
    assert await other.triggers.occur(_occurrence(), [known], starts[1:2]) == ["p1"]
    assert await other.runs.find("p2") is None
    assert await other.triggers.occur(_occurrence("k2"), [], starts[2:3]) == ["p3"]
    assert await other.triggers.occur(_occurrence(topic="parcel"), [], starts[3:]) == ["p4"]


async def a_known_key_with_another_payload_is_a_conflict(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await _occur(stores, "p1")
    again = other.triggers.occur(_occurrence(digest="another"), [], [Start(registration("p2"), PLENTY)])
    assert await refusal(again) == "conflict"
    assert await other.runs.find("p2") is None
    assert await _occur(other, "p2") == ["p1"]


async def an_occurrence_is_refused_when_the_triggers_have_changed(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    first = await stores.triggers.add_trigger(trigger("t1"), 9)
    second = await stores.triggers.add_trigger(trigger("t2", session="s2", created_at=200.0), 9)
    await stores.triggers.add_trigger(trigger("t3", topic="parcel"), 9)
    start = [Start(registration(), PLENTY)]
    for known in ([], [first], [second], [first, replace(second, title="Other")]):
        assert await other.triggers.occur(_occurrence(), known, start) is None
    assert await other.runs.find("p1") is None
    assert await other.triggers.occur(_occurrence(digest="another"), [first, second], start) == ["p1"]


async def an_occurrence_that_many_report_at_once_is_written_once(database: Database) -> None:
    owners = [await open_services(database) for _ in range(4)]
    found = await asyncio.gather(*(_occur(one, f"p{index}") for index, one in enumerate(owners)))
    assert [found[0]] * 4 == found
    assert [run.id for run in await owners[0].runs.list(None)] == found[0]


async def an_occurrence_is_not_written_when_a_run_is_refused(database: Database) -> None:
    stores = await open_services(database)
    starts = [Start(registration(id), TWO) for id in ("p1", "p2", "p3")]
    assert await refusal(stores.triggers.occur(_occurrence(), [], starts)) == "session_limit"
    assert await stores.runs.list(None) == []
    assert await stores.triggers.occur(_occurrence(), [], starts[:2]) == ["p1", "p2"]


async def _occur(stores: TimedServices, *ids: str, key: str = "k1") -> list[str] | None:
    starts = [Start(registration(id), PLENTY) for id in ids]
    started: list[str] | None = await stores.triggers.occur(_occurrence(key), [], starts)
    return started


def _occurrence(key: str = "k1", *, topic: str = "order", digest: str = "some") -> Occurrence:
    return Occurrence(topic=topic, key=key, digest=digest, at=100.0)


TRIGGERS = cases(
    triggers_are_read_as_they_were_added,
    a_trigger_of_the_same_id_and_content_is_the_same,
    a_session_at_its_limit_is_refused_more_triggers,
    a_trigger_is_removed_from_its_session_and_no_other,
    an_occurrence_is_written_with_all_runs_that_it_starts,
    an_occurrence_with_a_known_key_starts_nothing,
    a_known_key_with_another_payload_is_a_conflict,
    an_occurrence_is_refused_when_the_triggers_have_changed,
    an_occurrence_that_many_report_at_once_is_written_once,
    an_occurrence_is_not_written_when_a_run_is_refused,
)
