"""Trying again."""

import asyncio
from itertools import pairwise
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import AfterValidator, BaseModel, Field

from tests.calls.execute.watching import ended, finished, of_call, record, take_all
from tests.support import fail_after
from toolwright import (
    Failure,
    Policy,
    PolicyError,
    ReplaceArguments,
    Request,
    RetryPolicy,
    Rule,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolError,
    tool,
)
from toolwright.testing import slots_in_use


@pytest.mark.promise("RETRY-01")
async def test_a_tool_is_tried_once_unless_it_says_otherwise(clock, open_runtime):
    attempts = []

    @tool(idempotent=True)
    async def flaky() -> None:
        attempts.append(clock.monotonic())
        raise ToolError("busy", retry=True)

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(600)
    (outcome,) = await ended(batch)
    assert attempts == [0.0]
    assert (outcome.attempts, outcome.failure.attempts, outcome.failure.message) == (1, 1, "busy")


@pytest.mark.promise("RETRY-01")
async def test_delays_grow_by_the_factor_up_to_the_cap(clock, open_runtime):
    attempts = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=6, base_delay=1, factor=3, max_delay=20, jitter=0))
    async def flaky() -> None:
        attempts.append(clock.monotonic())
        raise ToolError("busy", code="busy", retry=True)

    runtime = await open_runtime(flaky)
    events = runtime.subscribe()
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="flaky")])
    await clock.advance(52.9)
    assert attempts == [0.0, 1.0, 4.0, 13.0, 33.0]  # after 1, 3, 9, and then 27 cut to 20
    assert not batch.done
    await clock.advance(0.1)
    assert attempts == [0.0, 1.0, 4.0, 13.0, 33.0, 53.0]
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.attempts) == ("failure", 6)
    taken = take_all(events)
    assert of_call(taken, "c1") == ["call.started", *["call.retrying"] * 5, "call.finished"]
    retrying = [event for event in taken if event.kind == "call.retrying"]
    assert [(event.attempt, event.delay, event.code) for event in retrying] == [
        (1, 1.0, "busy"),
        (2, 3.0, "busy"),
        (3, 9.0, "busy"),
        (4, 20.0, "busy"),
        (5, 20.0, "busy"),
    ]
    assert (record(runtime, "c1").attempts, record(runtime, "c1").run_time) == (6, 53.0)


@pytest.mark.promise("RETRY-01")
def test_jitter_spreads_a_delay_to_both_sides_and_stays_below_the_cap():
    policy = RetryPolicy(attempts=9, base_delay=10, factor=2, max_delay=30, jitter=0.5)
    assert policy.delay(1, lambda: 0.0) == 5.0
    assert policy.delay(1, lambda: 0.5) == 10.0
    assert policy.delay(1, lambda: 1.0) == 15.0
    assert policy.delay(2, lambda: 0.75) == 25.0
    assert policy.delay(3, lambda: 0.0) == 15.0  # of the 30 that 40 was cut to
    assert policy.delay(3, lambda: 1.0) == 30.0
    assert policy.delay(10_000, lambda: 0.5) == 30.0
    assert len({policy.delay(1) for _ in range(20)}) > 1
    assert all(5.0 <= policy.delay(1) <= 15.0 for _ in range(200))


@pytest.mark.promise("RETRY-01")
async def test_exceptions_worth_another_attempt_may_be_given_as_a_list(clock, open_runtime):
    attempts = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=1, jitter=0, on=[OSError]))  # type: ignore[arg-type]
    async def flaky() -> str:
        attempts.append(clock.monotonic())
        if len(attempts) < 3:
            raise ConnectionError("reset")
        return "done"

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(10)
    (outcome,) = await ended(batch)
    assert (outcome.value, attempts) == ("done", [0.0, 1.0, 3.0])


