"""One batch: an outcome for each call, in order, whatever the calls are."""

import asyncio
from types import MappingProxyType
from typing import Any

import pytest

from tests.calls.running import fresh_scope, run, run_one
from toolwright import (
    ScopedRegistry,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolRegistry,
    ToolwrightError,
    prefixed,
    tool,
)

# --- order and count


@pytest.mark.promise("RUN-01")
async def test_an_empty_batch_returns_an_empty_list(open_session):
    session = await open_session()
    assert await run(session) == []


@pytest.mark.promise("RUN-01")
async def test_outcomes_come_in_call_order_whatever_ended_first(open_session):
    turns = {name: asyncio.Event() for name in "abc"}
    ended = []

    @tool(parallel=True)
    async def wait_for(name: str, then: str | None = None) -> str:
        await turns[name].wait()
        ended.append(name)
        if then is not None:
            turns[then].set()
        return name

    session = await open_session(wait_for)
    turns["c"].set()
    outcomes = await run(
        session,
        ToolCall(id="1", name="wait_for", arguments={"name": "a"}),
        ToolCall(id="2", name="wait_for", arguments={"name": "b", "then": "a"}),
        ToolCall(id="3", name="wait_for", arguments={"name": "c", "then": "b"}),
    )
    assert ended == ["c", "b", "a"]
    assert [(outcome.call_id, outcome.value) for outcome in outcomes] == [("1", "a"), ("2", "b"), ("3", "c")]


@pytest.mark.promise("RUN-01")
async def test_parallel_and_exclusive_tools_keep_the_order_of_their_calls(open_session):
    @tool(parallel=True)
    async def overlapping() -> str:
        await asyncio.sleep(0)
        return "A"

    @tool
    async def alone() -> str:
        return "B"

    session = await open_session(overlapping, alone)
    names = ["alone", "overlapping", "overlapping", "alone", "overlapping"]
    outcomes = await run(session, *(ToolCall(name=name) for name in names))
    assert [outcome.tool for outcome in outcomes] == names
    assert [outcome.value for outcome in outcomes] == ["B", "A", "A", "B", "A"]


@pytest.mark.promise("RUN-01")
async def test_failures_of_every_kind_stand_in_their_places(open_session):
    @tool
    async def work(fail: bool = False) -> str:
        if fail:
            raise ToolError("no")
        return "done"

    session = await open_session(work)
    outcomes = await run(
        session,
        ToolCall(id="1", name="work"),
        ToolCall(id="2", name="missing"),
        ToolCall(id="3", name="work", arguments="{"),
        ToolCall(id="4", name="work", arguments={"fail": "very"}),
        ToolCall(id="5", name="work", arguments={"fail": True}),
        ToolCall(id="1", name="work"),
        ToolCall(id="6", name="work"),
    )
    assert [(outcome.call_id, outcome.failure and outcome.failure.category) for outcome in outcomes] == [
        ("1", None),
        ("2", "not_found"),
        ("3", "invalid_arguments"),
        ("4", "invalid_arguments"),
        ("5", "execution"),
        ("1", "invalid_arguments"),
        ("6", None),
    ]


@pytest.mark.promise("RUN-01")
async def test_many_calls_give_as_many_outcomes(open_session):
    @tool(parallel=True)
    async def same(number: int) -> int:
        await asyncio.sleep(0)
        return number

    session = await open_session(same)
    outcomes = await run(session, *(ToolCall(name="same", arguments={"number": n}) for n in range(500)))
    assert [outcome.value for outcome in outcomes] == list(range(500))


