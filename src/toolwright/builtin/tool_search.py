"""`tool_search`, by which a model finds the tools that it sees as stubs. Owns the tool; does not own deferring."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from toolwright.builtin.output_schemas import several, shape
from toolwright.builtin.tool_ranking import rank
from toolwright.tools.context import ToolContext
from toolwright.tools.function import tool
from toolwright.tools.tool import Tool

MATCHES = 5


def make_tool_search(matches: int = MATCHES) -> Tool:
    """The tool, which shows at most so many matches unless it is asked for fewer."""

    @tool(
        id="toolwright.builtin.tool_search",
        display_name="Tool Search",
        category="tools",
        readonly=True,
        idempotent=True,
        open_world=False,
        deferral="never",
        needs=["search"],
        output_schema=shape(
            {
                "matches": several(shape({"name": "string", "description": "string", "input_schema": "object"})),
                "searched": "integer",
            }
        ),
    )
    async def tool_search(
        ctx: ToolContext,
        query: Annotated[str, Field(min_length=1, max_length=1_000)],
        limit: Annotated[int, Field(ge=1, le=matches)] = matches,
    ) -> object:
        """Find tools by what they do, and get their full descriptions and parameters.

        Some tools are listed by name and one line only. Search for what is needed, in words or by name; the matches can
        then be called, here and later.

        Args:
            query: What the tool should do, or its name.
            limit: How many tools to find at most.
        """
        deferred = await ctx.catalogue.deferred()
        # Off the loop: the first search imports the library, and an index of many tools takes its time.
        found = await asyncio.to_thread(rank, query, deferred, limit)
        await ctx.catalogue.reveal(definition.name for definition in found)
        return {
            "matches": [
                {
                    "name": definition.name,
                    "description": definition.description,
                    "input_schema": definition.input_schema,
                }
                for definition in found
            ],
            "searched": len(deferred),
        }

    assert isinstance(tool_search, Tool)
    return tool_search