@pytest.mark.promise("RETRY-01")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"on": OSError},
            r"RetryPolicy\.on is <class 'OSError'>; use a tuple of exception types, as in on=\(OSError,\)",
        ),
        ({"on": None}, r"RetryPolicy\.on is None; use a tuple of exception types"),
        ({"on": ["OSError"]}, r"RetryPolicy\.on holds 'OSError'; use exception types"),
        ({"base_delay": "1"}, r"RetryPolicy\.base_delay is '1'; use a number of seconds, 0 or more"),
        ({"max_delay": None}, r"RetryPolicy\.max_delay is None; use a number of seconds, 0 or more"),
        ({"max_delay": True}, r"RetryPolicy\.max_delay is True; use a number of seconds, 0 or more"),
        ({"factor": "2"}, r"RetryPolicy\.factor is '2'; use a number from 1 to 1000"),
        (
            {"factor": 1e6},
            r"RetryPolicy\.factor is 1000000\.0; use a number from 1 to 1000",
        ),  # its powers are no floats
        ({"jitter": None}, r"RetryPolicy\.jitter is None; use a share between 0 and 1"),
    ],
    ids=str,
)
def test_a_retry_policy_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, Any], message: str):
    with pytest.raises(PolicyError, match=message):
        RetryPolicy(**wrong)


@pytest.mark.promise("RETRY-01")
async def test_jitter_is_used_between_attempts(clock, open_runtime):
    attempts = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=30, base_delay=1, factor=1, jitter=0.2))
    async def flaky() -> None:
        attempts.append(clock.monotonic())
        raise ToolError("busy", retry=True)

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(60)
    await ended(batch)
    delays = [later - earlier for earlier, later in pairwise(attempts)]
    assert len(delays) == 29
    assert all(0.8 - 1e-9 <= delay <= 1.2 + 1e-9 for delay in delays)
    assert len({round(delay, 6) for delay in delays}) > 10


@pytest.mark.promise("RETRY-01")
@pytest.mark.parametrize("raised", [True, False])
async def test_the_delay_a_failure_asks_for_wins_over_backoff_and_cap(raised, clock, open_runtime):
    attempts = []

    @tool(readonly=True, retry=RetryPolicy(attempts=3, base_delay=1, max_delay=2, jitter=0))
    async def limited() -> str | Failure:
        attempts.append(clock.monotonic())
        if len(attempts) == 1:
            if raised:
                raise ToolError("slow down", retry_after=45)
            return Failure(message="slow down", retry=True, retry_after=45)
        return "done"

    runtime = await open_runtime(limited)
    batch = runtime.session("s").start_batch([ToolCall(name="limited")])
    await clock.advance(44.9)
    assert attempts == [0.0]
    await clock.advance(0.1)
    (outcome,) = await ended(batch)
    assert attempts == [0.0, 45.0]
    assert (outcome.value, outcome.attempts) == ("done", 2)


@pytest.mark.promise("RETRY-01")
async def test_a_wish_to_be_retried_at_once_is_a_delay_of_nothing(clock, open_runtime):
    attempts = []

    @tool(readonly=True, retry=RetryPolicy(attempts=3, base_delay=10, jitter=0))
    async def limited() -> str:
        attempts.append(clock.monotonic())
        if len(attempts) < 3:
            raise ToolError("again", retry_after=0)
        return "done"

    runtime = await open_runtime(limited)
    batch = runtime.session("s").start_batch([ToolCall(name="limited")])
    await clock.advance(0)
    assert (await ended(batch))[0].value == "done"
    assert attempts == [0.0, 0.0, 0.0]


