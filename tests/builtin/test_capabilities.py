"""What comes together: tools, prompt, hooks, and what they need."""

import pytest

from tests.support import fail_after
from toolwright import (
    Answer,
    Capability,
    CapabilityError,
    ReplaceArguments,
    Runtime,
    ToolRegistry,
    prefixed,
    tool,
)
from toolwright.builtin import capability


def made(name: str, *requires, **parts) -> Capability:
    return Capability(name=name, requires=requires, **parts)


def names(runtime: Runtime) -> list[str]:
    return [one.name for one in runtime.capabilities]


@tool
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@pytest.mark.promise("BLT-04")
async def test_a_capability_brings_its_tools_and_its_prompt(place, open_runtime):
    greeting = Capability(name="greeting", tools=[greet], prompt="Greet people by name.\n")
    runtime = await open_runtime(place, capabilities=["todo", greeting, made("silent")])
    assert names(runtime) == ["todo", "greeting", "silent"]
    assert runtime.prompt == f"{capability('todo').prompt}\n\nGreet people by name."
    session = runtime.session("s")
    assert session.tools.names() == runtime.tools.names() == ["greet", "write_todos"]
    assert (await session.call("greet", name="Ada")).value == "Hello, Ada!"


async def test_without_capabilities_there_is_nothing_more(open_runtime):
    runtime = await open_runtime(":memory:", greet)
    assert (names(runtime), runtime.prompt, runtime.tools.names()) == ([], "", ["greet"])


@pytest.mark.promise("BLT-04")
async def test_its_hooks_come_before_those_of_the_runtime(place, open_runtime):
    seen = []

    def louder(call):
        seen.append(("before", call.arguments["name"]))
        return ReplaceArguments({"name": call.arguments["name"].upper()})

    def watch(call):
        seen.append(("runtime", call.arguments["name"]))

    def after(call, outcome):
        seen.append(("after", outcome.value))

    runtime = await open_runtime(
        place,
        capabilities=[Capability(name="loud", tools=[greet], before=[louder], after=[after])],
        before=[watch],
        after=[lambda call, outcome: seen.append(("runtime after", outcome.value))],
    )
    assert (await runtime.session("s").call("greet", name="ada")).value == "Hello, ADA!"
    assert seen == [("before", "ada"), ("runtime", "ADA"), ("after", "Hello, ADA!"), ("runtime after", "Hello, ADA!")]


async def test_a_hook_of_a_capability_may_answer(open_runtime):
    quiet = Capability(name="quiet", tools=[greet], before=[lambda call: Answer("shh")])
    runtime = await open_runtime(":memory:", capabilities=[quiet])
    assert (await runtime.session("s").call("greet", name="ada")).value == "shh"


@pytest.mark.promise("BLT-04")
async def test_what_it_requires_comes_first_and_once(open_runtime):
    base = made("base", prompt="base")
    runtime = await open_runtime(
        ":memory:", capabilities=[made("top", "left", "right"), made("left", base), made("right", "base", "todo"), base]
    )
    assert names(runtime) == ["base", "left", "todo", "right", "top"]
    assert runtime.prompt.startswith("base\n\n")


@pytest.mark.promise("BLT-04")
@pytest.mark.parametrize(
    ("asked", "circle"),
    [
        ([made("a", "a")], "'a' -> 'a'"),
        ([made("a", "b"), made("b", "c"), made("c", "b")], "'b' -> 'c' -> 'b'"),
        ([made("a", "b", "todo"), made("b", "a")], "'a' -> 'b' -> 'a'"),
    ],
)
def test_capabilities_that_require_each_other_are_refused_and_the_circle_is_named(asked, circle):
    with pytest.raises(CapabilityError, match=f"require each other: {circle}; drop one"):
        Runtime.open(capabilities=asked)


@pytest.mark.promise("BLT-04")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["file"], "'file' is not known; did you mean 'files'?"),
        (["zzz"], "'zzz' is not known; there are files, web"),
        ([made("a", "zzz")], "'zzz' is not known"),
        ([made("a"), made("a", prompt="other")], "Two capabilities have the name 'a'"),
        (["todo", made("todo", prompt="mine")], None),
        ([3], "3 is not a capability"),
        ("files", "is one of them; give a list"),
        ([made("a", unusable="it is half done")], "'a' cannot be used: it is half done"),
        ([made("a", made("b", unusable="it is half done"))], "'b' cannot be used"),
    ],
)
async def test_what_cannot_be_active_is_refused_by_name(asked, said):
    if said is None:  # a name stands for what the owner gave under it
        async with Runtime.open(capabilities=asked) as runtime:
            assert runtime.prompt == "mine"
        return
    with pytest.raises(CapabilityError) as refused:
        Runtime.open(capabilities=asked)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "parts", [{"name": ""}, {"name": 3}, {"name": "a", "tools": greet}, {"name": "a", "prompt": None}], ids=str
)
def test_a_capability_that_is_none_is_refused_when_it_is_made(parts):
    with pytest.raises(CapabilityError):
        Capability(**parts)


@pytest.mark.promise("BLT-04")
def test_a_capability_of_the_box_takes_settings_and_shows_them():
    assert capability("tool_search", matches=2).settings == {"matches": 2}
    with pytest.raises(CapabilityError, match="'tool_search' has no setting 'most'; it takes matches"):
        capability("tool_search", most=2)
    with pytest.raises(CapabilityError, match="matches=0; use a number"):
        capability("tool_search", matches=0)
    with pytest.raises(CapabilityError, match="it takes none"):
        capability("todo", many=True)


