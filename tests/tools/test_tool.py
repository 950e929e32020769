"""What a tool is made of: functions, methods, callables, raw schemas and objects."""

import asyncio
import functools
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from toolwright import (
    Arguments,
    Hints,
    RetryPolicy,
    Runtime,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolDefinitionError,
    ToolRegistry,
    tool,
)


def value_of(thing: Any, **arguments: Any) -> Any:
    """What the only tool of a runtime gives for these arguments."""

    async def run() -> Any:
        async with Runtime.open(tools=[thing]) as runtime:
            (name,) = runtime.tools.names()
            outcome = await runtime.session("s").call(name, **arguments)
            assert outcome.ok, outcome
            return outcome.value

    return asyncio.run(run())


# --- functions


@pytest.mark.promise("TOOL-01")
def test_a_bare_decorator_takes_name_description_and_schema_from_the_function():
    @tool
    async def get_issue(repo: str, number: int = 1) -> str:
        """Fetch one issue.

        Args:
            repo: owner/name.
        """
        return f"{repo}#{number}"

    assert isinstance(get_issue, Tool)
    assert get_issue.name == "get_issue"
    assert get_issue.definition.description == "Fetch one issue."
    assert get_issue.definition.input_schema["properties"]["repo"] == {
        "type": "string",
        "description": "owner/name.",
    }
    assert get_issue.definition.input_schema["required"] == ["repo"]
    assert value_of(get_issue, repo="a/b", number=7) == "a/b#7"


@pytest.mark.promise("TOOL-01")
def test_a_decorator_with_options_lets_them_win():
    @tool(name="issue", description="Another text.", timeout=3)
    async def get_issue() -> str:
        """Fetch one issue."""
        return "one"

    assert get_issue.name == "issue"
    assert get_issue.definition.description == "Another text."
    assert get_issue.definition.timeout == 3
    assert value_of(get_issue) == "one"


@pytest.mark.promise("TOOL-01")
def test_an_empty_description_given_by_hand_stays_empty():
    @tool(description="")
    async def quiet() -> None:
        """Says something all the same."""

    assert quiet.definition.description == ""


@pytest.mark.promise("TOOL-01")
def test_a_sync_function_is_a_tool_too():
    @tool
    def double(number: int) -> int:
        return number * 2

    assert value_of(double, number=4) == 8


@pytest.mark.promise("TOOL-01")
def test_a_plain_function_is_made_a_tool_when_it_is_registered():
    def double(number: int) -> int:
        """Twice as much."""
        return number * 2

    (definition,) = ToolRegistry([double]).definitions()
    assert (definition.name, definition.description) == ("double", "Twice as much.")


@pytest.mark.promise("TOOL-01")
async def test_a_decorated_function_can_still_be_called():
    @tool
    async def double(number: int) -> int:
        return number * 2

    @tool
    def triple(number: int) -> int:
        return number * 3

    assert await double(4) == 8
    assert triple(number=4) == 12


@pytest.mark.promise("TOOL-01")
def test_a_partial_is_a_tool_named_after_its_function():
    async def power(base: int, exponent: int) -> int:
        return int(base**exponent)

    square = tool(functools.partial(power, exponent=2))
    assert square.name == "power"
    assert value_of(square, base=5) == 25


# --- methods and callable objects


@pytest.mark.promise("TOOL-01")
def test_a_method_becomes_a_tool_of_its_object():
    class Counter:
        def __init__(self, start: int) -> None:
            self.start = start

        @tool(name="count_up")
        async def add(self, step: int) -> int:
            """Count on."""
            return self.start + step

    ten, twenty = Counter(10), Counter(20)
    assert "self" not in ten.add.definition.input_schema["properties"]
    assert ten.add.definition.description == "Count on."
    assert value_of(ten.add, step=3) == 13
    assert value_of(twenty.add, step=3) == 23


@pytest.mark.promise("TOOL-01")
async def test_a_decorated_method_can_still_be_called_on_its_object():
    class Counter:
        @tool
        def add(self, step: int) -> int:
            return 10 + step

    assert Counter().add(3) == 13


@pytest.mark.promise("TOOL-01")
def test_a_bound_method_that_was_never_decorated_is_a_tool():
    class Counter:
        async def add(self, step: int) -> int:
            return 10 + step

    assert value_of(Counter().add, step=3) == 13