@pytest.mark.promise("RETRY-01")
async def test_only_failures_that_say_so_are_tried_again(clock, open_runtime):
    runs = []
    retry = RetryPolicy(attempts=3, base_delay=1, jitter=0)

    @tool(idempotent=True, retry=retry)
    async def says_nothing() -> None:
        runs.append("says_nothing")
        raise ToolError("no such thing")

    @tool(idempotent=True, retry=retry)
    async def returns_one() -> Failure:
        runs.append("returns_one")
        return Failure(message="no such thing")

    @tool(idempotent=True, retry=retry)
    async def breaks() -> None:
        runs.append("breaks")
        raise ConnectionError("cut")

    @tool(idempotent=True, retry=retry)
    async def gives_nonsense() -> object:
        runs.append("gives_nonsense")
        return object()

    @tool(idempotent=True, retry=retry, timeout=5)
    async def hangs() -> None:
        runs.append("hangs")
        await clock.sleep(3600)

    runtime = await open_runtime(says_nothing, returns_one, breaks, gives_nonsense, hangs)
    names = ["says_nothing", "returns_one", "breaks", "gives_nonsense", "hangs"]
    batch = runtime.session("s").start_batch([ToolCall(name=name) for name in names])
    await clock.advance(60)
    outcomes = await ended(batch)
    assert runs == names
    assert [outcome.attempts for outcome in outcomes] == [1] * 5
    assert [outcome.failure.code for outcome in outcomes] == [
        "tool_error",
        "tool_error",
        "internal_error",
        "unserialisable_result",
        "timeout",
    ]


@pytest.mark.promise("RETRY-01")
async def test_exceptions_of_the_types_in_on_and_their_subclasses_are_tried_again(clock, open_runtime):
    runs = []
    errors = [ConnectionResetError("cut"), OSError("disk"), LookupError("gone"), ValueError("never tried")]

    @tool(idempotent=True, retry=RetryPolicy(attempts=9, base_delay=1, jitter=0, on=(OSError, LookupError)))
    async def flaky() -> None:
        runs.append(clock.monotonic())
        raise errors[len(runs) - 1]

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(60)
    (outcome,) = await ended(batch)
    assert len(runs) == 4
    assert (outcome.attempts, outcome.failure.category) == (4, "internal")


@pytest.mark.promise("RETRY-01")
async def test_an_error_type_in_on_is_tried_again_even_where_the_error_does_not_say_so(clock, open_runtime):
    class RateLimited(ToolError):
        pass

    runs = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=1, jitter=0, on=(RateLimited,)))
    async def limited() -> str:
        runs.append(clock.monotonic())
        if len(runs) == 1:
            raise RateLimited("slow down")
        return "done"

    runtime = await open_runtime(limited)
    batch = runtime.session("s").start_batch([ToolCall(name="limited")])
    await clock.advance(60)
    assert (await ended(batch))[0].value == "done"
    assert runs == [0.0, 1.0]


@pytest.mark.promise("RETRY-01")
async def test_an_exception_that_is_tried_again_tells_the_model_nothing_private(clock, open_runtime):
    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0, jitter=0, on=(OSError,)))
    async def flaky() -> None:
        raise OSError("password is hunter2")

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(0)
    (outcome,) = await ended(batch)
    assert "hunter2" not in outcome.text
    assert "hunter2" in outcome.failure.detail
    assert (outcome.failure.category, outcome.failure.code) == ("external", "transient_error")


@pytest.mark.promise("RETRY-01", "TIME-01")
async def test_timeout_error_in_on_stands_for_the_runtimes_own_timeout_too(clock, open_runtime):
    runs = []

    @tool(
        readonly=True, timeout=10, retry=RetryPolicy(attempts=3, base_delay=1, factor=1, jitter=0, on=(TimeoutError,))
    )
    async def slow() -> str:
        runs.append(clock.monotonic())
        if len(runs) == 1:
            raise TimeoutError
        if len(runs) == 2:
            await clock.sleep(3600)
        return "done"

    runtime = await open_runtime(slow)
    batch = runtime.session("s").start_batch([ToolCall(name="slow")])
    await clock.advance(12)
    (outcome,) = await ended(batch)
    assert runs == [0.0, 1.0, 12.0]
    assert (outcome.value, outcome.attempts) == ("done", 3)


