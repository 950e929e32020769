"""Calls that need a person's approval: asked for once, bound to their arguments, and decided by the first answer."""

import asyncio
from typing import Annotated

import pytest
from pydantic import Field

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import KeyRefused, Policy, Rule, Runtime, ToolCall, ToolwrightError, tool
from toolwright.testing import FakeClock, slots_in_use


class Shell:
    """A tool that may not run without an approval, and one that may."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool(approval="required")
        async def rm(path: str, force: bool = False) -> str:
            self.ran.append(path)
            return f"removed {path}"

        @tool(readonly=True)
        async def ls(path: str) -> str:
            return f"listed {path}"

        self.tools = (rm, ls)


def rm(path: str = "/tmp/a", call_id: str = "c1") -> ToolCall:
    return ToolCall(id=call_id, name="rm", arguments={"path": path})


async def asked(runtime, events):
    """The only request there is, once it is made."""
    await waiting(events)
    (approval,) = await runtime.approvals()
    return approval


@pytest.mark.promise("AUTH-03")
async def test_an_approved_call_runs_once_with_exactly_what_was_asked(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        approval = await asked(runtime, events)
        assert shell.ran == []
        assert (approval.session, approval.call_id, approval.tool) == ("s", "c1", "rm")
        assert (approval.arguments, approval.cause, approval.rule) == ({"path": "/tmp/a"}, "policy", "approval")
        resolved = await runtime.approve(approval.key, by="ann")
        (outcome,) = await batch
        assert resolved.first
        assert (outcome.value, outcome.decided_by) == ("removed /tmp/a", "approval")
        assert await runtime.approvals() == []
        (again,) = await runtime.session("s").run_batch([rm()])
    assert (again.replayed, shell.ran) == (True, ["/tmp/a"])


@pytest.mark.promise("AUTH-03")
async def test_siblings_that_need_no_approval_do_not_wait(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    session = runtime.session("s")
    events, asking = session.subscribe(), session.subscribe()
    calls = [rm(), ToolCall(id="c2", name="ls", arguments={"path": "/tmp"})]
    async with fail_after(10):
        batch = session.start_batch(calls, max_concurrency=1)
        async for event in events:
            if event.kind == "call.finished":
                assert event.call_id == "c2"
                break
        assert slots_in_use(session) == 0
        approval = await asked(runtime, asking)
        await runtime.deny(approval.key, reason="not on my machine")
        denied, listed = await batch
    assert listed.value == "listed /tmp"
    assert (denied.failure.category, denied.failure.code) == ("permission_denied", "denied")
    assert "not on my machine" in denied.text
    assert (denied.decided_by, denied.failure.source, shell.ran) == ("approval", "policy", [])


@pytest.mark.promise("AUTH-03")
async def test_a_request_that_nobody_answers_in_time_is_a_denial(place, open_runtime):
    clock, shell = FakeClock(), Shell()
    runtime = await open_runtime(place, *shell.tools, clock=clock, policy=Policy(approval_timeout=60))
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        approval = await asked(runtime, events)
        assert approval.deadline - approval.requested_at == pytest.approx(60)
        await clock.advance(61)
        while not batch.done:
            await clock.advance(0)
        (outcome,) = await batch
        late = await runtime.approve(approval.key)
    assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "approval_expired")
    assert (late.first, late.status, shell.ran) == (False, "expired", [])


@pytest.mark.promise("AUTH-03")
async def test_a_person_may_let_it_run_with_other_arguments(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        approval = await asked(runtime, events)
        await runtime.approve(approval.key, arguments={"path": "/tmp/b"})
        (outcome,) = await batch
    assert (outcome.value, shell.ran) == ("removed /tmp/b", ["/tmp/b"])
    (record,) = runtime.log.query(call_id="c1")
    assert record.arguments == {"path": "/tmp/b"}


@pytest.mark.promise("AUTH-03")
async def test_other_arguments_must_fit_the_tool_and_the_rules(place, open_runtime):
    shell = Shell()
    rules = [Rule("deny", "rm", name="keep etc", when=lambda request: request.arguments["path"].startswith("/etc"))]
    runtime = await open_runtime(place, *shell.tools, policy=Policy(rules=rules))
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        approval = await asked(runtime, events)
        for wrong in ("rm", 3, {"path": object()}, {"path": 3}):
            with pytest.raises(ToolwrightError):
                await runtime.approve(approval.key, arguments=wrong)
        await runtime.approve(approval.key, arguments={"path": "/etc/x"})
        (outcome,) = await batch
    assert outcome.failure.code == "denied"
    assert shell.ran == []


@pytest.mark.promise("AUTH-03")
async def test_other_arguments_that_do_not_fit_the_tool_are_refused_and_use_up_no_decision(place, open_runtime):
    entered = []

    @tool(approval="required", secret="pin")
    async def enter(door: str, pin: Annotated[str, Field(pattern="^[0-9]{4}$")]) -> str:
        entered.append((door, pin))
        return "entered"

    runtime = await open_runtime(place, enter)
    events = runtime.subscribe()
    async with fail_after(10):
        call = ToolCall(id="c1", name="enter", arguments={"door": "front", "pin": "1234"})
        batch = runtime.session("s").start_batch([call])
        approval = await asked(runtime, events)
        for wrong, said in [
            ({"door": 3, "pin": "1234"}, r"stays open\. The arguments of 'enter' do not fit[^$]*\$\.door: "),
            ({"pin": "[secret]"}, "field 'door' is missing"),
            ({"door": "back", "pin": "not my pin"}, r"\$\.pin: the value does not fit"),
        ]:
            with pytest.raises(ToolwrightError, match=said) as refused:
                await runtime.approve(approval.key, arguments=wrong, always={})
            assert "not my pin" not in str(refused.value)
        assert await runtime.approvals() == [approval]
        resolved = await runtime.approve(approval.key, arguments={**approval.arguments, "door": "back"})
        (outcome,) = await batch
    assert (resolved.first, outcome.value, entered) == (True, "entered", [("back", "1234")])


@pytest.mark.promise("AUTH-03")
async def test_other_arguments_are_checked_by_the_call_where_whoever_decides_does_not_have_the_tool(tmp_path):
    shell = Shell()
    async with fail_after(10), Runtime.open(tmp_path / "agent.db", tools=shell.tools) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("s").start_batch([rm()])
        approval = await asked(runtime, events)
        async with Runtime.open(tmp_path / "agent.db") as other:
            assert (await other.approve(approval.key, arguments={"path": 3})).first
        (outcome,) = await batch
    assert (outcome.failure.code, shell.ran) == ("invalid_arguments", [])


@pytest.mark.promise("AUTH-03")
async def test_a_decision_can_hold_for_later_calls_that_match(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    session = runtime.session("s")
    async with fail_after(10):
        batch = session.start_batch([rm("/tmp/a")])
        await runtime.approve((await asked(runtime, events)).key, always={"path": "/tmp/*"})
        await batch
        (outcome,) = await session.run_batch([rm("/tmp/b", "c2")])
        assert (outcome.value, outcome.decided_by) == ("removed /tmp/b", "allow always")

        batch = session.start_batch([rm("/home/x", "c3")])
        await runtime.deny((await asked(runtime, events)).key, reason="never there", always={"path": "/home/*"})
        await batch
        (outcome,) = await session.run_batch([rm("/home/y", "c4")])
        assert (outcome.failure.code, outcome.decided_by) == ("denied", "deny always")
        assert "never there" in outcome.text

        other = runtime.session("t").start_batch([rm("/tmp/c", "c5")])
        await runtime.deny((await asked(runtime, events)).key)
        assert (await other)[0].failure.code == "denied"
    assert shell.ran == ["/tmp/a", "/tmp/b"]


@pytest.mark.promise("AUTH-03", "AUTH-01")
async def test_a_rule_that_denies_is_stronger_than_a_decision_to_always_allow(place, open_runtime):
    shell = Shell()
    rules = [Rule("deny", "rm", name="no root", when=lambda request: request.arguments["path"] == "/")]
    runtime = await open_runtime(place, *shell.tools, policy=Policy(rules=rules))
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        await runtime.approve((await asked(runtime, events)).key, always={})
        await batch
        (outcome,) = await runtime.session("s").run_batch([rm("/", "c2")])
    assert (outcome.failure.code, outcome.decided_by) == ("denied", "no root")


@pytest.mark.promise("AUTH-04")
async def test_a_request_survives_a_restart_with_the_deadline_it_had(file, open_runtime):
    clock, shell = FakeClock(), Shell()
    policy = Policy(approval_timeout=600)
    async with fail_after(10):
        first = await open_runtime(file, *shell.tools, clock=clock, policy=policy)
        events = first.subscribe()
        first.session("s").start_batch([rm()])
        before = await asked(first, events)
        await first.close()
        await clock.advance(100)

        second = await open_runtime(file, *shell.tools, clock=clock, policy=policy)
        (after,) = await second.approvals()
        assert after == before
        (recovered,) = await second.recover()
        assert (recovered.action, recovered.outcome.status) == ("waiting", "pending")
        assert await second.approvals() == [before]
        await second.approve(after.key)
        (outcome,) = await second.session("s").run_batch([rm()])
    assert (outcome.value, shell.ran) == ("removed /tmp/a", ["/tmp/a"])


@pytest.mark.promise("AUTH-04")
async def test_a_decision_made_while_nobody_ran_holds_when_somebody_does(file, open_runtime):
    shell = Shell()
    async with fail_after(10):
        first = await open_runtime(file, *shell.tools)
        events = first.subscribe()
        first.session("s").start_batch([rm(), rm("/tmp/b", "c2")])
        for _ in range(2):
            await waiting(events)
        await first.close()

        inbox = await open_runtime(file)
        for approval in await inbox.approvals():
            await (inbox.approve(approval.key) if approval.call_id == "c1" else inbox.deny(approval.key, reason="no"))
        await inbox.close()

        second = await open_runtime(file, *shell.tools, recover=True)
        outcomes = await second.session("s").run_batch([rm(), rm("/tmp/b", "c2")])
    assert [outcome.status for outcome in outcomes] == ["success", "failure"]
    assert all(outcome.replayed for outcome in outcomes)
    assert shell.ran == ["/tmp/a"]


@pytest.mark.promise("AUTH-04")
async def test_of_two_decisions_the_first_wins_and_the_other_is_told(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        key = (await asked(runtime, events)).key
        answers = await asyncio.gather(
            runtime.deny(key, reason="ann says no"), runtime.approve(key), runtime.approve(key, always={})
        )
        (outcome,) = await batch
        (another,) = await asyncio.gather(runtime.deny(key))
    assert [answer.first for answer in answers] == [True, False, False]
    assert {answer.status for answer in (*answers, another)} == {"error"}
    assert "ann says no" in outcome.text
    assert shell.ran == []


@pytest.mark.promise("AUTH-04")
async def test_the_loser_of_two_decisions_is_not_remembered(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        key = (await asked(runtime, events)).key
        await asyncio.gather(runtime.deny(key), runtime.approve(key, always={}))
        await batch
        again = runtime.session("s").start_batch([rm("/tmp/b", "c2")])
        await runtime.deny((await asked(runtime, events)).key)
        (outcome,) = await again
    assert outcome.failure.code == "denied"


@pytest.mark.promise("AUTH-03")
async def test_a_cancelled_call_asks_no_more(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        key = (await asked(runtime, events)).key
        batch.cancel("enough")
        (outcome,) = await batch
        assert (outcome.status, outcome.may_have_run) == ("cancelled", False)
        assert await runtime.approvals() == []
        with pytest.raises(KeyRefused):
            await runtime.approve(key)
        again = runtime.session("s").start_batch([rm()])
        await runtime.approve((await asked(runtime, events)).key)
        assert (await again)[0].value == "removed /tmp/a"


async def test_requests_of_one_session_can_be_asked_for(place, open_runtime):
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batches = [runtime.session(name).start_batch([rm()]) for name in ("s", "t")]
        for _ in batches:
            await waiting(events)
        assert [approval.session for approval in await runtime.approvals()] == ["s", "t"]
        assert [approval.session for approval in await runtime.approvals("t")] == ["t"]
        for approval in await runtime.approvals():
            await runtime.approve(approval.key)
        for batch in batches:
            assert (await batch)[0].ok


@pytest.mark.promise("AUTH-03", "RUN-10")
async def test_a_call_that_begins_to_wait_for_a_person_is_logged_with_fields(place, open_runtime, caplog):
    caplog.set_level("INFO", "toolwright")
    shell = Shell()
    runtime = await open_runtime(place, *shell.tools)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([rm()])
        approval = await asked(runtime, events)
        await runtime.deny(approval.key)
        await batch
    (line,) = [record for record in caplog.records if "waits for approval" in record.getMessage()]
    assert (line.session, line.call_id, line.tool, line.waits_for) == ("s", "c1", "rm", "approval")
    assert approval.key not in caplog.text


@pytest.mark.promise("AUTH-04", "AUTH-03")
@pytest.mark.parametrize("answer", ["approve", "deny", "approve before", "deny before"])
async def test_a_call_that_only_its_batch_asked_about_does_not_run_unasked_after_a_restart(file, open_runtime, answer):
    ran = []

    @tool
    async def wipe(path: str) -> str:
        ran.append(path)
        return "wiped"

    async with fail_after(20):
        first = await open_runtime(file, wipe)
        call = ToolCall(id="c1", name="wipe", arguments={"path": "/x"})
        batch = first.session("s").start_batch([call], rules=[Rule("ask", "wipe", name="ask ann", reason="it wipes")])
        await batch.quiet()
        await first.close()

        second = await open_runtime(file, wipe)
        (approval,) = await second.approvals()
        decide = second.approve if "approve" in answer else second.deny
        if "before" in answer:
            await decide(approval.key, by="ann")
        (recovered,) = await second.recover()
        if "before" not in answer:
            assert (recovered.action, recovered.outcome.status, ran) == ("waiting", "pending", [])
            assert await second.approvals() == [approval]
            await decide(approval.key, by="ann")
        (outcome,) = await second.session("s").run_batch([call])
    assert (ran, outcome.ok) == ((["/x"], True) if "approve" in answer else ([], False))
    assert (outcome.decided_by, outcome.decision.by) == ("ask ann", "ann")
