"""Where tools come from. Owns reading `--tools` and finding tools in the named modules; does not own importing them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from toolwright.cli.exits import BadInput
from toolwright.cli.input.project import find_project
from toolwright.cli.input.tool_import import import_file, import_name
from toolwright.errors import RegistryError, ToolDefinitionError
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.function import ToolDeclaration, as_tool
from toolwright.tools.registry import Catalogue, ToolRegistry, nearest
from toolwright.tools.tool import Tool

_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<attribute>[\w.]+))?")
_MODULE = re.compile(r"(?P<module>\w+(?:\.\w+)*)(?::(?P<attribute>[\w.]+))?")


def load_tools(sources: Sequence[str] | None, *, directory: Path | None = None) -> ToolRegistry:
    """The tools that `--tools` names; if it names none, the tools of the project around the directory.

    Raises:
        BadInput: there are no tools, or some cannot be loaded.
    """
    directory = directory or Path.cwd()
    if not sources:
        project = find_project(directory)
        if project is None:
            raise BadInput(
                "There are no tools; name an app with --app module:app or tools with --tools tools.py, "
                'or write app = "module:app" under [tool.toolwright] in pyproject.toml'
            )
        directory, sources = project.directory, project.sources()
    registry = ToolRegistry()
    origins: dict[str, str] = {}
    for source in sources:
        for tool in _load(source, directory):
            if registry.get(tool.name) is tool:
                continue
            try:
                registry.register(tool)
            except RegistryError:
                raise BadInput(
                    f"Two tools have the name {tool.name!r}, in {origins[tool.name]!r} and in {source!r}; "
                    "rename one, or load only one of them with module:attribute"
                ) from None
            origins[tool.name] = source
    return registry


def import_source(
    source: str, directory: Path, *, subject: str, option: str, use: str
) -> tuple[ModuleType, str | None]:
    """The module that a source names, and the attribute in it, if it names one. Errors begin with the subject.

    Raises:
        BadInput: it is no such name, or the code cannot be imported.
    """
    if found := _FILE.fullmatch(source):
        module = import_file(directory / Path(found["file"]).expanduser(), subject=subject)
    elif found := _MODULE.fullmatch(source):
        module = import_name(found["module"], directory=directory, subject=subject, option=option)
    else:
        raise BadInput(f"{subject} cannot be found: it is neither a Python file nor a module; use {use}")
    return module, found["attribute"]


def _load(source: str, directory: Path) -> list[Tool]:
    module, attribute = import_source(
        source,
        directory,
        subject=f"The tools {source!r}",
        option="--tools",
        use="tools.py, tools.py:attribute, package.module or package.module:attribute",
    )
    try:
        given = _tools_of(module) if attribute is None else _tools_in(_attribute(module, attribute, source))
        tools = list(given)
    except ToolDefinitionError as error:
        raise BadInput(f"The tools {source!r} cannot be used: {error}") from error
    if not tools:
        raise BadInput(
            f"The tools {source!r} are none at all; decorate a function with @tool, "
            "or name a plain function, a list or a ToolRegistry, as in tools.py:attribute"
        )
    return tools


def _attribute(module: ModuleType, path: str, source: str) -> Any:
    thing: Any = module
    for name in path.split("."):
        try:
            thing = getattr(thing, name)
        except AttributeError:
            near = difflib.get_close_matches(name, [known for known in vars(module) if known[0] != "_"], 1)
            remedy = f"did you mean {near[0]!r}?" if near else "check its name"
            raise BadInput(
                f"The tools {source!r} cannot be found: {module.__name__!r} has no {path!r}; {remedy}"
            ) from None
    return thing


def _tools_of(module: ModuleType) -> Iterator[Tool]:
    """Every tool of a module, those in its registries among them. A leading underscore hides one."""
    seen: set[int] = set()
    for name, thing in vars(module).items():
        if not name.startswith("_") and _is_tool(thing):
            for tool in _tools_in(thing):
                if id(tool) not in seen:
                    seen.add(id(tool))
                    yield tool


def _is_tool(thing: Any) -> bool:
    if isinstance(thing, (Tool, ToolDeclaration, Catalogue)):
        return True
    if isinstance(thing, type):
        return False
    return isinstance(getattr(thing, "definition", None), ToolDefinition) and hasattr(thing, "run")


def _tools_in(thing: Any) -> Iterator[Tool]:
    if isinstance(thing, Catalogue):
        yield from thing.snapshot().values()
    elif isinstance(thing, ModuleType):
        yield from _tools_of(thing)
    elif isinstance(thing, Mapping):
        yield from (as_tool(item) for item in thing.values())
    elif isinstance(thing, Iterable) and not isinstance(thing, (str, bytes)) and not _is_tool(thing):
        yield from (as_tool(item) for item in thing)
    else:
        yield as_tool(thing)


def require_tool(registry: Catalogue, name: str) -> Tool:
    """The tool of this name or id.

    Raises:
        BadInput: there is none.
    """
    tool = registry.get(name)
    if tool is None:
        near = nearest(registry.snapshot(), name)
        remedy = (
            f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(registry.names())}"
        )
        raise BadInput(f"There is no tool {name!r}; {remedy}")
    return tool
