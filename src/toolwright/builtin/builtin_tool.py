"""How a built-in tool is made. Owns their common options: ids, and output schemas that are not checked at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from toolwright.tools.function import tool
from toolwright.tools.options import ToolOptions
from toolwright.tools.tool import Tool


def boxed(title: str, *, gives: dict[str, Any], **options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]:
    """`@tool` for the built-in tools: `title` is the name for people, `gives` the output schema."""

    def declare(function: Callable[..., Any]) -> Tool:
        options["id"] = f"toolwright.builtin.{function.__name__}"
        options["display_name"] = title
        options["output_schema"] = gives
        made = tool(**options)(function)
        # The outputs of built-in tools are checked by their tests. Checking them each time would cost as much as a
        # small call.
        made.check_output = None
        return made

    return declare