# --- what a call is


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a", "n": 2},
        '{"path": "a", "n": 2}',
        '  {"n":2,\n"path":"a"}\n',
        b'{"path": "a", "n": 2}',
        bytearray(b'{"path": "a", "n": 2}'),
        MappingProxyType({"path": "a", "n": 2}),
    ],
    ids=["object", "text", "text with space around", "bytes", "bytearray", "mapping"],
)
async def test_arguments_may_be_an_object_or_its_json_text(open_session, arguments):
    @tool
    async def read(path: str, n: int) -> list[Any]:
        return [path, n]

    session = await open_session(read)
    assert (await run_one(session, "read", arguments)).value == ["a", 2]


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize("arguments", [None, {}, "", "  \n", "{}", b""], ids=repr)
async def test_no_arguments_are_an_empty_object(open_session, arguments):
    raw = Tool.from_schema(name="raw", handler=lambda args: dict(args))
    session = await open_session(raw)
    assert (await run_one(session, "raw", arguments)).value == {}


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ('{"path": "a",}', 'near \'{"path": "a",}\''),
        ('{"path": "a"', '\'{"path": "a"\''),
        ('{"first": 1, "second": 2, "third": 3, "path": nope, "last": 5}', '"path": nope'),
        ("path=a", "near 'path=a'"),
        ('{"path": "a"} and more', "and more"),
        ("{'path': 'a'}", "{'path': 'a'}"),
        ('{"path": NaN}', "NaN"),
        (b'{"path": "a", "first": 1, "second": 2, "third": "\xff"}', '"second": 2, "third": "'),
        ('{"path": "a", "first": 1, "second": 2, "third": "\ud800"}', '"second": 2, "third": "'),
    ],
)
async def test_text_that_is_not_json_fails_and_shows_where_it_breaks(open_session, text, quoted):
    ran = []

    @tool
    async def read(path: str) -> None:
        ran.append(path)

    session = await open_session(read)
    outcome = await run_one(session, "read", text)
    assert outcome.status == "failure"
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "malformed_arguments")
    assert quoted in outcome.failure.message
    assert ran == []


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    ("text", "kind"),
    [("[1, 2]", "a list"), ('"a"', "a string"), ("5", "a number"), ("true", "a boolean"), ("null", "null")],
)
async def test_json_that_is_no_object_fails_and_says_what_it_is(open_session, text, kind):
    ran = []
    session = await open_session(Tool.from_schema(name="raw", handler=lambda args: ran.append(args)))
    outcome = await run_one(session, "raw", text)
    assert outcome.failure.category == "invalid_arguments"
    assert outcome.failure.message == f"The arguments are not a JSON object but {kind}: {text!r}"
    assert ran == []


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [(5, "a number"), (["a"], "a list"), ({1, 2}, "set"), (object(), "object")],
    ids=["int", "list", "set", "object"],
)
async def test_arguments_that_are_no_object_and_no_text_fail(open_session, arguments, named):
    ran = []
    session = await open_session(Tool.from_schema(name="raw", handler=lambda args: ran.append(args)))
    outcome = await run_one(session, "raw", arguments)
    assert outcome.failure.category == "invalid_arguments"
    assert outcome.failure.message.startswith("The arguments are not an object but ")
    assert named in outcome.failure.message.removeprefix("The arguments are not an object but ")
    assert ran == []


@pytest.mark.promise("RUN-02")
async def test_arguments_over_the_limit_are_refused_with_their_size(open_session):
    from toolwright import Policy

    ran = []
    session = await open_session(
        Tool.from_schema(name="raw", handler=lambda args: ran.append(1)), policy=Policy(max_argument_bytes=20)
    )
    for fitting in ({"a": "x" * 12}, '{"a":"xxxxxxxxxxxx"}', MappingProxyType({"a": "x" * 12})):  # 20 bytes of JSON
        assert (await run_one(session, "raw", fitting)).ok
    for arguments in ({"a": "x" * 13}, '{"a":"' + "x" * 13 + '"}', {"a": "üüüüüüü"}):
        outcome = await run_one(session, "raw", arguments)
        assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "arguments_too_long")
        assert "the limit is 20" in outcome.failure.message
    assert ran == [1, 1, 1]


@pytest.mark.promise("RUN-02")
async def test_a_missing_id_is_made_up_and_new_each_time(open_session):
    @tool
    async def work() -> None: ...

    session = await open_session(work)
    outcomes = await run(session, ToolCall(name="work"), ToolCall(name="work"))
    outcomes += await run(session, ToolCall(name="work"))
    assert len({outcome.call_id for outcome in outcomes}) == 3
    assert all(outcome.call_id for outcome in outcomes)


@pytest.mark.promise("RUN-02")
async def test_a_repeated_id_is_refused_for_the_second_call(open_session):
    ran = []

    @tool
    async def work(n: int) -> int:
        ran.append(n)
        return n

    session = await open_session(work)
    first, second, other = await run(
        session,
        ToolCall(id="c1", name="work", arguments={"n": 1}),
        ToolCall(id="c1", name="work", arguments={"n": 2}),
        ToolCall(id="c2", name="work", arguments={"n": 3}),
    )
    assert (first.value, other.value, ran) == (1, 3, [1, 3])
    assert (second.failure.category, second.failure.code) == ("invalid_arguments", "duplicate_id")
    assert "'c1' is used twice in this batch" in second.failure.message


