"""The model's own list of things to do. Owns `write_todos`; the list is stored in the session, under `TODOS`."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.output_schemas import shape
from toolwright.tools.context import ToolContext

TODOS = "toolwright:todos"
"""The key of the list in the session's key-value store."""


class Todo(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(extra="forbid")

    content: Annotated[str, Field(min_length=1, max_length=1_000, description="What is to be done.")]
    status: Annotated[Literal["pending", "in_progress", "completed"], Field(description="How far it is.")] = "pending"
    active_form: Annotated[
        str | None, Field(max_length=1_000, description="The same while it is being done, as in 'Running the tests'.")
    ] = None


@boxed(
    "Write Todos",
    category="planning",
    idempotent=True,
    destructive=False,
    open_world=False,
    key="todos",
    gives=shape(
        {
            "total": "integer",
            "pending": "integer",
            "in_progress": "integer",
            "completed": "integer",
            "advice?": "string",
        }
    ),
)
async def write_todos(ctx: ToolContext, todos: Annotated[list[Todo], Field(max_length=200)]) -> object:
    """Write down the list of things to do, in place of the list before. Give the whole list each time.

    Use it for work of several steps: keep exactly one thing in progress, and mark it completed as soon as it is.

    Args:
        todos: Every thing to do, in order; an empty list when there is nothing.
    """
    await ctx.kv.set(TODOS, [todo.model_dump(exclude_none=True) for todo in todos])
    counts = Counter(todo.status for todo in todos)
    result: dict[str, object] = {
        "total": len(todos),
        "pending": counts["pending"],
        "in_progress": counts["in_progress"],
        "completed": counts["completed"],
    }
    if counts["in_progress"] > 1:
        result["advice"] = "More than one thing is in progress; keep one, and set the others to pending."
    elif counts["pending"] and not counts["in_progress"]:
        result["advice"] = "Nothing is in progress; set the next thing to in_progress when you begin it."
    return result