@pytest.mark.promise("TOOL-01")
def test_static_and_class_methods_are_tools():
    class Maths:
        base = 100

        @staticmethod
        @tool
        async def double(number: int) -> int:
            return number * 2

        @tool
        @staticmethod
        async def triple(number: int) -> int:
            return number * 3

        @classmethod
        async def above(cls, number: int) -> int:
            return cls.base + number

    assert value_of(Maths.double, number=4) == 8
    assert value_of(Maths.triple, number=4) == 12
    assert value_of(tool(Maths.above), number=4) == 104


@pytest.mark.promise("TOOL-01", "APP-06")
def test_a_class_method_is_a_tool_that_is_called_like_the_method():
    class Maths:
        base = 100

        @tool(name="over")
        @classmethod
        async def above(cls, number: int) -> int:
            return cls.base + number

    class More(Maths):
        base = 200

    for found in (Maths.above, Maths().above):
        assert isinstance(found, Tool)
        assert found.name == "over"
        assert asyncio.run(found(4)) == 104
        assert value_of(found, number=4) == 104
    assert value_of(More.above, number=4) == 204


@pytest.mark.promise("TOOL-01", "APP-06")
def test_a_tool_of_a_type_that_is_defined_further_down_is_built_when_it_is_first_used():
    @tool
    def measure(box: "Box") -> int:
        return box.size

    assert isinstance(measure, Tool)
    assert measure.name == "measure"

    @dataclass
    class Box:
        size: int

    assert measure(Box(3)) == 3
    assert measure.definition.input_schema["required"] == ["box"]
    assert measure.with_definition(name="gauge").name == "gauge"
    assert value_of(measure, box={"size": 4}) == 4


@pytest.mark.promise("TOOL-01")
def test_a_method_without_its_object_is_refused_with_the_remedy():
    class Counter:
        @tool
        async def add(self, step: int) -> int:
            return step

    with pytest.raises(ToolDefinitionError, match=r"'add' is a method.*obj\.add"):
        ToolRegistry([Counter.add])


@pytest.mark.promise("TOOL-01")
def test_callable_objects_are_tools_named_after_their_class():
    class Greet:
        """Greets."""

        def __init__(self, greeting: str) -> None:
            self.greeting = greeting

        async def __call__(self, name: str) -> str:
            return f"{self.greeting} {name}"

    greet = tool(Greet("hello"))
    assert greet.name == "Greet"
    assert value_of(greet, name="Ada") == "hello Ada"


@pytest.mark.promise("TOOL-01")
def test_a_sync_callable_object_is_a_tool():
    class Greet:
        def __call__(self, name: str) -> str:
            return f"hello {name}"

    assert value_of(tool(name="greet")(Greet()), name="Ada") == "hello Ada"


@pytest.mark.promise("TOOL-02")
def test_the_context_is_handed_to_the_parameter_that_asks_for_it():
    @tool
    async def who(greeting: str, ctx: ToolContext) -> str:
        return f"{greeting} {ctx.session_id} {ctx.tool}"

    assert list(who.definition.input_schema["properties"]) == ["greeting"]
    assert value_of(who, greeting="hi") == "hi s who"


# --- raw schemas


@pytest.mark.promise("TOOL-03")
def test_a_raw_schema_with_a_handler_is_a_tool():
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

    async def read(args: Arguments) -> str:
        return args.require("path", str).upper()

    reader = Tool.from_schema(name="read", description="Reads.", input_schema=schema, handler=read)
    assert reader.definition.name == "read"
    assert reader.definition.description == "Reads."
    assert reader.definition.input_schema == schema
    assert value_of(reader, path="a") == "A"


@pytest.mark.promise("TOOL-03")
def test_a_raw_handler_gets_the_context_when_it_has_room_for_it():
    async def with_room(args: Arguments, context: ToolContext) -> list[str]:
        return [context.session_id, context.tool]

    def without(args: Arguments) -> int:
        return len(args)

    assert value_of(Tool.from_schema(name="a", handler=with_room)) == ["s", "a"]
    assert value_of(Tool.from_schema(name="b", handler=without), x=1, y=2) == 2


