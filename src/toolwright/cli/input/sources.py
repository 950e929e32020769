"""Where tools come from. Owns reading `--tools` and finding tools and capabilities in the named modules."""

from __future__ import annotations

import difflib
import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from toolwright.app_options import AppSettings
from toolwright.builtin.capabilities import NAMES
from toolwright.cli.exits import BadInput
from toolwright.cli.input.project import find_project
from toolwright.cli.input.tool_import import import_file, import_name
from toolwright.errors import RegistryError, ToolDefinitionError
from toolwright.tools.capability import Capability
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.function import ToolDeclaration, as_tool
from toolwright.tools.registry import Catalogue, ToolRegistry, nearest
from toolwright.tools.tool import Tool

_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<attribute>[\w.]+))?")
_MAKES = re.compile(r"\b(Tool|ToolDeclaration|ToolRegistry|ScopedRegistry|RegistryView|Catalogue|Capability|App)\b")
_MODULE = re.compile(r"(?P<module>\w+(?:\.\w+)*)(?::(?P<attribute>[\w.]+))?")


class Sources(NamedTuple):
    """The tools and the capabilities that sources name."""

    tools: ToolRegistry
    capabilities: list[str | Capability]


def load_tools(sources: Sequence[str] | None, *, directory: Path | None = None) -> Sources:
    """The tools and capabilities that `--tools` names, or those of the project around the directory if it names none.

    Raises:
        BadInput: there are none, or some cannot be loaded.
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
    registry, capabilities = ToolRegistry(), list[str | Capability]()
    origins: dict[str, str] = {}
    for source in sources:
        if _is_capability(source, directory):
            capabilities.append(source)
            continue
        for found in _load(source, directory):
            if isinstance(found, Capability):
                capabilities.append(found)
                continue
            tool = found
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
    return Sources(registry, capabilities)


def _is_capability(source: str, directory: Path) -> bool:
    """True for the name of a built-in capability; a module of that name in the directory comes first."""
    return source in NAMES and not (directory / f"{source}.py").is_file() and not (directory / source).is_dir()


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


def _load(source: str, directory: Path) -> list[Tool | Capability]:
    module, attribute = import_source(
        source,
        directory,
        subject=f"The tools {source!r}",
        option="--tools",
        use=f"tools.py, tools.py:attribute, package.module, package.module:attribute, or one of {', '.join(NAMES)}",
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


def _attribute(module: ModuleType, path: str, source: str) -> object:
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


def _tools_of(module: ModuleType) -> Iterator[Tool | Capability]:
    """Every tool and capability of a module, and the tools in its registries. A leading underscore hides one."""
    seen: set[int] = set()
    for name, thing in vars(module).items():
        if not name.startswith("_") and _is_tool(thing):
            for tool in _tools_in(thing):
                if id(tool) not in seen:
                    seen.add(id(tool))
                    yield tool


def _is_tool(thing: object) -> bool:
    if isinstance(thing, (Tool, ToolDeclaration, Catalogue, Capability)):
        return True
    if isinstance(thing, type):
        return False
    return isinstance(getattr(thing, "definition", None), ToolDefinition) and hasattr(thing, "run")


def _tools_in(thing: object) -> Iterator[Tool | Capability]:
    if isinstance(thing, Capability):
        yield thing
    elif isinstance(thing, Catalogue):
        yield from thing.snapshot().values()
    elif isinstance(thing, ModuleType):
        yield from _tools_of(thing)
    elif isinstance(thing, Mapping):
        yield from (_one(item) for item in thing.values())
    elif isinstance(thing, Iterable) and not isinstance(thing, (str, bytes)) and not _is_tool(thing):
        yield from (_one(item) for item in thing)
    else:
        yield _one(thing)


def _one(thing: object) -> Tool | Capability:
    if isinstance(thing, Capability):
        return thing
    if inspect.isroutine(thing) and not _is_tool(thing):
        _require_no_factory(thing)
    return as_tool(thing)


def _require_no_factory(function: object) -> None:
    """Refuse a plain function that makes tools, or may do so: it would be taken for a tool itself.

    Raises:
        ToolDefinitionError: it does.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        result = typing.get_type_hints(function).get("return", inspect.Parameter.empty)
    except Exception:  # a user's annotations, such as a name that does not exist
        result = getattr(function, "__annotations__", {}).get("return", inspect.Parameter.empty)
    if result is inspect.Parameter.empty:
        raise ToolDefinitionError(
            f"The function {name!r} has no return annotation, so that it may be a factory of tools; decorate it "
            f"with @tool if it is a tool, or name its result, as in tools = {name}()"
        )
    if _makes_tools(result):
        raise ToolDefinitionError(f"The function {name!r} makes tools, and is none; name them, as in tools = {name}()")


def _makes_tools(result: object) -> bool:
    """True for the type of a tool, a registry, a capability or an app, and for a container of these."""
    if isinstance(result, str):
        return bool(_MAKES.search(result))
    if isinstance(result, type) and issubclass(result, (Tool, ToolDeclaration, Catalogue, Capability, AppSettings)):
        return True
    return any(map(_makes_tools, typing.get_args(result)))


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
