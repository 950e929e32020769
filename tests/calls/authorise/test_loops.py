"""Calls that go round in circles: a warning, or a refusal where policy says so."""

from typing import Any

import pytest

from tests.calls.running import run
from toolwright import Policy, PolicyError, ToolCall, tool


def call(name: str, n: int = 0) -> ToolCall:
    return ToolCall(name=name, arguments={"n": n})


async def warned_at(open_session: Any, names: str, *, one_batch: bool = False, **options: Any) -> list[int]:
    """The places, counted from 1, of the calls that raised a warning."""

    @tool
    async def a(n: int) -> None: ...

    @tool
    async def b(n: int) -> None: ...

    @tool
    async def c(n: int) -> None: ...

    @tool
    async def d(n: int) -> None: ...

    @tool
    async def e(n: int) -> None: ...

    @tool(polling=True)
    async def p(n: int) -> None: ...

    session = await open_session(a, b, c, d, e, p, **options)
    places = []
    with session.subscribe() as events:
        calls = [ToolCall(id=str(place), name=name, arguments={"n": 0}) for place, name in enumerate(names, 1)]
        for batch in [calls] if one_batch else [[one] for one in calls]:
            await run(session, *batch)
        while (event := events.take()) is not None:
            if event.kind == "call.warning":
                assert event.code == "loop"
                places.append(int(event.call_id))
    return places


@pytest.mark.promise("RUN-12")
@pytest.mark.parametrize(
    ("names", "places"),
    [
        ("aa", []),
        ("aaa", [3]),
        ("aaaa", [3, 4]),
        ("aabaa", []),
        ("abab", []),
        ("ababab", [6]),
        ("abababa", [6, 7]),
        ("abcabcabc", [9]),
        ("abcdabcdabcd", [12]),
        ("abcdeabcdeabcde", []),
        ("eabababe", [7]),
        ("abaabbab", []),
        ("baaab", [4]),
    ],
)
@pytest.mark.parametrize("one_batch", [False, True], ids=["batches", "one batch"])
async def test_three_in_a_row_or_a_short_cycle_gone_through_three_times_is_warned_of(
    open_session, names, places, one_batch
):
    assert await warned_at(open_session, names, one_batch=one_batch) == places


@pytest.mark.promise("RUN-12")
async def test_other_arguments_make_another_call(open_session):
    @tool
    async def a(n: int) -> None: ...

    session = await open_session(a)
    with session.subscribe() as events:
        for n in (1, 2, 3, 1, 1, 2):
            await run(session, call("a", n))
        kinds = []
        while (event := events.take()) is not None:
            kinds.append(event.kind)
    assert "call.warning" not in kinds


@pytest.mark.promise("RUN-12")
async def test_the_same_arguments_are_the_same_call_however_they_are_written(open_session):
    @tool
    async def a(n: int, m: int) -> None: ...

    session = await open_session(a)
    with session.subscribe() as events:
        for arguments in ({"n": 1, "m": 2}, '{"m":2,"n":1}', '{ "n": 1, "m": 2 }'):
            await run(session, ToolCall(name="a", arguments=arguments))
        warnings = []
        while (event := events.take()) is not None:
            if event.kind == "call.warning":
                warnings.append(event.message)
    assert warnings == ["Tool 'a' was called 3 times in a row with the same arguments"]


@pytest.mark.promise("RUN-12")
async def test_a_cycle_is_named_in_its_warning(open_session):
    @tool
    async def a(n: int) -> None: ...

    @tool
    async def b(n: int) -> None: ...

    session = await open_session(a, b)
    with session.subscribe() as events:
        await run(session, *(call(name) for name in "ababab"))
        (message,) = [event.message for event in iter(events.take, None) if event.kind == "call.warning"]
    assert message == "The calls 'a' → 'b' were repeated 3 times with the same arguments"


@pytest.mark.promise("RUN-12")
async def test_a_warning_stops_nothing(open_session):
    ran = []

    @tool
    async def a(n: int) -> None:
        ran.append(n)

    session = await open_session(a)
    outcomes = await run(session, *(call("a") for _ in range(5)))
    assert [outcome.status for outcome in outcomes] == ["success"] * 5
    assert len(ran) == 5


@pytest.mark.promise("RUN-12")
async def test_policy_can_turn_the_warning_into_a_refusal(open_session):
    ran = []

    @tool
    async def a(n: int) -> None:
        ran.append(n)

    session = await open_session(a, policy=Policy(on_loop="refuse"))
    outcomes = await run(session, *(call("a") for _ in range(4)), call("a", 1))
    assert [outcome.status for outcome in outcomes] == ["success", "success", "failure", "failure", "success"]
    failure = outcomes[2].failure
    assert (failure.category, failure.code, failure.source) == ("permission_denied", "loop", "policy")
    assert failure.message == (
        "Tool 'a' was called 3 times in a row with the same arguments; do something else, or change the arguments"
    )
    assert (outcomes[2].decided_by, ran) == ("on_loop", [0, 0, 1])


@pytest.mark.promise("RUN-12")
async def test_policy_can_ignore_loops(open_session):
    assert await warned_at(open_session, "aaaaa", policy=Policy(on_loop="ignore")) == []


@pytest.mark.promise("RUN-12")
async def test_a_polling_tool_is_exempt(open_session):
    assert await warned_at(open_session, "ppppp") == []
    assert await warned_at(open_session, "ppppp", policy=Policy(on_loop="refuse")) == []


@pytest.mark.promise("RUN-12")
async def test_sessions_do_not_share_what_they_remember(open_runtime):
    @tool
    async def a(n: int) -> None: ...

    runtime = await open_runtime(a, policy=Policy(on_loop="refuse"))
    for name in ("one", "two", "three", "four"):
        (outcome,) = await run(runtime.session(name), call("a"))
        assert outcome.ok


@pytest.mark.promise("RUN-12")
async def test_calls_that_never_reach_a_tool_are_no_loop(open_session):
    @tool
    async def a(n: int) -> None: ...

    session = await open_session(a, policy=Policy(on_loop="refuse"))
    outcomes = await run(session, *(ToolCall(name="a", arguments={"n": "x"}) for _ in range(4)))
    assert {outcome.failure.category for outcome in outcomes} == {"invalid_arguments"}


@pytest.mark.promise("RUN-12")
def test_an_unknown_way_with_loops_is_refused():
    with pytest.raises(PolicyError, match="on_loop is 'explode'; use warn, refuse or ignore"):
        Policy(on_loop="explode")  # type: ignore[arg-type]
