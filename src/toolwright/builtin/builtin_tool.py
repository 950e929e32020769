"""How a tool of the box is made. Owns what they have in common: ids, and shapes that are not checked at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from toolwright.tools.function import tool
from toolwright.tools.options import ToolOptions
from toolwright.tools.tool import Tool


def boxed(title: str, *, gives: dict[str, Any], **options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]:
    """`@tool` for the tools of the box: `title` is what people call the tool, `gives` the schema of what it gives."""

    def declare(function: Callable[..., Any]) -> Tool:
        options["id"] = f"toolwright.builtin.{function.__name__}"
        options["display_name"] = title
        options["output_schema"] = gives
        made = tool(**options)(function)
        # What the box gives is proved by its tests. Checking it each time would cost as much as a small call does.
        made.check_output = None
        return made

    return declare