@pytest.mark.promise("RUN-02")
async def test_a_call_may_be_a_mapping(open_session):
    @tool
    async def work(n: int) -> int:
        return n

    session = await open_session(work)
    (outcome,) = await session.run_batch([{"id": "c1", "name": "work", "arguments": '{"n": 3}'}])
    assert (outcome.call_id, outcome.value) == ("c1", 3)


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"arguments": {}}, "is not a tool call; give it a name"),
        ({"name": "work", "argument": {}}, "is not a tool call; give it a name"),
        ("work", "'work' is not a tool call; use ToolCall"),
        ({"name": 5}, "needs a name and an id that are non-empty strings"),
        ({"name": "work", "id": 5}, "needs a name and an id that are non-empty strings"),
        (
            {"name": "work", "source": "dream"},
            "has source 'dream'; use one of host, model, schedule, tool, user",
        ),
    ],
    ids=str,
)
async def test_what_is_no_call_at_all_is_told_to_the_program(open_session, call, message):
    ran = []

    @tool
    async def work() -> None:
        ran.append(1)

    session = await open_session(work)
    with pytest.raises(ToolwrightError, match=message):
        await session.run_batch([{"name": "work"}, call])
    assert ran == []


# --- validation


@pytest.mark.promise("RUN-03")
@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
async def test_every_error_is_listed_with_path_given_and_expected_and_the_tool_does_not_run(open_session, raw):
    ran: list[Any] = []
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "tags": {"items": {"type": "string"}},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }

    @tool
    async def person(name: str, age: int, tags: list[str] | None = None) -> None:
        ran.append(name)

    if raw:
        person = Tool.from_schema(name="person", input_schema=schema, handler=lambda args: ran.append(1))
    session = await open_session(person)
    outcome = await run_one(session, "person", {"age": "old", "tags": ["a", 5], "town": "Rome"})
    assert (outcome.failure.category, outcome.failure.source) == ("invalid_arguments", "runtime")
    head, *lines = outcome.failure.message.split("\n")
    assert head == "The arguments of 'person' do not fit its schema:"
    found = {line.split(":")[0]: line for line in lines}
    assert found.keys() == {"$.name", "$.age", "$.tags[1]", "$.town"}
    assert "'name' is missing; the fields given are 'age', 'tags', 'town'" in found["$.name"]
    assert 'given "old"' in found["$.age"]
    assert "integer" in found["$.age"]
    assert "given 5" in found["$.tags[1]"]
    assert "string" in found["$.tags[1]"]
    assert 'given "Rome"' in found["$.town"]
    assert ran == []


@pytest.mark.promise("RUN-03")
async def test_nothing_of_a_batch_runs_before_all_of_it_is_validated(open_session):
    seen = []

    def check(value: int) -> int:
        seen.append(f"validate {value}")
        return value

    from typing import Annotated

    from pydantic import AfterValidator

    @tool
    async def work(n: Annotated[int, AfterValidator(check)]) -> None:
        seen.append(f"run {n}")

    session = await open_session(work)
    await run(session, *(ToolCall(name="work", arguments={"n": n}) for n in (1, 2)))
    assert seen == ["validate 1", "validate 2", "run 1", "run 2"]


@pytest.mark.promise("RUN-03", "OUT-03")
async def test_a_validator_that_breaks_fails_its_call_and_no_other(open_session, caplog):
    from typing import Annotated

    from pydantic import AfterValidator

    def check(value: int) -> int:
        if value < 0:
            raise KeyError("password=hunter2")
        return value

    @tool
    async def work(n: Annotated[int, AfterValidator(check)]) -> int:
        return n

    session = await open_session(work)
    first, second = await run(
        session, ToolCall(name="work", arguments={"n": -1}), ToolCall(name="work", arguments={"n": 1})
    )
    assert (first.failure.category, second.value) == ("internal", 1)
    assert "hunter2" not in first.text
    assert "hunter2" in first.failure.detail
    assert "hunter2" in caplog.text


