"""May it run: rules and their order, read-only batches, the kinds of calls, and policies that make no sense."""

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from tests.calls.running import run, run_one
from toolwright import (
    Policy,
    PolicyError,
    Request,
    Rule,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolRegistry,
    prefixed,
    tool,
    tree,
)
from toolwright.wire import mcp


def named(name: str, ran: list[str] | None = None, **options: Any) -> Tool:
    def handler(args: Any) -> str:
        if ran is not None:
            ran.append(name)
        return name

    return Tool.from_schema(name=name, handler=handler, **options)


async def decided(
    open_session: Any, rules: list[Rule], *, approval: Any = "auto", **call: Any
) -> tuple[str, str | None]:
    """Whether the tool 'act' ran or how it was refused, and the rule that decided."""
    ran: list[str] = []
    session = await open_session(named("act", ran, approval=approval), policy=Policy(rules=rules, on_ask="deny"))
    (outcome,) = await run(session, ToolCall(name="act", **call))
    assert bool(ran) is outcome.ok
    return ("ran" if outcome.failure is None else outcome.failure.code), outcome.decided_by


# --- rules


@pytest.mark.promise("AUTH-01")
async def test_without_rules_a_call_runs_and_no_rule_is_named(open_session):
    assert await decided(open_session, []) == ("ran", None)


@pytest.mark.promise("AUTH-01")
async def test_a_denied_call_does_not_run_and_names_the_rule(open_session):
    ran: list[str] = []
    rule = Rule("deny", "act", name="no acting", reason="it is closed")
    session = await open_session(named("act", ran), named("other"), policy=Policy(rules=[rule]))
    outcome, other = await run(session, ToolCall(name="act"), ToolCall(name="other"))
    assert (outcome.status, outcome.decided_by, ran) == ("failure", "no acting", [])
    failure = outcome.failure
    assert (failure.category, failure.code, failure.source) == ("permission_denied", "denied", "policy")
    assert failure.message == "Tool 'act' may not run (rule 'no acting'): it is closed"
    assert outcome.to_json()["decided_by"] == "no acting"
    assert (other.value, other.decided_by) == ("other", None)


@pytest.mark.promise("AUTH-01")
async def test_an_allowed_call_names_the_rule_that_allowed_it(open_session):
    assert await decided(open_session, [Rule("allow", "act", name="yes")]) == ("ran", "yes")


@pytest.mark.promise("AUTH-01")
async def test_rules_that_do_not_match_decide_nothing(open_session):
    rules = [Rule("deny", "other"), Rule("deny", "act", when=lambda request: False), Rule("ask", source="user")]
    assert await decided(open_session, rules) == ("ran", None)


@pytest.mark.promise("AUTH-01")
async def test_a_rule_without_a_name_is_named_after_what_it_says(open_session):
    assert await decided(open_session, [Rule("deny", ("act", "x*"))]) == ("denied", "deny act, x*")


@pytest.mark.promise("AUTH-01")
async def test_asking_refuses_with_a_clear_message_while_nobody_can_be_asked(open_session):
    policy = Policy(rules=[Rule("ask", "act", name="r", reason="costly")], on_ask="deny")
    session = await open_session(named("act"), policy=policy)
    outcome = await run_one(session, "act")
    assert (outcome.failure.category, outcome.failure.code, outcome.decided_by) == (
        "permission_denied",
        "needs_approval",
        "r",
    )
    assert outcome.failure.message == (
        "Tool 'act' may not run (rule 'r'): costly; it needs approval, and this policy does not wait for one "
        "(on_ask='deny')"
    )


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        (["allow", "ask", "deny"], ("denied", "deny")),
        (["deny", "ask", "allow"], ("denied", "deny")),
        (["allow", "ask"], ("needs_approval", "ask")),
        (["ask", "allow"], ("needs_approval", "ask")),
        (["ask", "deny", "ask"], ("denied", "deny")),
        (["allow", "allow"], ("ran", "allow")),
    ],
    ids=str,
)
async def test_at_one_level_deny_beats_ask_and_ask_beats_allow(open_session, effects, expected):
    assert await decided(open_session, [Rule(effect, name=effect) for effect in effects]) == expected


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([Rule("deny", name="low"), Rule("allow", name="high", level=1)], ("ran", "high")),
        ([Rule("allow", name="high", level=1), Rule("deny", name="low")], ("ran", "high")),
        ([Rule("allow", name="low"), Rule("deny", name="high", level=1)], ("denied", "high")),
        ([Rule("deny", name="low", level=-1), Rule("allow", name="high")], ("ran", "high")),
        ([Rule("allow", "other", name="high", level=1), Rule("deny", name="low")], ("denied", "low")),
        (
            [Rule("deny", name="high", level=1, when=lambda request: False), Rule("allow", name="low")],
            ("ran", "low"),
        ),
    ],
    ids=[
        "allow above",
        "in any order",
        "deny above",
        "below the default",
        "above but elsewhere",
        "above but not now",
    ],
)
async def test_a_higher_level_decides_first(open_session, rules, expected):
    assert await decided(open_session, rules) == expected


