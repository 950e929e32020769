"""The way of a call: the order of its stages, hooks around it, and a tool's own prepare step."""

import asyncio
import json
from typing import Annotated, Any

import pytest
from msgspec.structs import replace
from pydantic import AfterValidator

from tests.calls.running import run, run_one
from tests.support import HalfMade, Unspeakable
from toolwright import (
    Answer,
    Arguments,
    ConnectionRequired,
    Failure,
    HookCall,
    Policy,
    ReplaceArguments,
    RetryPolicy,
    Rule,
    Success,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolOutcome,
    tool,
)


class Diary:
    """What happened, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def note(self, entry: str) -> None:
        self.entries.append(entry)


class NotedLog:
    """A call log that notes when records are opened and closed."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary

    def open(self, record: Any) -> None:
        self.diary.note("open record")

    def close(self, record: Any) -> None:
        self.diary.note("close record")


@pytest.mark.promise("RUN-04")
async def test_every_call_passes_the_same_stages_in_the_same_order(open_session):
    diary = Diary()

    def check(value: int) -> int:
        diary.note(f"validate {value}")
        return value

    async def before(call: HookCall) -> Any:
        diary.note(f"before {call.arguments['n']}")
        return ReplaceArguments({"n": call.arguments["n"] + 1})

    def prepare(arguments: dict[str, Any], call: HookCall) -> str:
        diary.note(f"prepare {arguments['n']}")
        return "payload"

    def judge(request: Any) -> bool:
        diary.note(f"authorise {request.arguments['n']}")
        return True

    @tool(
        idempotent=True,
        prepare=prepare,
        retry=RetryPolicy(attempts=2, base_delay=0),
        output_schema={"type": "string"},
    )
    async def work(n: Annotated[int, AfterValidator(check)], ctx: ToolContext) -> str:
        diary.note(f"run {n} attempt {ctx.attempt} {ctx.prepared}")
        if ctx.attempt == 1:
            raise ToolError("again", retry=True)
        return f"ran {n}"

    def after(call: HookCall, outcome: ToolOutcome) -> None:
        diary.note(f"after {outcome.value}")

    def project(outcome: ToolOutcome) -> str:
        diary.note(f"project {outcome.value}")
        return "for the model"

    session = await open_session(
        work,
        before=[before],
        after=[after],
        projector=project,
        policy=Policy(rules=[Rule("allow", when=judge)]),
        call_log=NotedLog(diary),
    )
    outcome = await run_one(session, "work", {"n": 1})
    assert (outcome.value, outcome.text) == ("ran 2", "for the model")
    assert diary.entries == [
        "validate 1",
        "open record",
        "before 1",
        "validate 2",
        "prepare 2",
        "authorise 2",
        "run 2 attempt 1 payload",
        "run 2 attempt 2 payload",
        "after ran 2",
        "project ran 2",
        "close record",
    ]


@pytest.mark.promise("RUN-04")
async def test_the_output_is_checked_after_the_hooks_and_before_the_projector(open_session):
    def after(call: HookCall, outcome: ToolOutcome) -> ToolOutcome:
        return replace(outcome, payload=b'"not a number"')

    @tool(output_schema={"type": "integer"})
    async def work() -> int:
        return 5

    session = await open_session(work, after=[after], projector=lambda outcome: f"<{outcome.status}>")
    outcome = await run_one(session, "work")
    assert (outcome.failure.code, outcome.text) == ("invalid_output", "<failure>")


@pytest.mark.promise("RUN-04")
@pytest.mark.parametrize(
    "call",
    [
        ToolCall(name="missing"),
        ToolCall(name="work", arguments="{"),
        ToolCall(name="work", arguments={"n": "x"}),
    ],
    ids=["unknown", "not JSON", "not valid"],
)
async def test_a_call_that_fails_early_is_shown_to_no_hook(open_session, call):
    seen = []

    def judge(request: Any) -> bool:
        seen.append("judge")
        return True

    @tool
    async def work(n: int) -> None: ...

    session = await open_session(
        work,
        before=[lambda call: seen.append("before")],
        after=[lambda call, outcome: seen.append("after")],
        policy=Policy(rules=[Rule("allow", when=judge)]),
    )
    (outcome,) = await run(session, call)
    assert outcome.status == "failure"
    assert seen == []


