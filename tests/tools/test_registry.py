"""Tools by name: adding, replacing, removing and listing them."""

from typing import Any

import pytest

from toolwright import RegistryError, Tool, ToolDefinitionError, ToolRegistry, tool


def named(name: str, **options: Any) -> Tool:
    return Tool.from_schema(name=name, handler=lambda args: name, **options)


@pytest.mark.promise("REG-01")
def test_a_registry_knows_what_was_registered():
    registry = ToolRegistry()
    assert (len(registry), registry.names(), registry.definitions()) == (0, [], [])
    clock, echo = named("clock"), named("echo")
    assert registry.register(clock) is None
    assert registry.register(echo) is None
    assert len(registry) == 2
    assert registry.get("echo") is echo
    assert registry.has("clock")
    assert "clock" in registry
    assert not registry.has("nonexistent")
    assert "nonexistent" not in registry
    assert 5 not in registry
    assert registry.get("nonexistent") is None


@pytest.mark.promise("REG-01")
def test_a_registry_can_be_made_of_tools():
    assert ToolRegistry([named("a"), named("b")]).names() == ["a", "b"]


@pytest.mark.promise("REG-01")
def test_names_and_definitions_come_sorted_whatever_the_order_of_registering():
    registry = ToolRegistry([named("zoo"), named("Ada"), named("a_b"), named("ab"), named("bar")])
    expected = ["Ada", "a_b", "ab", "bar", "zoo"]
    assert registry.names() == expected
    assert [definition.name for definition in registry.definitions()] == expected


@pytest.mark.promise("REG-01")
def test_a_taken_name_is_refused_and_changes_nothing():
    first = named("echo")
    registry = ToolRegistry([first])
    with pytest.raises(RegistryError, match="Tool 'echo' is registered already; pass replace=True to replace it"):
        registry.register(named("echo"))
    assert registry.get("echo") is first


@pytest.mark.promise("REG-01")
def test_replacing_returns_the_previous_tool():
    first, second, third = named("echo"), named("echo"), named("echo")
    registry = ToolRegistry([first])
    assert registry.register(second, replace=True) is first
    assert registry.replace(third) is second
    assert registry.get("echo") is third
    assert registry.replace(named("other")) is None
    assert registry.names() == ["echo", "other"]


@pytest.mark.promise("REG-01")
def test_unregistering_returns_the_removed_tool_or_none():
    echo = named("echo")
    registry = ToolRegistry([echo])
    assert registry.unregister("echo") is echo
    assert registry.unregister("echo") is None
    assert len(registry) == 0


@pytest.mark.promise("REG-01")
def test_clearing_removes_every_tool():
    registry = ToolRegistry([named("a"), named("b")])
    registry.clear()
    assert (len(registry), registry.names()) == (0, [])
    registry.register(named("a"))
    assert registry.names() == ["a"]


@pytest.mark.promise("REG-01")
def test_a_tool_that_cannot_be_built_leaves_the_registry_as_it_was():
    registry = ToolRegistry([named("a")])

    def wrong(x) -> None: ...

    with pytest.raises(ToolDefinitionError, match="'x'"):
        registry.register(wrong)
    assert registry.names() == ["a"]


@pytest.mark.promise("REG-02")
def test_a_snapshot_of_a_registry_stays_as_it_was_taken():
    first = named("a")
    registry = ToolRegistry([first])
    before = registry.snapshot()
    registry.replace(named("a"))
    registry.register(named("b"))
    assert dict(before) == {"a": first}
    registry.clear()
    assert dict(before) == {"a": first}
    with pytest.raises(TypeError):
        before["c"] = first  # type: ignore[index]


@pytest.mark.promise("REG-07")
def test_a_tool_is_found_by_its_id_too():
    registry = ToolRegistry([named("get_issue", id="github.issues.get")])
    found = registry.get("github.issues.get")
    assert found is registry.get("get_issue")
    assert registry.has("github.issues.get")
    assert registry.names() == ["get_issue"]


@pytest.mark.promise("REG-07")
def test_a_name_wins_over_the_id_of_another_tool():
    other, meant = named("other", id="clash"), named("clash")
    assert ToolRegistry([other, meant]).get("clash") is meant


@pytest.mark.promise("REG-07")
def test_the_id_of_a_function_says_where_it_is_defined():
    @tool
    async def look() -> None: ...

    assert look.definition.id.endswith("test_the_id_of_a_function_says_where_it_is_defined.<locals>.look")
    assert look.definition.id.startswith(__name__)


@pytest.mark.promise("REG-07")
def test_the_id_stays_when_the_function_is_given_another_name():
    def look() -> None: ...

    assert tool(look).definition.id == tool(name="peek")(look).definition.id
