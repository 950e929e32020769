"""Notice when tools change: of a registry, of layers over it, and of views of either."""

import gc
import logging
import weakref
from types import MappingProxyType
from typing import Any

import pytest

from toolwright import (
    App,
    Runtime,
    ScopedRegistry,
    Tool,
    ToolRegistry,
    filtered,
    overridden,
    prefixed,
    renamed,
)

pytestmark = pytest.mark.promise("REG-08")


def named(name: str) -> Tool:
    return Tool.from_schema(name=name, handler=lambda args: name)


class Heard:
    """Notes the names that a source has whenever it tells of a change."""

    def __init__(self, source: Any) -> None:
        self.names: list[list[str]] = []
        self._source = source
        self.stop = source.on_change(self)

    def __call__(self) -> None:
        self.names.append(self._source.names())


def test_a_registry_tells_after_each_change_and_not_otherwise():
    registry = ToolRegistry([named("a")])
    heard = Heard(registry)
    registry.register(named("b"))
    registry.replace(named("b"))
    registry.unregister("a")
    registry.unregister("a")
    registry.names()
    registry.clear()
    registry.clear()
    assert heard.names == [["a", "b"], ["a", "b"], ["b"], []]
    heard.stop()
    heard.stop()
    registry.register(named("c"))
    assert len(heard.names) == 4


def test_a_change_that_is_refused_is_not_told():
    registry = ToolRegistry([named("a")])
    heard = Heard(registry)
    with pytest.raises(Exception, match="registered already"):
        registry.register(named("a"))
    assert heard.names == []


def test_a_scope_tells_of_its_base_and_of_its_layers_while_it_has_them():
    base, early = ToolRegistry([named("a")]), ToolRegistry([named("b")])
    scope = ScopedRegistry(base)
    scope.push(early)
    heard = Heard(scope)
    base.register(named("c"))
    early.register(named("d"))
    late = scope.push([named("e")])
    late.register(named("f"))
    scope.pop(late)
    late.register(named("g"))
    with scope.layer([named("h")]):
        pass
    scope.pop(early)
    early.register(named("i"))
    assert heard.names == [
        ["a", "b", "c"],
        ["a", "b", "c", "d"],
        ["a", "b", "c", "d", "e"],
        ["a", "b", "c", "d", "e", "f"],
        ["a", "b", "c", "d"],
        ["a", "b", "c", "d", "h"],
        ["a", "b", "c", "d"],
        ["a", "c"],
    ]
    heard.stop()
    base.register(named("j"))
    scope.push([named("k")])
    assert len(heard.names) == 8


def test_scopes_lie_over_scopes():
    base = ToolRegistry()
    middle = ScopedRegistry(base)
    top = ScopedRegistry(middle)
    heard = Heard(top)
    base.register(named("a"))
    middle.push([named("b")])
    assert heard.names == [["a"], ["a", "b"]]


@pytest.mark.parametrize(
    ("view_of", "shown"),
    [
        (lambda source: filtered(source, lambda tool: tool.name != "b"), ["a"]),
        (lambda source: prefixed(source, "x_"), ["x_a", "x_b"]),
        (lambda source: renamed(source, {"a": "c"}), ["b", "c"]),
        (lambda source: overridden(source, {"a": {"description": "new"}}), ["a", "b"]),
        (lambda source: prefixed(filtered(ScopedRegistry(source), lambda tool: True), "y_"), ["y_a", "y_b"]),
    ],
    ids=["filtered", "prefixed", "renamed", "overridden", "a view of a view"],
)
def test_a_view_tells_of_changes_of_what_it_shows(view_of, shown):
    registry = ToolRegistry([named("a")])
    heard = Heard(view_of(registry))
    registry.register(named("b"))
    assert heard.names == [shown]
    heard.stop()
    registry.unregister("a")
    assert len(heard.names) == 1


def test_a_callback_that_raises_is_logged_and_harms_nobody(caplog):
    registry = ToolRegistry()
    registry.on_change(lambda: 1 / 0)
    heard = Heard(registry)
    with caplog.at_level(logging.ERROR):
        assert registry.register(named("a")) is None
    assert heard.names == [["a"]]
    (line,) = caplog.records
    assert (line.action, line.exc_info[0]) == ("tools.callback_failed", ZeroDivisionError)  # type: ignore[attr-defined]


