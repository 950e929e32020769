"""The tools that a model is offered. Owns which tools are deferred, their stubs, and which were revealed in the
session."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from types import MappingProxyType

from msgspec.structs import replace

from toolwright.errors import ServiceError
from toolwright.session.services.keyvalue import KeyValue
from toolwright.tools.capability import Capability
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.registry import Snapshot

SEARCH = "tool_search"
SEARCH_ID = "toolwright.builtin.tool_search"
REVEALED = "toolwright:revealed/"
"""Before the name of a revealed tool, it makes the key by which the session remembers that."""

LINE = 120


Late = Callable[[Snapshot], tuple[Capability, ...]]
"""Gives the capabilities that tools call for, and that were not active when the runtime was opened."""


class Offer:
    """The tools of a session by how a model sees them. A search is added wherever something is deferred, and so are the
    tools of capabilities that a tool calls for which was registered later."""

    def __init__(self, defer_from: int | None, late: Late = lambda tools: ()) -> None:
        self._defer_from = defer_from
        self._late = late
        self.seen: Snapshot | None = None
        """The tools that `completed` was made of."""
        self.completed: Snapshot = {}
        self.late: tuple[Capability, ...] = ()
        """The capabilities that were added for the tools seen last."""

    def complete(self, tools: Snapshot) -> Snapshot:
        """The tools, the tools of late capabilities, and the search if they need one and have none."""
        if tools is not self.seen:
            self.late = self._late(tools)
            added = {tool.name: tool for capability in self.late for tool in capability.tools}
            whole = MappingProxyType({**added, **tools}) if added else tools
            self.seen, self.completed = tools, self._with_search(whole)
        return self.completed

    def deferred(self, tools: Snapshot) -> list[ToolDefinition]:
        """The tools that are stubs until they are revealed, by name."""
        definitions = [tool.definition for _, tool in sorted(tools.items()) if tool.definition.id != SEARCH_ID]
        many = self._defer_from is not None and len(definitions) >= self._defer_from
        return [definition for definition in definitions if _is_deferred(definition, many)]

    def _with_search(self, tools: Snapshot) -> Snapshot:
        if not self.deferred(tools) or _has_search(tools):
            return tools
        from toolwright.builtin.tool_search import make_tool_search

        return MappingProxyType({**tools, SEARCH: make_tool_search()})


class SessionCatalogue:
    """`CatalogueClient` of one session, for the program or for one attempt of a call."""

    def __init__(self, offer: Offer, tools: Snapshot, kv: KeyValue) -> None:
        self._offer = offer
        self._tools = tools
        self._kv = kv

    async def list(self) -> builtins.list[ToolDefinition]:
        """All of them, by name."""
        return [tool.definition for _, tool in sorted(self._tools.items())]

    async def deferred(self) -> builtins.list[ToolDefinition]:
        """The tools that are stubs until they are revealed, by name, in full."""
        return self._offer.deferred(self._tools)

    async def reveal(self, names: Iterable[str]) -> None:
        """Show the model these in full from now on.

        Raises:
            ServiceError: one is not a tool of the session.
        """
        wanted = dict.fromkeys(names)
        for name in wanted:
            if name not in self._tools:
                raise ServiceError(
                    f"The session has no tool {name!r:.200} to reveal; name one that it has", "not_found"
                )
        known = await self._revealed()
        for name in wanted:
            if name not in known:
                await self._kv.set(REVEALED + name, True)

    async def offered(self) -> builtins.list[ToolDefinition]:
        """All of them, by name, as the model should see them now."""
        hidden = {definition.name for definition in self._offer.deferred(self._tools)}
        if hidden:
            hidden -= await self._revealed()
        return [
            stub(tool.definition) if name in hidden else tool.definition for name, tool in sorted(self._tools.items())
        ]

    async def _revealed(self) -> set[str]:
        return {info.key.removeprefix(REVEALED) for info in await self._kv.list(REVEALED)}


def stub(definition: ToolDefinition) -> ToolDefinition:
    """A definition with one line of its description, and without its parameters."""
    line = definition.description.strip().partition("\n")[0].strip()
    if len(line) > LINE:
        line = line[: LINE - 1].rstrip() + "…"
    # Free text stays free text: a model that wrote an object would call a tool of another kind.
    schema = definition.input_schema if definition.kind == "custom" else {"type": "object", "properties": {}}
    return replace(definition, description=line, input_schema=schema, output_schema=None)


def _is_deferred(definition: ToolDefinition, many: bool) -> bool:
    return definition.deferral == "always" or (many and definition.deferral == "auto")


def _has_search(tools: Snapshot) -> bool:
    return SEARCH in tools or any(tool.definition.id == SEARCH_ID for tool in tools.values())