@pytest.mark.promise("RUN-04")
async def test_a_call_that_policy_refuses_does_not_reach_the_after_hooks(open_session):
    seen = []

    @tool
    async def work() -> None:
        seen.append("ran")

    session = await open_session(
        work, after=[lambda call, outcome: seen.append("after")], policy=Policy(rules=[Rule("deny", "work")])
    )
    assert (await run_one(session, "work")).failure.category == "permission_denied"
    assert seen == []


# --- before-hooks


@pytest.mark.promise("RUN-04")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_before_hook_sees_the_call_and_may_replace_its_arguments(open_runtime, is_async):
    seen: list[HookCall] = []

    def sync_hook(call: HookCall) -> Any:
        seen.append(call)
        return ReplaceArguments({"path": "/safe/" + call.arguments["path"]})

    async def async_hook(call: HookCall) -> Any:
        await asyncio.sleep(0)
        return sync_hook(call)

    @tool(id="fs.read")
    async def read(path: str) -> str:
        return path

    runtime = await open_runtime(read, before=[async_hook if is_async else sync_hook])
    outcome = await run_one(runtime.session("s"), "read", {"path": "x"})
    assert outcome.value == "/safe/x"
    (call,) = seen
    assert (call.session, call.call_id, call.tool.id, call.source, call.parent) == (
        "s",
        "c1",
        "fs.read",
        "model",
        None,
    )
    (record,) = runtime.log
    assert call.batch == record.batch
    assert record.arguments == {"path": "/safe/x"}


@pytest.mark.promise("RUN-04")
async def test_replaced_arguments_are_validated_again(open_session):
    ran = []

    @tool
    async def work(n: int) -> None:
        ran.append(n)

    session = await open_session(work, before=[lambda call: ReplaceArguments({"n": "many"})])
    outcome = await run_one(session, "work", {"n": 1})
    assert outcome.failure.category == "invalid_arguments"
    assert "$.n" in outcome.failure.message
    assert ran == []


@pytest.mark.promise("RUN-04")
@pytest.mark.parametrize(
    "arguments", [object(), {"n": object()}, ["n"], "{"], ids=["object", "no JSON", "list", "text"]
)
async def test_replaced_arguments_that_are_no_object_fail_the_call(open_session, arguments):
    ran = []

    @tool
    async def work(n: int) -> None:
        ran.append(n)

    session = await open_session(work, before=[lambda call: ReplaceArguments(arguments)])
    outcome = await run_one(session, "work", {"n": 1})
    assert outcome.failure.category == "invalid_arguments"
    assert ran == []


@pytest.mark.promise("RUN-04")
async def test_arguments_replaced_by_nothing_are_empty(open_session):
    raw = Tool.from_schema(name="raw", handler=lambda args: dict(args))
    session = await open_session(raw, before=[lambda call: ReplaceArguments({})])
    assert (await run_one(session, "raw", {"secret": 1})).value == {}
    session = await open_session(raw, before=[lambda call: ReplaceArguments(None)])  # type: ignore[arg-type]
    assert (await run_one(session, "raw", {"secret": 1})).value == {}


@pytest.mark.promise("RUN-04")
async def test_hooks_run_in_order_and_each_sees_what_the_last_one_made(open_session):
    seen = []

    def add(digit: str) -> Any:
        def hook(call: HookCall) -> Any:
            seen.append(call.arguments["path"])
            return ReplaceArguments({"path": call.arguments["path"] + digit})

        return hook

    @tool
    async def read(path: str) -> str:
        return path

    session = await open_session(read, before=[add("1"), add("2"), add("3")])
    assert (await run_one(session, "read", {"path": "x"})).value == "x123"
    assert seen == ["x", "x1", "x12"]


