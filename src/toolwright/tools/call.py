"""What a model asks for. Owns `ToolCall`; does not own whether it may run."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

CallSource = Literal["model", "user", "tool", "schedule", "host"]


class ToolCall(Struct, frozen=True, gc=False):
    """One call as a model wrote it: `arguments` is an object, or the JSON text of one.

    A call without an id gets a fresh one. `name` may also be a tool's id. `kind`, when given, must be the tool's kind.
    """

    name: str
    arguments: Any = None
    id: str | None = None
    source: CallSource = "model"
    kind: str | None = None
