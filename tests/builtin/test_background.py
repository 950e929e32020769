"""The tools by which a model starts runs in the background, and looks after them."""

import asyncio
import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema_rs
import pytest

from tests.support import fail_after
from toolwright import Policy, Rule, Runtime, ToolContext, tool
from toolwright.builtin import background, capability, default_tools

RUN_ID = re.compile(r"bg_[0-9a-f]{12}7[0-9a-f]{19}")


@tool(supports_background=True, display_name="Long Work")
async def work(ctx: ToolContext, times: int = 1) -> dict:
    """Print, and say how often."""
    for number in range(times):
        await ctx.output("stdout", f"{number}\n")
    await ctx.progress(times, total=times, label="printed")
    return {"printed": times}


@tool
async def quick() -> None: ...


class Gate:
    """A tool that runs until the test lets it end."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun = asyncio.Event()

        @tool(name="gated", supports_background=True)
        async def gated(ctx: ToolContext) -> str:
            await ctx.output("stdout", "begun\n")
            self.begun.set()
            await self.open.wait()
            return "through"

        self.tool = gated


async def use(session, name: str, /, **arguments: Any) -> Any:
    """What a tool of the box gives; it must have the shape that it says."""
    async with fail_after(10):
        outcome = await session.call(name, **arguments)
    assert outcome.ok, outcome.failure
    schema = getattr(background, name).definition.output_schema
    if schema is not None:
        jsonschema_rs.validate(schema, outcome.value)
    return outcome.value


async def refused(session, name: str, /, **arguments: Any) -> tuple[str, str]:
    async with fail_after(10):
        outcome = await session.call(name, **arguments)
    assert outcome.status == "failure"
    return outcome.failure.category, outcome.failure.message


# --- spawn_background


@pytest.mark.promise("PROC-05")
def test_what_spawn_background_takes_is_settled():
    definition = background.spawn_background.definition
    assert definition.display_name == "Spawn Background"
    schema = definition.input_schema
    assert (list(schema["properties"]), schema["required"], schema["additionalProperties"]) == (
        ["tool", "args", "title", "schedule", "signal_on_completion"],
        ["tool", "args"],
        False,
    )
    schedule = schema["properties"]["schedule"]
    assert list(schedule["properties"]) == ["cron_expression", "scheduled_at", "timezone"]
    assert schema["properties"]["signal_on_completion"] == {
        "type": "boolean",
        "default": True,
        "description": "Append a message to the session when the run is finished.",
    }


@pytest.mark.promise("PROC-05")
async def test_a_run_is_returned_at_once_with_its_id_and_where_its_artifacts_will_be(place, open_runtime):
    gate = Gate()
    session = (await open_runtime(place, gate.tool, work)).session("s")
    value = await use(session, "spawn_background", tool=" gated ", args={}, title=" The  long one ")
    id = value.pop("run_id")
    assert RUN_ID.fullmatch(id)
    assert value == {
        "resource_id": id,
        "title": "The long one",
        "tool": "gated",
        "status": "queued",
        "signal_on_completion": True,
        "artifact_dir": f"/.background/{id}",
        "log_path": f"/.background/{id}/output.log",
        "result_path": f"/.background/{id}/result.json",
    }
    async with fail_after(10):
        await gate.begun.wait()
        assert (await session.run(id)).record.options.signal_on_completion
        gate.open.set()
        assert (await (await session.run(id)).wait()).value == "through"
    (message,) = await session.messages.list()
    assert (message.sender, message.metadata) == ("runtime", {"run_id": id, "status": "completed"})
    assert await session.files.read(f"/.background/{id}/output.log") == "[stdout] begun\n"


async def test_a_run_without_a_title_is_called_by_its_tool_and_may_end_in_silence(open_runtime):
    session = (await open_runtime(":memory:", work)).session("s")
    value = await use(session, "spawn_background", tool="work", args={}, signal_on_completion=False)
    assert (value["title"], value["signal_on_completion"]) == ("Long Work", False)
    await use(session, "wait_run", run_id=value["run_id"])
    assert await session.messages.list() == []


@pytest.mark.promise("PROC-05")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Missing required parameter: tool"),
        ({"tool": "", "args": {}}, "Missing required parameter: tool"),
        ({"tool": "  ", "args": {}}, "Missing required parameter: tool"),
        ({"tool": 7, "args": {}}, "Missing required parameter: tool"),
        ({"tool": "work"}, "Missing required parameter: args (object expected)"),
        ({"tool": "work", "args": None}, "Missing required parameter: args (object expected)"),
        ({"tool": "work", "args": [1]}, "Missing required parameter: args (object expected)"),
        ({"tool": "wrok", "args": {}}, "Unknown tool: wrok"),
        ({"tool": "spawn_background", "args": {}}, "spawn_background cannot target itself recursively"),
        ({"tool": "quick", "args": {}}, "Tool does not support background execution: quick"),
        ({"tool": "list_runs", "args": {}}, "Tool does not support background execution: list_runs"),
        ({"tool": "wait_run", "args": {}}, "Tool does not support background execution: wait_run"),
        ({"tool": "work", "args": {}, "schedule": "daily"}, "schedule must be an object"),
        ({"tool": "work", "args": {}, "schedule": None}, "schedule must be an object"),
        (
            {"tool": "work", "args": {}, "schedule": {}},
            "schedule must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)",
        ),
        (
            {
                "tool": "work",
                "args": {},
                "schedule": {"cron_expression": "* * * * *", "scheduled_at": "2999-01-01T00:00:00Z"},
            },
            "schedule must not include both cron_expression and scheduled_at; provide exactly one",
        ),
        (
            {"tool": "work", "args": {}, "schedule": {"scheduled_at": "tomorrow"}},
            "scheduled_at must be RFC3339",
        ),
    ],
    ids=str,
)
async def test_what_cannot_run_is_refused_in_settled_words(open_runtime, arguments, said):
    session = (await open_runtime(":memory:", work, quick)).session("s")
    category, message = await refused(session, "spawn_background", **arguments)
    assert message == said
    assert category in ("invalid_arguments", "not_found", "unavailable")
    assert await session.runs() == []


async def test_what_the_schema_does_not_know_is_refused_too(open_runtime):
    session = (await open_runtime(":memory:", work)).session("s")
    for more in ({"when": "now"}, {"title": 7}, {"signal_on_completion": "yes"}, {"schedule": {"at": "noon"}}):
        assert (await refused(session, "spawn_background", tool="work", args={}, **more))[0] == "invalid_arguments"


@pytest.mark.promise("PROC-05", "PROC-06")
async def test_too_many_runs_are_refused_in_settled_words(open_runtime):
    gate = Gate()
    policy = Policy(background_per_session=1, background_per_worker=2)
    runtime = await open_runtime(":memory:", gate.tool, policy=policy)
    one, two, three = (runtime.session(name) for name in "abc")
    await use(one, "spawn_background", tool="gated", args={})
    assert await refused(one, "spawn_background", tool="gated", args={}) == (
        "resource_limit",
        "Maximum 1 active background runs per session. Wait for an existing run to finish before starting another.",
    )
    await use(two, "spawn_background", tool="gated", args={})
    assert await refused(three, "spawn_background", tool="gated", args={}) == (
        "resource_limit",
        "Worker is already running the maximum 2 active background runs. Try again after an existing run finishes.",
    )
    gate.open.set()


async def test_the_policy_decides_about_the_run_as_about_any_call(open_runtime):
    session = (await open_runtime(":memory:", work, policy=Policy(rules=[Rule("deny", "work")]))).session("s")
    assert await refused(session, "spawn_background", tool="work", args={}) == (
        "permission_denied",
        "Tool 'work' may not run (rule 'deny work')",
    )
    assert await session.runs() == []


@pytest.mark.promise("PROC-05")
async def test_with_a_schedule_nothing_starts_now_and_the_schedule_is_shown(open_runtime):
    session = (await open_runtime(":memory:", work)).session("s")
    timing = {"cron_expression": "0 3 * * *", "timezone": "Europe/Berlin"}
    value = await use(session, "spawn_background", tool="work", args={"times": 2}, title="Nightly", schedule=timing)
    (schedule,) = await session.schedules()
    due = datetime.fromisoformat(value.pop("next_trigger_at")).astimezone(ZoneInfo("Europe/Berlin"))
    assert (due.hour, due.minute, due.timestamp()) == (3, 0, schedule.next_at)
    assert value == {
        "created": True,
        "status": "scheduled",
        "title": "Nightly",
        "tool": "work",
        "signal_on_completion": True,
        "schedule_id": schedule.id,
        "schedule_type": "recurring",
        "cron_expression": "0 3 * * *",
        "scheduled_at": None,
        "timezone": "Europe/Berlin",
        "enabled": True,
    }
    assert schedule.to_json()["args"] == {"times": 2}
    assert await session.runs() == []


# --- the model's handles


@pytest.mark.promise("PROC-11")
async def test_a_model_waits_for_a_run_for_some_time_and_again(open_runtime):
    gate = Gate()
    session = (await open_runtime(":memory:", gate.tool)).session("s")
    id = (await use(session, "spawn_background", tool="gated", args={}))["run_id"]
    async with fail_after(10):
        async for event in (await session.run(id)).follow():
            if event.type == "output":
                break
    early = await use(session, "wait_run", run_id=id, seconds=0.01)
    assert (early["over"], early["outcome"], early["status"], early["output_tail"]) == (
        False,
        None,
        "running",
        "[stdout] begun\n",
    )
    gate.open.set()
    late = await use(session, "wait_run", run_id=id)
    assert (late["over"], late["outcome"], late["status"], late["status_text"]) == (
        True,
        "through",
        "completed",
        "Completed",
    )


@pytest.mark.promise("PROC-11")
async def test_a_model_lists_its_runs_and_those_that_are_not_over(open_runtime):
    gate = Gate()
    session = (await open_runtime(":memory:", gate.tool, work)).session("s")
    done = (await use(session, "spawn_background", tool="work", args={"times": 3}))["run_id"]
    await use(session, "wait_run", run_id=done)
    going = (await use(session, "spawn_background", tool="gated", args={}))["run_id"]
    every = await use(session, "list_runs")
    assert ([run["run_id"] for run in every["runs"]], every["total"]) == ([going, done], 2)
    assert every["runs"][1]["progress"] == {"current": 3.0, "total": 3.0, "label": "printed"}
    assert [run["run_id"] for run in (await use(session, "list_runs", active=True))["runs"]] == [going]
    assert len((await use(session, "list_runs", limit=1))["runs"]) == 1
    gate.open.set()
    await use(session, "wait_run", run_id=going)


@pytest.mark.promise("PROC-11")
async def test_a_model_cancels_a_run(open_runtime):
    gate = Gate()
    session = (await open_runtime(":memory:", gate.tool)).session("s")
    id = (await use(session, "spawn_background", tool="gated", args={}))["run_id"]
    async with fail_after(10):
        await gate.begun.wait()
    assert (await use(session, "cancel_run", run_id=id, reason="not needed"))["asked"]
    ended = await use(session, "wait_run", run_id=id)
    assert (ended["status"], ended["over"]) == ("cancelled", True)
    assert await use(session, "cancel_run", run_id=id) == {"run_id": id, "asked": False, "status": "cancelled"}


@pytest.mark.promise("PROC-11")
async def test_a_model_signals_a_run_in_order(place, open_runtime):
    @tool(supports_background=True)
    async def listen(ctx: ToolContext) -> list:
        return [await ctx.receive("word"), await ctx.receive("word")]

    session = (await open_runtime(place, listen)).session("s")
    id = (await use(session, "spawn_background", tool="listen", args={}))["run_id"]
    first = await use(session, "signal_run", run_id=id, name="word", payload={"a": 1})
    assert first == {"run_id": id, "name": "word", "number": 1}
    await use(session, "signal_run", run_id=id, name="word", payload="b")
    async with fail_after(10):
        assert (await (await session.run(id)).wait()).value == [{"a": 1}, "b"]
    assert (await refused(session, "signal_run", run_id=id, name="word"))[0] == "execution"


@pytest.mark.promise("PROC-11", "PROC-03")
@pytest.mark.parametrize("name", ["wait_run", "cancel_run", "signal_run"])
async def test_a_run_of_another_session_is_not_there_until_it_is_granted(open_runtime, name):
    gate = Gate()
    runtime = await open_runtime(":memory:", gate.tool)
    owner, other = runtime.session("owner"), runtime.session("other")
    run = await owner.spawn("gated")
    more = {"name": "word"} if name == "signal_run" else {"seconds": 0} if name == "wait_run" else {}
    foreign = await refused(other, name, run_id=run.id, **more)
    missing = await refused(other, name, run_id="bg_none", **more)
    assert foreign == (missing[0], missing[1].replace("bg_none", run.id))
    assert foreign[0] == "not_found"
    assert (await use(other, "list_runs"))["total"] == 0
    await run.grant("other")
    await use(other, name, run_id=run.id, **more)
    gate.open.set()
    async with fail_after(10):
        await run.wait()


# --- the capability


@pytest.mark.promise("BLT-04")
async def test_the_tools_come_by_themselves_with_a_tool_that_supports_them(open_runtime):
    with_one = await open_runtime(":memory:", work)
    assert [one.name for one in with_one.capabilities] == ["background_execution"]
    assert with_one.tools.names() == [
        "cancel_run",
        "cancel_schedule",
        "list_runs",
        "list_schedules",
        "signal_run",
        "spawn_background",
        "wait_run",
        "work",
    ]
    assert with_one.prompt == capability("background_execution").prompt
    assert [one.name for one in (await open_runtime(":memory:", quick)).capabilities] == []
    assert [one.name for one in (await open_runtime(":memory:", *default_tools())).capabilities] == []


async def test_they_may_be_asked_for_where_no_tool_brings_them():
    async with Runtime.open(capabilities=["background_execution"]) as runtime:
        assert "spawn_background" in runtime.tools.names()


async def test_a_script_runs_in_the_background_with_live_output_and_leaves_the_shell_as_it_is(open_runtime):
    session = (await open_runtime(":memory:", capabilities=["virtual_bash"])).session("s")
    await session.call("bash", command="mkdir -p d; cd d; export COLOUR=green")
    script = 'echo "$COLOUR in $PWD" | tee /workspace/seen; cd /; export COLOUR=red'
    id = (await use(session, "spawn_background", tool="bash", args={"command": script}))["run_id"]
    ended = await use(session, "wait_run", run_id=id)
    assert (ended["status"], ended["output_tail"]) == ("completed", "[stdout] green in /workspace/d\n")
    assert await session.files.read("/seen") == "green in /workspace/d\n"
    outcome = await session.call("bash", command='echo "$COLOUR in $PWD"')
    assert outcome.value["stdout"] == "green in /workspace/d\n"


# --- schedules, as a model looks after them


@pytest.mark.promise("CRON-02", "PROC-11")
async def test_a_model_with_as_many_schedules_as_it_may_have_cancels_one_and_adds_another():
    async with Runtime.open(tools=[work], worker=False) as runtime:
        session = runtime.session("s")
        timing = {"cron_expression": "0 3 * * *"}
        for number in range(5):
            await session.call("spawn_background", tool="work", args={"times": number}, schedule=timing)
        full = await refused(session, "spawn_background", tool="work", args={}, schedule=timing)
        assert full[1] == "Maximum 5 active schedules per session. Cancel an existing schedule first."
        listed = await use(session, "list_schedules", limit=2)
        assert (len(listed["schedules"]), listed["total"]) == (2, 5)
        first = listed["schedules"][0]
        assert (first["tool"], first["cron_expression"], first["state"]) == ("work", "0 3 * * *", "active")
        done = await use(session, "cancel_schedule", schedule_id=first["schedule_id"])
        assert done == {"schedule_id": first["schedule_id"], "cancelled": True, "state": "cancelled"}
        assert not (await use(session, "cancel_schedule", schedule_id=first["schedule_id"]))["cancelled"]
        assert (await session.call("spawn_background", tool="work", args={}, schedule=timing)).ok
        assert (await use(session, "list_schedules", active=False))["total"] == 6


@pytest.mark.promise("PROC-11", "OUT-02")
@pytest.mark.parametrize(("name", "parameter"), [("wait_run", "run_id"), ("cancel_schedule", "schedule_id")])
async def test_a_model_is_given_no_advice_for_programmers(name: str, parameter: str):
    async with Runtime.open(tools=[work], worker=False) as runtime:
        _, message = await refused(runtime.session("s"), name, **{parameter: "unknown"})
        assert message.startswith("There is no ")
        assert "(" not in message
        assert "`" not in message
