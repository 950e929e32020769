"""Ids that cannot be written: the call fails alone."""

import random
import string

import pytest

from tests.postgres_server import PostgresServer
from tests.support import fail_after
from toolwright import Runtime, StoreError, ToolCall, ToolContext, ToolError, tool


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize("where", ["memory", "file"])
async def test_a_call_whose_id_has_no_form_in_utf_8_fails_alone(tmp_path, where):
    ran: list[int] = []

    @tool
    async def note(n: int) -> int:
        ran.append(n)
        return n

    store = ":memory:" if where == "memory" else tmp_path / "agent.db"
    calls = [
        ToolCall(id="a", name="note", arguments={"n": 1}),
        ToolCall(id="\ud800", name="note", arguments={"n": 2}),
        ToolCall(id="\udfff", name="note", arguments={"n": 3}),
        ToolCall(id="?", name="note", arguments={"n": 4}),
        ToolCall(id="é", name="note", arguments={"n": 5}),
    ]
    async with fail_after(20), Runtime.open(store, tools=[note]) as runtime:
        first = await runtime.session("s").run_batch(calls)
        again = await runtime.session("s").run_batch(calls)
    for outcomes in (first, again):
        assert [outcome.value if outcome.ok else outcome.failure.code for outcome in outcomes] == [
            1,
            "unusable_id",
            "unusable_id",
            4,
            5,
        ]
        outcomes[1].call_id.encode()
        assert "give it another id" in outcomes[1].text
    assert sorted(ran) == [1, 4, 5]


def long_text(length: int) -> str:
    """Text that no server can compress."""
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))


@pytest.fixture
def url(postgres: PostgresServer):
    with postgres.schema() as schema:
        yield f"{postgres.url}?schema={schema}"


@pytest.mark.promise("RUN-02", "ENG-02")
async def test_a_call_whose_id_is_longer_than_a_server_holds_fails_alone_before_it_runs(url: str):
    ran: list[int] = []

    @tool
    async def note(n: int, ctx: ToolContext) -> int:
        ran.append(n)
        return await ctx.step(long_text(255), lambda: n)

    calls = [
        ToolCall(id=long_text(1_594), name="note", arguments={"n": 1}),  # with the session and the scope, the most
        ToolCall(id=long_text(1_595), name="note", arguments={"n": 2}),
        ToolCall(id="é" * 798, name="note", arguments={"n": 3}),
        ToolCall(id="c4", name="note", arguments={"n": 4}),
    ]
    async with fail_after(30), Runtime.open(url, tools=[note]) as runtime:
        session = runtime.session("one")
        first = await session.run_batch(calls, scope="two")
        again = await session.run_batch(calls, scope="two")
        assert sorted(ran) == [1, 4]
        (elsewhere,) = await runtime.session(long_text(3_000)).run_batch(calls[3:])
        (in_scope,) = await session.run_batch(calls[3:], scope=long_text(3_000))
    for outcomes in (first, again):
        assert [outcome.value if outcome.ok else outcome.failure.code for outcome in outcomes] == [
            1,
            "unusable_id",
            "unusable_id",
            4,
        ]
        assert (
            "has 1,601 bytes together with its session and scope, and this store takes at most 1,600"
            in outcomes[1].text
        )
    assert [outcome.replayed for outcome in again] == [True, False, False, True]
    assert (elsewhere.failure.code, in_scope.failure.code, len(ran)) == ("unusable_id", "unusable_id", 2)


def any_text(length: int, first: int, last: int) -> str:
    """Text of characters from a range that no server can compress."""
    return "".join(map(chr, random.Random(length).choices(range(first, last), k=length)))


@pytest.mark.promise("EFF-09", "RUN-02")
async def test_the_longest_id_leaves_room_for_the_longest_names_of_steps_and_waits(url: str):
    names = [any_text(255, 0x4E00, 0x9FFF), any_text(255, 0x20000, 0x2A6DF), "\1" * 255]
    ran: list[str] = []

    async def write(name: str) -> str:
        ran.append(name)
        return name

    @tool
    async def note(ctx: ToolContext) -> list[str]:
        texts = [await ctx.step(name, write, name) for name in names]
        for name in names:
            await ctx.sleep(name, 0)
            with pytest.raises(ToolError, match="came to its deadline"):
                await ctx.receive(name, deadline=0)
        return texts

    calls = [ToolCall(id=any_text(1_594, 0x30, 0x7A), name="note", arguments={})]
    async with fail_after(30), Runtime.open(url, tools=[note]) as runtime:
        (outcome,) = await runtime.session("one").run_batch(calls, scope="two")
        (again,) = await runtime.session("one").run_batch(calls, scope="two")

    assert (outcome.failure, outcome.value) == (None, names)
    assert (again.replayed, ran) == (True, names)


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize("character", ["\0", "\1"])
async def test_characters_that_a_server_cannot_hold_as_they_are_count_twice(url: str, character: str):
    ran: list[int] = []

    async def write(n: int) -> int:
        ran.append(n)
        return n

    @tool
    async def note(n: int, ctx: ToolContext) -> int:
        return await ctx.step(any_text(255, 0x20000, 0x2A6DF), write, n)

    calls = [
        ToolCall(id=character * 797, name="note", arguments={"n": 1}),
        ToolCall(id=character * 798, name="note", arguments={"n": 2}),
    ]
    async with fail_after(30), Runtime.open(url, tools=[note]) as runtime:
        fits, too_long = await runtime.session("one").run_batch(calls, scope="two")

    assert (fits.value, fits.failure, ran) == (1, None, [1])
    assert "has 1,602 bytes together with its session and scope, and this store takes at most 1,600" in too_long.text


@pytest.mark.promise("RUN-02")
async def test_a_file_holds_ids_of_any_length(tmp_path):
    @tool
    async def note(n: int) -> int:
        return n

    call = ToolCall(id=long_text(20_000), name="note", arguments={"n": 1})
    async with fail_after(20), Runtime.open(tmp_path / "agent.db", tools=[note]) as runtime:
        session = runtime.session(long_text(5_000))
        assert [(await session.run_batch([call], scope=long_text(5_000)))[0].replayed for _ in range(2)] == [
            False,
            True,
        ]


@pytest.mark.promise("ENG-02")
async def test_a_name_that_is_longer_than_a_server_holds_is_told_as_such(url: str):
    async with fail_after(30), Runtime.open(url) as runtime:
        with pytest.raises(
            StoreError, match=r"an id, a name or a path is longer than an index holds .*use a shorter one"
        ):
            await runtime.session(long_text(3_000)).kv.set("k", 1)