@pytest.mark.promise("AUTH-01")
async def test_of_two_equal_rules_the_earlier_decides(open_session):
    rules = [Rule("deny", name="first"), Rule("deny", name="second")]
    assert await decided(open_session, rules) == ("denied", "first")
    rules = [Rule("deny", name="first", when=lambda request: False), Rule("deny", name="second")]
    assert await decided(open_session, rules) == ("denied", "second")


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("act", True),
        ("ac", False),
        ("actor", False),
        ("a*", True),
        ("*", True),
        ("a?t", True),
        ("[ab]ct", True),
        ("[!a]ct", False),
        ("Act", False),
        ("x.act", True),
        (("read", "act"), True),
        (["read", "a*"], True),
        (("read", "write"), False),
    ],
    ids=str,
)
async def test_a_rule_names_tools_by_name_pattern_or_id(open_session, pattern, matches):
    session = await open_session(named("act", id="x.act"), policy=Policy(rules=[Rule("deny", pattern)]))
    assert (await run_one(session, "act")).ok is not matches


@pytest.mark.promise("AUTH-01", "REG-07")
async def test_a_rule_for_an_id_holds_through_every_name(open_session):
    registry = ToolRegistry([named("act", id="x.act")])
    session = await open_session(policy=Policy(rules=[Rule("deny", "x.act")]))
    session.tools.push(prefixed(registry, "innocent_").snapshot().values())
    for name in ("innocent_act", "x.act"):
        assert (await run_one(session, name)).failure.category == "permission_denied"


@pytest.mark.promise("AUTH-01")
async def test_a_rule_may_look_at_hints_and_capabilities(open_session):
    tools = [
        named("look", readonly=True),
        named("act"),
        named("fetch", readonly=True, capabilities=["network"]),
        named("send", capabilities=["network", "sandboxable"]),
    ]

    async def refused(rule: Rule) -> list[str]:
        session = await open_session(*tools, policy=Policy(rules=[rule]))
        outcomes = await run(session, *(ToolCall(name=found.name) for found in tools))
        return [outcome.tool for outcome in outcomes if not outcome.ok]

    assert await refused(Rule("deny", mutating=True)) == ["act", "send"]
    assert await refused(Rule("deny", mutating=False)) == ["look", "fetch"]
    assert await refused(Rule("deny", capabilities=frozenset({"network"}))) == ["fetch", "send"]
    assert await refused(Rule("deny", capabilities=frozenset({"network", "sandboxable"}))) == ["send"]
    assert await refused(Rule("deny", mutating=True, capabilities=frozenset({"network"}))) == ["send"]
    assert await refused(Rule("deny", ["look", "act"], mutating=True)) == ["act"]


@pytest.mark.promise("AUTH-01", "RUN-13")
async def test_a_rule_may_look_at_arguments_session_source_and_parent(open_runtime):
    seen: list[Request] = []

    def watch(request: Request) -> bool:
        seen.append(request)
        return str(request.arguments.get("path")).startswith("/etc")

    @tool
    async def outer(ctx: ToolContext, path: str) -> Any:
        return await ctx.call("read", path=path)

    @tool(id="fs.read")
    async def read(path: str) -> str:
        return path

    runtime = await open_runtime(outer, read, policy=Policy(rules=[Rule("deny", "read", when=watch)]))
    session = runtime.session("s7")
    assert (await run_one(session, "outer", {"path": "/home"})).value == "/home"
    assert (await run_one(session, "outer", {"path": "/etc/passwd"})).failure.category == "permission_denied"
    request = seen[0]
    assert (request.session, request.tool.definition.id, request.source, request.parent) == (
        "s7",
        "fs.read",
        "tool",
        "c1",
    )
    assert [dict(request.arguments) for request in seen] == [{"path": "/home"}, {"path": "/etc/passwd"}]


