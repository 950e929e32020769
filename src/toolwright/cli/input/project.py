"""The project's settings for tools and store. Owns reading `[tool.toolwright]` in pyproject.toml; opens nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from toolwright.cli.exits import BadInput
from toolwright.stores.contracts.scheme import is_url


class Project(NamedTuple):
    """A directory and the settings in its pyproject.toml under `[tool.toolwright]`; paths are relative to it."""

    directory: Path
    table: dict[str, Any]

    def sources(self) -> list[str]:
        """Where its tools come from.

        Raises:
            BadInput: it names none, or not as a list of strings.
        """
        sources = self.table.get("tools")
        if not isinstance(sources, list) or not sources or not all(isinstance(item, str) for item in sources):
            given = "no tools and no app" if sources is None else f"tools = {sources!r}"
            raise BadInput(
                f"[tool.toolwright] in {self._file!r} has {given}; write a list of sources, as in "
                'tools = ["my_tools.py", "package.module:attribute"], or app = "package.module:app"'
            )
        return sources

    def app(self) -> str | None:
        """Where its app is, if it names one.

        Raises:
            BadInput: it does so in another way than by text.
        """
        app = self.table.get("app")
        if app is not None and (not isinstance(app, str) or not app):
            raise BadInput(
                f"[tool.toolwright] in {self._file!r} has app = {app!r}; write where it is, as in "
                'app = "package.module:app"'
            )
        return app

    def store(self) -> str | None:
        """Where its store is, if it names one: a path, or a URL.

        Raises:
            BadInput: it does so in another way than by text.
        """
        db = self.table.get("db")
        if db is None:
            return None
        if not isinstance(db, str) or not db:
            raise BadInput(f'[tool.toolwright] in {self._file!r} has db = {db!r}; write a path, as in db = "agent.db"')
        return db if is_url(db) else str(self.directory / Path(db).expanduser())

    def mcp(self) -> str | None:
        """Where its file of MCP servers is, if it names one.

        Raises:
            BadInput: it does so in another way than by text.
        """
        named = self.table.get("mcp")
        if named is None:
            return None
        if not isinstance(named, str) or not named:
            raise BadInput(
                f'[tool.toolwright] in {self._file!r} has mcp = {named!r}; write a path, as in mcp = "mcp.json"'
            )
        return str(self.directory / Path(named).expanduser())

    @property
    def _file(self) -> str:
        return str(self.directory / "pyproject.toml")


def find_project(start: Path) -> Project | None:
    """The project around a directory: the nearest pyproject.toml upwards that has `[tool.toolwright]`.

    Raises:
        BadInput: that file cannot be read.
    """
    for directory in (start, *start.parents):
        file = directory / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            if table is not None:
                return Project(directory, table)
    return None


def _table(file: Path) -> dict[str, Any] | None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{str(file)!r} is not TOML ({error}); fix it, or name tools with --tools and the store with --db"
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(
            f"{str(file)!r} cannot be read ({reason}); name tools with --tools and the store with --db"
        ) from None
    tools = content.get("tool", {})
    table = tools.get("toolwright") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else None