@pytest.mark.promise("RETRY-01", "TIME-01")
async def test_an_attempt_after_a_timeout_knows_nothing_of_it(clock, open_runtime):
    seen = []

    @tool(readonly=True, timeout=10, retry=RetryPolicy(attempts=2, base_delay=1, jitter=0, on=(TimeoutError,)))
    async def slow(ctx: ToolContext) -> str:
        seen.append(ctx.cancelled)
        if ctx.attempt == 1:
            await clock.sleep(3600)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

        async def fails() -> None:
            raise LookupError

        try:
            async with asyncio.TaskGroup() as group:  # counts how often its task was cancelled
                group.create_task(fails())
                await clock.sleep(1)
        except* LookupError:
            seen.append(ctx.cancelled)
        raise ToolError("no such thing")

    runtime = await open_runtime(slow)
    batch = runtime.session("s").start_batch([ToolCall(name="slow")])
    await clock.advance(12)
    (outcome,) = await ended(batch)
    assert outcome.failure.message == "no such thing (after 2 attempts)"
    assert seen == [False, False, False]


@pytest.mark.promise("RETRY-01", "TIME-01")
async def test_every_attempt_has_the_whole_time(clock, open_runtime):
    runs = []

    @tool(readonly=True, timeout=10, retry=RetryPolicy(attempts=3, base_delay=5, factor=1, jitter=0))
    async def slow() -> str:
        runs.append(clock.monotonic())
        await clock.sleep(9)
        if len(runs) < 3:
            raise ToolError("again", retry=True)
        return "done"

    runtime = await open_runtime(slow)
    batch = runtime.session("s").start_batch([ToolCall(name="slow")])
    await clock.advance(37)
    assert (await ended(batch))[0].value == "done"
    assert runs == [0.0, 14.0, 28.0]


@pytest.mark.promise("RETRY-01", "TIME-01")
async def test_the_grace_of_one_attempt_does_not_hit_the_next(clock, open_runtime):
    runs = []

    @tool(readonly=True, timeout=10, retry=RetryPolicy(attempts=2, base_delay=0, jitter=0, on=(TimeoutError,)))
    async def slow() -> str:
        runs.append(clock.monotonic())
        await clock.sleep(3600 if len(runs) == 1 else 5)
        return "done"

    runtime = await open_runtime(slow)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="slow")])
    await clock.advance(10.05)
    assert record(runtime, "c1").status == "running"
    await clock.advance(4.95)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.value, runs) == ("success", "done", [0.0, 10.0])


@pytest.mark.promise("RETRY-01", "TIME-01")
async def test_a_call_that_was_given_up_is_not_tried_again_when_its_code_ends(clock, open_runtime, finale):
    runs = []

    @tool(readonly=True, timeout=10, retry=RetryPolicy(attempts=3, base_delay=1, jitter=0, on=(TimeoutError, OSError)))
    async def stubborn() -> None:
        runs.append(clock.monotonic())
        while not finale.is_set():
            try:
                await finale.wait()
            except asyncio.CancelledError:
                continue
        raise OSError("cut at last")

    runtime = await open_runtime(stubborn)
    events = runtime.subscribe()
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="stubborn")])
    await clock.advance(10.05)
    (outcome,) = await ended(batch)
    assert (outcome.failure.code, outcome.attempts) == ("timeout", 1)
    finale.set()
    await clock.advance(60)
    assert runs == [0.0]
    assert of_call(take_all(events), "c1") == ["call.started", "call.finished"]


@pytest.mark.promise("RETRY-01")
async def test_the_last_failure_says_how_many_attempts_were_made(clock, open_runtime):
    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=1, jitter=0))
    async def flaky() -> None:
        raise ToolError("the line is busy", retry=True)

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(60)
    (outcome,) = await ended(batch)
    assert (outcome.attempts, outcome.failure.attempts) == (3, 3)
    assert outcome.failure.message == "the line is busy (after 3 attempts)"
    assert outcome.text == '{"error":"the line is busy (after 3 attempts)"}'