@pytest.mark.promise("TOOL-03")
def test_a_raw_handler_may_be_sync_a_method_or_a_callable_object():
    class Reader:
        def read(self, args: Arguments) -> str:
            return "method"

        async def __call__(self, args: Arguments, context: ToolContext) -> str:
            return context.tool

    assert value_of(Tool.from_schema(name="a", handler=Reader().read)) == "method"
    assert value_of(Tool.from_schema(name="b", handler=Reader())) == "b"


@pytest.mark.promise("TOOL-03", "RUN-08")
def test_an_async_handler_runs_on_the_loop_and_a_sync_one_does_not():
    class Caller:
        async def __call__(self, args: Arguments) -> int:
            return threading.get_ident()

    async def handle(args: Arguments) -> int:
        return threading.get_ident()

    for handler in (handle, functools.partial(handle), Caller()):
        assert value_of(Tool.from_schema(name="where", handler=handler)) == threading.get_ident()
    assert value_of(Tool.from_schema(name="where", handler=lambda args: threading.get_ident())) != threading.get_ident()


@pytest.mark.promise("TOOL-03")
def test_a_handler_that_does_not_tell_what_it_takes_gets_the_arguments():
    assert value_of(Tool.from_schema(name="same", handler=dict), a=1) == {"a": 1}


@pytest.mark.promise("TOOL-04")
def test_a_schema_that_is_changed_later_changes_nothing():
    schema: dict[str, Any] = {"type": "object", "required": ["path"]}
    reader = Tool.from_schema(name="read", input_schema=schema, handler=lambda args: "read")
    schema["required"] = []
    schema["type"] = "array"
    assert reader.definition.input_schema == {"type": "object", "required": ["path"]}
    assert value_of(reader, path="a") == "read"


@pytest.mark.promise("TOOL-04")
def test_a_tool_without_a_schema_takes_any_object():
    taking_all = Tool.from_schema(name="any", input_schema=None, handler=lambda args: dict(args))
    assert taking_all.definition.input_schema == {"type": "object"}
    assert value_of(taking_all, a=1, b={"c": [None]}) == {"a": 1, "b": {"c": [None]}}


@pytest.mark.promise("TOOL-04")
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "'read' has an invalid JSON Schema"),
        ({"$ref": "https://example.com/schema.json"}, "'read' has a JSON Schema with a reference"),
        (True, "'read' has input_schema=True; use a dict"),
        ([], "'read' has a 'list' where a JSON Schema belongs"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_when_the_tool_is_made(schema: Any, message: str):
    with pytest.raises(ToolDefinitionError, match=message):
        Tool.from_schema(name="read", input_schema=schema, handler=lambda args: None)


@pytest.mark.promise("TOOL-03")
@pytest.mark.parametrize(
    "handler",
    [
        lambda: None,
        lambda args, context, more: None,
        lambda args, *, needed: None,
        lambda *, args: None,
    ],
    ids=["no room", "too much room", "a required keyword", "by keyword only"],
)
def test_a_raw_handler_that_could_never_be_called_is_refused(handler: Any):
    with pytest.raises(ToolDefinitionError, match=r"'read' has a handler.*write it as handler\(args\)"):
        Tool.from_schema(name="read", handler=handler)


@pytest.mark.promise("TOOL-03")
def test_a_handler_that_is_no_function_is_refused():
    with pytest.raises(ToolDefinitionError, match="'read' has the handler 'nothing', which cannot be called"):
        Tool.from_schema(name="read", handler="nothing")  # type: ignore[arg-type]


# --- objects with a definition


def definition(**changes: Any) -> ToolDefinition:
    return ToolDefinition(**{"name": "greet", "id": "demo.greet", "input_schema": {"type": "object"}, **changes})


@pytest.mark.promise("TOOL-03")
def test_an_object_with_a_definition_and_a_run_method_is_a_tool():
    class Greet:
        definition = definition(
            input_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        )

        async def run(self, arguments: Arguments, context: ToolContext) -> str:
            return f"{context.tool} {arguments['name']}"

    registry = ToolRegistry([Greet()])
    assert [found.id for found in registry.definitions()] == ["demo.greet"]
    assert value_of(Greet(), name="Ada") == "greet Ada"


@pytest.mark.promise("TOOL-03")
def test_an_object_may_run_in_a_thread():
    class Greet:
        definition = definition()

        def run(self, arguments: Arguments, context: ToolContext) -> str:
            return context.session_id

    assert value_of(Greet()) == "s"


@pytest.mark.promise("TOOL-03")
def test_an_object_with_something_else_for_a_definition_is_refused():
    class Greet:
        definition = {"name": "greet"}  # noqa: RUF012

        async def run(self, arguments: Arguments, context: ToolContext) -> None: ...

    with pytest.raises(ToolDefinitionError, match="'Greet' has a definition of type 'dict'; use ToolDefinition"):
        ToolRegistry([Greet()])


@pytest.mark.promise("TOOL-03")
def test_an_object_whose_run_method_does_not_fit_is_refused():
    class Greet:
        definition = definition()

        async def run(self, name: str) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"'greet' has no run method.*run\(arguments, context\)"):
        ToolRegistry([Greet()])