@pytest.mark.promise("AUTH-01", "RUN-13")
@pytest.mark.parametrize(("source", "expected"), [("model", "denied"), ("user", "ran"), ("host", "ran")])
async def test_a_rule_may_hold_for_one_source_only(open_session, source, expected):
    rule = Rule("deny", source="model")
    assert (await decided(open_session, [rule], source=source))[0] == expected


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize("effect", ["allow", "ask", "deny"])
async def test_a_rule_whose_code_raises_lets_nothing_run(open_session, effect, caplog):
    def broken(request: Request) -> bool:
        raise KeyError("password=hunter2")

    ran: list[str] = []
    rules = [Rule(effect, "act", name="broken rule", when=broken), Rule("allow", name="the rest")]
    session = await open_session(named("act", ran), named("other", ran), policy=Policy(rules=rules))
    outcome, other = await run(session, ToolCall(name="act"), ToolCall(name="other"))
    assert (outcome.failure.category, outcome.failure.code, outcome.failure.source) == (
        "internal",
        "policy_error",
        "policy",
    )
    assert (outcome.decided_by, ran) == ("broken rule", ["other"])
    assert outcome.failure.message == "The rule 'broken rule' could not be decided; its details are in the log."
    assert "hunter2" not in outcome.text
    assert "hunter2" in caplog.text
    assert outcome.failure.detail == "KeyError: 'password=hunter2'"
    assert other.decided_by == "the rest"


@pytest.mark.promise("AUTH-01")
async def test_what_a_rule_says_is_taken_as_true_or_false(open_session):
    assert (await decided(open_session, [Rule("deny", when=lambda request: "yes")]))[0] == "denied"  # type: ignore[arg-type,return-value]
    assert (await decided(open_session, [Rule("deny", when=lambda request: None)]))[0] == "ran"  # type: ignore[arg-type,return-value]


@pytest.mark.promise("AUTH-01")
async def test_a_rule_cannot_change_the_arguments_it_judges(open_session):
    def change(request: Request) -> bool:
        request.arguments["path"] = "/etc/passwd"  # type: ignore[index]
        return True

    session = await open_session(
        Tool.from_schema(name="read", handler=lambda args: args["path"]),
        policy=Policy(rules=[Rule("allow", when=change)]),
    )
    assert (await run_one(session, "read", {"path": "/home"})).failure.code == "policy_error"


@pytest.mark.promise("AUTH-01")
async def test_no_rule_changes_what_lies_inside_the_arguments_for_another_rule_or_the_tool(open_session):
    def first(request: Request) -> bool:
        request.arguments["paths"].append("/etc/passwd")
        request.arguments["options"]["force"] = True
        return False

    def second(request: Request) -> bool:
        judged.append(deepcopy(dict(request.arguments)))
        request.arguments["paths"].clear()
        return False

    judged: list[Any] = []
    written = {"paths": ["/home"], "options": {"force": False}}
    raw = Tool.from_schema(name="raw", handler=lambda args: [args["paths"], args["options"]])

    @tool
    async def typed(paths: list[str], options: dict[str, bool]) -> list[Any]:
        return [paths, options]

    session = await open_session(raw, typed, policy=Policy(rules=[Rule("deny", when=first), Rule("deny", when=second)]))
    for name in ("raw", "typed"):
        outcome = await run_one(session, name, written)
        assert outcome.value == [["/home"], {"force": False}]
    assert judged == [written, written]


