"""Layers over a registry, and views of one."""

import asyncio
import os
from typing import Any

import pytest

from toolwright import (
    RegistryError,
    Runtime,
    ScopedRegistry,
    Tool,
    ToolDefinitionError,
    ToolOutcome,
    ToolRegistry,
    filtered,
    overridden,
    prefixed,
    renamed,
    tool,
)
from toolwright.tools.claims import Concurrency


def named(name: str, **options: Any) -> Tool:
    return Tool.from_schema(name=name, handler=lambda args: name, **options)


def outcome_of(tools: Any, name: str, **arguments: Any) -> ToolOutcome:
    async def run() -> ToolOutcome:
        async with Runtime.open(tools=tools) as runtime:
            return await runtime.session("s").call(name, **arguments)

    return asyncio.run(run())


# --- layers


@pytest.mark.promise("REG-02")
def test_the_top_layer_is_looked_up_first():
    base, middle, top = named("a"), named("a"), named("a")
    scoped = ScopedRegistry(ToolRegistry([base, named("b")]))
    assert scoped.get("a") is base
    lower = scoped.push([middle])
    upper = scoped.push([top, named("c")])
    assert (scoped.get("a"), scoped.names(), scoped.depth) == (top, ["a", "b", "c"], 2)
    scoped.pop(upper)
    assert (scoped.get("a"), scoped.names()) == (middle, ["a", "b"])
    scoped.pop(lower)
    assert (scoped.get("a"), scoped.depth) == (base, 0)


@pytest.mark.promise("REG-02")
def test_a_layer_can_change_after_it_was_pushed_and_so_can_the_base():
    base = ToolRegistry([named("a")])
    scoped = ScopedRegistry(base)
    layer = scoped.push()
    layer.register(named("b"))
    base.register(named("c"))
    assert scoped.names() == ["a", "b", "c"]
    layer.clear()
    base.unregister("a")
    assert scoped.names() == ["c"]


@pytest.mark.promise("REG-02")
def test_a_layer_does_not_reach_into_the_base():
    base = ToolRegistry([named("a")])
    scoped = ScopedRegistry(base)
    scoped.push([named("a"), named("b")])
    assert base.names() == ["a"]


@pytest.mark.promise("REG-02")
def test_only_the_top_layer_can_be_popped():
    scoped = ScopedRegistry(ToolRegistry([named("a")]))
    lower, upper = scoped.push([named("b")]), scoped.push([named("c")])
    with pytest.raises(RegistryError, match="buried under another; pop layers in the reverse order"):
        scoped.pop(lower)
    assert (scoped.depth, scoped.names()) == (2, ["a", "b", "c"])
    assert scoped.pop(upper) is upper
    assert scoped.pop(lower) is lower


@pytest.mark.promise("REG-02")
def test_a_layer_of_another_registry_is_refused():
    scoped = ScopedRegistry(ToolRegistry([named("a")]))
    foreign = ScopedRegistry(ToolRegistry()).push()
    with pytest.raises(RegistryError, match="not on this registry"):
        scoped.pop(foreign)
    layer = scoped.push()
    scoped.pop(layer)
    with pytest.raises(RegistryError, match="not on this registry"):
        scoped.pop(layer)
    assert scoped.names() == ["a"]


@pytest.mark.promise("REG-02")
def test_a_with_block_pops_its_layer_also_after_an_error():
    scoped = ScopedRegistry(ToolRegistry([named("a")]))
    with scoped.layer([named("b")]) as layer:
        layer.register(named("c"))
        assert scoped.names() == ["a", "b", "c"]
    assert scoped.names() == ["a"]
    with pytest.raises(KeyError), scoped.layer([named("b")]):
        raise KeyError
    assert (scoped.names(), scoped.depth) == (["a"], 0)


@pytest.mark.promise("REG-02")
def test_a_layer_that_cannot_be_made_is_not_pushed():
    scoped = ScopedRegistry(ToolRegistry([named("a")]))
    with pytest.raises(RegistryError):
        scoped.push([named("b"), named("b")])
    assert (scoped.depth, scoped.names()) == (0, ["a"])


@pytest.mark.promise("REG-02")
def test_a_snapshot_of_layers_stays_as_it_was_taken():
    base = ToolRegistry([named("a")])
    scoped = ScopedRegistry(base)
    layer = scoped.push([named("b")])
    before = scoped.snapshot()
    layer.register(named("c"))
    base.unregister("a")
    scoped.pop(layer)
    assert sorted(before) == ["a", "b"]
    assert scoped.names() == []