@pytest.mark.promise("TOOL-03")
def test_an_object_whose_prepare_is_no_method_is_refused():
    class Greet:
        definition = definition()
        prepare = "no method"

        async def run(self, arguments: Arguments, context: ToolContext) -> None: ...

    with pytest.raises(ToolDefinitionError, match="'greet' has prepare='no method'; make it a method"):
        ToolRegistry([Greet()])


@pytest.mark.promise("TOOL-03")
def test_half_of_a_tool_object_is_no_tool():
    class Defined:
        definition = definition()

    class Running:
        async def run(self, arguments: Arguments, context: ToolContext) -> None: ...

    for half in (Defined(), Running()):
        with pytest.raises(ToolDefinitionError, match="an object with a definition and a run method"):
            ToolRegistry([half])


@pytest.mark.promise("TOOL-03")
@pytest.mark.parametrize("thing", [42, "greet", None, int, object()])
def test_what_cannot_be_a_tool_is_refused_with_the_remedy(thing: Any):
    with pytest.raises(ToolDefinitionError, match=r"is not a tool; decorate a function with @tool"):
        ToolRegistry([thing])


@pytest.mark.promise("TOOL-01")
def test_a_class_or_a_name_under_the_decorator_is_refused_with_the_remedy():
    with pytest.raises(ToolDefinitionError, match="use a function, a method or a callable object"):
        tool(dict)
    with pytest.raises(ToolDefinitionError, match="'get_issue' cannot be a tool"):
        tool("get_issue")  # type: ignore[call-overload]


@pytest.mark.promise("TOOL-01")
def test_decorating_twice_is_refused():
    with pytest.raises(ToolDefinitionError, match="<Tool 'twice'> is a tool already; apply @tool once"):

        @tool
        @tool
        async def twice() -> None: ...


# --- what a definition says


@pytest.mark.promise("TOOL-05")
def test_a_definition_carries_everything_that_was_said():
    def probe() -> str:
        return "done"

    @tool(
        id="issues.get",
        display_name="Get Issue",
        kind="mcp",
        category="issues",
        output_schema={"type": "string"},
        readonly=False,
        destructive=True,
        idempotent=True,
        open_world=True,
        long_running=True,
        polling=True,
        cpu_bound=True,
        requires_secrets=True,
        supports_background=True,
        persist_output=True,
        capabilities=["network", "sandboxable"],
        approval="suggest",
        timeout=10,
        retry=RetryPolicy(attempts=3),
        max_concurrency=3,
        key="{repo}",
        isolation="process",
        on_crash=probe,
        deferral="always",
    )
    async def get_issue(repo: str) -> str:
        """Fetch one issue."""
        return repo

    found = get_issue.definition
    assert (found.id, found.name, found.description) == ("issues.get", "get_issue", "Fetch one issue.")
    assert found.input_schema["required"] == ["repo"]
    assert found.retry == RetryPolicy(attempts=3)
    assert found.display_name == "Get Issue"
    assert found.kind == "mcp"
    assert found.category == "issues"
    assert found.output_schema == {"type": "string"}
    assert found.hints == Hints(
        readonly=False,
        destructive=True,
        idempotent=True,
        open_world=True,
        long_running=True,
        polling=True,
        cpu_bound=True,
        requires_secrets=True,
        supports_background=True,
        persist_output=True,
    )
    assert found.capabilities == {"network", "sandboxable"}
    assert found.approval == "suggest"
    assert found.timeout == 10
    assert (found.concurrency.limit, found.concurrency.key) == (3, "{repo}")
    assert found.isolation == "process"
    assert found.on_crash is probe
    assert found.deferral == "always"