@pytest.mark.promise("RUN-03")
async def test_a_default_is_filled_in_and_a_value_comes_in_its_type(open_session):
    from datetime import date

    @tool
    async def book(day: date, seats: int = 2) -> list[Any]:
        return [type(day).__name__, day.year, seats]

    session = await open_session(book)
    assert (await run_one(session, "book", {"day": "2031-05-04"})).value == ["date", 2031, 2]


@pytest.mark.promise("RUN-03")
async def test_the_caller_keeps_its_own_arguments(open_session):
    def change(args: Any) -> None:
        args["list"].append("changed")

    session = await open_session(Tool.from_schema(name="raw", handler=change))
    given: dict[str, Any] = {"list": []}
    assert (await run_one(session, "raw", given)).ok
    assert given == {"list": []}


# --- which tool


@pytest.mark.promise("REG-04")
async def test_a_tool_unregistered_while_the_batch_runs_changes_nothing_in_it(open_runtime):
    async def leave() -> str:
        runtime.tools.unregister("later")
        runtime.tools.replace(Tool.from_schema(name="last", handler=lambda args: "new"))
        return "left"

    runtime = await open_runtime(
        leave,
        Tool.from_schema(name="later", handler=lambda args: "still there"),
        Tool.from_schema(name="last", handler=lambda args: "old"),
    )
    session = runtime.session("s")
    outcomes = await run(session, *(ToolCall(name=name) for name in ("leave", "later", "last")))
    assert [outcome.value for outcome in outcomes] == ["left", "still there", "old"]
    outcomes = await run(session, *(ToolCall(name=name) for name in ("later", "last")))
    assert [outcome.status for outcome in outcomes] == ["failure", "success"]
    assert outcomes[1].value == "new"


@pytest.mark.promise("REG-04")
async def test_a_layer_popped_while_the_batch_runs_changes_nothing_in_it(open_session):
    async def leave() -> None:
        session.tools.pop(layer)

    session = await open_session(leave)
    layer = session.tools.push([Tool.from_schema(name="later", handler=lambda args: "still there")])
    outcomes = await run(session, ToolCall(name="leave"), ToolCall(name="later"))
    assert [outcome.value for outcome in outcomes] == [None, "still there"]


@pytest.mark.promise("REG-05")
async def test_an_unknown_name_is_not_found_and_the_batch_goes_on(open_session):
    @tool
    async def get_issue() -> str:
        return "found"

    session = await open_session(get_issue)
    first, second = await run(session, ToolCall(id="1", name="get_isue"), ToolCall(id="2", name="get_issue"))
    assert (first.call_id, first.tool, first.status, first.attempts) == ("1", "get_isue", "failure", 0)
    assert (first.failure.category, first.failure.code, first.failure.source) == (
        "not_found",
        "unknown_tool",
        "runtime",
    )
    assert first.failure.message == "Tool 'get_isue' is not registered; did you mean 'get_issue'?"
    assert second.value == "found"


@pytest.mark.promise("REG-05")
async def test_several_near_names_are_offered(open_session):
    names = ["read_file", "read_files", "write_file", "weather"]
    session = await open_session(*(Tool.from_schema(name=name, handler=lambda args: 1) for name in names))
    outcome = await run_one(session, "Read_Fil")
    assert outcome.failure.message == (
        "Tool 'Read_Fil' is not registered; did you mean 'read_file' or 'read_files' or 'write_file'?"
    )


@pytest.mark.promise("REG-05")
async def test_a_name_like_no_other_gets_the_list_and_an_empty_registry_says_so(open_session, open_runtime):
    session = await open_session(*(Tool.from_schema(name=name, handler=lambda args: 1) for name in ("b", "a")))
    outcome = await run_one(session, "zzzzz")
    assert outcome.failure.message == "Tool 'zzzzz' is not registered; the tools are: a, b"
    empty = (await open_runtime()).session("s")
    outcome = await run_one(empty, "zzzzz")
    assert outcome.failure.message == "Tool 'zzzzz' is not registered; no tools are registered"


@pytest.mark.promise("REG-05")
@pytest.mark.parametrize("name", ["", "x" * 100_000, "\x00", "a\ud800b", '"}', "näme"], ids=ascii)
async def test_whatever_a_model_writes_for_a_name_is_an_outcome(open_session, name):
    session = await open_session(Tool.from_schema(name="t", handler=lambda args: 1))
    outcome = await run_one(session, name[:100_000])
    assert outcome.failure.category == "not_found"
    assert len(outcome.failure.message) < 1000
    assert outcome.text.startswith('{"error":')


