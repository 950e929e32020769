"""A run, a schedule or a trigger may do as much as its starter, and no more, in every process."""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from tests.support import fail_after
from toolwright import Policy, Rule, Runtime, Tool, ToolContext, tool
from toolwright.errors import RunRefused

TIMING = {"cron": "* * * * *"}


def never(number: int, request: Any) -> bool:
    return False


def is_no(name: str, request: Any) -> bool:
    return name == "no"


class Bench:
    """Tools that start work by each way there is, and one that changes something."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.handles: dict[str, Any] = {}

        @tool(supports_background=True)
        async def mutate(path: str = "/x") -> str:
            self.ran.append("mutated")
            return "mutated"

        @tool(supports_background=True, readonly=True)
        async def outer(ctx: ToolContext, how: str = "nested") -> str:
            return await self.start(ctx, how)

        self.mutate, self.outer = mutate, outer
        self.tools: tuple[Tool, ...] = (mutate, outer)

    async def start(self, ctx: ToolContext, how: str) -> str:
        if how == "nested":
            (outcome,) = await ctx.run_batch([{"name": "mutate"}])
            return outcome.text
        if how == "child":
            return (await ctx.open_child("c").call("mutate")).text
        if how == "other session":
            return (await self.handles["runtime"].session("other").call("mutate")).text
        if how == "loosened":
            return (await self.handles["session"].run_batch([{"name": "mutate"}], read_only=False, rules=()))[0].text
        if how == "run":
            return (await ctx.runs.spawn("mutate")).id
        if how == "run of the host":
            return str((await self.handles["session"].spawn("mutate")).id)
        if how == "run of a run":
            return (await ctx.runs.spawn("outer", {"how": "nested"})).id
        if how == "schedule":
            return (await ctx.schedules.add("mutate", **TIMING)).id
        if how == "schedule now":
            (schedule,) = await ctx.schedules.list()
            return str(await schedule.run_now())
        assert how == "trigger"
        return str((await self.handles["session"].on("topic", "mutate")).id)

    async def open(self, stage: Stage, place: str | Path, **options: Any) -> Any:
        runtime = await stage.open(place, *self.tools, **options)
        self.handles.update(runtime=runtime, session=runtime.session("s"))
        return runtime


WAYS = ["nested", "child", "other session", "loosened", "run", "run of the host", "schedule", "schedule now", "trigger"]


@pytest.mark.promise("APP-04", "AUTH-02")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("restriction", [{"read_only": True}, {"rules": [Rule("deny", "mutate")]}], ids=str)
async def test_what_a_restricted_batch_starts_is_refused_when_it_is_started(
    stage: Stage, place: str | Path, how: str, restriction: dict[str, Any]
):
    bench = Bench()
    runtime = await bench.open(stage, place)
    session = runtime.session("s")
    if how == "schedule now":
        await session.schedule("mutate", **TIMING)
    (outcome,) = await stage.until(session.run_batch([{"name": "outer", "arguments": {"how": how}}], **restriction))
    rule = "read_only" if restriction.get("read_only") else "deny mutate"
    assert f"Tool 'mutate' may not run (rule '{rule}')" in outcome.text
    if outcome.failure is not None:
        assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "denied")
        assert outcome.failure.source == "policy"
    assert (bench.ran, await session.runs(), await session.triggers()) == ([], [], [])


@pytest.mark.promise("APP-04")
@pytest.mark.parametrize("place", ["memory", "file"], indirect=True)
async def test_restrictions_pass_from_run_to_run_and_to_what_these_call(stage: Stage, place: str | Path):
    bench = Bench()
    session = (await bench.open(stage, place)).session("s")
    (outcome,) = await session.run_batch(
        [{"name": "outer", "arguments": {"how": "run of a run"}}], rules=[Rule("deny", "mutate", name="keep it")]
    )
    ended = await stage.until((await session.run(outcome.value)).wait())
    assert "Tool 'mutate' may not run (rule 'keep it')" in ended.value
    assert bench.ran == []


@pytest.mark.promise("APP-04")
async def test_another_program_refuses_what_the_starter_denied_and_what_it_denies_itself(stage: Stage, file: Path):
    bench = Bench()
    policy = Policy(rules=[Rule("deny", "mutate", name="the host says no")])
    host = await bench.open(stage, file, policy=policy, worker=False)
    run = await host.session("s").spawn("outer")
    free = await host.session("free", policy=Policy()).spawn("mutate")
    await stage.close(host)

    worker = await stage.open(file, *bench.tools, worker=True)
    outcome = await stage.until((await worker.run(run.id)).wait())
    assert "may not run (rule 'the host says no')" in outcome.value
    assert (await stage.until((await worker.run(free.id)).wait())).value == "mutated"
    again = await worker.session("s").spawn("mutate", id="mine")
    assert (await stage.until(again.wait())).ok

    await stage.close(worker)
    host = await stage.open(file, *bench.tools, worker=False)
    run = await host.session("s").spawn("mutate")
    await stage.close(host)
    strict = await stage.open(file, *bench.tools, worker=True, policy=Policy(read_only=True))
    outcome = await stage.until((await strict.run(run.id)).wait())
    assert (outcome.failure.code, outcome.decided_by) == ("denied", "read_only")


@pytest.mark.promise("APP-04")
async def test_a_schedule_and_a_trigger_keep_what_their_starter_may_do(stage: Stage, file: Path):
    bench = Bench()
    rules = [Rule("deny", "mutate", name="the host says no")]
    host = await bench.open(stage, file, policy=Policy(rules=rules), worker=False)
    session = host.session("s")
    schedule = await session.schedule("outer", **TIMING)
    await session.on("topic", "outer")
    await stage.close(host)

    worker = await stage.open(file, *bench.tools, worker=True)
    (run,) = await worker.occur("topic")
    now = await (await worker.scheduled(schedule.id)).run_now()
    await stage.pass_time(61)
    runs = [run, await worker.run(now), *(await worker.runs("s"))]
    outcomes = [await stage.until(run.wait()) for run in runs]
    assert len(outcomes) >= 5
    assert all("may not run (rule 'the host says no')" in outcome.value for outcome in outcomes)
    assert {run.record.source for run in runs} == {"schedule", "host"}
    assert bench.ran == []


@pytest.mark.promise("APP-04", "AUTH-01")
@pytest.mark.parametrize(
    "rule",
    [
        Rule("deny", ["mu*", "other"], name="n", reason="because", level=3),
        Rule("deny", source="tool", mutating=True),
        Rule("deny", capabilities={"network"}),
        Rule("deny", "mutate", commands=["rm", "git push*"], writes=["/etc/*"]),
        Rule("ask", "mutate", commands="rm", unknown="deny"),
    ],
    ids=str,
)
async def test_every_part_of_a_rule_is_the_same_after_it_was_stored(stage: Stage, file: Path, rule: Rule):
    @tool(supports_background=True, readonly=True, capabilities=["network"])
    async def outer(ctx: ToolContext) -> str:
        (outcome,) = await ctx.run_batch([{"id": "n", "name": "mutate", "arguments": {"command": "rm x"}}])
        return f"{outcome.decided_by}: {outcome.text}"

    @tool(kind="shell", capabilities=["network"], approval="auto")
    async def mutate(command: str) -> str:
        return "mutated"

    texts = []
    allow = Rule("allow", "outer", level=9)
    policy = Policy(rules=[rule, allow], on_ask="deny")
    for opened in (policy, Policy()):
        host = await stage.open(file, outer, mutate, policy=policy, worker=False)
        run = await host.session("s").spawn("outer")
        await stage.close(host)
        worker = await stage.open(file, outer, mutate, worker=True, policy=opened)
        texts.append((await stage.until((await worker.run(run.id)).wait())).value)
        await stage.close(worker)
    assert texts[0] == texts[1]
    assert texts[0].startswith(f"{rule.name}: ")


@pytest.mark.promise("APP-04")
async def test_a_rule_that_is_a_function_is_found_by_its_name_in_another_program(stage: Stage, file: Path):
    bench = Bench()

    def outside(request: Any) -> bool:
        return bool(request.arguments.get("path") != "/data")

    rule = Rule("deny", "mutate", name="only data", when=outside)
    host = await bench.open(stage, file, policy=Policy(rules=[rule]), worker=False)
    fits = await host.session("s").spawn("mutate", {"path": "/data"})
    nested = await host.session("s").spawn("outer")
    with pytest.raises(RunRefused, match="'only data'"):
        await host.session("s").spawn("mutate", {"path": "/etc"})
    await stage.close(host)

    others = [Rule("deny", "mutate", name="only data", when=outside), Rule("allow", name="only data")]
    worker = await stage.open(file, *bench.tools, worker=True, policy=Policy(rules=others))
    assert (await stage.until((await worker.run(fits.id)).wait())).value == "mutated"
    assert "rule 'only data'" in (await stage.until((await worker.run(nested.id)).wait())).value
    assert bench.ran == ["mutated"]


@pytest.mark.promise("APP-04")
@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([], "has no rule of that name; add the rule to that policy"),
        ([Rule("deny", "mutate", name="only data")], "has no rule of that name; add the rule to that policy"),
        (
            [Rule("deny", "mutate", name="only data", when=partial(never, n)) for n in range(2)],
            "several rules of that name; give each its own name",
        ),
    ],
)
async def test_a_run_under_a_function_that_the_program_does_not_have_is_refused(
    stage: Stage, file: Path, rules: list[Rule], said: str
):
    bench = Bench()
    rule = Rule("deny", "mutate", name="only data", when=lambda request: False)
    host = await bench.open(stage, file, policy=Policy(rules=[rule]), worker=False)
    run = await host.session("s").spawn("mutate")
    await stage.close(host)
    worker = await stage.open(file, *bench.tools, worker=True, policy=Policy(rules=rules))
    outcome = await stage.until((await worker.run(run.id)).wait())
    assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "rule_unknown")
    assert outcome.failure.source == "policy"
    assert "'only data'" in outcome.failure.message
    assert outcome.failure.message.endswith(said)
    assert bench.ran == []


@pytest.mark.promise("APP-04")
async def test_a_function_of_a_batch_holds_for_its_runs_in_the_same_program(stage: Stage, place: str | Path):
    bench = Bench()
    session = (await bench.open(stage, place)).session("s")
    batches = [
        session.run_batch(
            [{"id": name, "name": "outer", "arguments": {"how": "run of a run"}}],
            rules=[Rule("deny", "mutate", name="same name", when=partial(is_no, name))],
        )
        for name in ("no", "yes")
    ]
    runs = [(await stage.until(batch))[0].value for batch in batches]
    no, yes = [(await stage.until((await session.run(run)).wait())).value for run in runs]
    assert (yes, bench.ran) == ("mutated", ["mutated"])
    assert "may not run (rule 'same name')" in no


@pytest.mark.promise("APP-04", "AUTH-03")
async def test_a_run_that_needs_an_approval_asks_where_it_runs_and_waits(stage: Stage, file: Path):
    bench = Bench()
    rules = [Rule("ask", "mutate", name="ask ann", reason="it changes things")]
    host = await bench.open(stage, file, policy=Policy(rules=rules), worker=False)
    approved = await host.session("s").spawn("mutate", {"path": "/a"})
    denied = await host.session("s").spawn("mutate", {"path": "/b"})
    with pytest.raises(RunRefused, match="needs approval, and this policy does not wait for one"):
        await host.session("nobody", policy=Policy(rules=rules, on_ask="deny")).spawn("mutate")
    assert await host.approvals() == []
    await stage.close(host)

    worker = await stage.open(file, *bench.tools, worker=True)
    await stage.status(await worker.run(approved.id), "waiting")
    await stage.status(await worker.run(denied.id), "waiting")
    assert bench.ran == []
    asked = {approval.call_id: approval for approval in await worker.approvals("s")}
    assert {id: (one.rule, one.reason, one.arguments) for id, one in asked.items()} == {
        approved.id: ("ask ann", "it changes things", {"path": "/a"}),
        denied.id: ("ask ann", "it changes things", {"path": "/b"}),
    }
    await worker.approve(asked[approved.id].key, by="ann")
    await worker.deny(asked[denied.id].key, by="ann")
    assert (await stage.until((await worker.run(approved.id)).wait())).value == "mutated"
    assert (await stage.until((await worker.run(denied.id)).wait())).failure.code == "denied"
    assert bench.ran == ["mutated"]


@pytest.mark.promise("RUN-13", "APP-04")
async def test_a_run_says_who_started_it_and_by_which_call(stage: Stage, place: str | Path):
    seen: list[tuple[str, str | None]] = []

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        seen.append((ctx.source, ctx.parent_call_id))

    @tool
    async def spawn(ctx: ToolContext, nested: bool = False) -> str:
        if nested:
            args = {"tool": "work", "args": {}}
            (outcome,) = await ctx.run_batch([{"id": "n", "name": "spawn_background", "arguments": args}])
            return str(outcome.value["run_id"])
        return (await ctx.runs.spawn("work")).id

    runtime = await stage.open(place, work, spawn)
    session = runtime.session("s")
    events = session.subscribe()
    args = {"tool": "work", "args": {}}
    await stage.until((await session.spawn("work")).wait())
    calls: list[dict[str, Any]] = [
        {"id": "c1", "name": "spawn_background", "arguments": args},
        {"id": "c2", "name": "spawn_background", "arguments": args, "source": "user"},
        {"id": "c3", "name": "spawn"},
        {"id": "c4", "name": "spawn", "arguments": {"nested": True}},
    ]
    for call in calls:
        (outcome,) = await session.run_batch([call])
        run = outcome.value if isinstance(outcome.value, str) else outcome.value["run_id"]
        await stage.until((await session.run(run)).wait())
    expected = [("host", None), ("model", "c1"), ("user", "c2"), ("tool", "c3"), ("tool", "n")]
    assert seen == expected
    records = runtime.log.query(tool="work")
    assert [(record.source, record.parent) for record in records] == expected
    events.close()
    started = [event async for event in events if event.kind == "call.started" and event.tool == "work"]
    assert [(event.source, event.parent) for event in started] == expected


@pytest.mark.promise("RUN-13", "AUTH-01")
@pytest.mark.parametrize(("source", "refused"), [("tool", True), ("model", False), ("host", False)])
async def test_a_rule_sees_that_a_run_was_started_by_a_tool(stage: Stage, source: str, refused: bool):
    bench = Bench()
    policy = Policy(rules=[Rule("deny", "mutate", source=source)])  # type: ignore[arg-type]
    session = (await bench.open(stage, ":memory:", policy=policy)).session("s")
    (outcome,) = await session.run_batch([{"name": "outer", "arguments": {"how": "run"}}])
    assert (outcome.failure is not None) is refused
    if not refused:
        assert (await stage.until((await session.run(outcome.value)).wait())).ok
    assert bench.ran == ([] if refused else ["mutated"])


@pytest.mark.promise("APP-04")
async def test_what_a_worker_runs_is_no_part_of_the_call_that_first_started_a_run(stage: Stage, place: str | Path):
    bench = Bench()
    runtime = await bench.open(stage, place)
    session = runtime.session("s")
    (outcome,) = await session.run_batch([{"name": "outer", "arguments": {"how": "run of a run"}}], read_only=True)
    await stage.until((await session.run(outcome.value)).wait())
    assert (await stage.until((await session.spawn("outer")).wait())).value == "mutated"


PROGRAM = """
import asyncio
from toolwright import Policy, Rule, Runtime, tool

