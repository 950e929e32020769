"""The attributes of the span of a call, and of its metric. Owns what is told of a call; does not make spans."""

from __future__ import annotations

from typing import Any

from toolwright.events import CallFacts
from toolwright.telemetry import conventions as names
from toolwright.telemetry.content import bounded
from toolwright.tools.definition import ToolDefinition

Attributes = dict[str, Any]
MOST_TOOLS = 1_000
"""How many tools have their attributes remembered."""
LONGEST_DESCRIPTION = 500
_TYPES = {"mcp": "extension"}


class ToolFacts:
    """What the spans and metrics of all calls of a tool have in common. Without a definition, the name is one that a
    model made up: its calls are not measured, and `measured` is empty."""

    __slots__ = ("about", "definition", "measured", "span_name")

    def __init__(self, name: str, definition: ToolDefinition | None) -> None:
        self.definition = definition
        self.span_name = f"{names.EXECUTE_TOOL} {name}"
        self.measured: Attributes = {}
        self.about: Attributes = {names.OPERATION: names.EXECUTE_TOOL}
        if definition is None:
            self.about[names.TOOL_NAME] = name[:200]
            return
        self.measured = {names.TOOL_NAME: name, names.TOOL_TYPE: _TYPES.get(definition.kind, "function")}
        self.about |= self.measured
        if definition.description:
            self.about[names.TOOL_DESCRIPTION] = definition.description[:LONGEST_DESCRIPTION]


class KnownTools:
    """The facts of the tools that were called, by name."""

    def __init__(self) -> None:
        self.known: dict[str, ToolFacts] = {}

    def facts(self, name: str, definition: ToolDefinition | None) -> ToolFacts:
        """The facts of a tool; `definition` is None for a name that no tool has."""
        known = self.known.get(name)
        if known is not None and known.definition is definition:
            return known
        made = ToolFacts(name, definition)
        if definition is not None:
            if len(self.known) >= MOST_TOOLS:
                self.known.clear()
            self.known[name] = made
        return made


def at_start(tool: ToolFacts, call_id: str, session: str, source: str, scope: str) -> Attributes:
    """What is known of a call when it comes."""
    about = {**tool.about, names.TOOL_CALL_ID: call_id, names.CONVERSATION: session, names.SOURCE: source}
    if scope:
        about[names.SCOPE] = scope
    return about


def add_end(about: Attributes, record: CallFacts, content: bool) -> None:
    """Add what is known of a call when it has its outcome, or is left while it waits."""
    about[names.BATCH] = record.batch
    about[names.STATUS] = record.status
    about[names.ATTEMPTS] = record.attempts
    about[names.QUEUE_TIME] = record.queue_time
    if record.parent is not None:
        about[names.PARENT] = record.parent
    if record.replayed:
        about[names.REPLAYED] = True
    code = record.code
    if code is not None:
        about[names.ERROR_TYPE] = code
        about[names.CATEGORY] = record.category
    if content:
        about[names.TOOL_ARGUMENTS] = bounded(record.raw_arguments.decode("utf-8", "replace"))
        if record.outcome is not None:
            about[names.TOOL_RESULT] = bounded(record.outcome.text)
