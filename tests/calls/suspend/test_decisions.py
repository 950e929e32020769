"""What people decided is kept: who, when, with which arguments, and what a model is told of it."""

import contextlib
import json
from typing import Any

import apsw
import pytest

from tests.calls.suspend.test_approvals import Shell, asked, rm
from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import Failure, Policy, Runtime, ToolCall, ToolContext, ToolwrightError, tool
from toolwright.clock import rfc3339
from toolwright.testing import FakeClock
from toolwright.wire.detect import PROVIDERS

pytestmark = pytest.mark.promise("AUTH-03")


async def decided(runtime: Any, events: Any, decide: Any, *, call: ToolCall | None = None) -> Any:
    """The outcome of a call about which somebody decided."""
    batch = runtime.session("s").start_batch([call or rm()])
    await decide((await asked(runtime, events)).key)
    (outcome,) = await batch
    return outcome


async def test_who_decided_and_when_is_in_the_outcome_and_stays_there(place, open_runtime):
    clock, shell = FakeClock(), Shell()
    runtime = await open_runtime(place, *shell.tools, clock=clock)
    events = runtime.subscribe()
    async with fail_after(10):
        outcome = await decided(runtime, events, lambda key: runtime.approve(key, by="ann", via="http 10.0.0.7"))
        denied = await decided(
            runtime, events, lambda key: runtime.deny(key, by="bob", reason="too risky"), call=rm("/b", "c2")
        )
        (again,) = await runtime.session("s").run_batch([rm()])
    decision = outcome.decision
    assert (decision.verdict, decision.by, decision.edited, decision.always) == ("approved", "ann", False, False)
    assert decision.at == pytest.approx(clock.now(), abs=1)
    assert (denied.decision.verdict, denied.decision.by, denied.decision.reason) == ("denied", "bob", "too risky")
    assert (again.replayed, again.decision) == (True, decision)
    assert outcome.to_json()["decision"] == {
        "verdict": "approved",
        "at": rfc3339(decision.at),
        "by": "ann",
        "edited": False,
        "always": False,
        "via": "http 10.0.0.7",
    }
    assert [one.decision.via for one in await runtime.decisions()] == [None, "http 10.0.0.7"]
    assert (await runtime.session("s").call("ls", path="/")).decision is None
    (record, *_) = runtime.log.query(call_id="c1")
    assert record.outcome.decision == decision


@pytest.mark.parametrize(
    "text", ["", 7, "a" * 257, "ann\nbob", "\0call", "ann\x1b[31m", "an\u202en", "an\u200bn"], ids=range(8)
)
@pytest.mark.parametrize("parameter", ["by", "via"])
async def test_who_decides_and_from_where_is_one_short_line_that_is_visible(place, open_runtime, parameter, text):
    @tool(approval="required")
    async def act(ctx: ToolContext) -> str:
        return str(await ctx.ask("size", "Which size?"))

    runtime = await open_runtime(place, act)
    events, session, who = runtime.subscribe(), runtime.session("s"), {parameter: text}
    async with fail_after(10):
        batch = session.start_batch([ToolCall(id="c1", name="act")])
        key = (await asked(runtime, events)).key
        for refused in (runtime.approve, runtime.deny, session.approve, session.deny):
            with pytest.raises(ToolwrightError, match=f"{parameter}=.*leave it out"):
                await refused(key, **who)
        await runtime.approve(key, **{parameter: "☀" * 256})
        await waiting(events)
        (question,) = await runtime.questions()
        with pytest.raises(ToolwrightError, match=f"{parameter}=.*leave it out"):
            await runtime.answer(question.key, "M", **who)
        with pytest.raises(ToolwrightError, match=f"{parameter}=.*leave it out"):
            await runtime.decline(question.key, **who)
        await runtime.answer(question.key, "M", by="ann", via="desk")
        (outcome,) = await batch
    assert getattr(outcome.decision, parameter) == "☀" * 256
    (answered,) = await runtime.questions(decided=True)
    assert (answered.decision.by, answered.decision.via) == ("ann", "desk")


async def test_past_decisions_are_listed_a_page_at_a_time(place, open_runtime):
    clock, shell = FakeClock(), Shell()
    runtime = await open_runtime(place, *shell.tools, clock=clock, policy=Policy(approval_timeout=60))
    events = runtime.subscribe()
    session = runtime.session("s")
    async with fail_after(20):
        await decided(runtime, events, lambda key: runtime.approve(key, by="ann", always={"path": "/tmp/*"}))
        await decided(runtime, events, lambda key: runtime.deny(key, by="bob"), call=rm("/b", "c2"))
        edit = {"path": "/d"}
        await decided(runtime, events, lambda key: runtime.approve(key, arguments=edit, by="cyd"), call=rm("/c", "c3"))
        batch = session.start_batch([rm("/e", "c4")])
        await asked(runtime, events)
        await clock.advance(61)
        while not batch.done:
            await clock.advance(0)
        batch = runtime.session("t").start_batch([rm("/f", "c5")])
        await runtime.approve((await asked(runtime, events)).key)
        await batch
        waits = session.start_batch([rm("/g", "c6")])
        await asked(runtime, events)

        found = await runtime.decisions()
        assert [(one.session, one.call_id, one.decision.verdict, one.decision.by) for one in found] == [
            ("t", "c5", "approved", None),
            ("s", "c4", "expired", None),
            ("s", "c3", "approved", "cyd"),
            ("s", "c2", "denied", "bob"),
            ("s", "c1", "approved", "ann"),
        ]
        assert [(one.arguments, one.decision.edited, one.decision.arguments) for one in found[2:4]] == [
            ({"path": "/c"}, True, {"path": "/d"}),
            ({"path": "/b"}, False, None),
        ]
        assert [one.decision.always for one in found] == [False, False, False, False, True]
        first = await runtime.decisions("s", limit=2)
        second = await runtime.decisions("s", limit=3, before=first[-1].number)
        assert [one.call_id for one in (*first, *second)] == ["c4", "c3", "c2", "c1"]
        assert await runtime.decisions(before=second[-1].number) == []
        waits.cancel()
        await waits.settled()


