"""What a session keeps under names it chose."""

import pytest

from toolwright import ToolCall, ToolContext, tool
from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing import FakeClock


@pytest.mark.promise("SES-03")
async def test_values_are_kept_with_the_instants_of_their_first_and_last_writing(place, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(place, clock=clock)
    kv = runtime.session("s").kv
    began = clock.now()
    await kv.set("b", {"deep": [1, None, "é"]})
    await kv.set("a", 1)
    await clock.advance(10)
    await kv.set("a", "two")
    assert (await kv.get("a"), await kv.get("b")) == ("two", {"deep": [1, None, "é"]})
    assert (await kv.get("c"), await kv.get("c", 7)) == (None, 7)
    listed = await kv.list()
    assert [(info.key, info.created_at - began, info.updated_at - began) for info in listed] == [
        ("a", pytest.approx(0), pytest.approx(10)),
        ("b", pytest.approx(0), pytest.approx(0)),
    ]
    assert [info.key for info in await kv.list("b")] == ["b"]
    assert (await kv.delete("a"), await kv.delete("a")) == (True, False)
    assert await kv.get("a") is None


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("key", ["", " ", "x" * 256, "é" * 128, "a\0b", "a\nb", "\ud800", 3, None], ids=repr)
async def test_a_key_that_is_not_usable_is_refused(place, open_runtime, key):
    kv = (await open_runtime(place)).session("s").kv
    for use in (kv.get(key), kv.set(key, 1), kv.delete(key)):
        with pytest.raises(ServiceError, match="key"):
            await use
    assert await kv.list() == []


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("key", ["x" * 255, "é" * 127], ids=len)
async def test_a_key_of_255_bytes_is_kept(place, open_runtime, key):
    kv = (await open_runtime(place)).session("s").kv
    await kv.set(key, 1)
    assert await kv.get(key) == 1


@pytest.mark.promise("SES-03")
async def test_a_session_may_not_keep_more_than_its_quota(place, open_runtime):
    runtime = await open_runtime(place, quotas=Quotas(key_values=Quota(2, 100)))
    kv = runtime.session("s").kv
    await kv.set("a", "x" * 40)
    await kv.set("b", "x" * 40)
    with pytest.raises(ServiceError, match="2 key-values") as refused:
        await kv.set("c", 1)
    assert refused.value.code == "quota"
    with pytest.raises(ServiceError, match="100 bytes"):
        await kv.set("a", "x" * 70)
    assert await kv.get("a") == "x" * 40
    await kv.delete("b")
    await kv.set("a", "x" * 70)
    await runtime.session("t").kv.set("a", "x" * 90)


@pytest.mark.promise("SES-06")
async def test_one_session_does_not_see_anothers_keys(place, open_runtime):
    runtime = await open_runtime(place)
    await runtime.session("s").kv.set("a", 1)
    assert await runtime.session("t").kv.get("a") is None
    assert await runtime.session("t").kv.list() == []
    assert not await runtime.session("t").kv.delete("a")
    assert await runtime.session("s").kv.get("a") == 1


@pytest.mark.promise("SES-03")
async def test_a_tool_uses_the_keys_of_its_session(place, open_runtime):
    @tool
    async def count(ctx: ToolContext) -> int:
        number = await ctx.kv.get("count", 0) + 1
        await ctx.kv.set("count", number)
        return number

    runtime = await open_runtime(place, count)
    session = runtime.session("s")
    outcomes = await session.run_batch([ToolCall(name="count", arguments={}) for _ in range(3)])
    assert [outcome.value for outcome in outcomes] == [1, 2, 3]
    assert await session.kv.get("count") == 3


async def test_what_a_service_refuses_is_a_failure_that_the_model_reads(place, open_runtime):
    @tool
    async def store(ctx: ToolContext) -> None:
        await ctx.kv.set("a", "x" * 200)

    runtime = await open_runtime(place, store, quotas=Quotas(key_values=Quota(2, 100)))
    outcome = await runtime.session("s").call("store")
    assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "quota")
    assert "100 bytes" in outcome.text