@pytest.mark.promise("RETRY-01")
async def test_a_failure_that_ends_the_attempts_early_says_how_many_there_were(clock, open_runtime):
    runs = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=5, base_delay=1, jitter=0))
    async def flaky() -> None:
        runs.append(clock.monotonic())
        raise ToolError("busy" if len(runs) == 1 else "no such account", retry=len(runs) == 1)

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(60)
    (outcome,) = await ended(batch)
    assert outcome.failure.message == "no such account (after 2 attempts)"


@pytest.mark.promise("RETRY-01")
@pytest.mark.parametrize("hints", [{}, {"destructive": True}, {"parallel": True}])
def test_a_tool_that_may_not_be_run_twice_cannot_have_a_retry_policy(hints):
    with pytest.raises(ToolDefinitionError, match=r"'charge'.*idempotent=True or readonly=True"):

        @tool(retry=RetryPolicy(attempts=2), **hints)
        async def charge() -> None: ...


@pytest.mark.promise("RETRY-01")
def test_one_attempt_is_no_retry_and_needs_no_hint():
    @tool(retry=RetryPolicy(attempts=1))
    async def charge() -> None: ...

    assert not charge.definition.hints.repeatable


@pytest.mark.promise("RETRY-01")
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("attempts", 0),
        ("attempts", 1.5),
        ("attempts", True),
        ("base_delay", -1),
        ("base_delay", float("nan")),
        ("max_delay", -1),
        ("factor", 0.5),
        ("jitter", 1.1),
        ("jitter", -0.1),
        ("on", ("OSError",)),
    ],
)
def test_a_retry_policy_that_makes_no_sense_is_refused_by_name(setting, value):
    with pytest.raises(PolicyError, match=rf"RetryPolicy\.{setting}"):
        RetryPolicy(**{setting: value})


@pytest.mark.promise("RETRY-02")
async def test_each_attempt_knows_its_number_and_shares_one_idempotency_key(clock, open_runtime):
    seen = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=1, jitter=0))
    async def flaky(ctx: ToolContext) -> None:
        seen.append((ctx.attempt, ctx.max_attempts, ctx.idempotency_key))
        raise ToolError("busy", retry=True)

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="flaky"), ToolCall(id="c2", name="flaky")])
    await clock.advance(60)
    await ended(batch)
    assert [(attempt, most) for attempt, most, _ in seen] == [(1, 3), (2, 3), (3, 3)] * 2
    keys = [key for _, _, key in seen]
    assert keys[:3] == [keys[0]] * 3
    assert keys[3:] == [keys[3]] * 3
    assert keys[0] != keys[3]


@pytest.mark.promise("RETRY-02")
async def test_an_idempotency_key_belongs_to_session_scope_and_call_and_outlives_the_runtime(clock, open_runtime):
    @tool
    async def key(ctx: ToolContext) -> str:
        return ctx.idempotency_key

    async def key_of(runtime, session, call_id, scope=""):
        batch = runtime.session(session).start_batch([ToolCall(id=call_id, name="key")], scope=scope)
        await clock.advance(0)
        return (await ended(batch))[0].value

    first, second = await open_runtime(key), await open_runtime(key)
    keys = [
        await key_of(first, "s", "c1"),
        await key_of(first, "s", "c2"),
        await key_of(first, "t", "c1"),
        await key_of(first, "s", "c1", scope="turn 2"),
    ]
    assert len(set(keys)) == 4
    assert await key_of(second, "s", "c1") == keys[0]


