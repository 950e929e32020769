"""What a project says of its tools. Owns reading `[tool.toolwright]` in pyproject.toml; not loading them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from toolwright.cli.exits import BadInput


class Project(NamedTuple):
    """A directory and the sources of tools that its pyproject.toml names; paths are relative to it."""

    directory: Path
    sources: list[str]


def find_project(start: Path) -> Project | None:
    """The project around a directory: the nearest pyproject.toml upwards that has `[tool.toolwright]`.

    Raises:
        BadInput: that file can not be read, or what it says of tools is not a list of strings.
    """
    for directory in (start, *start.parents):
        file = directory / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            if table is not None:
                return Project(directory, _sources(file, table))
    return None


def _table(file: Path) -> dict[str, Any] | None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{str(file)!r} is not TOML ({error}); fix it, or name the tools with --tools") from None
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"{str(file)!r} can not be read ({reason}); name the tools with --tools") from None
    tools = content.get("tool", {})
    table = tools.get("toolwright") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else None


def _sources(file: Path, table: dict[str, Any]) -> list[str]:
    sources = table.get("tools")
    if not isinstance(sources, list) or not sources or not all(isinstance(item, str) for item in sources):
        given = "no tools" if sources is None else f"tools = {sources!r}"
        raise BadInput(
            f"[tool.toolwright] in {str(file)!r} has {given}; "
            'write a list of sources, as in tools = ["my_tools.py", "package.module:attribute"]'
        )
    return sources