@pytest.mark.promise("RUN-04")
async def test_a_hook_that_changes_what_it_was_shown_changes_nothing(open_session):
    def hook(call: HookCall) -> None:
        call.arguments["list"].append("changed")

    session = await open_session(Tool.from_schema(name="raw", handler=lambda args: dict(args)), before=[hook])
    assert (await run_one(session, "raw", {"list": []})).value == {"list": []}


@pytest.mark.promise("RUN-04")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer({"cached": True}), ("success", {"cached": True})),
        (Answer(), ("success", None)),
        (Success("value", raw_output="raw"), ("success", "value")),
        (Failure(message="not today", category="unavailable"), ("failure", None)),
        (ConnectionRequired("github"), ("connection_required", None)),
    ],
    ids=["answer", "empty answer", "success", "failure", "connection"],
)
async def test_a_before_hook_may_answer_in_the_tools_place(open_session, answer, expected):
    seen = []

    @tool
    async def work() -> None:
        seen.append("ran")

    session = await open_session(work, before=[lambda call: answer, lambda call: seen.append("second hook")])
    outcome = await run_one(session, "work")
    assert (outcome.status, outcome.value) == expected
    assert (outcome.call_id, outcome.tool, outcome.attempts) == ("c1", "work", 0)
    assert seen == []


@pytest.mark.promise("RUN-04", "OUT-03")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_before_hook_that_breaks_fails_its_call_and_no_other(open_session, caplog, is_async):
    ran = []

    def hook(call: HookCall) -> None:
        if call.arguments["n"] == 1:
            raise RuntimeError("password=hunter2")

    async def async_hook(call: HookCall) -> None:
        hook(call)

    @tool
    async def work(n: int) -> int:
        ran.append(n)
        return n

    session = await open_session(work, before=[async_hook if is_async else hook])
    first, second = await run(session, *(ToolCall(name="work", arguments={"n": n}) for n in (1, 2)))
    assert (first.failure.category, first.failure.code, first.failure.source) == (
        "internal",
        "hook_error",
        "hook",
    )
    assert "hunter2" not in first.text
    assert "hunter2" in first.failure.detail
    assert "hunter2" in caplog.text
    assert (second.value, ran) == (2, [2])


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.mark.promise("RUN-04", "RUN-05", "RUN-07")
@pytest.mark.parametrize("stage", ["hook", "prepare"])
@pytest.mark.parametrize(
    "misbehave",
    [SystemExit(1), asyncio.CancelledError(), GeneratorExit(), Unspeakable(), HalfMade(), cancel_own_task, Unprintable],
    ids=["exit", "cancelled", "generator exit", "no text", "half made", "cancels itself", "unprintable"],
)
async def test_however_a_guard_breaks_the_tool_does_not_run_and_its_neighbours_do(open_session, stage, misbehave):
    ran = []

    async def guard(*args: Any) -> Any:
        if args[-1].arguments["n"] != 1:
            return None
        if isinstance(misbehave, BaseException):
            raise misbehave
        made = misbehave()
        await asyncio.sleep(0)
        return made

    @tool(prepare=guard if stage == "prepare" else None)  # type: ignore[arg-type]
    async def work(n: int) -> int:
        ran.append(n)
        return n

    session = await open_session(work, before=[guard] if stage == "hook" else [])
    first, second = await run(session, *(ToolCall(name="work", arguments={"n": n}) for n in (1, 2)))
    assert second.value == 2
    if misbehave is Unprintable and stage == "prepare":
        assert first.value == 1  # any object may be a payload
    else:
        assert (first.status != "success", ran) == (True, [2])


