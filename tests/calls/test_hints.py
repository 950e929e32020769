"""What the hints of a tool change about its calls: how long, how many, with which secrets, and what is kept of them."""

import asyncio
import os
from typing import Any

import msgspec
import pytest

from tests.support import fail_after
from toolwright import Policy, PolicyError, Rule, Runtime, Success, ToolDefinitionError, ToolRegistry, overridden, tool
from toolwright.testing import FakeClock

pytestmark = pytest.mark.promise("TOOL-05")


# --- approval="suggest"


@pytest.mark.promise("TOOL-06", "AUTH-01")
@pytest.mark.parametrize(("approve", "waits"), [("required", False), ("suggested", True)])
async def test_a_tool_that_suggests_approval_is_asked_about_by_a_careful_policy(approve: Any, waits: bool):
    ran = []

    @tool(capabilities=["writes_files"])
    async def save(path: str) -> str:
        ran.append(path)
        return path

    @tool
    async def plain() -> str:
        return "ran"

    async with Runtime.open(tools=[save, plain], policy=Policy(approve=approve)) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([{"name": "save", "arguments": {"path": "/a"}}, {"name": "plain"}])
        async with fail_after(5):
            first, second = await batch.quiet()
        assert (first.status, second.value, ran) == (("pending", "ran", []) if waits else ("success", "ran", ["/a"]))
        if waits:
            (approval,) = await runtime.approvals()
            assert (approval.tool, approval.rule) == ("save", "approval")
            assert "suggests approval" in str(approval.reason)
            await runtime.approve(approval.key)
            async with fail_after(5):
                await batch
            assert ran == ["/a"]


@pytest.mark.promise("TOOL-06", "AUTH-01")
async def test_a_rule_decides_before_what_a_tool_suggests():
    @tool(approval="suggest")
    async def save() -> str:
        return "saved"

    policy = Policy(approve="suggested", on_ask="deny", rules=[Rule("allow", "save", name="fine")])
    async with Runtime.open(tools=[save], policy=policy) as runtime:
        assert (await runtime.session("s").call("save")).decided_by == "fine"
        (refused,) = await runtime.session("s").run_batch([{"name": "save"}], rules=())
        assert refused.failure is not None
        assert refused.failure.code == "needs_approval"
    with pytest.raises(PolicyError, match=r"Policy.approve is 'always'; use required, or suggested"):
        Policy(approve="always")  # type: ignore[arg-type]


# --- long_running


@pytest.mark.promise("TIME-01")
async def test_a_long_running_tool_has_the_long_timeout_unless_it_says_its_own():
    @tool(parallel=True)
    async def short() -> None:
        await asyncio.Event().wait()

    @tool(parallel=True, long_running=True)
    async def long() -> None:
        await asyncio.Event().wait()

    @tool(parallel=True, long_running=True, timeout=5)
    async def own() -> None:
        await asyncio.Event().wait()

    clock, policy = FakeClock(), Policy(timeout=10, long_timeout=100, grace=0)
    async with Runtime.open(tools=[short, long, own], clock=clock, policy=policy) as runtime:
        session = runtime.session("s")
        batches = {name: session.start_batch([{"name": name}]) for name in ("own", "short", "long")}
        over = []
        for seconds in (4.9, 0.2, 4.8, 0.2, 89.8, 0.2):
            await clock.advance(seconds)
            over.append([name for name, batch in batches.items() if batch.done])
        ((outcome,),) = [await batches["long"]]
    assert over == [[], ["own"], ["own"], ["own", "short"], ["own", "short"], ["own", "short", "long"]]
    assert outcome.failure is not None
    assert "100 s" in outcome.failure.message


# --- cpu_bound