@pytest.mark.promise("AUTH-01", "TOOL-06")
async def test_a_tool_that_requires_approval_is_asked_about_unless_a_rule_says_more(open_session):
    assert await decided(open_session, [], approval="required") == ("needs_approval", "approval")
    assert await decided(open_session, [Rule("allow", name="ok")], approval="required") == ("ran", "ok")
    assert await decided(open_session, [Rule("deny", name="no")], approval="required") == ("denied", "no")
    assert await decided(open_session, [Rule("allow", "other")], approval="required") == (
        "needs_approval",
        "approval",
    )
    assert await decided(open_session, [], approval="suggest") == ("ran", None)
    allow_one = Rule("allow", name="now", when=lambda request: False)
    assert await decided(open_session, [allow_one], approval="required") == ("needs_approval", "approval")


@pytest.mark.promise("AUTH-01")
async def test_a_tool_that_runs_code_is_asked_about_by_itself(open_session):
    ran: list[str] = []
    policy = Policy(on_ask="deny")
    session = await open_session(named("shell", ran, capabilities=["executes_code"]), policy=policy)
    assert (await run_one(session, "shell")).failure.code == "needs_approval"
    assert ran == []


@pytest.mark.promise("AUTH-01", "APP-03")
async def test_a_policy_may_be_a_sessions_or_a_batchs_own(open_runtime):
    runtime = await open_runtime(named("act"))
    strict = runtime.session("strict", policy=Policy(rules=[Rule("deny", "act")]))
    open_ = runtime.session("open")
    assert not (await run_one(strict, "act")).ok
    assert (await run_one(open_, "act")).ok
    assert not (await run_one(open_, "act", rules=[Rule("deny", "act")])).ok
    assert (await run_one(open_, "act")).ok
    assert (await run_one(strict, "act", rules=())).ok


# --- read-only batches


@pytest.mark.promise("AUTH-02")
async def test_a_read_only_batch_refuses_what_may_change_something(open_session):
    ran: list[str] = []
    session = await open_session(
        named("look", ran, readonly=True), named("act", ran), named("twice", ran, idempotent=True)
    )
    look, act, twice = await run(session, *(ToolCall(name=name) for name in ("look", "act", "twice")), read_only=True)
    assert (look.value, ran) == ("look", ["look"])
    for outcome in (act, twice):
        assert (outcome.failure.category, outcome.failure.code, outcome.decided_by) == (
            "permission_denied",
            "denied",
            "read_only",
        )
        assert "the batch is read-only and the tool may change something" in outcome.failure.message
    assert (await run_one(session, "act")).ok


@pytest.mark.promise("AUTH-02")
async def test_no_rule_opens_a_read_only_batch(open_session):
    session = await open_session(named("act"), policy=Policy(read_only=True, rules=[Rule("allow", level=99)]))
    assert (await run_one(session, "act")).decided_by == "read_only"


@pytest.mark.promise("AUTH-02")
async def test_a_refusal_takes_no_claim_and_waits_for_none(open_session):
    reached, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        reached.set()
        await go_on.wait()
        return "held"

    session: Session = await open_session(hold, named("act"))
    holding = session.start_batch([ToolCall(name="hold")])
    try:
        await asyncio.wait_for(reached.wait(), 60)
        # Both overlap nothing; the second would have to wait for the first.
        refused = await run_one(session, "act", read_only=True)
        assert refused.decided_by == "read_only"
        denied = await run_one(session, "act", rules=[Rule("deny", "act")])
        assert denied.failure.code == "denied"
    finally:
        go_on.set()
        await holding


@pytest.mark.promise("AUTH-02")
async def test_a_read_only_batch_is_read_only_all_the_way_down(open_session):
    ran: list[str] = []

    @tool(readonly=True)
    async def look(ctx: ToolContext) -> Any:
        return await ctx.call("act")

    session = await open_session(look, named("act", ran))
    outcome = await run_one(session, "look", read_only=True)
    assert ran == []
    assert outcome.failure is not None
    assert outcome.failure.category == "permission_denied"


@pytest.mark.promise("AUTH-01")
async def test_the_rules_of_a_batch_hold_for_the_calls_its_tools_make(open_session):
    ran: list[str] = []

    @tool
    async def outer(ctx: ToolContext) -> Any:
        return await ctx.call("act")

    session = await open_session(outer, named("act", ran))
    outcome = await run_one(session, "outer", rules=[Rule("deny", "act")])
    assert (ran, outcome.failure and outcome.failure.category) == ([], "permission_denied")