@pytest.mark.promise("RUN-04", "TOOL-08")
async def test_a_hook_or_prepare_step_may_find_the_arguments_wrong(open_session):
    def prepare(arguments: Any, call: HookCall) -> None:
        Arguments(arguments).require("path", str)

    session = await open_session(Tool.from_schema(name="read", handler=lambda args: 1, prepare=prepare))
    outcome = await run_one(session, "read", {"file": "a"})
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "invalid_arguments")
    assert "$.path: missing required field 'path'; the call gave 'file'" in outcome.failure.message


@pytest.mark.promise("RUN-04")
async def test_a_before_hook_may_fail_the_call_with_a_message_for_the_model(open_session):
    def hook(call: HookCall) -> None:
        raise ToolError("not on Sundays", category="unavailable", code="closed")

    @tool
    async def work() -> None: ...

    outcome = await run_one(await open_session(work, before=[hook]), "work")
    assert (outcome.failure.category, outcome.failure.code) == ("unavailable", "closed")
    assert outcome.text == '{"error":"not on Sundays"}'


@pytest.mark.promise("RUN-04")
@pytest.mark.parametrize("answer", [True, "no", {"n": 1}, False, 0], ids=repr)
async def test_an_answer_that_no_hook_can_give_fails_the_call(open_session, answer):
    ran = []

    @tool
    async def work() -> None:
        ran.append(1)

    outcome = await run_one(await open_session(work, before=[lambda call: answer]), "work")
    assert (outcome.failure.code, ran) == ("hook_error", [])
    assert "use None, ReplaceArguments, Answer or Failure" in outcome.failure.detail


@pytest.mark.promise("RUN-04")
async def test_replaced_arguments_are_what_policy_sees_and_claims_are_made_of(open_session):
    seen = []

    def judge(request: Any) -> bool:
        seen.append(dict(request.arguments))
        return True

    @tool(writes="path")
    async def write(path: str) -> str:
        return path

    session = await open_session(
        write,
        before=[lambda call: ReplaceArguments({"path": "/b"})],
        policy=Policy(rules=[Rule("allow", when=judge)]),
    )
    assert (await run_one(session, "write", {"path": "/a"})).value == "/b"
    assert seen == [{"path": "/b"}]


@pytest.mark.promise("OUT-02")
@pytest.mark.parametrize("how", ["returned", "raised", "replaced"])
async def test_a_failure_of_a_before_hook_is_the_hooks_and_not_the_tools(open_runtime, how):
    def hook(call: HookCall) -> Any:
        if how == "replaced":
            return ReplaceArguments({"n": "x"})
        if how == "raised":
            raise ToolError("no", category="permission_denied", code="mine")
        return Failure(message="no", category="permission_denied", code="mine")

    @tool
    async def work(n: int = 1) -> int:
        raise AssertionError("It must not run.")

    runtime = await open_runtime(work, before=[hook])
    outcome = await run_one(runtime.session("s"), "work")
    assert outcome.failure.source == "hook"
    if how in ("returned", "raised"):
        assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "mine")
    else:
        assert outcome.failure.category == "invalid_arguments"
    (record,) = runtime.log.query(tool="work")
    assert (record.outcome.failure.source, record.started_at) == ("hook", None)


@pytest.mark.promise("OUT-02")
async def test_a_failure_of_a_prepare_step_stays_the_tools(open_session):
    @tool(prepare=lambda arguments, call: Failure(message="not ready"))
    async def work() -> None: ...

    assert (await run_one(await open_session(work), "work")).failure.source == "tool"


# --- after-hooks


@pytest.mark.promise("OUT-02")
@pytest.mark.parametrize("how", ["returned", "raised", "kept"])
async def test_a_failure_of_an_after_hook_is_the_hooks(open_session, how):
    def hook(call: HookCall, outcome: ToolOutcome) -> ToolOutcome:
        if how == "raised":
            raise ToolError("held back", code="mine")
        if how == "kept":
            return replace(outcome, raw_output="x")
        return replace(outcome, status="failure", failure=Failure(message="held back", code="mine"), payload=b"null")

    @tool
    async def work() -> int:
        if how == "kept":
            raise ToolError("my own", code="mine")
        return 1

    outcome = await run_one(await open_session(work, after=[hook]), "work")
    assert (outcome.failure.code, outcome.failure.source) == ("mine", "tool" if how == "kept" else "hook")
    assert outcome.text == ('{"error":"my own"}' if how == "kept" else '{"error":"held back"}')