@pytest.mark.promise("REG-02")
def test_the_layer_of_a_session_is_seen_by_that_session_only():
    async def run() -> list[str]:
        async with Runtime.open(tools=[named("a")]) as runtime:
            one, other = runtime.session("one"), runtime.session("other")
            one.tools.push([named("b")])
            seen = [(await session.call("b")).status for session in (one, other)]
            return [*seen, *runtime.tools.names()]

    assert asyncio.run(run()) == ["success", "failure", "a"]


# --- views


@pytest.mark.promise("REG-03")
def test_a_filtered_view_shows_what_is_kept():
    registry = ToolRegistry([named("read", readonly=True), named("write")])
    reading = filtered(registry, lambda found: found.definition.hints.readonly)
    assert (reading.names(), len(reading), reading.has("write")) == (["read"], 1, False)
    assert reading.get("read") is registry.get("read")
    assert registry.names() == ["read", "write"]


@pytest.mark.promise("REG-03")
def test_a_prefixed_view_renames_all_and_touches_nothing_beneath():
    registry = ToolRegistry([named("read"), named("write")])
    seen = prefixed(registry, "fs_")
    assert seen.names() == ["fs_read", "fs_write"]
    assert [definition.name for definition in seen.definitions()] == ["fs_read", "fs_write"]
    assert not seen.has("read")
    assert registry.names() == ["read", "write"]
    assert registry.definitions()[0].name == "read"


@pytest.mark.promise("REG-03")
def test_a_renamed_view_renames_some():
    registry = ToolRegistry([named("read"), named("write")])
    seen = renamed(registry, {"read": "cat", "missing": "x"})
    assert seen.names() == ["cat", "write"]
    assert seen.get("write") is registry.get("write")


@pytest.mark.promise("REG-07")
def test_renaming_keeps_the_id():
    registry = ToolRegistry([named("read", id="fs.read")])
    for view in (
        prefixed(registry, "my_"),
        renamed(registry, {"read": "cat"}),
        prefixed(prefixed(registry, "a"), "b"),
    ):
        (definition,) = view.definitions()
        assert definition.id == "fs.read"
        assert view.get("fs.read") is view.get(definition.name)


@pytest.mark.promise("REG-03")
def test_an_overriding_view_changes_parts_of_a_definition():
    registry = ToolRegistry([named("read", timeout=5, description="Old."), named("write")])
    seen = overridden(registry, {"read": {"timeout": 60, "description": "New."}})
    found = seen.get("read")
    assert found is not None
    assert (found.definition.timeout, found.definition.description) == (60, "New.")
    below = registry.get("read")
    assert below is not None
    assert (below.definition.timeout, below.definition.description) == (5, "Old.")
    assert seen.get("write") is registry.get("write")


@pytest.mark.promise("REG-03")
@pytest.mark.parametrize(
    ("part", "remedy"),
    [
        ("name", "use renamed or prefixed"),
        ("id", "use any of approval, "),
        ("timout", "use any of approval, "),
    ],
)
def test_what_a_view_cannot_override_is_refused_when_the_view_is_made(part: str, remedy: str):
    with pytest.raises(RegistryError, match=f"overrides {part!r} of 'read', which it cannot change; {remedy}"):
        overridden(ToolRegistry([named("read")]), {"read": {part: 5}})


@pytest.mark.promise("REG-03")
def test_a_definition_that_an_override_makes_wrong_is_refused():
    seen = overridden(ToolRegistry([named("read")]), {"read": {"timeout": -1}})
    with pytest.raises(ToolDefinitionError, match="'read' has timeout -1"):
        seen.names()


@pytest.mark.promise("REG-03")
def test_two_tools_under_one_name_are_refused():
    seen = renamed(ToolRegistry([named("read"), named("write")]), {"read": "write"})
    with pytest.raises(RegistryError, match="The view shows two tools as 'write'; choose other names"):
        seen.names()


@pytest.mark.promise("REG-03")
def test_a_view_follows_what_it_shows():
    registry = ToolRegistry([named("read")])
    seen = prefixed(filtered(registry, lambda found: found.name != "write"), "fs_")
    assert seen.names() == ["fs_read"]
    registry.register(named("stat"))
    registry.register(named("write"))
    assert seen.names() == ["fs_read", "fs_stat"]
    registry.unregister("read")
    assert seen.names() == ["fs_stat"]