# --- kinds


@pytest.mark.promise("AUTH-02")
@pytest.mark.parametrize("kind", ["function", "mcp", "shell", "custom", "client"])
async def test_a_call_of_another_kind_is_refused_with_expected_and_got(open_session, kind):
    ran: list[str] = []
    session = await open_session(named("act", ran, kind="mcp"))
    (outcome,) = await run(session, ToolCall(name="act", kind=kind))
    if kind == "mcp":
        assert (outcome.value, ran) == ("act", ["act"])
    else:
        assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "kind_mismatch")
        assert outcome.failure.message == f"Tool 'act' expected a 'mcp' call and got a {kind!r} call"
        assert ran == []


@pytest.mark.promise("AUTH-02")
async def test_a_request_of_mcp_is_for_a_tool_of_mcp_unless_its_reader_says_otherwise(open_session):
    ran: list[str] = []
    session = await open_session(named("act", ran), named("far", ran, kind="mcp"))
    requests = [{"method": "tools/call", "params": {"name": name}} for name in ("act", "far")]
    refused, fits = await session.run_batch(mcp.read_calls(requests))
    assert (refused.failure.code, refused.failure.category) == ("kind_mismatch", "invalid_arguments")
    assert refused.failure.message == "Tool 'act' expected a 'function' call and got a 'mcp' call"
    assert (fits.ok, ran) == (True, ["far"])
    assert [outcome.ok for outcome in await session.run_batch(mcp.read_calls(requests, kind=None))] == [True, True]


@pytest.mark.promise("AUTH-02")
async def test_a_call_that_says_no_kind_fits_any_tool(open_session):
    session = await open_session(named("act", kind="shell"))
    assert (await run_one(session, "act")).ok


# --- policies that make no sense


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"effect": "maybe"}, "Rule effect 'maybe' is not known; use allow, ask or deny"),
        ({"effect": ["deny"]}, r"Rule effect \['deny'\] is not known; use allow, ask or deny"),
        ({"tools": ()}, r"Rule tools \(\) name no tool"),
        ({"tools": ""}, "Rule tools '' name no tool; use a name or a pattern such as 'read_"),
        ({"tools": ("a", 5)}, "name no tool"),
        ({"tools": "["}, r"Rule tools '\[' matches no tool: names have letters, digits, and _ . : / -"),
        ({"tools": ("read_*", "send mail")}, "Rule tools 'send mail' matches no tool"),
        ({"tools": "mail[0-9"}, "matches no tool"),
        ({"tools": 5}, "name no tool"),
        ({"capabilities": "network"}, "Rule capabilities 'network' are not a set of known ones; use any of"),
        ({"capabilities": {"netwrok"}}, "are not a set of known ones; use any of executes_code, network"),
        ({"capabilities": None}, "are not a set of known ones"),
        (
            {"source": "modle"},
            "Rule source 'modle' is not known; use one of model, user, tool, schedule, host",
        ),
        ({"mutating": "yes"}, "Rule mutating='yes'; use True, False or None for both"),
        ({"level": "high"}, "Rule level 'high' is not usable; use a whole number"),
        ({"level": True}, "Rule level True is not usable"),
        ({"name": ""}, "Rule name '' is not usable; use a text, or leave it out"),
        ({"reason": 5}, "Rule reason 5 is not usable; use a text, or leave it out"),
        ({"when": True}, "Rule when=True cannot be used; use a plain function of a Request"),
    ],
    ids=str,
)
def test_a_rule_that_could_never_mean_what_it_says_is_refused(wrong: dict[str, Any], message: str):
    with pytest.raises(PolicyError, match=message):
        Rule(**{"effect": "deny", **wrong})