@pytest.mark.promise("RETRY-02")
async def test_attempts_on_threads_know_their_number_too(clock, open_runtime):
    seen = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0, jitter=0, on=(OSError,)))
    def flaky(ctx: ToolContext) -> str:
        seen.append((ctx.attempt, ctx.max_attempts, ctx.idempotency_key))
        if ctx.attempt < 3:
            raise OSError("cut")
        return "done"

    runtime = await open_runtime(flaky)
    async with fail_after(5):
        (outcome,) = await finished(runtime.session("s").start_batch([ToolCall(name="flaky")]))
    assert (outcome.value, outcome.attempts) == ("done", 3)
    assert [(attempt, most) for attempt, most, _ in seen] == [(1, 3), (2, 3), (3, 3)]
    assert len({key for _, _, key in seen}) == 1


@pytest.mark.promise("RETRY-02", "AUTH-03")
@pytest.mark.parametrize("where", ["on the loop", "on a thread", "with a schema of its own"])
async def test_each_attempt_gets_the_arguments_of_the_call_whatever_the_one_before_did_to_them(open_runtime, where):
    seen = []

    def take(paths: list[str], options: dict[str, bool]) -> str:
        seen.append((tuple(paths), dict(options)))
        paths.append("/etc/passwd")
        options["force"] = True
        raise ToolError("busy", retry=True)

    async def take_soon(paths: list[str], options: dict[str, bool]) -> str:
        return take(paths, options)

    def take_given(arguments: Any) -> str:
        return take(**arguments)

    retry = RetryPolicy(attempts=3, base_delay=0, jitter=0)
    flaky: dict[str, Any] = {
        "on the loop": tool(take_soon, name="flaky", idempotent=True, retry=retry),
        "on a thread": tool(take, name="flaky", idempotent=True, retry=retry),
        "with a schema of its own": Tool.from_schema(name="flaky", handler=take_given, idempotent=True, retry=retry),
    }
    runtime = await open_runtime(flaky[where])
    arguments = {"paths": ["/home"], "options": {"force": False}}
    async with fail_after(5):
        (outcome,) = await runtime.session("s").run_batch([ToolCall(name="flaky", arguments=arguments)])
    assert outcome.attempts == 3
    assert seen == [(("/home",), {"force": False})] * 3


@pytest.mark.promise("RETRY-02", "RUN-04")
async def test_each_attempt_gets_the_arguments_that_a_hook_put_in_place_of_the_models(open_runtime):
    seen = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0, jitter=0))
    async def flaky(paths: list[str]) -> str:
        seen.append(paths.pop())
        raise ToolError("busy", retry=True)

    runtime = await open_runtime(flaky, before=[lambda call: ReplaceArguments({"paths": ["/tmp"]})])
    async with fail_after(5):
        await runtime.session("s").run_batch([ToolCall(name="flaky", arguments={"paths": ["/home"]})])
    assert seen == ["/tmp", "/tmp"]


class Order(BaseModel):
    number: str = Field(default_factory=lambda: uuid4().hex)


@pytest.mark.promise("RETRY-02", "AUTH-03", "RUN-05")
@pytest.mark.parametrize("where", ["on the loop", "on a thread"])
async def test_rules_prepare_steps_and_attempts_see_the_same_defaults_that_a_function_made(open_runtime, where):
    seen = []

    def look(key: str, order: Order, paths: list[str]) -> None:
        seen.append((key, order.number, tuple(paths)))
        order.number = "changed"
        paths.append("/etc/passwd")

    def pay(
        paths: list[str], key: Annotated[str, Field(default_factory=lambda: uuid4().hex)], order: Order | None = None
    ) -> None:
        look(key, order, paths)
        raise ToolError("busy", retry=True)

    async def pay_soon(
        paths: list[str], key: Annotated[str, Field(default_factory=lambda: uuid4().hex)], order: Order | None = None
    ) -> None:
        pay(paths, key, order)

    def rule(request: Request) -> bool:
        look(**request.arguments)
        return False

    made = tool(
        pay if where == "on a thread" else pay_soon,
        name="pay",
        idempotent=True,
        retry=RetryPolicy(attempts=2, base_delay=0, jitter=0),
        prepare=lambda arguments, call: look(**arguments),
    )
    runtime = await open_runtime(made, policy=Policy(rules=[Rule("deny", "pay", when=rule), Rule("ask", when=rule)]))
    arguments = {"paths": ["/home"], "order": {}}
    async with fail_after(5):
        await runtime.session("s").run_batch([ToolCall(name="pay", arguments=arguments)])
    assert len(seen) == 5  # two rules, a prepare step, two attempts
    assert len(set(seen)) == 1
    assert seen[0][2] == ("/home",)