@pytest.mark.promise("RUN-04")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_an_after_hook_sees_the_outcome_and_may_change_it(open_runtime, is_async):
    def hook(call: HookCall, outcome: ToolOutcome) -> ToolOutcome:
        assert (call.call_id, call.arguments, outcome.value) == ("c1", {"n": 4}, 8)
        return replace(outcome, payload=b"9")

    async def async_hook(call: HookCall, outcome: ToolOutcome) -> ToolOutcome:
        return hook(call, outcome)

    @tool
    async def double(n: int) -> int:
        return n * 2

    runtime = await open_runtime(double, after=[async_hook if is_async else hook])
    outcome = await run_one(runtime.session("s"), "double", {"n": 4})
    assert (outcome.status, outcome.value, outcome.text) == ("success", 9, "9")
    (record,) = runtime.log
    assert record.outcome.value == 9


@pytest.mark.promise("RUN-04")
async def test_what_an_after_hook_read_before_its_change_is_not_what_others_read(open_session):
    def hook(call: HookCall, outcome: ToolOutcome) -> ToolOutcome:
        assert (outcome.value, outcome.text) == (["secret"], '["secret"]')
        return replace(outcome, payload=b'["***"]')

    @tool
    async def reveal() -> list[str]:
        return ["secret"]

    outcome = await run_one(await open_session(reveal, after=[hook]), "reveal")
    assert (outcome.value, outcome.text) == (["***"], '["***"]')
    assert "secret" not in json.dumps(outcome.to_json())


@pytest.mark.promise("RUN-04")
async def test_after_hooks_run_in_order_for_failures_too(open_session):
    seen = []

    def hook(name: str) -> Any:
        def see(call: HookCall, outcome: ToolOutcome) -> None:
            seen.append((name, outcome.status))

        return see

    @tool
    async def work() -> None:
        raise ToolError("no")

    session = await open_session(work, after=[hook("first"), hook("second")])
    assert (await run_one(session, "work")).failure.message == "no"
    assert seen == [("first", "failure"), ("second", "failure")]


@pytest.mark.promise("RUN-04")
async def test_an_after_hook_may_turn_a_failure_into_a_success_and_back(open_session):
    def hook(call: HookCall, outcome: ToolOutcome) -> ToolOutcome:
        if outcome.ok:
            return replace(outcome, status="failure", failure=Failure(message="too good"), payload=b"null")
        return replace(outcome, status="success", failure=None, payload=b'"fine"')

    @tool
    async def work(fail: bool) -> str:
        if fail:
            raise ToolError("no")
        return "done"

    session = await open_session(work, after=[hook])
    assert (await run_one(session, "work", {"fail": True})).value == "fine"
    assert (await run_one(session, "work", {"fail": False})).text == '{"error":"too good"}'


