"""The tools that an MCP server offers. Owns which those are, and their listing at each revision."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from toolwright.runtime.runtime import Runtime
from toolwright.session.session import Session
from toolwright.tools.capability import Capability
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.function import as_tool
from toolwright.tools.registry import Snapshot, is_source, nearest
from toolwright.wire.mcp import write_tools


class OfferedTools:
    """The tools of a session for clients: those of the app, without the tools that capabilities bring by themselves,
    such as those to wait for a background run, unless `automatic` asks for them. `only` are patterns of names."""

    def __init__(self, *, only: Sequence[str] | None, automatic: bool) -> None:
        self._only = only
        self._automatic = automatic
        self._seen: Snapshot | None = None
        self._offered: dict[str, ToolDefinition] = {}
        self._listings: dict[str, list[dict[str, Any]]] = {}

    def find(self, runtime: Runtime, session: Session, name: str) -> ToolDefinition | None:
        """The definition of a tool that is offered under a name."""
        return self._of(runtime, session).get(name)

    def near(self, runtime: Runtime, session: Session, name: str) -> list[str]:
        """The names that are most like one that is not offered."""
        offered = self._of(runtime, session)
        return nearest({known: session.tools.snapshot()[known] for known in offered}, name)

    def listing(self, runtime: Runtime, session: Session, revision: str) -> list[dict[str, Any]]:
        """The tools as MCP lists them at a revision."""
        offered = self._of(runtime, session)
        found = self._listings.get(revision)
        if found is None:
            found = self._listings[revision] = write_tools(
                [offered[name] for name in sorted(offered)], version=revision
            )
        return found

    def _of(self, runtime: Runtime, session: Session) -> dict[str, ToolDefinition]:
        snapshot = session.tools.snapshot()
        if snapshot is not self._seen:
            left_out = frozenset[str]() if self._automatic else _automatic_names(runtime)
            self._offered = {
                name: tool.definition
                for name, tool in snapshot.items()
                if name not in left_out
                and (self._only is None or any(fnmatchcase(name, pattern) for pattern in self._only))
            }
            self._listings = {}
            self._seen = snapshot
        return self._offered


def _automatic_names(runtime: Runtime) -> frozenset[str]:
    """The names of the tools that came with capabilities which nobody asked for."""
    app = runtime.app
    asked = {one if isinstance(one, str) else one.name for one in app.capabilities}
    active = {one.name: one for one in runtime.capabilities}
    pending = [active[name] for name in asked if name in active]
    while pending:
        for required in _names(pending.pop().requires):
            if required not in asked:
                asked.add(required)
                pending += [active[required]] if required in active else []
    given = app.tools.snapshot() if is_source(app.tools) else {as_tool(item).name for item in app.tools}
    brought = {tool.name for one in active.values() if one.name not in asked for tool in one.tools}
    return frozenset(brought.difference(given))


def _names(capabilities: Any) -> list[str]:
    return [one.name if isinstance(one, Capability) else one for one in capabilities]