@pytest.mark.promise("RETRY-02")
async def test_arguments_that_cannot_be_copied_are_read_again_for_each_attempt(open_runtime):
    class Handle(list):
        def __deepcopy__(self, memo):
            raise TypeError("a handle cannot be copied")

    seen = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0, jitter=0))
    async def work(paths: Annotated[list[str], AfterValidator(Handle)]) -> None:
        seen.append(tuple(paths))
        paths.append("/etc/passwd")
        raise ToolError("busy", retry=True)

    runtime = await open_runtime(work)
    async with fail_after(5):
        await runtime.session("s").run_batch([ToolCall(name="work", arguments={"paths": ["/home"]})])
    assert seen == [("/home",), ("/home",)]


@pytest.mark.promise("RETRY-01")
async def test_a_call_keeps_its_claims_and_its_slot_between_attempts(clock, open_runtime):
    order = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=10, jitter=0))
    async def flaky() -> None:
        order.append(f"flaky {clock.monotonic():g}")
        raise ToolError("busy", retry=True)

    @tool
    async def after() -> None:
        order.append(f"after {clock.monotonic():g}")

    runtime = await open_runtime(flaky, after)
    batch = runtime.session("s").start_batch([ToolCall(name="flaky"), ToolCall(name="after")])
    await clock.advance(60)
    await ended(batch)
    assert order == ["flaky 0", "flaky 10", "after 10"]


@pytest.mark.promise("SCHED-04")
async def test_the_next_attempt_after_a_wait_in_the_grace_has_a_slot(clock, open_runtime):
    slots = []

    @tool(idempotent=True, timeout=1, retry=RetryPolicy(attempts=2, on=(TimeoutError,), jitter=0))
    async def work(ctx: ToolContext) -> str:
        if ctx.attempt == 1:
            try:
                await clock.sleep(3600)
            finally:
                await ctx.sleep("tidy up", 0.01)
        slots.append(slots_in_use(session))
        return "done"

    runtime = await open_runtime(work)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(name="work")])
    await clock.advance(60)
    (outcome,) = await ended(batch)
    assert (outcome.value, outcome.attempts) == ("done", 2)
    assert slots == [1]


@pytest.mark.promise("RETRY-01")
async def test_hooks_see_the_last_attempt_only(clock, open_runtime):
    seen = []

    async def note(call, outcome):
        seen.append((outcome.status, outcome.attempts))

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=1, jitter=0))
    async def flaky(ctx: ToolContext) -> str:
        if ctx.attempt < 3:
            raise ToolError("busy", retry=True)
        return "done"

    runtime = await open_runtime(flaky, after=[note], policy=Policy())
    batch = runtime.session("s").start_batch([ToolCall(name="flaky")])
    await clock.advance(60)
    assert (await ended(batch))[0].value == "done"
    assert seen == [("success", 3)]


@pytest.mark.promise("RETRY-01", "CANCEL-01")
async def test_a_call_that_is_stopped_between_two_attempts_is_cancelled_and_has_not_failed(clock, open_runtime):
    ran = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0))
    async def busy() -> None:
        ran.append("busy")
        asyncio.get_running_loop().call_soon(session.cancel, "enough")  # comes before the next attempt does
        raise ToolError("The line is busy.", retry=True)

    runtime = await open_runtime(busy)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(id="c1", name="busy")])
    await clock.advance(0.1)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.may_have_run, ran) == ("cancelled", True, ["busy"])
