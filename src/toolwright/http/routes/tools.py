"""The tools of the app: their definitions, and statistics of their calls."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from toolwright.calls.record import CallStatistics, MemoryCallLog
from toolwright.http.cursors import Page, PageQuery, page_of, read_cursor, write_cursor
from toolwright.http.operations import Operation, ServiceRequest
from toolwright.http.problems import not_found
from toolwright.tools.definition import ToolDefinition


class ToolShown(Struct, frozen=True):
    """A tool: its definition, and the statistics of its calls in this process."""

    name: str
    definition: dict[str, Any]
    """Its schemas, hints and policies."""
    statistics: CallStatistics | None
    """Counts and times of its calls that this process remembers; null where its log has none."""


async def list_tools(request: ServiceRequest[None, PageQuery]) -> dict[str, Any]:
    """The tools that every session has, by name."""
    place = read_cursor(request.query.cursor, tuple[str])
    after = "" if place is None else place[0]
    found = [one for one in request.runtime.definitions() if one.name > after]
    shown, rest = found[: request.query.limit], found[request.query.limit :]
    return page_of([_shown(request, one) for one in shown], write_cursor(shown[-1].name) if rest else None)


async def get_tool(request: ServiceRequest) -> dict[str, Any]:
    """One tool."""
    name = request.path["name"]
    for one in request.runtime.definitions():
        if one.name == name:
            return _shown(request, one)
    raise not_found(f"There is no tool {name!r:.200}; GET /v1/tools lists them")


def _shown(request: ServiceRequest[Any, Any], definition: ToolDefinition) -> dict[str, Any]:
    log, statistics = request.runtime.log, None
    # Of all sessions: the counts of others are not for a caller that sees only some.
    if isinstance(log, MemoryCallLog) and request.caller.everywhere:
        statistics = log.statistics(tool=definition.name).to_json()
    return {"name": definition.name, "definition": definition.to_json(), "statistics": statistics}


OPERATIONS = (
    Operation(
        method="GET",
        path="/tools",
        handler=list_tools,
        scope="read",
        summary="List the tools",
        tag="tools",
        query=PageQuery,
        answer=Page[ToolShown],
    ),
    Operation(
        method="GET",
        path="/tools/{name}",
        handler=get_tool,
        scope="read",
        summary="Look at a tool",
        tag="tools",
        answer=ToolShown,
    ),
)
