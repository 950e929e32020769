"""A tool that always fails, for tests of an agent's reaction. Owns `failing_tool`."""

from __future__ import annotations

from typing import Any

from toolwright.tools.outcome import ToolError
from toolwright.tools.tool import Tool


def failing_tool(
    name: str,
    message: str = "It failed",
    *,
    category: str = "execution",
    code: str = "tool_error",
    retry: bool = False,
    unexpected: bool = False,
    input_schema: dict[str, Any] | None = None,
) -> Tool:
    """Make a tool that takes any arguments and fails each call.

    Args:
        name: the name a model calls it by.
        message: the text for the model; with `unexpected`, it goes to the log only.
        category: the category of the failure.
        code: the code of the failure.
        retry: whether the failure says that another attempt may succeed.
        unexpected: raise an exception that the tool does not handle, in place of a failure that it reports.
        input_schema: the schema of its arguments, where the test needs one.
    """

    async def fail(arguments: object) -> None:
        if unexpected:
            raise RuntimeError(message)
        raise ToolError(message, category=category, code=code, retry=retry)

    return Tool.from_schema(
        name=name, description="Fails each call.", input_schema=input_schema, handler=fail, idempotent=True
    )
