"""A call as a model makes it. Owns `ToolCall`; does not own whether it may run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

CallSource = Literal["model", "user", "tool", "schedule", "host"]


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """One call as a model wrote it: `arguments` is an object, or the JSON text of one.

    A call without an id gets a fresh one. `name` may also be a tool's id, or the name that providers know the tool by.
    `kind`, when given, must be the tool's kind. `cut_off` is the reason why the model's answer is not complete, such as
    "length": such a call is not run, as its arguments may be cut. `meta` holds the fields that a provider has put
    beside the call (by the name of its format), which it gets back unread and unchanged; they are not journaled.
    """

    name: str
    arguments: Any = None
    id: str | None = None
    source: CallSource = "model"
    kind: str | None = None
    cut_off: str | None = None
    meta: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The call as plain data, which a batch takes as a call."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