def test_one_callback_may_be_there_twice_and_may_leave_while_it_is_told():
    told: list[str] = []
    registry = ToolRegistry()
    first = registry.on_change(lambda: told.append("both"))
    leave: list[Any] = []

    def once() -> None:
        told.append("once")
        leave[0]()

    leave.append(registry.on_change(once))
    registry.register(named("a"))
    registry.register(named("b"))
    assert told == ["both", "once", "both"]
    first()
    twice = lambda: told.append("twice")  # noqa: E731
    stop = registry.on_change(twice)
    registry.on_change(twice)
    told.clear()
    registry.register(named("c"))
    stop()
    registry.register(named("d"))
    assert told == ["twice", "twice", "twice"]


def test_a_callback_that_another_one_ends_is_not_called_any_more():
    told: list[str] = []
    registry = ToolRegistry()
    registry.on_change(lambda: stop())
    stop = registry.on_change(lambda: told.append("ended"))
    registry.register(named("a"))
    assert told == []


def test_a_callback_may_register_and_subscribe_while_it_is_told():
    told: list[list[str]] = []
    registry = ToolRegistry()

    def add() -> None:
        if "b" not in registry:
            registry.on_change(lambda: told.append(registry.names()))
            registry.register(named("b"))

    registry.on_change(add)
    registry.register(named("a"))
    assert told == [["a", "b"]]
    registry.unregister("a")
    assert told == [["a", "b"], ["b"]]


def test_a_callback_that_changes_the_tools_each_time_ends_and_the_first_change_stands(caplog):
    registry = ToolRegistry()
    registry.on_change(lambda: registry.register(named(f"t{len(registry)}")))
    registry.register(named("a"))
    assert "a" in registry
    assert caplog.records[0].exc_info[0] is RecursionError


def test_what_is_no_function_is_refused():
    for source in (ToolRegistry(), ScopedRegistry(ToolRegistry()), prefixed(ToolRegistry(), "x")):
        with pytest.raises(TypeError, match="use a function without parameters"):
            source.on_change("tell me")  # type: ignore[arg-type]


def test_a_source_of_another_kind_without_notices_may_lie_below():
    class Fixed:
        version = 1

        def snapshot(self) -> Any:
            return MappingProxyType({"a": named("a")})

    scope = ScopedRegistry(Fixed())
    heard = Heard(scope)
    scope.push([named("b")])
    assert heard.names == [["a", "b"]]


def test_a_scope_that_nobody_watches_is_not_held_by_its_base():
    base = ToolRegistry()
    scope = ScopedRegistry(base)
    scope.on_change(lambda: None)()
    gone = weakref.ref(scope)
    del scope
    gc.collect()
    assert gone() is None


def test_a_scope_that_nobody_watches_any_more_does_not_watch_its_base():
    class Counted(ToolRegistry):
        watched = 0

        def on_change(self, callback: Any) -> Any:
            stop = super().on_change(callback)
            self.watched += 1

            def unsubscribe() -> None:
                stop()
                self.watched -= 1

            return unsubscribe

    base, layer = Counted(), Counted()
    scope = ScopedRegistry(base)
    scope.push(layer)
    first, second = scope.on_change(lambda: None), scope.on_change(lambda: None)
    assert (base.watched, layer.watched) == (1, 1)
    first()
    assert (base.watched, layer.watched) == (1, 1)
    second()
    second()
    assert (base.watched, layer.watched) == (0, 0)


async def test_a_session_tells_of_tools_that_its_runtime_and_it_get(open_runtime):
    runtime: Runtime = await open_runtime(named("a"))
    session = runtime.session("s")
    heard = Heard(session.tools)
    runtime.tools.register(named("b"))
    session.tools.push([named("c")])
    assert heard.names == [["a", "b"], ["a", "b", "c"]]


async def test_a_followed_registry_beneath_capabilities_is_heard():
    followed = ToolRegistry([named("a")])
    async with App(tools=followed, capabilities=["files"]).open() as runtime:
        heard = Heard(runtime.session("s").tools)
        followed.register(named("b"))
        (names,) = heard.names
        assert {"a", "b"} < set(names)
