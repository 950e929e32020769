"""A tool that is to be started in the background, as words on the command line name it. Owns reading them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolwright.app import App
from toolwright.cli.input.apps import known_tools, load_app
from toolwright.cli.input.arguments import read_arguments
from toolwright.cli.input.sources import require_tool
from toolwright.cli.input.stores import store_to_fill


class Start(NamedTuple):
    """The tool to start in the background, and the store, which is made if needed."""

    store: str
    app: App
    session: str
    name: str
    arguments: dict[str, Any]


def read_start(
    db: str | None,
    app: str | None,
    sources: list[str] | None,
    session: str,
    name: str,
    words: Sequence[str] | None,
) -> Start:
    """Read the arguments of a start.

    Raises:
        BadInput: no store or no such tool is named, or the words are no arguments.
    """
    store, found = store_to_fill(db), load_app(app, sources)
    arguments = read_arguments(words or (), require_tool(known_tools(found, store), name))
    return Start(store, found, session, name, arguments)
