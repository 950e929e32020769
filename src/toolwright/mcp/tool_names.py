"""The names of a server's tools among ours, and what a model may read of them. Owns `server__tool`, and cleaning the
texts that a server wrote; does not own schemas."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

from toolwright.errors import ToolwrightError
from toolwright.tools.names import is_mapped

LONGEST_NAME = 64
LONGEST_DESCRIPTION = 16 * 1024
LONGEST_TITLE = 200
_SERVER = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_TOLD = ("description", "title", "$comment")


def require_server_name(name: object) -> str:
    """The name of a server: letters, digits, and single `_` or `-` between them, at most 32 characters.

    So `a__b` is always the tool `b` of the server `a`, and no server can name a tool as if it were another's.

    Raises:
        ToolwrightError: it is another.
    """
    if not isinstance(name, str) or len(name) > 32 or not _SERVER.fullmatch(name):
        raise ToolwrightError(
            f"The name {name!r:.200} of an MCP server is not usable; use up to 32 letters and digits, with single '_' "
            "or '-' between them, such as 'github' or 'my-files'"
        )
    return name


def tool_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """The name of each tool of a server, by its own: `server__tool`, with `_` for other characters, 64 at most.

    A name that had to be changed and is then another tool's, or too long, ends with a hash of the original. So the same
    tool has the same name whatever the order of the listing.
    """
    own = list(dict.fromkeys(tools))
    plain = {tool: f"{server}__{_OTHER.sub('_', tool)}" for tool in own}
    shared = Counter(plain.values())
    names: dict[str, str] = {}
    for tool, name in plain.items():
        changed = name != f"{server}__{tool}"
        if len(name) > LONGEST_NAME or (changed and shared[name] > 1) or is_mapped(name) or not tool:
            digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            name = f"{name[: LONGEST_NAME - 10]}_x{digest}"
        names[tool] = name
    return names


def clean_text(text: object, longest: int = LONGEST_DESCRIPTION) -> str:
    """A text of a server as a model and an owner may see it: without control characters, characters that cannot be
    seen, and characters that change the direction of writing; at most `longest` characters."""
    if not isinstance(text, str):
        return ""
    if not text.isascii() or not text.isprintable():
        text = "".join(char for char in text if char in "\n\t" or unicodedata.category(char)[0] != "C")
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def clean_line(text: object, longest: int = LONGEST_TITLE) -> str:
    """The same in one line, for a log or an error: a server cannot begin a line there."""
    return " ".join(clean_text(text, longest).split())


def clean_schema(schema: object) -> Any:
    """A schema whose descriptions and titles are cleaned; everything that is checked stays as it came."""
    if isinstance(schema, dict):
        return {
            key: clean_text(value, LONGEST_DESCRIPTION)
            if key in _TOLD and isinstance(value, str)
            else _inside(key, value)
            for key, value in schema.items()
        }
    return [clean_schema(item) for item in schema] if isinstance(schema, list) else schema


def _inside(key: str, value: object) -> object:
    if key in ("const", "enum", "default", "examples"):
        return value  # data, which is not ours to change
    if key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas") and isinstance(
        value, dict
    ):
        return {name: clean_schema(item) for name, item in value.items()}  # names, also of a property "title"
    return clean_schema(value)