@pytest.mark.promise("REG-03")
def test_a_view_follows_the_layers_it_shows_through_any_number_of_them():
    scoped = ScopedRegistry(ToolRegistry([named("a")]))
    seen, tools = prefixed(scoped, "x_"), [named("b"), named("c")]
    for number in range(100):
        # A new layer may lie in memory where the last one lay.
        added = tools[number % 2]
        layer = scoped.push([added])
        assert seen.names() == ["x_a", f"x_{added.name}"]
        scoped.pop(layer)
        del layer
    assert seen.names() == ["x_a"]


@pytest.mark.promise("REG-03")
def test_a_snapshot_of_a_view_stays_as_it_was_taken():
    registry = ToolRegistry([named("read")])
    before = prefixed(registry, "fs_").snapshot()
    registry.clear()
    assert list(before) == ["fs_read"]


@pytest.mark.promise("REG-03")
def test_an_overridden_input_schema_is_shown_and_holds():
    @tool
    async def power(base: int, exponent: int = 2) -> int:
        return int(base**exponent)

    narrow = {
        "type": "object",
        "properties": {"base": {"type": "integer", "maximum": 9}},
        "additionalProperties": False,
    }
    found = overridden(ToolRegistry([power]), {"power": {"input_schema": narrow}}).get("power")
    assert found is not None
    assert found.definition.input_schema == narrow
    assert outcome_of([found], "power", base=9).value == 81
    refused = outcome_of([found], "power", base=10)
    assert refused.failure is not None
    assert "$.base: too large" in refused.failure.message
    assert outcome_of([power], "power", base=10).value == 100
    missing = outcome_of([found], "power")
    assert missing.failure is not None
    assert "'base' is missing" in missing.failure.message


@pytest.mark.promise("REG-03", "TOOL-07")
def test_an_overridden_output_schema_holds():
    registry = ToolRegistry([named("read")])
    found = overridden(registry, {"read": {"output_schema": {"type": "integer"}}}).get("read")
    refused = outcome_of([found], "read")
    assert refused.failure is not None
    assert refused.failure.code == "invalid_output"
    assert outcome_of(registry, "read").value == "read"


@pytest.mark.promise("REG-03", "SCHED-01")
def test_an_overridden_concurrency_holds():
    async def meet() -> list[Any]:
        both = asyncio.Barrier(2)

        @tool(timeout=5)
        async def meeting() -> str:
            await both.wait()
            return "met"

        view = overridden(ToolRegistry([meeting]), {"meeting": {"concurrency": Concurrency(parallel=True)}})
        async with Runtime.open(tools=view) as runtime:
            outcomes = await runtime.session("s").run_batch([{"name": "meeting"}, {"name": "meeting"}])
            return [outcome.value for outcome in outcomes]

    assert asyncio.run(meet()) == ["met", "met"]


@pytest.mark.promise("REG-03", "RUN-08")
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_an_overridden_isolation_holds_both_ways(is_async: bool):
    async def pid_async() -> int:
        return os.getpid()

    def pid_sync() -> int:
        return os.getpid()

    here = ToolRegistry([tool(name="pid")(pid_async if is_async else pid_sync)])
    elsewhere = overridden(here, {"pid": {"isolation": "process"}})
    back = overridden(elsewhere, {"pid": {"isolation": "none"}})
    assert outcome_of(here, "pid").value == os.getpid()
    assert outcome_of(elsewhere, "pid").value not in (os.getpid(), None)
    assert outcome_of(back, "pid").value == os.getpid()


@pytest.mark.promise("REG-03")
def test_a_runtime_runs_the_tools_of_a_view_and_follows_it():
    registry = ToolRegistry([named("read", id="fs.read")])

    async def run() -> list[Any]:
        async with Runtime.open(tools=prefixed(registry, "my_")) as runtime:
            session = runtime.session("s")
            first = await session.call("my_read")
            registry.register(named("write"))
            second = await session.call("my_write")
            return [first.status, first.tool, first.value, second.value]

    assert asyncio.run(run()) == ["success", "my_read", "read", "write"]


@pytest.mark.promise("REG-02")
def test_a_runtime_runs_the_tools_of_a_scoped_registry():
    scoped = ScopedRegistry(ToolRegistry([named("read")]))
    with scoped.layer([named("write")]):
        assert outcome_of(scoped, "write").value == "write"
