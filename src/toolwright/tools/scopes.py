"""Registries over registries. Owns layers and views; they never touch the tools underneath."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar, overload

from toolwright.errors import RegistryError
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.registry import Catalogue, Snapshot, ToolRegistry, ToolSource, is_source
from toolwright.tools.tool import Tool

Source = TypeVar("Source", bound=ToolSource)
_OVERRIDABLE = frozenset(ToolDefinition.__struct_fields__) - {"name", "id"}


class ScopedRegistry(Catalogue):
    """Layers of tools over a base: look-up goes top layer first."""

    def __init__(self, base: ToolSource) -> None:
        self._base = base
        self._layers: list[ToolSource] = []
        self._changes = 0
        self._seen: object = None
        self._merged: Snapshot = MappingProxyType({})

    @property
    def version(self) -> object:
        """Changes when the base, a layer, or the stack of layers does."""
        # A count, for the id of a layer may be that of an earlier one.
        return (self._base.version, self._changes, tuple(layer.version for layer in self._layers))

    @property
    def depth(self) -> int:
        """How many layers lie over the base."""
        return len(self._layers)

    def snapshot(self) -> Snapshot:
        if not self._layers:
            return self._base.snapshot()
        version = self.version
        if self._seen != version:
            merged = dict(self._base.snapshot())
            for layer in self._layers:
                merged.update(layer.snapshot())
            self._merged, self._seen = MappingProxyType(merged), version
        return self._merged

    @overload
    def push(self, tools: Source) -> Source: ...
    @overload
    def push(self, tools: Iterable[object] = ()) -> ToolRegistry: ...
    def push(self, tools: ToolSource | Iterable[object] = ()) -> ToolSource:
        """Lay a new layer on top and return it; a registry, a scope or a view is the layer itself, and followed."""
        layer = tools if is_source(tools) else ToolRegistry(tools)
        self._layers.append(layer)
        self._changes += 1
        return layer

    def pop(self, layer: Source) -> Source:
        """Take off the top layer, which must be `layer`.

        Raises:
            RegistryError: `layer` is not the top one; nothing changes.
        """
        if not self._layers or self._layers[-1] is not layer:
            where = "buried under another" if layer in self._layers else "not on this registry"
            raise RegistryError(f"The layer to pop is {where}; pop layers in the reverse order of pushing")
        self._changes += 1
        self._layers.pop()
        return layer

    @contextmanager
    def layer(self, tools: Iterable[object] = ()) -> Iterator[ToolRegistry]:
        """Hold a layer for the length of a `with` block."""
        layer = self.push(tools)
        try:
            yield layer
        finally:
            self.pop(layer)

    def __repr__(self) -> str:
        return f"<ScopedRegistry: {len(self.snapshot())} tools, {self.depth} layers over {type(self._base).__name__}>"


class RegistryView(Catalogue):
    """Tools of another source as seen through a change: filtered, prefixed, renamed or overridden."""

    def __init__(self, source: ToolSource, change: Callable[[Tool], Tool | None]) -> None:
        self._source = source
        self._change = change
        self._seen: object = None
        self._snapshot: Snapshot = MappingProxyType({})

    @property
    def version(self) -> object:
        """That of the source."""
        return self._source.version

    def snapshot(self) -> Snapshot:
        version = self._source.version
        if self._seen != (version,):
            changed: dict[str, Tool] = {}
            for tool in self._source.snapshot().values():
                shown = self._change(tool)
                if shown is None:
                    continue
                if shown.name in changed:
                    raise RegistryError(f"The view shows two tools as {shown.name!r}; choose other names")
                changed[shown.name] = shown
            self._snapshot = MappingProxyType(changed)
            self._seen = (version,)
        return self._snapshot


def filtered(source: ToolSource, keep: Callable[[Tool], bool]) -> RegistryView:
    """Show only the tools that `keep` accepts."""
    return RegistryView(source, lambda tool: tool if keep(tool) else None)


def prefixed(source: ToolSource, prefix: str) -> RegistryView:
    """Show every tool under `prefix` + its name."""
    return RegistryView(source, lambda tool: tool.with_definition(name=prefix + tool.name))


def renamed(source: ToolSource, names: Mapping[str, str]) -> RegistryView:
    """Show some tools under other names; the ids stay."""
    known = dict(names)
    return RegistryView(
        source,
        lambda tool: tool.with_definition(name=known[tool.name]) if tool.name in known else tool,
    )


def overridden(source: ToolSource, changes: Mapping[str, Mapping[str, Any]]) -> RegistryView:
    """Show some tools with parts of their definition changed, such as the timeout or the description.

    Raises:
        RegistryError: a change is to something that a view cannot change.
    """
    known = {name: dict(change) for name, change in changes.items()}
    for name, change in known.items():
        for part in change.keys() - _OVERRIDABLE:
            remedy = "use renamed or prefixed" if part == "name" else f"use any of {', '.join(sorted(_OVERRIDABLE))}"
            raise RegistryError(f"The view overrides {part!r} of {name!r}, which it cannot change; {remedy}")
    return RegistryView(
        source,
        lambda tool: tool.with_definition(**known[tool.name]) if tool.name in known else tool,
    )
