"""Resources of sessions: things outside, with a kind and a status."""

from __future__ import annotations

from toolwright.stores.contracts.sessions import Mark, Quota, ResourceRow, ResourceStore
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import WIDE, marked, open_services, services_of


async def put(
    resources: ResourceStore,
    id: str,
    kind: str = "browser",
    status: str = "open",
    *,
    at: float = 100.0,
    session: str = "s1",
    metadata: bytes = b"{}",
    quota: Quota = WIDE,
    mark: Mark | None = None,
) -> tuple[float, float]:
    """Write a resource."""
    created, updated = await resources.upsert_resource(
        session, id, kind, f"The {id}", status, metadata, at, quota, mark
    )
    return created, updated


def plain(row: ResourceRow | None) -> tuple[object, ...] | None:
    """A resource as a tuple, whatever kind of row the store gives."""
    return None if row is None else tuple(row)


async def a_resource_comes_back_as_it_was_written(database: Database) -> None:
    resources, other = (await open_services(database)).resources, (await open_services(database)).resources
    assert await put(resources, "r1", metadata=b'{"a":"\\u0000"}') == (100.0, 100.0)
    row = ("r1", "browser", "The r1", "open", b'{"a":"\\u0000"}', 100.0, 100.0)
    assert plain(await other.get_resource("s1", "r1")) == row
    assert await put(resources, "r1", "page", "closed", at=200.0) == (100.0, 200.0)
    row = ("r1", "page", "The r1", "closed", b"{}", 100.0, 200.0)
    assert plain(await other.get_resource("s1", "r1")) == row
    assert await other.get_resource("s1", "r2") is None


async def a_status_is_changed_and_nothing_else(database: Database) -> None:
    resources = (await open_services(database)).resources
    await put(resources, "r1", metadata=b'{"a":1}')
    changed = await resources.set_resource_status("s1", "r1", "closed", 200.0, WIDE, None)
    assert plain(changed) == ("r1", "browser", "The r1", "closed", b'{"a":1}', 100.0, 200.0)
    assert plain(await resources.get_resource("s1", "r1")) == plain(changed)
    assert await resources.set_resource_status("s1", "r2", "closed", 200.0, WIDE, None) is None


async def resources_are_listed_by_kind_and_status_in_the_order_of_their_ids(database: Database) -> None:
    resources = (await open_services(database)).resources
    for id, kind, status in (("b", "page", "open"), ("a", "browser", "open"), ("c", "page", "closed")):
        await put(resources, id, kind, status)

    async def listed(kind: str | None = None, status: str | None = None) -> list[str]:
        return [row[0] for row in await resources.list_resources("s1", kind, status)]

    assert await listed() == ["a", "b", "c"]
    assert await listed("page") == ["b", "c"]
    assert await listed(status="open") == ["a", "b"]
    assert await listed("page", "closed") == ["c"]
    assert await listed("never") == []


async def a_resource_is_deleted_once(database: Database) -> None:
    resources = (await open_services(database)).resources
    await put(resources, "r1")
    assert await resources.delete_resource("s1", "r1", None)
    assert not await resources.delete_resource("s1", "r1", None)
    assert await resources.get_resource("s1", "r1") is None


async def a_session_has_no_more_resources_than_it_may(database: Database) -> None:
    resources = (await open_services(database)).resources
    quota = Quota(1, 10)
    await put(resources, "r1", quota=quota)
    assert await refusal(put(resources, "r2", quota=quota)) == "quota"
    assert await refusal(put(resources, "r1", metadata=b'{"a":"long"}', quota=quota)) == "quota"
    assert [row[0] for row in await resources.list_resources("s1", None, None)] == ["r1"]
    await put(resources, "r2", session="s2", quota=quota)


async def a_change_of_resources_under_a_mark_is_made_once(database: Database) -> None:
    store = await database.open()
    resources, mark = services_of(store).resources, await marked(store)
    await put(resources, "r1", status="open", mark=mark)
    close = await marked(store, "close:1")
    closed = await resources.set_resource_status("s1", "r1", "closed", 200.0, WIDE, close)
    assert await put(resources, "r1", status="open", at=300.0, mark=mark) == (100.0, 100.0)
    await put(resources, "r1", status="open again", at=400.0)
    assert plain(await resources.set_resource_status("s1", "r1", "closed", 500.0, WIDE, close)) == plain(closed)
    assert plain(await resources.get_resource("s1", "r1")) == (
        "r1",
        "browser",
        "The r1",
        "open again",
        b"{}",
        100.0,
        400.0,
    )


async def resources_are_those_of_one_session(database: Database) -> None:
    resources = (await open_services(database)).resources
    await put(resources, "r1")
    assert await resources.get_resource("s2", "r1") is None
    assert await resources.list_resources("s2", None, None) == []
    assert await resources.set_resource_status("s2", "r1", "closed", 200.0, WIDE, None) is None
    assert not await resources.delete_resource("s2", "r1", None)
    assert plain(await resources.get_resource("s1", "r1")) is not None


RESOURCES = cases(
    a_resource_comes_back_as_it_was_written,
    a_status_is_changed_and_nothing_else,
    resources_are_listed_by_kind_and_status_in_the_order_of_their_ids,
    a_resource_is_deleted_once,
    a_session_has_no_more_resources_than_it_may,
    a_change_of_resources_under_a_mark_is_made_once,
    resources_are_those_of_one_session,
)
