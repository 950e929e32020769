"""`toolwright tools`: the tools that can be called."""

from __future__ import annotations

from typing import Annotated

import typer

from toolwright.cli.display.output import Screen, print_json, set_up_log
from toolwright.cli.display.tool_table import definition_data, definition_table
from toolwright.cli.exits import reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import known_tools, load_app
from toolwright.cli.input.payload import provider_named
from toolwright.cli.input.sources import require_tool


def tools(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show only these tools.")] = None,
    app: options.AppName = None,
    tools: options.Tools = None,
    as_json: options.Json = False,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER",
            help="Print them as a provider wants them: anthropic, mcp, openai-chat, openai-responses.",
        ),
    ] = None,
    verbose: options.Verbose = False,
) -> None:
    """List the tools with their schemas.

    The table has a line for each parameter; --json prints whole definitions.
    """
    with reported():
        set_up_log(verbose)
        shape = None if provider is None else provider_named(provider)
        registry = known_tools(load_app(app, tools))
        found = [require_tool(registry, name).definition for name in names] if names else registry.definitions()
        if shape is not None:
            print_json(shape.write_tools(found))
        elif as_json:
            print_json([definition_data(definition) for definition in found])
        else:
            Screen().print(definition_table(found))
