"""Triggers: what starts a run when something occurs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Policy, RetryPolicy, Runtime, ToolContext, ToolError, tool
from toolwright.errors import RunError, ServiceError
from toolwright.stores.sqlite.admin.maintenance import prune
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FakeClock


@tool(supports_background=True, display_name="Ship Order")
async def ship(order: dict | None = None, express: bool = False) -> list:
    """Say what was ordered."""
    return [order, express]


@tool
async def quick() -> None: ...


async def outcomes(runs) -> list:
    async with fail_after(10):
        return [(await run.wait()).value for run in runs]


async def refusal(awaitable) -> tuple[str, str]:
    with pytest.raises(RunError) as refused:
        await awaitable
    return refused.value.code, str(refused.value)


@pytest.mark.promise("PROC-10")
async def test_what_occurs_starts_each_trigger_of_its_topic_with_the_payload(place, open_runtime):
    runtime = await open_runtime(place, ship)
    one, two = runtime.session("one"), runtime.session("two")
    trigger = await one.on("order.created", "ship", {"express": True}, payload_as="order", title="Ship it")
    await two.on("order.created", "ship", signal_on_completion=True)
    await two.on("order.cancelled", "ship")
    runs = await runtime.occur("order.created", {"id": 17}, key="order-17")
    assert await outcomes(runs) == [[{"id": 17}, True], [None, False]]
    first, second = (run.record for run in runs)
    assert (first.session, first.title, second.session, second.title) == ("one", "Ship it", "two", "Ship Order")
    origin = {"by": "trigger", "trigger": trigger.id, "topic": "order.created", "key": "order-17"}
    assert first.provenance == origin
    assert (await one.messages.list(), len(await two.messages.list())) == ([], 1)
    assert [run.id for run in await one.runs()] == [first.id]
    assert await runtime.occur("order.lost", {"id": 17}) == []


@pytest.mark.promise("PROC-10")
@pytest.mark.parametrize(
    ("match", "payload", "starts"),
    [
        ({}, {"a": 1}, True),
        ({}, None, True),
        ({}, [1], True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, [1], False),
        ({"a": 1}, None, False),
        ({"a": "x*"}, {"a": "xyz"}, True),
        ({"a": "x*"}, {"a": "Xyz"}, False),
        ({"a": "x?"}, {"a": "xyz"}, False),
        ({"a": "[0-9]*"}, {"a": 3}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
    ],
    ids=str,
)
async def test_only_a_payload_that_matches_starts_something(open_runtime, match, payload, starts):
    runtime = await open_runtime(":memory:", ship)
    await runtime.session("s").on("t", "ship", match=match)
    assert len(await runtime.occur("t", payload)) == starts


@pytest.mark.promise("PROC-10")
async def test_the_same_key_gives_the_same_runs_and_starts_nothing(file, open_runtime):
    runtime = await open_runtime(file, ship)
    session = runtime.session("s")
    await session.on("t", "ship", payload_as="order")
    first = await runtime.occur("t", {"a": 1, "b": 2}, key="k")
    await outcomes(first)
    # A trigger that came later does not hear of what occurred before.
    await session.on("t", "ship")
    again = await runtime.occur("t", {"b": 2, "a": 1}, key="k")
    assert [run.id for run in again] == [run.id for run in first]
    assert len(await session.runs()) == 1
    code, said = await refusal(runtime.occur("t", {"a": 1, "b": 3}, key="k"))
    assert (code, "'k' of topic 't' was used for another payload" in said) == ("conflict", True)
    assert len(await runtime.occur("t", {"a": 1, "b": 3}, key="other")) == 2
    assert len(await runtime.occur("u", {"a": 5}, key="k")) == 0
    # Said elsewhere, and after a restart.
    other = await open_runtime(file, ship, worker=False)
    assert [run.id for run in await other.occur("t", {"a": 1, "b": 2}, key="k")] == [first[0].id]


@pytest.mark.promise("PROC-10")
async def test_without_a_key_everything_occurs_for_itself(open_runtime):
    runtime = await open_runtime(":memory:", ship)
    await runtime.session("s").on("t", "ship")
    runs = [run.id for _ in range(2) for run in await runtime.occur("t", {"a": 1})]
    assert len(set(runs)) == 2


@pytest.mark.promise("PROC-10")
async def test_what_many_say_at_once_under_one_key_occurs_once(file, open_runtime):
    runtimes = [await open_runtime(file, ship, worker=False) for _ in range(3)]
    await runtimes[0].session("s").on("t", "ship")
    said = await asyncio.gather(*(runtime.occur("t", 1, key="k") for runtime in runtimes for _ in range(5)))
    assert len({run.id for runs in said for run in runs}) == 1
    assert all(len(runs) == 1 for runs in said)
    assert len(await runtimes[0].session("s").runs()) == 1


class Interrupted:
    """The triggers of a store, which change once after somebody has read them."""

    def __init__(self, inner: Any, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        self._inner = inner
        self._meanwhile: Callable[[], Awaitable[Any]] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def triggers_of(self, topic: str) -> Any:
        found = await self._inner.triggers_of(topic)
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
        return found


@pytest.mark.promise("PROC-10")
@pytest.mark.parametrize(("change", "starts"), [("on", 2), ("off", 0)])
async def test_a_trigger_that_comes_or_goes_meanwhile_counts_as_it_is_when_it_occurs(
    file, open_runtime, change, starts
):
    other = await open_runtime(file, ship, worker=False)
    trigger = await other.session("s").on("t", "ship")

    async def meanwhile() -> None:
        await (other.session("s").on("t", "ship") if change == "on" else other.session("s").off(trigger))

    store: Any = SqliteStore(file)
    store.services.triggers = Interrupted(store.services.triggers, meanwhile)
    runtime = await open_runtime(store, ship, worker=False)
    assert len(await runtime.occur("t", 1, key="k")) == starts
    assert len(await runtime.session("s").runs()) == starts


@pytest.mark.promise("PROC-10", "PROC-06")
async def test_what_is_over_the_limit_waits_and_is_not_lost(open_runtime):
    policy = Policy(background_per_session=2, background_per_worker=3)
    runtime = await open_runtime(":memory:", ship, policy=policy)
    session = runtime.session("s")
    await session.on("t", "ship", payload_as="order")
    runs = [run for number in range(10) for run in await runtime.occur("t", {"number": number}, key=str(number))]
    assert await outcomes(runs) == [[{"number": number}, False] for number in range(10)]


async def test_a_run_of_a_trigger_may_be_signalled_before_it_begins(place, open_runtime):
    @tool(supports_background=True)
    async def listen(ctx: ToolContext) -> str:
        word: str = await ctx.receive("word")
        return word

    runtime = await open_runtime(place, listen)
    await runtime.session("s").on("t", "listen")
    (run,) = await runtime.occur("t")
    await run.signal("word", "hello")
    assert await outcomes([run]) == ["hello"]


@pytest.mark.promise("PROC-10")
async def test_triggers_are_listed_removed_and_survive_a_restart(file, open_runtime):
    async with Runtime.open(file, tools=[ship], clock=FakeClock(now=1_000.0)) as runtime:
        first = await runtime.session("s").on(
            "t", "ship", {"express": True}, match={"a": "x*"}, payload_as="order", timeout=60, signal_on_completion=True
        )
    assert (first.session, first.topic, first.tool, first.arguments, first.match, first.payload_as) == (
        "s",
        "t",
        "ship",
        {"express": True},
        {"a": "x*"},
        "order",
    )
    assert (first.title, first.timeout, first.signal_on_completion, first.created_at) == (
        "Ship Order",
        60.0,
        True,
        1_000.0,
    )
    runtime = await open_runtime(file, ship)
    session = runtime.session("s")
    second = await session.on("t", "ship")
    assert await session.triggers() == [first, second]
    assert await runtime.session("other").triggers() == []
    assert await runtime.session("other").off(first) is False
    assert await session.off(first) is True
    assert await session.off(first.id) is False
    assert await session.triggers() == [second]
    assert len(await runtime.occur("t", {"a": "xy"})) == 1


@pytest.mark.promise("PROC-10")
async def test_a_trigger_of_the_same_id_and_content_is_the_same(place, open_runtime):
    runtime = await open_runtime(place, ship)
    session = runtime.session("s")
    first = await session.on("t", "ship", {"express": True}, id="ships", match={"a": 1})
    assert await session.on("t", "ship", {"express": True}, id="ships", match={"a": 1}) == first
    code, said = await refusal(session.on("t", "ship", id="ships"))
    assert (code, "'ships' is that of another trigger; remove that one first" in said) == ("conflict", True)
    # Another session has ids of its own.
    await runtime.session("other").on("u", "ship", id="ships")
    assert await session.triggers() == [first]


@pytest.mark.promise("PROC-10")
@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (("t", "none"), {}, "Unknown tool: none"),
        (("t", "quick"), {}, "Tool does not support background execution: quick"),
        (("", "ship"), {}, "The topic '' is not usable"),
        (("t\n", "ship"), {}, "is not usable"),
        ((3, "ship"), {}, "The topic 3 is not usable"),
        (("t", "ship", [1]), {}, "args (object expected)"),
        (("t", "ship", {"express": 1j}), {}, "no JSON form"),
        (("t", "ship"), {"match": "x"}, "The match 'x' of a trigger is not usable; use a mapping"),
        (("t", "ship"), {"match": {"a": 1j}}, "no JSON form"),
        (("t", "ship"), {"match": {"a": "x" * 300_000}}, "match less of it"),
        (("t", "ship"), {"payload_as": ""}, "payload_as is ''"),
        (("t", "ship"), {"payload_as": "nothing"}, "Tool 'ship' has no parameter 'nothing' for the payload"),
        (("t", "ship", {"order": {}}), {"payload_as": "order"}, "would replace the argument 'order'"),
        (("t", "ship"), {"timeout": -1}, "The timeout -1 of a run is not usable"),
        (("t", "ship"), {"signal_on_completion": "yes"}, "use True or False"),
        (("t", "ship"), {"id": " "}, "The id of a trigger ' ' is not usable"),
    ],
    ids=str,
)
async def test_what_cannot_be_a_trigger_is_refused(open_runtime, given, options, said):
    session = (await open_runtime(":memory:", ship, quick)).session("s")
    with pytest.raises(ServiceError) as refused:
        await session.on(*given, **options)
    assert said in str(refused.value)
    assert await session.triggers() == []


@pytest.mark.parametrize(
    ("topic", "payload", "key", "said"),
    [
        ("", 1, None, "The topic '' is not usable"),
        ("t", object(), None, "no JSON form"),
        ("t", "x" * 300_000, None, "The payload has 300002 bytes, and may have 262144"),
        ("t", 1, "", "The key of an occurrence '' is not usable"),
        ("t", 1, 7, "The key of an occurrence 7 is not usable"),
    ],
    ids=["topic", "payload", "size", "key", "number"],
)
async def test_what_cannot_occur_is_refused(open_runtime, topic, payload, key, said):
    runtime = await open_runtime(":memory:", ship)
    await runtime.session("s").on("t", "ship")
    assert said in (await refusal(runtime.occur(topic, payload, key=key)))[1]
    assert await runtime.session("s").runs() == []


@pytest.mark.promise("PROC-10")
async def test_a_session_may_have_only_so_many_triggers_also_when_many_add_them_at_once(place, open_runtime):
    session = (await open_runtime(place, ship)).session("s")
    added = await asyncio.gather(*(session.on("t", "ship") for _ in range(120)), return_exceptions=True)
    refused = [one for one in added if isinstance(one, RunError)]
    assert (len(refused), {error.code for error in refused}) == (20, {"trigger_limit"})
    assert len(await session.triggers()) == 100


@pytest.mark.promise("PROC-10", "SES-03")
async def test_a_secret_is_neither_kept_in_a_trigger_nor_passed_by_a_payload(file, open_runtime):
    async with Runtime.open(file, tools=[ship]) as runtime:
        await runtime.session("s").secrets.set("token", "hunter2-hunter2")
        await runtime.session("s").on("t", "ship", payload_as="order")
    # Another process has to read what the secrets are.
    runtime = await open_runtime(file, ship)
    session = runtime.session("s")
    for attempt in (
        session.on("t", "ship", {"order": {"token": "hunter2-hunter2"}}),
        session.on("t", "ship", match={"token": "hunter2-hunter2"}),
        session.spawn("ship", {"order": {"token": "hunter2-hunter2"}}),
    ):
        assert "the value of a secret" in (await refusal(attempt))[1]
    said = (await refusal(runtime.occur("t", {"token": "hunter2-hunter2"}, key="k")))[1]
    assert "the value of a secret of session 's'" in said
    assert await session.runs() == []
    assert len(await runtime.occur("t", {"token": "public"}, key="k")) == 1


async def test_the_triggers_of_a_session_are_removed_with_it(place, open_runtime):
    runtime = await open_runtime(place, ship, worker=False)
    session = runtime.session("s")
    await session.on("t", "ship")
    await session.kv.set("a", 1)
    assert await runtime.delete_session("s") is True
    assert await runtime.occur("t") == []
    assert await runtime.session("s").triggers() == []


async def test_keys_of_what_occurred_long_ago_go_when_a_store_is_pruned(file, open_runtime):
    clock = FakeClock(now=1_000.0)
    runtime = await open_runtime(file, ship, clock=clock, worker=False)
    await runtime.occur("t", 1, key="old")
    await clock.advance(100)
    await runtime.occur("t", 1, key="new")
    assert (await prune(file, 1_050.0, dry_run=True)).occurrences == 1
    assert (await prune(file, 1_050.0, sessions=["s"])).occurrences == 0
    assert (await prune(file, 1_050.0)).occurrences == 1
    await runtime.occur("t", 2, key="old")
    assert (await refusal(runtime.occur("t", 2, key="new")))[0] == "conflict"


# --- triggers of tools


@pytest.mark.promise("PROC-10", "SES-06")
async def test_a_tool_adds_triggers_and_says_what_occurs_in_its_session(place, open_runtime):
    @tool
    async def plan(ctx: ToolContext) -> list:
        await ctx.triggers.add("order.created", "ship", payload_as="order")
        runs = await ctx.triggers.occur("order.created", {"id": 17})
        return [len(await ctx.triggers.list()), [run.id for run in runs]]

    runtime = await open_runtime(place, ship, plan)
    other = runtime.session("other")
    await other.on("order.created", "ship")
    session = runtime.session("s")
    count, ids = (await session.call("plan")).value
    assert count == 1
    (run,) = await session.runs()
    assert [run.id] == ids
    assert await outcomes([run]) == [[{"id": 17}, False]]
    assert (run.record.session, await other.runs()) == ("s", [])


@pytest.mark.promise("PROC-10", "RETRY-02")
async def test_a_call_that_runs_again_adds_its_trigger_once_and_its_occurrence_occurs_once(place, open_runtime):
    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0))
    async def plan(ctx: ToolContext) -> int:
        await ctx.triggers.add("order.created", "ship")
        await ctx.triggers.occur("order.created", {"id": 1})
        await ctx.triggers.occur("order.created", {"id": 1})
        await ctx.triggers.occur("order.created", {"id": 2}, key="mine")
        if ctx.attempt < 3:
            raise ToolError("not yet", retry=True)
        return ctx.attempt

    runtime = await open_runtime(place, ship, plan)
    session = runtime.session("s")
    async with fail_after(10):
        assert (await session.call("plan")).value == 3
    assert len(await session.triggers()) == 1
    assert len(await session.runs()) == 3


@pytest.mark.promise("PROC-10", "SES-06")
async def test_a_tool_cannot_take_the_key_of_an_occurrence_of_the_host(place, open_runtime):
    @tool
    async def spoil(ctx: ToolContext) -> int:
        return len(await ctx.triggers.occur("order.created", {"id": 0}, key="order-17"))

    runtime = await open_runtime(place, ship, spoil)
    await runtime.session("victim").on("order.created", "ship")
    assert (await runtime.session("s").call("spoil")).value == 0
    assert len(await runtime.occur("order.created", {"id": 17}, key="order-17")) == 1
