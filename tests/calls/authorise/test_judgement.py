"""What would happen to a call: the same verdict as that of a started call, and nothing started or recorded."""

from random import Random
from typing import Any

import pytest

from tests.calls.running import run_one
from toolwright import Judgement, Policy, ReplaceArguments, Rule, Runtime, ToolCall, ToolContext, ToolwrightError, tool


@tool
async def act(amount: int = 1) -> str:
    """Act."""
    return f"acted {amount}"


@tool(readonly=True)
async def look() -> str:
    """Look."""
    return "looked"


@tool(approval="required")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(approval="suggest")
async def write(text: str = "") -> str:
    """Write."""
    return text


def large(request: Any) -> bool:
    return request.arguments.get("amount", 1) > 10


RULES = [
    Rule("deny", "act", name="too much", reason="more than 10", when=large),
    Rule("allow", "act", name="yes", when=lambda request: request.arguments.get("amount", 1) == 5),
    Rule("ask", "act", name="odd", reason="it is odd", when=lambda request: request.arguments.get("amount", 1) == 3),
    Rule("deny", "write", source="user", name="not by hand"),
]


@pytest.mark.promise("AUTH-06")
@pytest.mark.parametrize(
    ("call", "changes", "expected"),
    [
        (ToolCall(name="act"), {}, Judgement("allow")),
        (ToolCall(name="act", arguments={"amount": 5}), {}, Judgement("allow", "yes")),
        (ToolCall(name="act", arguments='{"amount": 3}'), {}, Judgement("ask", "odd", "it is odd")),
        ({"name": "act", "arguments": {"amount": 11}}, {}, Judgement("deny", "too much", "more than 10")),
        (
            ToolCall(name="act"),
            {"read_only": True},
            Judgement("deny", "read_only", "the batch is read-only and the tool may change something"),
        ),
        (ToolCall(name="look"), {"read_only": True}, Judgement("allow")),
        (
            ToolCall(name="pay", arguments={"amount": 1}),
            {},
            Judgement("ask", "approval", "the tool requires approval"),
        ),
        (
            ToolCall(name="pay", arguments={"amount": 1}),
            {"on_ask": "deny"},
            Judgement(
                "deny",
                "approval",
                "the tool requires approval; it needs approval, and this policy does not wait for one (on_ask='deny')",
            ),
        ),
        (ToolCall(name="write"), {}, Judgement("allow")),
        (
            ToolCall(name="write"),
            {"approve": "suggested"},
            Judgement("ask", "approval", "the tool suggests approval, and the policy asks for those too"),
        ),
        (ToolCall(name="write", source="user"), {}, Judgement("deny", "not by hand")),
    ],
    ids=str,
)
async def test_the_judgement_is_that_of_a_started_call(open_session, call, changes, expected):
    session = await open_session(act, look, pay, write, policy=Policy(rules=RULES))
    assert await session.would(call, **changes) == expected
    batch = session.start_batch([call], **changes)
    (outcome,) = await batch.quiet()
    batch.cancel()
    await batch
    happened = {"success": "allow", "pending": "ask", "failure": "deny"}[outcome.status]
    assert happened == expected.effect
    if happened != "ask":
        assert outcome.decided_by == expected.rule


@pytest.mark.promise("AUTH-06")
@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ToolCall(name="acct"), "unknown_tool"),
        (ToolCall(name="pay"), "invalid_arguments"),
        (ToolCall(name="pay", arguments='{"amount": 1'), "malformed_arguments"),
        (ToolCall(name="pay", arguments={"amount": 1}, cut_off="length"), "answer_cut_off"),
        (ToolCall(name="pay", arguments={"amount": 1}, kind="mcp"), "kind_mismatch"),
    ],
    ids=str,
)
async def test_a_call_that_no_rule_is_asked_about_has_the_failure_of_a_started_one(open_session, call, code):
    session = await open_session(act, pay, policy=Policy(rules=[Rule("allow")]))
    judgement = await session.would(call)
    (outcome,) = await session.run_batch([call])
    assert (judgement.effect, judgement.rule, judgement.failure.code) == ("deny", None, code)
    assert judgement.failure == outcome.failure


