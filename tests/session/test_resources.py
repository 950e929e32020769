"""What a session uses or made outside."""

import pytest

from toolwright import ToolContext, tool
from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing import FakeClock


@pytest.mark.promise("SES-05")
async def test_a_resource_is_written_anew_under_its_id(place, open_runtime):
    clock = FakeClock()
    resources = (await open_runtime(place, clock=clock)).session("s").resources
    began = clock.now()
    first = await resources.upsert("b1", kind="browser", name="Main", status="starting", metadata={"port": 1})
    await clock.advance(5)
    second = await resources.upsert("b1", kind="browser", name="Main", status="ready")
    assert (first.status, first.metadata, second.status, second.metadata) == ("starting", {"port": 1}, "ready", {})
    assert (second.created_at - began, second.updated_at - began) == (pytest.approx(0), pytest.approx(5))
    assert await resources.get("b1") == second
    assert await resources.list() == [second]
    assert (await resources.delete("b1"), await resources.delete("b1")) == (True, False)
    assert await resources.get("b1") is None


@pytest.mark.promise("SES-05")
async def test_a_new_status_keeps_the_rest_of_a_resource(place, open_runtime):
    clock = FakeClock()

    @tool
    async def stop(ctx: ToolContext) -> str:
        found = await ctx.resources.update_status("b1", "down")
        assert found is not None
        return found.status

    session = (await open_runtime(place, stop, clock=clock)).session("s")
    first = await session.resources.upsert("b1", kind="browser", name="Main", status="up", metadata={"port": 1})
    await clock.advance(5)
    assert (await session.call("stop")).value == "down"
    found = await session.resources.get("b1")
    assert (found.kind, found.name, found.status, found.metadata) == ("browser", "Main", "down", {"port": 1})
    assert (found.created_at, found.updated_at) == (first.created_at, pytest.approx(first.updated_at + 5))
    assert await session.resources.update_status("nothing", "down") is None
    assert await session.resources.get("nothing") is None
    with pytest.raises(ServiceError, match="status of a resource"):
        await session.resources.update_status("b1", "")


@pytest.mark.promise("SES-05")
async def test_resources_are_found_by_kind_and_status(place, open_runtime):
    resources = (await open_runtime(place)).session("s").resources
    for id, kind, status in [("a", "run", "ok"), ("b", "run", "bad"), ("c", "site", "ok")]:
        await resources.upsert(id, kind=kind, name=id, status=status)

    async def ids(**options):
        return [resource.id for resource in await resources.list(**options)]

    assert await ids() == ["a", "b", "c"]
    assert await ids(kind="run") == ["a", "b"]
    assert await ids(status="ok") == ["a", "c"]
    assert await ids(kind="run", status="ok") == ["a"]
    assert await ids(kind="other") == []


@pytest.mark.promise("SES-05")
async def test_a_tool_tells_of_its_resources(place, open_runtime):
    @tool
    async def deploy(ctx: ToolContext) -> str:
        await ctx.resources.upsert("d1", kind="deployment", name="Shop", status="live", metadata={"url": "x"})
        found = await ctx.resources.get("d1")
        assert found is not None
        return found.status

    session = (await open_runtime(place, deploy)).session("s")
    assert (await session.call("deploy")).value == "live"
    assert [resource.name for resource in await session.resources.list(kind="deployment")] == ["Shop"]


@pytest.mark.parametrize("wrong", [{"id": ""}, {"kind": "a\nb"}, {"name": 3}, {"status": "x" * 256}, {"metadata": [1]}])
async def test_a_resource_that_is_not_usable_is_refused(place, open_runtime, wrong):
    resources = (await open_runtime(place)).session("s").resources
    given = {"id": "a", "kind": "k", "name": "n", "status": "s"} | wrong
    with pytest.raises(ServiceError, match="not usable"):
        await resources.upsert(given.pop("id"), **given)
    assert await resources.list() == []


async def test_a_session_may_not_have_more_resources_than_its_quota(place, open_runtime):
    resources = (await open_runtime(place, quotas=Quotas(resources=Quota(1, 40)))).session("s").resources
    about = {"kind": "k", "name": "n", "status": "s"}
    await resources.upsert("a", **about)
    with pytest.raises(ServiceError, match="1 resources") as refused:
        await resources.upsert("b", **about)
    assert refused.value.code == "quota"
    with pytest.raises(ServiceError, match="40 bytes"):
        await resources.upsert("a", **about, metadata={"x": "y" * 40})
    assert (await resources.get("a")).metadata == {}