@pytest.mark.promise("REG-07")
async def test_a_call_may_name_a_tool_by_its_id_and_records_hold_both(open_runtime):
    runtime = await open_runtime(
        Tool.from_schema(name="get_issue", id="github.issues.get", handler=lambda args: "found")
    )
    outcome = await run_one(runtime.session("s"), "github.issues.get")
    assert (outcome.value, outcome.tool) == ("found", "get_issue")
    (record,) = runtime.log.query(tool="github.issues.get")
    assert (record.tool, record.tool_id) == ("get_issue", "github.issues.get")
    assert runtime.log.query(tool="get_issue") == [record]


@pytest.mark.promise("REG-07")
async def test_a_call_that_fails_early_is_recorded_under_the_same_name_and_id(open_runtime):
    runtime = await open_runtime(Tool.from_schema(name="read", id="fs.read", handler=lambda args: 1))
    outcome = await run_one(runtime.session("s"), "fs.read", "{")
    (record,) = runtime.log
    assert (outcome.tool, record.tool, record.tool_id) == ("read", "read", "fs.read")


@pytest.mark.promise("REG-07")
async def test_a_renamed_tool_is_called_by_its_new_name_or_its_id(open_runtime):
    registry = ToolRegistry([Tool.from_schema(name="read", id="fs.read", handler=lambda args: "read")])
    view = prefixed(registry, "my_")
    runtime = await open_runtime()
    session = runtime.session("s")
    session.tools.push(view.snapshot().values())
    by_name, by_id, by_old = await run(session, *(ToolCall(name=name) for name in ("my_read", "fs.read", "read")))
    assert (by_name.value, by_id.value) == ("read", "read")
    assert (by_name.tool, by_id.tool) == ("my_read", "my_read")
    assert by_old.failure.category == "not_found"
    assert [record.tool_id for record in runtime.log] == ["fs.read", "fs.read", None]


# --- the id of a batch


def batch_id(session: Any, *calls: Any) -> Any:
    batch = session.start_batch(calls, scope=fresh_scope())
    batch.cancel()
    return batch.id


@pytest.mark.promise("RUN-11")
async def test_the_same_calls_give_the_same_id_however_they_are_written(open_session):
    session = await open_session(Tool.from_schema(name="raw", handler=lambda args: None))
    plain = {"b": [1, 2.5, {"y": None, "x": "ü"}], "a": True}
    written = [
        ToolCall(id="c1", name="raw", arguments=plain),
        ToolCall(id="c1", name="raw", arguments={"a": True, "b": [1, 2.5, {"x": "ü", "y": None}]}),
        ToolCall(id="c1", name="raw", arguments='{ "a" : true, "b":[1,2.5,{"y":null, "x":"\\u00fc"}] }'),
        ToolCall(id="c1", name="raw", arguments='{"b":[1,2.50,{"x":"ü","y":null}],"a":true}'.encode()),
        {"id": "c1", "name": "raw", "arguments": plain},
    ]
    assert len({batch_id(session, call) for call in written}) == 1
    nothing: list[Any] = [None, {}, "", "{}"]
    calls = [ToolCall(id="c1", name="raw", arguments=arguments) for arguments in nothing]
    assert len({batch_id(session, call) for call in calls}) == 1


@pytest.mark.promise("RUN-11")
async def test_the_id_is_the_same_in_another_session_and_runtime(open_session):
    call = ToolCall(id="c1", name="raw", arguments={"a": 1})
    raw = Tool.from_schema(name="raw", handler=lambda args: None)
    assert batch_id(await open_session(raw), call) == batch_id(await open_session(raw), call)


@pytest.mark.promise("RUN-11")
async def test_the_id_is_the_same_in_every_process_and_version(open_session):
    session = await open_session(Tool.from_schema(name="raw", handler=lambda args: None))
    id = batch_id(session, ToolCall(id="c1", name="raw", arguments={"b": "ü", "a": 1}))
    # The beginning of `printf '%s' '[["c1","raw"]]{"a":1,"b":"ü"}' | sha256sum`.
    assert id == "batch_de5c2b44c73e7f21deb2585dd9fa4ea31cc6002c"