@pytest.mark.promise("RUN-04", "OUT-03")
@pytest.mark.parametrize(
    "hook",
    [
        lambda call, outcome: 1 / 0,
        lambda call, outcome: "changed",
        lambda call, outcome: replace(outcome, call_id="another"),
        lambda call, outcome: replace(outcome, tool="another"),
        lambda call, outcome: replace(outcome, payload=b'{"broken'),
        lambda call, outcome: replace(outcome, payload=b'"\xff"'),
        lambda call, outcome: replace(outcome, status="failure"),
        lambda call, outcome: replace(outcome, failure=Failure(message="x")),
    ],
    ids=[
        "raises",
        "no outcome",
        "other call",
        "other tool",
        "no JSON",
        "no UTF-8",
        "no failure",
        "no status",
    ],
)
async def test_an_after_hook_that_breaks_fails_the_call_and_shows_nothing_of_it(open_session, hook, caplog):
    @tool
    async def reveal() -> Success:
        return Success("secret", raw_output="secret")

    def read_first(call: HookCall, outcome: ToolOutcome) -> Any:
        assert outcome.text == outcome.value == "secret"
        return hook(call, outcome)

    outcome = await run_one(await open_session(reveal, after=[read_first]), "reveal")
    assert (outcome.call_id, outcome.tool, outcome.status) == ("c1", "reveal", "failure")
    assert (outcome.failure.category, outcome.failure.code, outcome.failure.source) == (
        "internal",
        "hook_error",
        "hook",
    )
    assert (outcome.value, outcome.raw_output, outcome.may_have_run) == (None, None, True)
    assert "secret" not in json.dumps(outcome.to_json())
    assert outcome.failure.detail
    assert "A hook after call 'c1' failed" in caplog.text


# --- a tool's own prepare step


@pytest.mark.promise("RUN-05")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_what_prepare_returns_is_in_the_context_of_the_run(open_session, is_async):
    def prepare(arguments: dict[str, Any], call: HookCall) -> Any:
        return {"path": arguments["path"], "call": call.call_id}

    async def async_prepare(arguments: dict[str, Any], call: HookCall) -> Any:
        await asyncio.sleep(0)
        return prepare(arguments, call)

    @tool(prepare=async_prepare if is_async else prepare)
    async def read(path: str, ctx: ToolContext) -> Any:
        return ctx.prepared

    session = await open_session(read)
    assert (await run_one(session, "read", {"path": "a"})).value == {"path": "a", "call": "c1"}


@pytest.mark.promise("RUN-05", "AUTH-03")
async def test_a_prepare_step_changes_no_argument_of_its_call(open_session):
    def prepare(arguments: dict[str, Any], call: HookCall) -> Any:
        arguments["mode"] = "write"
        arguments["paths"].append("/etc/passwd")
        return arguments["paths"]

    @tool(prepare=prepare)
    async def read(paths: list[str], mode: str, ctx: ToolContext) -> Any:
        return [paths, mode, ctx.prepared]

    outcome = await run_one(await open_session(read), "read", {"paths": ["/home"], "mode": "read"})
    assert outcome.value == [["/home"], "read", ["/home", "/etc/passwd"]]


@pytest.mark.promise("RUN-05")
async def test_the_context_carries_the_call_its_payload_and_whether_it_was_cancelled(open_runtime):
    @tool(prepare=lambda arguments, call: {"prepared": True})
    async def demo(ctx: ToolContext) -> list[Any]:
        return [ctx.session_id, ctx.call_id, ctx.tool, ctx.prepared, ctx.attempt, ctx.max_attempts, ctx.cancelled]

    runtime = await open_runtime(demo)
    outcome = await run_one(runtime.session("session-1"), "demo")
    assert outcome.value == ["session-1", "c1", "demo", {"prepared": True}, 1, 1, False]


@pytest.mark.promise("RUN-05")
async def test_a_tool_without_a_prepare_step_has_nothing_prepared(open_session):
    @tool
    async def work(ctx: ToolContext) -> Any:
        return [ctx.prepared]

    assert (await run_one(await open_session(work), "work")).value == [None]


@pytest.mark.promise("RUN-05")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer([1]), ("success", [1])),
        (Success("v"), ("success", "v")),
        (Failure(message="no"), ("failure", None)),
        (ConnectionRequired("github"), ("connection_required", None)),
    ],
    ids=["answer", "success", "failure", "connection"],
)
async def test_a_finished_result_from_prepare_skips_the_run(open_session, answer, expected):
    ran = []

    @tool(prepare=lambda arguments, call: answer)
    async def work() -> None:
        ran.append(1)

    outcome = await run_one(await open_session(work), "work")
    assert (outcome.status, outcome.value) == expected
    assert (ran, outcome.attempts) == ([], 0)


