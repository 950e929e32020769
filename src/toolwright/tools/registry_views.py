"""Views of a registry: filtered, prefixed, renamed, overridden. They never touch the tools underneath."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from toolwright.errors import RegistryError
from toolwright.tools.change_notices import Callback, Unsubscribe, follow
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.registry import Catalogue, Snapshot, ToolSource
from toolwright.tools.tool import Tool

_OVERRIDABLE = frozenset(ToolDefinition.__struct_fields__) - {"name", "id"}


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

    def on_change(self, callback: Callback) -> Unsubscribe:
        """Call a function after each change of the source, also where the view does not show it.

        Otherwise it is as with `ToolRegistry.on_change`.
        """
        return follow(self._source, callback)


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