@pytest.mark.promise("AUTH-01")
def test_an_async_rule_is_refused_for_it_would_always_match():
    async def later(request: Request) -> bool:
        return False

    with pytest.raises(PolicyError, match="use a plain function of a Request"):
        Rule("allow", when=later)  # type: ignore[arg-type]


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_concurrency": 0}, "Policy.max_concurrency is 0; use a whole number of at least 1"),
        ({"session_concurrency": -1}, "Policy.session_concurrency is -1; use a whole number of at least 1"),
        ({"runtime_concurrency": 1.5}, "Policy.runtime_concurrency is 1.5; use a whole number of at least 1"),
        ({"max_lines": 0}, "Policy.max_lines is 0; use a whole number of at least 1"),
        ({"max_bytes": 255}, "Policy.max_bytes is 255; use a whole number of at least 256"),
        ({"max_bytes": True}, "Policy.max_bytes is True; use a whole number of at least 256"),
        ({"max_argument_bytes": 1}, "Policy.max_argument_bytes is 1; use a whole number of at least 2"),
        ({"max_output_bytes": 0}, "Policy.max_output_bytes is 0; use a whole number of at least 256"),
        ({"record_bytes": -1}, "Policy.record_bytes is -1; use a whole number of at least 0"),
        ({"timeout": 0}, "Policy.timeout is 0; use a number of seconds above 0"),
        ({"timeout": None}, "Policy.timeout is None; use a number of seconds above 0"),
        ({"timeout": float("inf")}, "Policy.timeout is inf; use a number of seconds above 0"),
        ({"timeout": float("nan")}, "Policy.timeout is nan; use a number of seconds above 0"),
        ({"timeout": 10**400}, "Policy.timeout is 1000.*; use a number of seconds above 0"),
        ({"approval_timeout": 10**400}, "Policy.approval_timeout is 1000.*; use a number of seconds above 0"),
        ({"grace": -0.1}, "Policy.grace is -0.1; use a number of seconds of at least 0"),
        ({"queue_timeout": 0}, "Policy.queue_timeout is 0; use a number of seconds above 0"),
        ({"continue_on_failure": "yes"}, "Policy.continue_on_failure is 'yes'; use True or False"),
        ({"read_only": 1}, "Policy.read_only is 1; use True or False"),
        ({"spill_dir": 5}, "Policy.spill_dir is 5; use the path of a directory"),
        ({"spill_dir": b"/out"}, "Policy.spill_dir is b'/out'; use the path of a directory"),
        ({"rules": Rule("deny")}, "use a list of Rule"),
        ({"rules": 5}, "Policy.rules is 5; use a list of Rule"),
        ({"rules": ["deny"]}, "Policy.rules holds 'deny'; use Rule"),
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, Any], message: str):
    with pytest.raises(PolicyError, match=message):
        Policy(**wrong)


@pytest.mark.promise("AUTH-01")
async def test_the_least_of_everything_is_a_policy_too(open_session):
    least = Policy(
        max_concurrency=1,
        session_concurrency=1,
        runtime_concurrency=1,
        grace=0,
        max_lines=1,
        max_bytes=256,
        max_argument_bytes=2,
        max_output_bytes=256,
        record_bytes=0,
    )
    outcomes = await run(await open_session(named("act"), policy=least), *(ToolCall(name="act") for _ in range(3)))
    assert [outcome.value for outcome in outcomes] == ["act", "act", "act"]


@pytest.mark.promise("AUTH-01")
async def test_a_setting_that_is_not_one_is_refused_and_nothing_runs(open_session):
    ran: list[str] = []
    session = await open_session(named("act", ran))
    with pytest.raises(
        PolicyError,
        match="Policy has no setting 'readonly'; its settings are: approval_timeout, approve, background_per_",
    ):
        await session.run_batch([ToolCall(name="act")], readonly=True)
    with pytest.raises(PolicyError, match=r"Policy\.timeout is -1"):
        await session.run_batch([ToolCall(name="act")], timeout=-1)
    assert ran == []


@pytest.mark.promise("AUTH-01")
def test_changing_a_policy_leaves_the_first_as_it_was():
    first = Policy(timeout=5, rules=[Rule("deny", name="a")])
    second = first.but(timeout=7)
    assert (first.timeout, second.timeout, second.rules) == (5, 7, first.rules)


# --- paths

SPELLINGS = ("/etc/passwd", "//etc/passwd", "/workspace/etc/passwd", "etc/passwd", "/ok/../etc/passwd", "./etc//passwd")


def file_tool(ran: list[Any], **options: Any) -> Tool:
    @tool(**options)
    def save_file(path: str = "/ok.txt") -> str:
        """Save a file."""
        ran.append(path)
        return "saved"

    return save_file