@pytest.mark.promise("TOOL-05")
def test_what_a_tool_leaves_unsaid_is_read_the_cautious_way():
    @tool
    async def unknown() -> None: ...

    found = unknown.definition
    assert not found.hints.readonly
    assert found.hints.mutating
    assert not found.hints.idempotent
    assert not found.hints.repeatable
    assert found.concurrency.exclusive
    assert found.on_crash == "fail"
    assert found.retry.attempts == 1
    assert found.kind == "function"
    assert found.approval == "auto"
    assert found.display_name is None
    assert found.timeout is None


@pytest.mark.promise("TOOL-05")
@pytest.mark.parametrize("hint", ["readonly", "idempotent"])
def test_a_tool_that_may_run_twice_is_run_again_after_a_crash(hint: str):
    options: Any = {hint: True}

    @tool(**options)
    async def look() -> None: ...

    assert look.definition.on_crash == "rerun"


@pytest.mark.promise("TOOL-05")
def test_a_display_name_is_in_the_definition_of_every_kind_of_tool():
    @tool(display_name="Get Current Time")
    async def get_current_time() -> str:
        return "noon"

    class Echo:
        definition = definition(name="echo", display_name="Echo")

        async def run(self, arguments: Arguments, context: ToolContext) -> None: ...

    raw = Tool.from_schema(name="raw", display_name="Raw", handler=lambda args: None)
    names = [found.display_name for found in ToolRegistry([get_current_time, Echo(), raw]).definitions()]
    assert names == ["Echo", "Get Current Time", "Raw"]


# --- what follows from what


@pytest.mark.promise("TOOL-06")
def test_readonly_implies_parallel():
    @tool(readonly=True)
    async def look() -> None: ...

    @tool(capabilities=["read_only"])
    async def peek() -> None: ...

    assert look.definition.concurrency.parallel
    assert peek.definition.hints.readonly
    assert peek.definition.concurrency.parallel


@pytest.mark.promise("TOOL-06")
@pytest.mark.parametrize("option", [{"exclusive": True}, {"parallel": False}])
def test_a_readonly_tool_may_say_that_it_overlaps_nothing(option: Any):
    @tool(readonly=True, **option)
    async def look() -> None: ...

    assert look.definition.concurrency.exclusive


@pytest.mark.promise("TOOL-06")
def test_a_readonly_tool_with_claims_of_its_own_keeps_to_them():
    @tool(readonly=True, reads="path")
    async def look(path: str) -> None: ...

    assert not look.definition.concurrency.parallel
    assert not look.definition.concurrency.exclusive


@pytest.mark.promise("TOOL-06")
@pytest.mark.parametrize(
    ("capabilities", "approval"),
    [
        (["executes_code"], "required"),
        (["requires_approval"], "required"),
        (["writes_files"], "suggest"),
        (["writes_files", "executes_code"], "required"),
        (["network", "sandboxable"], "auto"),
        (["read_only"], "auto"),
        ([], "auto"),
    ],
)
def test_capabilities_imply_an_approval(capabilities: list[str], approval: str):
    @tool(capabilities=capabilities)
    async def act() -> None: ...

    assert act.definition.approval == approval


@pytest.mark.promise("TOOL-06")
@pytest.mark.parametrize("approval", ["auto", "suggest", "required"])
@pytest.mark.parametrize("capability", ["executes_code", "writes_files", "network"])
def test_the_approval_can_be_set_by_hand(capability: str, approval: Any):
    @tool(capabilities=[capability], approval=approval)
    async def act() -> None: ...

    assert act.definition.approval == approval


@pytest.mark.promise("TOOL-06")
def test_the_definition_of_an_object_implies_the_same():
    assert definition(capabilities=frozenset({"executes_code"})).approval == "required"
    assert definition(capabilities=frozenset({"writes_files"})).approval == "suggest"
    assert definition(capabilities=frozenset({"executes_code"}), approval="auto").approval == "auto"
    assert definition(hints=Hints(readonly=True)).concurrency.parallel