@pytest.mark.promise("AUTH-06")
async def test_nothing_is_started_recorded_or_told(open_runtime, place):
    asked: list[str] = []

    def before(call: Any) -> ReplaceArguments:
        asked.append(call.call_id)
        return ReplaceArguments({"amount": 7})

    runtime = await open_runtime(place, act, pay, before=[before])
    session = runtime.session("s")
    with runtime.subscribe() as events:
        for each in (
            ToolCall(id="c1", name="act"),
            ToolCall(id="c1", name="pay", arguments={"amount": 1}),
            ToolCall(id="c1", name="no"),
        ):
            await session.would(each)
    assert [event async for event in events] == []
    assert (asked, session.batches, await runtime.approvals(), len(runtime.log)) == ([], (), [], 0)
    # The id is free: a call with other arguments than those that were judged is no ReplayMismatch.
    assert (await run_one(session, "act", {"amount": 2}, scope="")).value == "acted 7"


@pytest.mark.promise("AUTH-06")
async def test_a_remembered_decision_counts(open_runtime, place):
    runtime = await open_runtime(place, pay)
    session = runtime.session("s")
    small, large = ({"amount": 1}, "allow always"), ({"amount": 100}, "deny always")
    batch = session.start_batch([ToolCall(name="pay", arguments=each) for each, _ in (small, large)])
    await batch.quiet()
    first, second = sorted(await runtime.approvals(), key=lambda each: each.arguments["amount"])
    await runtime.approve(first.key, always=small[0])
    await runtime.deny(second.key, reason="too dear", always=large[0])
    await batch
    assert await session.would(ToolCall(name="pay", arguments=small[0])) == Judgement("allow", "allow always")
    denied = await session.would(ToolCall(name="pay", arguments=large[0]))
    assert denied == Judgement("deny", "deny always", "too dear")
    assert (await session.would(ToolCall(name="pay", arguments={"amount": 2}))).effect == "ask"
    (outcome,) = await session.run_batch([ToolCall(name="pay", arguments=large[0])])
    assert outcome.decided_by == denied.rule
    await runtime.delete_session("s")
    later = runtime.session("s")
    assert [(await later.would(ToolCall(name="pay", arguments=each))).effect for each, _ in (small, large)] == [
        "ask"
    ] * 2
    assert await runtime.decisions() == []


def a_rule(random: Random) -> Rule:
    options: dict[str, Any] = {"name": random.choice([None, "a", "b"]), "reason": random.choice([None, "because"])}
    if random.random() < 0.3:
        options["source"] = random.choice(["user", "model"])
    if random.random() < 0.5:
        more_than = random.choice([0, 2, 10, None])
        options["when"] = lambda request: request.arguments.get("amount", 1) > more_than  # of None, it breaks
    return Rule(random.choice(["allow", "ask", "deny"]), random.choice(["*", "act", "pay", "w*", "look"]), **options)


@pytest.mark.promise("AUTH-06")
@pytest.mark.parametrize("seed", range(40))
async def test_under_any_policy_a_judgement_is_what_happens(open_runtime, seed):
    random = Random(seed)
    policy = Policy(
        rules=[a_rule(random) for _ in range(random.randrange(5))],
        approve=random.choice(["required", "suggested"]),
        on_ask=random.choice(["wait", "wait", "deny"]),
        read_only=random.random() < 0.2,
    )
    runtime = await open_runtime(act, look, pay, write, policy=policy)
    session = runtime.session("s")
    for number in range(8):
        changes: dict[str, Any] = {}
        if random.random() < 0.2:
            changes["read_only"] = random.random() < 0.5
        if random.random() < 0.2:
            changes["on_ask"] = random.choice(["wait", "deny"])
        if random.random() < 0.2:
            changes["rules"] = [a_rule(random)]
        call = ToolCall(
            id=f"c{number}",
            name=random.choice(["act", "look", "pay", "write", "unknown"]),
            arguments=random.choice([None, {"amount": 1}, {"amount": 3}, {"amount": "x"}, '{"amount":']),
            source=random.choice(["model", "user", "host"]),
        )
        judgement = await session.would(call, **changes)
        batch = session.start_batch([call], **changes)
        (outcome,) = await batch.quiet()
        requests = await runtime.approvals()
        assert {"success": "allow", "pending": "ask", "failure": "deny"}[outcome.status] == judgement.effect
        assert [(each.rule, each.reason) for each in requests] == (
            [(judgement.rule, judgement.reason)] if judgement.effect == "ask" else []
        )
        if judgement.effect != "ask":
            assert outcome.decided_by == judgement.rule
        if judgement.failure is not None:
            assert judgement.failure == outcome.failure
        for each in requests:  # later calls may be decided by this
            await random.choice([runtime.approve, runtime.deny])(
                each.key, always=random.choice([None, {}, {"amount": 1}])
            )
        await batch