@tool(supports_background=True)
async def wipe() -> str:
    open("wiped", "w").close()
    return "wiped"

@tool(supports_background=True, kind="shell", approval="auto")
async def shell(command: str) -> str:
    open("removed", "w").close()
    return "removed"

@tool(supports_background=True, readonly=True)
async def both(ctx) -> list:
    return [outcome.text for outcome in await ctx.run_batch([
        {"name": "wipe"}, {"name": "shell", "arguments": {"command": "rm x"}}])]
"""


@pytest.mark.promise("APP-04")
async def test_the_worker_command_without_a_policy_refuses_what_the_host_denied(tmp_path: Path):
    source = PROGRAM.replace("ctx)", "ctx: ToolContext)").replace("Runtime, tool", "Runtime, ToolContext, tool")
    (tmp_path / "my_tools.py").write_text(source)
    sys.path.insert(0, str(tmp_path))
    try:
        import my_tools  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("my_tools", None)
    file = tmp_path / "agent.db"
    policy = Policy(rules=[Rule("deny", "wipe"), Rule("deny", "shell", commands=["rm"])])
    tools = [my_tools.wipe, my_tools.shell, my_tools.both]
    async with Runtime.open(file, tools=tools, policy=policy, worker=False) as host:
        run = await host.session("s").spawn("both")
    words = ["-m", "toolwright.cli", "worker", "--db", str(file), "--tools", "my_tools.py"]
    worker = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=tmp_path)
    try:
        async with fail_after(60), Runtime.open(file, tools=tools, worker=False) as host:
            outcome = await (await host.run(run.id)).wait()
    finally:
        worker.terminate()
        await worker.wait()
    assert ["may not run (rule 'deny wipe')" in outcome.value[0], "rule 'deny shell'" in outcome.value[1]] == [True] * 2
    assert not (tmp_path / "wiped").exists()
    assert not (tmp_path / "removed").exists()