@pytest.mark.promise("RUN-05")
async def test_every_attempt_sees_the_same_payload_and_prepare_runs_once(open_session):
    payloads, prepared = [], []

    def prepare(arguments: dict[str, Any], call: HookCall) -> object:
        prepared.append(1)
        return payload

    payload = object()

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0), prepare=prepare)
    async def work(ctx: ToolContext) -> None:
        payloads.append(ctx.prepared)
        raise ToolError("again", retry=True)

    await run_one(await open_session(work), "work")
    assert prepared == [1]
    assert [found is payload for found in payloads] == [True, True, True]


@pytest.mark.promise("RUN-05", "OUT-03")
async def test_a_prepare_step_that_breaks_fails_its_call_and_no_other(open_session, caplog):
    def prepare(arguments: dict[str, Any], call: HookCall) -> None:
        if arguments["n"] == 1:
            raise RuntimeError("password=hunter2")
        if arguments["n"] == 2:
            raise ToolError("not that one", code="refused")

    ran = []

    @tool(prepare=prepare)
    async def work(n: int) -> None:
        ran.append(n)

    outcomes = await run(await open_session(work), *(ToolCall(name="work", arguments={"n": n}) for n in (1, 2, 3)))
    assert [outcome.failure and outcome.failure.code for outcome in outcomes] == [
        "prepare_error",
        "refused",
        None,
    ]
    assert (outcomes[0].failure.category, outcomes[0].failure.source) == ("internal", "tool")
    assert "hunter2" not in outcomes[0].text
    assert "hunter2" in outcomes[0].failure.detail
    assert "hunter2" in caplog.text
    assert outcomes[1].text == '{"error":"not that one"}'
    assert ran == [3]


@pytest.mark.promise("RUN-05", "TOOL-03")
async def test_an_object_may_have_a_prepare_method(open_session):
    class Reader:
        definition = ToolDefinition(name="read", id="read", input_schema={"type": "object"})

        async def prepare(self, arguments: Any, call: HookCall) -> Any:
            return Answer("from the cache") if arguments.get("cached") else "payload"

        async def run(self, arguments: Arguments, context: ToolContext) -> Any:
            return context.prepared

    session = await open_session(Reader())
    assert (await run_one(session, "read", {"cached": True})).value == "from the cache"
    assert (await run_one(session, "read", {})).value == "payload"


@pytest.mark.promise("RUN-05")
async def test_prepare_steps_of_a_batch_do_not_wait_for_each_other(open_session):
    both = asyncio.Barrier(2)

    async def prepare(arguments: dict[str, Any], call: HookCall) -> None:
        await both.wait()

    @tool(prepare=prepare)
    async def work() -> str:
        return "done"

    outcomes = await run(await open_session(work), ToolCall(name="work"), ToolCall(name="work"))
    assert [outcome.value for outcome in outcomes] == ["done", "done"]


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("stage", ["hook", "prepare"])
async def test_a_batch_can_be_cancelled_while_a_hook_or_prepare_step_hangs(open_runtime, stage):
    reached = asyncio.Event()

    async def hang(*args: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    @tool(prepare=hang if stage == "prepare" else None)  # type: ignore[arg-type]
    async def work() -> None: ...

    runtime = await open_runtime(work, before=[hang] if stage == "hook" else [])
    batch = runtime.session("s").start_batch([ToolCall(name="work")])
    await asyncio.wait_for(reached.wait(), 60)
    batch.cancel("the user left")
    waiting = asyncio.ensure_future(batch.wait())
    await asyncio.wait([waiting], timeout=60)
    if not waiting.done():
        waiting.cancel()
        pytest.fail("The batch cannot be cancelled.")
    (outcome,) = await waiting
    assert (outcome.status, outcome.reason, outcome.may_have_run) == ("cancelled", "the user left", False)