@pytest.mark.promise("SCHED-04")
async def test_of_all_cpu_bound_calls_as_many_run_at_once_as_there_are_processors():
    running, most = 0, 0
    full = asyncio.Event()
    processors = os.cpu_count() or 1

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == processors:
            full.set()
        await full.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    @tool(parallel=True, cpu_bound=True)
    async def first() -> None:
        await work()

    @tool(parallel=True, cpu_bound=True)
    async def second() -> None:
        await work()

    policy = Policy(max_concurrency=3 * processors, session_concurrency=3 * processors)
    async with Runtime.open(tools=[first, second], policy=policy) as runtime, fail_after(10):
        calls = [{"name": name} for name in ("first", "second") for _ in range(processors)]
        sessions = [runtime.session(name) for name in ("s", "t")]
        outcomes = await asyncio.gather(*(session.run_batch(calls) for session in sessions))
    assert all(outcome.ok for batch in outcomes for outcome in batch)
    assert most == processors


# --- requires_secrets


@pytest.mark.parametrize(
    ("required", "has", "missing"),
    [
        (True, [], "a secret"),
        (True, ["other"], None),
        ("token", ["other"], "the secret 'token'"),
        ("token", ["token"], None),
        (["token", "key"], ["token"], "the secret 'key'"),
        (["token", "key"], ["token", "key"], None),
    ],
)
async def test_a_tool_does_not_run_while_the_session_lacks_its_secrets(
    tmp_path: Any, required: Any, has: list[str], missing: str | None
):
    ran = []

    @tool(requires_secrets=required)
    async def push() -> str:
        ran.append("pushed")
        return "pushed"

    async with Runtime.open(tmp_path / "agent.db", tools=[push]) as runtime:
        session = runtime.session("s")
        for name in has:
            await session.secrets.set(name, f"the value of {name}")
        outcome = await session.call("push")
        if missing is None:
            assert (outcome.value, ran) == ("pushed", ["pushed"])
            return
        assert outcome.failure is not None
        assert (outcome.failure.category, outcome.failure.code) == ("unavailable", "secret_missing")
        assert outcome.failure.message == (
            f"Tool 'push' requires {missing}, and this session does not have it; ask the user to set it first"
        )
        assert ran == []
        for name in ("token", "key"):
            await session.secrets.set(name, f"the value of {name}")
        assert (await session.call("push")).value == "pushed"


@pytest.mark.parametrize("wrong", [[], 5, [""], [3], ""])
def test_the_secrets_that_a_tool_requires_have_names(wrong: Any):
    with pytest.raises(ToolDefinitionError, match="use True, the name of a secret, or a list of names"):

        @tool(requires_secrets=wrong)
        async def push() -> None: ...


# --- persist_output


@pytest.mark.promise("OUT-05")
@pytest.mark.parametrize("overrides", [False, True])
async def test_the_output_of_a_tool_that_persists_it_is_always_in_a_file(tmp_path: Any, overrides: bool):
    @tool(persist_output=not overrides)
    async def report(lines: int) -> Any:
        return "line\n" * lines if lines else Success({"rows": 3}, raw_output="raw")

    @tool
    async def plain() -> str:
        return "short"

    tools: Any = [report, plain]
    if overrides:
        hints = msgspec.structs.replace(report.definition.hints, persist_output=True)
        tools = overridden(ToolRegistry(tools), {"report": {"hints": hints}})
    async with Runtime.open(tmp_path / "agent.db", tools=tools) as runtime:
        session = runtime.session("s")
        short, long, empty, other = await session.run_batch(
            [
                {"id": "c1", "name": "report", "arguments": {"lines": 2}},
                {"id": "c2", "name": "report", "arguments": {"lines": 3_000}},
                {"id": "c3", "name": "report", "arguments": {"lines": 0}},
                {"id": "c4", "name": "plain"},
            ]
        )
        assert (short.text, short.spilled_to) == ("line\nline\n", "/.outputs/c1.txt")
        assert (await session.files.read("/.outputs/c1.txt")) == "line\nline\n"
        assert (await session.files.read(long.spilled_to)) == "line\n" * 3_000
        assert (await session.files.read(empty.spilled_to)) == '{"rows":3}'
        assert (empty.raw_output, other.spilled_to) == ("raw", None)
        (again,) = await session.run_batch([{"id": "c1", "name": "report", "arguments": {"lines": 2}}])
        assert (again.replayed, again.spilled_to) == (True, "/.outputs/c1.txt")
        assert len(await session.files.list("/.outputs")) == 3
