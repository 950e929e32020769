"""A session may have tools and a policy of its own, and the methods of an object may be tools."""

from pathlib import Path
from types import MethodType

import pytest

from tests.support import fail_after
from toolwright import (
    App,
    Policy,
    Runtime,
    ToolContext,
    ToolDefinitionError,
    ToolRegistry,
    ToolwrightError,
    tool,
    tools_of,
)
from toolwright.errors import RunError


@pytest.mark.promise("APP-03")
async def test_tools_of_a_session_are_its_own_and_lie_over_those_of_the_app():
    @tool
    async def greet() -> str:
        return "hello"

    @tool(name="greet")
    async def greet_ann() -> str:
        return "hello Ann"

    @tool
    async def lookup() -> str:
        return "found"

    async with fail_after(5), App(tools=[greet]).open() as runtime:
        ann = runtime.session("ann", tools=[greet_ann, lookup], policy=Policy(max_concurrency=1))
        bob = runtime.session("bob")
        assert (await ann.call("greet")).value == "hello Ann"
        assert (await ann.call("lookup")).value == "found"
        assert (await bob.call("greet")).value == "hello"
        assert (await bob.call("lookup")).failure.code == "unknown_tool"
        assert runtime.session("ann") is ann
        assert [definition.name for definition in await ann.offered()] == ["greet", "lookup"]
        with pytest.raises(ToolwrightError, match="'ann' is open already; give its tools and its policy when"):
            runtime.session("ann", tools=[greet])


@pytest.mark.promise("APP-03")
async def test_a_registry_of_a_session_is_followed():
    @tool
    async def late() -> str:
        return "here"

    registry = ToolRegistry()
    async with fail_after(5), Runtime.open() as runtime:
        session = runtime.session("s", tools=registry)
        assert (await session.call("late")).failure.code == "unknown_tool"
        registry.register(late)
        assert (await session.call("late")).value == "here"


@pytest.mark.promise("APP-03")
async def test_tools_of_a_session_run_in_the_background_where_no_other_process_sees_the_store():
    @tool(supports_background=True)
    async def dig() -> str:
        return "gold"

    async with fail_after(5), Runtime.open() as runtime:
        run = await runtime.session("s", tools=[dig]).spawn("dig")
        assert (await run.wait()).value == "gold"


@pytest.mark.promise("APP-03")
async def test_a_run_of_a_tool_that_other_processes_do_not_have_is_refused_when_it_is_started(tmp_path: Path):
    @tool(supports_background=True)
    async def dig() -> str:
        return "gold"

    @tool
    async def start(ctx: ToolContext) -> None:
        await ctx.runs.spawn("dig")

    async with fail_after(5), Runtime.open(tmp_path / "agent.db", tools=[start], worker=False) as runtime:
        session = runtime.session("s", tools=[dig])
        said = r"'dig' belongs to session 's' in this process only, .*: App\(tools=\[\.\.\.\]\)"
        with pytest.raises(RunError, match=said):
            await session.spawn("dig")
        with pytest.raises(RunError, match=said):
            await session.schedule("dig", cron="0 6 * * *")
        with pytest.raises(RunError, match=said):
            await session.on("ore", "dig")
        assert (await session.call("start")).failure.code == "own_tool"
        assert await runtime.runs() == []


@pytest.mark.promise("APP-03")
async def test_a_run_has_the_tools_of_the_app_in_every_process_and_not_those_of_its_session(tmp_path: Path):
    @tool(supports_background=True)
    async def dig() -> str:
        return "gold"

    @tool(supports_background=True)
    async def search(ctx: ToolContext) -> list[str | None]:
        return [(await ctx.call(name)).text for name in ("dig", "sieve")]

    @tool(name="dig", id="other")
    async def other_dig() -> str:
        return "other"

    @tool
    async def sieve() -> str:
        return "sand"

    app = App(tools=[dig, search])
    async with fail_after(10), app.open(tmp_path / "agent.db") as runtime:
        session = runtime.session("s", tools=[other_dig, sieve])
        assert (await session.call("search")).value == ["other", "sand"]
        in_background = (await (await session.spawn("search")).wait()).value
        assert in_background[0] == "gold"
        assert "'sieve' is not registered" in in_background[1]


class Greeter:
    """An object whose methods are tools."""

    def __init__(self, name: str) -> None:
        self.name = name

    @tool(readonly=True)
    async def greet(self, loud: bool = False) -> str:
        """Greet somebody."""
        return f"hello {self.name}{'!' if loud else ''}"

    @tool
    def rename(self, name: str) -> None:
        self.name = name

    @staticmethod
    @tool
    def wave() -> str:
        return "wave"

    @classmethod
    @tool
    def kind(cls) -> str:
        return cls.__name__

    def not_a_tool(self) -> None: ...

    @property
    def broken(self) -> str:
        raise AssertionError("nobody asked for it")


class Polite(Greeter):
    """Overrides some of them."""

    def rename(self, name: str) -> None:  # type: ignore[override]
        self.name = name

    @tool
    async def greet(self, loud: bool = False) -> str:
        return f"good morning {self.name}"

    @tool
    async def bow(self) -> str:
        return "bows"


@pytest.mark.promise("APP-03")
async def test_the_tools_of_an_object_are_its_decorated_methods():
    ann = Greeter("Ann")
    tools = tools_of(ann)
    assert [one.name for one in tools] == ["greet", "rename", "wave", "kind"]
    async with fail_after(5), Runtime.open(tools=tools) as runtime:
        session = runtime.session("s")
        assert (await session.call("greet", loud=True)).value == "hello Ann!"
        await session.call("rename", name="Bob")
        assert (await session.call("greet")).value == "hello Bob"
        assert (await session.call("wave")).value == "wave"
        assert (await session.call("kind")).value == "Greeter"


@pytest.mark.promise("APP-03")
async def test_a_subclass_overrides_the_tools_of_its_base():
    tools = tools_of(Polite("Ann"))
    assert [one.name for one in tools] == ["greet", "wave", "kind", "bow"]
    async with fail_after(5), Runtime.open(tools=tools) as runtime:
        outcome = await runtime.session("s").call("greet")
    assert outcome.value == "good morning Ann"
    # Its docstring is that of the method it overrides.
    assert tools[0].definition.description == "Greet somebody."


@pytest.mark.promise("APP-03")
@pytest.mark.parametrize(
    ("given", "said"),
    [(Greeter, r"is a class, .* use tools_of\(Greeter\(\.\.\.\)\)"), (object(), "has no method under @tool")],
)
def test_tools_of_refuses_a_class_and_an_object_without_tools(given: object, said: str):
    with pytest.raises(ToolDefinitionError, match=said):
        tools_of(given)


def test_a_class_method_is_a_tool_in_either_order_of_the_decorators_and_without_a_docstring():
    class Kit:
        @classmethod
        @tool
        def one(cls, x: int) -> int:
            return x

        @tool
        @classmethod
        def two(cls, x: int) -> int:
            return x

    assert ToolRegistry([Kit.one, Kit().two]).names() == ["one", "two"]
    assert (Kit.one(x=1), Kit().two(x=2)) == (1, 2)
    # Python 3.13 binds a declaration that is a class method as if it were a function.
    bound = MethodType(vars(Kit)["one"].__func__, Kit)
    assert ToolRegistry([bound]).names() == ["one"]
