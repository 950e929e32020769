"""Tools by name, and layers of them. Owns look-up, order and snapshots; does not own running them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

from toolwright.errors import RegistryError
from toolwright.tools.change_notices import Callback, ChangeNotices, Unsubscribe, follow
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.function import as_tool
from toolwright.tools.names import is_mapped, wire_name
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Snapshot = Mapping[str, Tool]
"""Tools by name, frozen at one moment."""


class ToolSource(Protocol):
    """Anything tools can be looked up in: a registry, a scope, a view.

    `version` changes whenever the tools may have; `snapshot` does not change once given out.
    """

    @property
    def version(self) -> object: ...

    def snapshot(self) -> Snapshot: ...


Source = TypeVar("Source", bound=ToolSource)


def is_source(thing: object) -> TypeIs[ToolSource]:
    """True for a registry, a scope or a view, and for another object with a snapshot of tools."""
    return hasattr(thing, "snapshot")


class Catalogue:
    """The reading half of a registry, over any snapshot."""

    def snapshot(self) -> Snapshot:
        """The tools as they are now, isolated from later changes."""
        raise NotImplementedError

    def get(self, name: str) -> Tool | None:
        """The tool of this name or id, or None."""
        return find(self.snapshot(), name)

    def has(self, name: str) -> bool:
        """True when `get` would find a tool."""
        return self.get(name) is not None

    def names(self) -> list[str]:
        """The names, sorted."""
        return sorted(self.snapshot())

    def definitions(self) -> list[ToolDefinition]:
        """The definitions, sorted by name, so that a prompt made of them stays cacheable."""
        return [tool.definition for _, tool in sorted(self.snapshot().items())]

    def __len__(self) -> int:
        return len(self.snapshot())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.has(name)


class ToolRegistry(Catalogue):
    """A mutable set of tools with unique names."""

    def __init__(self, tools: Iterable[object] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._snapshot: Snapshot | None = None
        self._version = 0
        self._notices = ChangeNotices()
        for item in tools:
            self.register(item)

    @property
    def version(self) -> int:
        """Rises with each change."""
        return self._version

    def snapshot(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = MappingProxyType(dict(self._tools))
        return self._snapshot

    def register(self, thing: object, *, replace: bool = False) -> Tool | None:
        """Add a tool and return the one it replaced, if any.

        Raises:
            RegistryError: the name is taken and `replace` is not set.
        """
        tool = as_tool(thing)
        previous = self._tools.get(tool.name)
        if previous is not None and not replace:
            raise RegistryError(f"Tool {tool.name!r} is registered already; pass replace=True to replace it")
        self._tools[tool.name] = tool
        self._changed()
        return previous

    def replace(self, thing: object) -> Tool | None:
        """Add a tool, taking the place of one with the same name; return the previous."""
        return self.register(thing, replace=True)

    def unregister(self, name: str) -> Tool | None:
        """Remove a tool and return it, or None when there is none."""
        removed = self._tools.pop(name, None)
        if removed is not None:
            self._changed()
        return removed

    def clear(self) -> None:
        """Remove every tool."""
        if self._tools:
            self._tools.clear()
            self._changed()

    def on_change(self, callback: Callback) -> Unsubscribe:
        """Call a function, without arguments, after each change; the function that is returned ends that.

        It is called in the thread that makes the change, after it, and may look at the tools. If it raises, that is
        logged, and the change stands.
        """
        return self._notices.add(callback)

    def _changed(self) -> None:
        self._version += 1
        self._snapshot = None
        if self._notices:
            self._notices.tell()

    def __repr__(self) -> str:
        return f"ToolRegistry({self.names()})"


# --- layers over a registry


class ScopedRegistry(Catalogue):
    """Layers of tools over a base: look-up goes top layer first."""

    def __init__(self, base: ToolSource) -> None:
        self._base = base
        self._layers: list[ToolSource] = []
        self._changes = 0
        self._seen: object = None
        self._merged: Snapshot = MappingProxyType({})
        self._notices = ChangeNotices()
        # While somebody hears of changes here: what ends hearing of those of the base and of each layer, in this order.
        self._followed: list[Unsubscribe] = []

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
        if self._notices:
            self._followed.append(follow(layer, self._notices.tell))
            self._notices.tell()
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
        if self._notices:
            self._followed.pop()()
            self._notices.tell()
        return layer

    def on_change(self, callback: Callback) -> Unsubscribe:
        """Call a function, without arguments, after each change of the base, of a layer, or of the stack of layers.

        The function that is returned ends that. It may also be called when a change makes no difference here, such as
        one of a tool that lies under another of its name. Otherwise it is as with `ToolRegistry.on_change`.
        """
        remove = self._notices.add(callback)
        if not self._followed:
            self._followed = [follow(source, self._notices.tell) for source in (self._base, *self._layers)]

        def unsubscribe() -> None:
            remove()
            if not self._notices:
                while self._followed:
                    self._followed.pop()()

        return unsubscribe

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


# --- finding a tool


def find(snapshot: Snapshot, name: str) -> Tool | None:
    """Look up a name, then an id, then the name that providers know a tool by. Names are the fast path."""
    tool = snapshot.get(name)
    if tool is None:
        for candidate in snapshot.values():
            if candidate.definition.id == name:
                return candidate
        if is_mapped(name):
            return next((candidate for candidate in snapshot.values() if wire_name(candidate.name) == name), None)
    return tool


def nearest(snapshot: Snapshot, name: str) -> list[str]:
    """The registered names most like one that is not registered."""
    folded = {known.casefold(): known for known in sorted(snapshot)}
    near = difflib.get_close_matches(name.casefold()[:128], folded, n=3, cutoff=0.6)
    return [folded[item] for item in near]