@pytest.mark.promise("AUTH-01")
@pytest.mark.parametrize("tools", ["*", "*_file", "save_file"])
async def test_a_rule_on_writes_judges_the_paths_that_a_tool_declares(open_session, tools):
    ran: list[Any] = []
    rule = Rule("deny", tools, writes=["/etc/*"], name="keep config")
    session = await open_session(file_tool(ran, writes="path"), policy=Policy(rules=[rule]))
    for spelled in SPELLINGS:
        outcome = await session.call("save_file", path=spelled)
        assert (outcome.status, outcome.decided_by) == ("failure", "keep config"), spelled
        assert "it writes '/etc/passwd'" in outcome.text
    assert (await session.call("save_file", path="/ok.txt")).ok
    assert (await session.call("save_file")).ok, "the default of the parameter is the path"
    assert ran == ["/ok.txt", "/ok.txt"]


@pytest.mark.promise("AUTH-01")
async def test_a_tool_that_writes_a_tree_is_judged_by_what_lies_below_its_path(open_session):
    ran: list[Any] = []
    rule = Rule("deny", "*", writes=["/etc/*.conf"])
    session = await open_session(file_tool(ran, writes=tree("path")), policy=Policy(rules=[rule]))
    for above in ("/", "/etc", "/etc/sub"):
        assert not (await session.call("save_file", path=above)).ok, above
    assert (await session.call("save_file", path="/src")).ok


@pytest.mark.promise("AUTH-01")
async def test_a_rule_that_allows_writes_needs_every_declared_path_to_match(open_session):
    @tool(writes="paths")
    def save_all(paths: list[str]) -> str:
        """Save files."""
        return "saved"

    rules = [Rule("allow", "*", writes=["/tmp/*"], level=1), Rule("deny", "*", name="nothing else")]
    session = await open_session(save_all, policy=Policy(rules=rules))
    assert (await session.call("save_all", paths=["/tmp/a", "tmp/b"])).ok
    for paths in (["/tmp/a", "/b"], [], ["/tmp/../b"]):
        assert (await session.call("save_all", paths=paths)).decided_by == "nothing else", paths


@pytest.mark.promise("AUTH-01")
async def test_a_rule_on_writes_that_names_a_tool_without_declared_paths_is_cautious(open_session):
    ran: list[Any] = []
    session = await open_session(file_tool(ran), policy=Policy(rules=[Rule("deny", "save_file", writes=["/etc/*"])]))
    assert not (await session.call("save_file", path="/ok.txt")).ok
    session = await open_session(file_tool(ran), policy=Policy(rules=[Rule("deny", "*", writes=["/etc/*"])]))
    assert (await session.call("save_file", path="/ok.txt")).ok


@pytest.mark.promise("AUTH-01")
async def test_a_rule_can_look_at_the_resolved_path_of_an_argument(open_session):
    ran: list[Any] = []
    rule = Rule("deny", "save_*", when=lambda call: call.path("path").startswith("/etc"), name="keep config")
    session = await open_session(file_tool(ran), policy=Policy(rules=[rule]))
    for spelled in SPELLINGS:
        assert (await session.call("save_file", path=spelled)).decided_by == "keep config", spelled
    assert (await session.call("save_file", path="/ok.txt")).ok
    assert (await session.call("save_file")).ok, "the default of the parameter is the path"
    assert ran == ["/ok.txt", "/ok.txt"]
    broken = Rule("deny", when=lambda call: call.path("no such parameter") == "/etc")
    session = await open_session(file_tool(ran), policy=Policy(rules=[broken]))
    assert (await session.call("save_file", path="/ok.txt")).failure.code == "policy_error"


@pytest.mark.promise("AUTH-01")
async def test_a_rule_can_look_at_each_path_of_a_list(open_session):
    @tool
    def save_all(paths: list[str]) -> str:
        """Save files."""
        return "saved"

    rule = Rule("deny", "*", when=lambda call: any(path.startswith("/etc/") for path in call.paths("paths")))
    session = await open_session(save_all, policy=Policy(rules=[rule]))
    assert not (await session.call("save_all", paths=["/ok", "/workspace/etc/x"])).ok
    assert (await session.call("save_all", paths=["/ok"])).ok
