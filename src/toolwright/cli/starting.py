"""A tool that is to be started in the background, as words on the command line name it. Owns reading them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from toolwright.cli.arguments import read_arguments
from toolwright.cli.sources import load_tools, require_tool
from toolwright.cli.stores import store_to_fill
from toolwright.tools.tool import Tool


class Start(NamedTuple):
    """What is to be started, and where: the store is made if need be."""

    store: Path
    tools: list[Tool]
    session: str
    name: str
    arguments: dict[str, Any]


def read_start(
    db: Path | None, sources: list[str] | None, session: str, name: str, words: Sequence[str] | None
) -> Start:
    """What is to be started.

    Raises:
        BadInput: no store or no such tool is named, or the words are no arguments.
    """
    store, registry = store_to_fill(db), load_tools(sources)
    arguments = read_arguments(words or (), require_tool(registry, name))
    return Start(store, list(registry.snapshot().values()), session, name, arguments)