async def test_a_call_that_runs_by_a_decision_for_always_says_whose_it_was(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events, session = runtime.subscribe(), runtime.session("s")
    async with fail_after(10):
        first = await decided(
            runtime, events, lambda key: runtime.approve(key, by="ann", via="desk", always={"path": "/tmp/*"})
        )
        (later,) = await session.run_batch([rm("/tmp/b", "c2")])
        await decided(
            runtime, events, lambda key: runtime.deny(key, by="bob", always={"path": "/x"}), call=rm("/x", "c3")
        )
        (never,) = await session.run_batch([rm("/x", "c4")])
    assert first.decision.always
    assert (later.decision.verdict, later.decision.by, later.decision.always) == ("approved", "ann", True)
    assert later.decision.at == first.decision.at
    assert later.decision.via == "desk"
    assert (never.decision.verdict, never.decision.by, never.decision.always) == ("denied", "bob", True)


@pytest.mark.promise("OUT-04")
@pytest.mark.parametrize(
    "given",
    [{"a": 1}, 'a plain "text"', [1, 2], None, Failure(message='it "broke"')],
    ids=["object", "text", "list", "nothing", "failure"],
)
async def test_a_model_is_told_that_a_person_changed_its_arguments(place, open_runtime, given):
    @tool(approval="required")
    async def act(path: str, size: int = 1) -> Any:
        return given

    runtime = await open_runtime(place, act)
    events = runtime.subscribe()
    call = ToolCall(id="c1", name="act", arguments={"path": "/a"})
    async with fail_after(10):
        outcome = await decided(runtime, events, lambda key: runtime.approve(key, arguments={"path": "/b"}), call=call)
        (again,) = await runtime.session("s").run_batch([call])
    note = 'A person changed the arguments of this call to {"path":"/b"} before it ran.'
    read = json.loads(outcome.text)
    if isinstance(given, Failure):
        assert read == {"error": f'it "broke" ({note})'}
        assert outcome.failure.message == 'it "broke"'
    else:
        assert read == {"note": note, "result": given}
        assert outcome.value == given
    assert (again.text, again.value) == (outcome.text, outcome.value)
    (written,) = PROVIDERS["openai-chat"].write_results([outcome])
    assert written["content"] == outcome.text


async def test_arguments_that_are_given_again_as_they_were_are_not_changed(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        outcome = await decided(runtime, events, lambda key: runtime.approve(key, arguments={"path": "/tmp/a"}))
        (listed,) = await runtime.decisions()
    assert (outcome.decision.edited, outcome.text) == (False, "removed /tmp/a")
    assert listed.decision == outcome.decision


async def test_long_arguments_of_a_person_do_not_push_the_result_away(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    long = {"path": "/" + "x" * 5_000}
    async with fail_after(10):
        outcome = await decided(runtime, events, lambda key: runtime.approve(key, arguments=long))
    assert json.loads(outcome.text)["note"] == "A person changed the arguments of this call before it ran."
    assert outcome.decision.arguments == long


async def test_a_secret_that_a_person_gives_is_shown_to_nobody(open_runtime):
    seen = []

    @tool(approval="required", secret="pin")
    async def pay(amount: int, pin: str = "") -> int:
        seen.append(pin)
        return amount

    runtime = await open_runtime(":memory:", pay)
    events = runtime.subscribe()
    call = ToolCall(id="c1", name="pay", arguments={"amount": 1})
    given = {"amount": 2, "pin": "hunter2-hunter2"}
    async with fail_after(10):
        outcome = await decided(runtime, events, lambda key: runtime.approve(key, arguments=given), call=call)
        listed = await runtime.decisions()
    assert seen == ["hunter2-hunter2"]
    assert outcome.decision.arguments["amount"] == listed[0].decision.arguments["amount"] == 2
    assert "hunter2" not in f"{outcome.text} {outcome!r} {listed!r}"


@pytest.mark.parametrize("wrong", ["", 3, b"ann"])
async def test_whoever_decides_has_a_name(open_runtime, wrong):
    shell = Shell()
    runtime = await open_runtime(":memory:", *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        key = (await asked(runtime, events)).key
        for decide in (runtime.approve, runtime.deny):
            with pytest.raises(ToolwrightError, match="does not say who decides"):
                await decide(key, by=wrong)
            with pytest.raises(ToolwrightError, match="is not a pattern"):
                await decide(key, always="*")
        batch.cancel()
        await batch.settled()


@pytest.mark.promise("AUTH-04")
async def test_the_decisions_of_one_session_are_found_by_an_index(tmp_path):
    file = tmp_path / "agent.db"
    asked: dict[str, object] = {}

    def trace(connection: apsw.Connection) -> None:
        if connection.filename == str(file):
            connection.exec_trace = lambda cursor, sql, values: asked.update({sql: values}) or True

    apsw.connection_hooks.append(trace)
    try:
        async with Runtime.open(file) as runtime:
            asked.clear()
            assert await runtime.decisions("s", limit=10, before=1000) == []
            (sql,) = [sql for sql in asked if "arrived IS NOT NULL" in sql]
    finally:
        apsw.connection_hooks.remove(trace)
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        (plan,) = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", asked[sql])]
    assert "decided_of_session" in plan