@pytest.mark.promise("AUTH-06")
async def test_a_rule_that_breaks_denies_and_says_so(open_session):
    broken = Rule("allow", name="bad", when=lambda request: bool(1 / 0))
    session = await open_session(act, policy=Policy(rules=[broken]))
    judgement = await session.would(ToolCall(name="act"))
    assert (judgement.effect, judgement.rule, judgement.failure.code) == ("deny", "bad", "policy_error")


@pytest.mark.promise("AUTH-06")
async def test_inside_of_a_tool_the_authority_of_its_batch_holds_and_its_calls_keep_their_ids(open_session):
    ids: list[list[str]] = []

    @tool(readonly=True)
    async def ask(ctx: ToolContext, look_first: bool) -> str:
        """Ask about a call, then make one."""
        seen = []
        judgement = await session.would(ToolCall(name="look")) if look_first else None
        for _ in range(2):
            (outcome,) = await session.run_batch([ToolCall(name="look")])
            seen.append(outcome.call_id)
        ids.append(seen)
        denied = await session.would(ToolCall(name="act"))
        return f"{judgement and judgement.effect} {denied.effect} {denied.rule}"

    session = await open_session(act, look, ask)
    first = await run_one(session, "ask", {"look_first": True}, read_only=True, scope="a")
    await run_one(session, "ask", {"look_first": False}, read_only=True, scope="a2")
    assert first.value == "allow deny read_only"
    assert ids[0] == ids[1]


@pytest.mark.promise("AUTH-06")
async def test_no_secret_is_told(open_runtime, place):
    @tool(secret="token")
    async def log_in(token: str, count: int) -> str:
        """Log in."""
        return "in"

    runtime = await open_runtime(place, log_in, act)
    session = runtime.session("s")
    await session.secrets.set("key", "hunter2hunter2")
    told = await session.would(ToolCall(name="act", arguments={"amount": "hunter2hunter2"}))
    assert "hunter2hunter2" not in repr(told)
    told = await session.would(
        ToolCall(name="log_in", arguments={"token": "swordfish-1234", "count": "swordfish-1234"})
    )
    assert told.failure.code == "invalid_arguments"
    assert "swordfish-1234" not in repr(told)


@pytest.mark.promise("AUTH-06")
async def test_what_is_no_call_is_refused_with_the_remedy(open_session):
    session = await open_session(act)
    with pytest.raises(ToolwrightError, match="is not a tool call"):
        await session.would("act")  # type: ignore[arg-type]
    with pytest.raises(ToolwrightError, match="is not a tool call"):
        await session.would({"function": {"name": "act"}})


@pytest.mark.promise("AUTH-06")
def test_code_that_is_not_async_asks_too():
    with Runtime.open_blocking(tools=[pay]) as runtime:
        judgement = runtime.session("s").would(ToolCall(name="pay", arguments={"amount": 1}))
        assert judgement == Judgement("ask", "approval", "the tool requires approval")
        assert judgement.to_json() == {
            "effect": "ask",
            "rule": "approval",
            "reason": "the tool requires approval",
            "failure": None,
        }
