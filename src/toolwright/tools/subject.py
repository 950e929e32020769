"""The subject of a call, for the person who decides about it. Owns `Subject`, and the default one of a definition.

The arguments of a call are for a program; a subject is for a person: this script, in this directory; this file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from toolwright.plain_data import plain_data
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import encodable
from toolwright.tools.session_protocols import SessionView

LONGEST = 10_000
"""The longest text of a subject: longer text is cut, and the arguments have all of it."""


class Subject(Struct, frozen=True):
    """The command, file or tool of a call. `kind` is "shell" for a script, "file" for a path, "tool" for the tool
    itself, or a word of the tool's own; `text` is the script, the path, or the name. `directory` is where it would
    happen.
    """

    kind: str
    text: str
    directory: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The subject as plain data."""
        return plain_data(self)


MakeSubject = Callable[[dict[str, Any], SessionView], "Subject | str | Awaitable[Subject | str]"]
"""Takes the arguments of a call as others may see them, and its session, which can only be read."""


def subject_of(definition: ToolDefinition, arguments: object) -> Subject:
    """The subject of a call by the definition of its tool: its script, the path it claims, or the tool itself."""
    given = arguments if isinstance(arguments, Mapping) else {}
    if definition.script is not None and isinstance(script := given.get(definition.script), str):
        return Subject("shell", bounded(script), definition.directory)
    claimed = (*definition.concurrency.writes, *definition.concurrency.reads)
    paths = [given.get(resource.source) for resource in claimed if resource.kind in ("path", "tree")]
    named = [path for path in paths if isinstance(path, str)]
    return Subject("file", bounded(", ".join(dict.fromkeys(named)))) if named else Subject("tool", definition.name)


def bounded(text: str) -> str:
    """A text that is not too long for a prompt."""
    text = encodable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