@pytest.mark.promise("BLT-04")
async def test_a_capability_comes_by_itself_with_a_tool_that_calls_for_it(open_runtime):
    later = Capability(name="later", comes_with=lambda definition: definition.hints.supports_background, prompt="later")
    chained = Capability(name="chained", comes_with=lambda definition: definition.name == "greet", requires=["todo"])

    @tool(supports_background=True)
    async def long_work() -> None: ...

    brought = Capability(name="brings", tools=[long_work])
    automatic = [chained, Capability(name="later", comes_with=later.comes_with, tools=[greet])]
    alone = await open_runtime(":memory:", automatic=[later])
    assert names(alone) == []
    with_tool = await open_runtime(":memory:", long_work, automatic=[later])
    assert (names(with_tool), with_tool.prompt) == (["later"], "later")
    with_capability = await open_runtime(":memory:", capabilities=[brought], automatic=automatic)
    assert names(with_capability) == ["brings", "later", "todo", "chained"]


@pytest.mark.promise("BLT-04")
async def test_one_that_comes_by_itself_is_made_when_it_comes_and_not_before(open_runtime):
    made_for = []

    def whole():
        made_for.append("greet")
        return Capability(name="later", tools=[greet], prompt="later")

    later = Capability(name="later", comes_with=lambda definition: definition.name == "long_work", whole=whole)

    @tool
    async def long_work() -> None: ...

    assert (names(await open_runtime(":memory:", automatic=[later])), made_for) == ([], [])
    runtime = await open_runtime(":memory:", long_work, automatic=[later])
    assert (names(runtime), runtime.tools.names(), runtime.prompt) == (["later"], ["greet", "long_work"], "later")
    mine = Capability(name="later", prompt="mine")
    assert (await open_runtime(":memory:", long_work, automatic=[later], capabilities=[mine])).prompt == "mine"
    assert made_for == ["greet"]


async def test_a_tool_that_is_there_already_is_not_added_again(open_runtime):
    (write_todos,) = capability("todo").tools
    runtime = await open_runtime(":memory:", write_todos, capabilities=["todo", made("too", tools=[write_todos])])
    assert runtime.tools.names() == ["write_todos"]


@pytest.mark.parametrize("mine", [True, False], ids=["runtime", "capability"])
def test_two_tools_of_one_name_are_refused(mine):
    @tool(name="write_todos")
    async def other() -> None: ...

    options = {"tools": [other]} if mine else {"capabilities": [made("mine", tools=[other])]}
    asked = [*options.pop("capabilities", []), "todo"]
    owner = "the runtime" if mine else "the capability 'mine'"
    with pytest.raises(CapabilityError, match=f"'todo' brings a tool 'write_todos', and {owner} has another"):
        Runtime.open(capabilities=asked, **options)


async def test_a_registry_that_is_followed_stays_as_it_is_and_comes_first(open_runtime):
    registry = ToolRegistry([greet])
    async with Runtime.open(tools=prefixed(registry, "my_"), capabilities=["todo"]) as runtime:
        session = runtime.session("s")
        assert session.tools.names() == ["my_greet", "write_todos"]
        assert registry.names() == ["greet"]

        @tool(name="wave")
        async def wave() -> str:
            return "waves"

        registry.register(wave)
        assert (await session.call("my_wave")).value == "waves"
        assert (await session.call("write_todos", todos=[])).ok


@pytest.mark.promise("BLT-04")
@pytest.mark.parametrize(
    ("name", "setting"),
    [("web", {"robots": True}), ("virtual_bash", {"commands": 5})],
)
def test_settings_make_another_tool_which_does_not_hide_behind_the_usual_one(name, setting):
    usual, other = capability(name), capability(name, **setting)
    assert (usual.settings, other.settings) == ({}, setting)
    assert usual.tools[0] is not other.tools[0]
    with pytest.raises(CapabilityError, match="leave one of them out"):
        Runtime.open(tools=usual.tools, capabilities=[other])
    with pytest.raises(CapabilityError, match=f"{name!r} has no setting 'zzz'; it takes "):
        capability(name, zzz=1)


@pytest.mark.promise("BLT-04")
async def test_a_capability_comes_with_a_tool_that_is_registered_after_the_opening(open_runtime):
    @tool(supports_background=True)
    async def dig() -> str:
        """Dig."""
        return "gold"

    runtime = await open_runtime(":memory:")
    session, other = runtime.session("s"), runtime.session("t", tools=[dig])
    assert "spawn_background" not in {definition.name for definition in await session.offered()}
    assert "spawn_background" in {definition.name for definition in await other.offered()}
    assert "background_execution" not in names(runtime)
    runtime.tools.register(dig)
    assert "spawn_background" in {definition.name for definition in await session.offered()}
    assert "spawn_background" in {definition.name for definition in session.definitions()}
    assert names(runtime) == ["background_execution"]
    assert "spawn_background starts work" in runtime.prompt
    async with fail_after(5):
        started = await session.call("spawn_background", tool="dig", args={})
        assert started.ok, started.text
        (run,) = await session.runs()
        assert (await run.wait()).value == "gold"
    runtime.tools.unregister("dig")
    assert "spawn_background" not in {definition.name for definition in await session.offered()}


@pytest.mark.promise("BLT-04")
async def test_the_hooks_of_a_capability_that_comes_later_see_the_calls_from_then_on(open_runtime):
    seen: list[str] = []

    @tool(supports_background=True)
    async def dig() -> str:
        return "gold"

    def watch(call):
        seen.append(call.tool.name)

    miner = Capability(name="miner", before=[watch], comes_with=lambda definition: definition.name == "dig")
    runtime = await open_runtime(":memory:", automatic=[miner])
    session = runtime.session("s")
    await session.call("greet", name="Ann")
    assert seen == []
    runtime.tools.register(dig)
    assert (await session.call("dig")).value == "gold"
    assert seen == ["dig"]