@pytest.mark.promise("RUN-11")
async def test_other_calls_give_another_id(open_session):
    session = await open_session(
        Tool.from_schema(name="raw", handler=lambda args: None),
        Tool.from_schema(name="other", handler=lambda a: None),
    )
    one, two = (
        ToolCall(id="c1", name="raw", arguments={"a": 1}),
        ToolCall(id="c2", name="raw", arguments={"a": 1}),
    )
    batches = [
        (one,),
        (two,),
        (one, two),
        (two, one),
        (ToolCall(id="c1", name="other", arguments={"a": 1}),),
        (ToolCall(id="c1", name="raw", arguments={"a": 2}),),
        (ToolCall(id="c1", name="raw", arguments={"a": "1"}),),
        (ToolCall(id="c1", name="raw"),),
        (ToolCall(id="c1", name="raw", arguments='{"a":'),),
        (ToolCall(id="c1", name="raw", arguments='{"b":'),),
        (ToolCall(id="c1", name="unknown", arguments={"a": 1}),),
        (),
    ]
    assert len({batch_id(session, *calls) for calls in batches}) == len(batches)


# --- who calls


@pytest.mark.promise("RUN-13")
@pytest.mark.parametrize("source", ["model", "user", "schedule", "host", "tool"])
async def test_a_call_carries_its_source(open_runtime, source):
    @tool
    async def who(ctx: ToolContext) -> list[Any]:
        return [ctx.source, ctx.parent_call_id]

    runtime = await open_runtime(who)
    (outcome,) = await run(runtime.session("s"), ToolCall(name="who", source=source))
    assert outcome.value == [source, None]
    (record,) = runtime.log.query(source=source)
    assert (record.source, record.parent) == (source, None)


@pytest.mark.promise("RUN-13")
async def test_a_call_is_the_models_unless_it_says_otherwise_and_a_call_by_name_is_the_hosts(open_runtime):
    @tool
    async def who(ctx: ToolContext) -> str:
        return ctx.source

    session = (await open_runtime(who)).session("s")
    assert (await run_one(session, "who")).value == "model"
    assert (await session.call("who")).value == "host"


@pytest.mark.promise("RUN-13")
async def test_a_nested_call_comes_from_a_tool_and_names_its_parent(open_runtime):
    @tool
    async def outer(ctx: ToolContext) -> list[Any]:
        one = await ctx.call("inner")
        (two,) = await ctx.run_batch([ToolCall(id="n2", name="inner", source="user")])
        return [one.value, two.value]

    @tool
    async def inner(ctx: ToolContext) -> list[Any]:
        return [ctx.source, ctx.parent_call_id]

    runtime = await open_runtime(outer, inner)
    outcome = await run_one(runtime.session("s"), "outer")
    assert outcome.value == [["tool", "c1"], ["tool", "c1"]]
    assert [(record.tool, record.source, record.parent) for record in runtime.log] == [
        ("outer", "model", None),
        ("inner", "tool", "c1"),
        ("inner", "tool", "c1"),
    ]


@pytest.mark.promise("RUN-13", "OUT-01")
async def test_a_nested_outcome_that_is_returned_becomes_the_callers_own(open_runtime):
    @tool
    async def outer(ctx: ToolContext, name: str) -> Any:
        return await ctx.call(name)

    @tool
    async def inner() -> str:
        return "from within"

    @tool
    async def broken() -> None:
        raise ToolError("no", code="mine")

    runtime = await open_runtime(outer, inner, broken)
    session = runtime.session("s")
    outcomes = await run(
        session,
        ToolCall(id="c1", name="outer", arguments={"name": "inner"}),
        ToolCall(id="c2", name="outer", arguments={"name": "broken"}),
    )
    assert [(outcome.call_id, outcome.tool) for outcome in outcomes] == [("c1", "outer"), ("c2", "outer")]
    assert outcomes[0].value == "from within"
    assert (outcomes[1].failure.code, outcomes[1].text) == ("mine", '{"error":"no"}')
    assert [record.outcome.call_id for record in runtime.log.query(tool="outer")] == ["c1", "c2"]


@pytest.mark.promise("REG-02")
async def test_a_session_is_a_scope_over_its_runtime(open_session):
    session = await open_session(Tool.from_schema(name="a", handler=lambda args: "below"))
    assert isinstance(session.tools, ScopedRegistry)
    with session.tools.layer([Tool.from_schema(name="a", handler=lambda args: "above")]):
        assert (await run_one(session, "a")).value == "above"
    assert (await run_one(session, "a")).value == "below"
