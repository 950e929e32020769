"""Which app a command opens. Owns reading `--app`, `--tools` and the app of a project; not importing the code."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolwright.app import App
from toolwright.app_options import Lifespan
from toolwright.cli.exits import BadInput
from toolwright.cli.input.project import Project, find_project
from toolwright.cli.input.sources import import_source, load_tools
from toolwright.stores.opening import MEMORY
from toolwright.tools.registry import Catalogue, ToolRegistry


def load_app(named: str | None, tools: Sequence[str] | None, *, directory: Path | None = None) -> App:
    """The app that `--app` names, or one of the tools that `--tools` names, or else that of the project.

    Raises:
        BadInput: both are given, there is neither, or the code cannot be loaded.
    """
    if named is not None and tools:
        raise BadInput("--app and --tools are both given; an app has its tools: leave out --tools")
    project = None
    if named is None and not tools:
        project = find_project(directory or Path.cwd())
        named = None if project is None else project.app()
        directory = directory if project is None else project.directory
    if named is not None:
        return _import_app(named, directory or Path.cwd())
    servers = _servers(project) if project is not None else []
    if servers and project is not None and "tools" not in project.table:
        return App(tools=servers)
    found = load_tools(tools, directory=directory)
    return App(tools=[*found.tools.snapshot().values(), *servers], capabilities=found.capabilities)


def _servers(project: Project) -> list[Any]:
    """The MCP servers of a project's file; none where it names no file."""
    file = project.mcp()
    if file is None:
        return []
    from toolwright.mcp import McpServer

    return list(McpServer.from_file(file))


def known_tools(app: App, store: str | None = None) -> Catalogue:
    """The tools of an app with those of its servers, which are connected to for as long as it takes to read them."""
    if not app.remote_tools:
        return app.catalogue()

    async def read() -> list[Any]:
        async with App(tools=app.remote_tools, automatic=()).open(store or MEMORY, worker=False) as runtime:
            return list(runtime.tools.snapshot().values())

    return ToolRegistry([*app.catalogue().snapshot().values(), *asyncio.run(read())])


def load_app_with_model(named: str | None, tools: Sequence[str] | None, model: str | None) -> App:
    """The app that `load_app` gives, with the model that `--model` names; an app without tools if none are named.

    Raises:
        BadInput: it has no model, or the code cannot be loaded.
    """
    project = find_project(Path.cwd())
    says_nothing = project is None or not {"app", "mcp", "tools"} & project.table.keys()
    found = App() if named is None and not tools and says_nothing else load_app(named, tools)
    if model is not None:
        found = found.but(model=model)
    if found.model is None:
        raise BadInput(
            "There is no model to ask; name one with --model, as in --model openai:gpt-5, or write App(model=...)"
        )
    return found


def app_of_store(named: str | None) -> App:
    """The app for a command that runs no tool: its master key, quotas and policy, without its tools, its model and its
    lifespan.

    Raises:
        BadInput: the code of the app cannot be loaded.
    """
    found = _named_app(named)
    return found.but(tools=(), capabilities=(), automatic=(), before=(), after=(), model=None, lifespan=None)


def tools_of_store(named: str | None) -> Catalogue:
    """The tools of the app that `app_of_store` gives, for a command that checks arguments and runs no tool.

    Raises:
        BadInput: the code of the app cannot be loaded.
    """
    return _named_app(named).catalogue()


def _named_app(named: str | None) -> App:
    """The app that `--app` names, or else that of the project, or one without anything."""
    directory = Path.cwd()
    if named is None:
        project = find_project(directory)
        if project is None or (named := project.app()) is None:
            return App()
        directory = project.directory
    return _import_app(named, directory)


def _import_app(source: str, directory: Path) -> App:
    subject = f"The app {source!r}"
    module, attribute = import_source(
        source, directory, subject=subject, option="--app", use="module:app or agent.py:app"
    )
    apps = [name for name, thing in vars(module).items() if isinstance(thing, App) and not name.startswith("_")]
    if attribute is None:
        remedy = f"did you mean {source + ':' + apps[0]!r}?" if apps else "write app = App(...) there"
        raise BadInput(f"{subject} is a module; name the app in it, as in {source}:app; {remedy}")
    found: Any = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
        if found is None:
            near = difflib.get_close_matches(attribute, vars(module), 1)
            remedy = (
                f"it has the app {apps[0]!r}" if apps else f"did you mean {near[0]!r}?" if near else "check its name"
            )
            raise BadInput(f"{subject} cannot be found: {module.__name__!r} has no {attribute!r}; {remedy}")
    if not isinstance(found, App):
        remedy = f"it has the app {apps[0]!r}" if apps else "use App(...)"
        raise BadInput(f"{subject} is of type {type(found).__name__!r}, and no App; {remedy}")
    return found if found.lifespan is None else found.but(lifespan=_explained(found.lifespan))


def _explained(lifespan: Lifespan) -> Lifespan:
    """The same lifespan; an error of it is the user's, and not one of toolwright."""

    @asynccontextmanager
    async def explained() -> AsyncIterator[Any]:
        when = ""
        try:
            async with lifespan() as value:
                when = " as it was closed"
                yield value
        except Exception as error:  # a user's code
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise BadInput(f"The lifespan of the app failed{when}: {said}; fix that and run it again") from error

    return explained
