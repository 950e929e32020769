"""The `toolwright` command. Owns its parts and the help around them; each command has a file of its own."""

from __future__ import annotations

from typing import Annotated

import typer

import toolwright
from toolwright.cli.commands.batch import batch
from toolwright.cli.commands.call import call
from toolwright.cli.commands.tools import tools
from toolwright.cli.exits import MEANINGS
from toolwright.cli.output import print_json

EXIT_CODES = [f"[bold]{code}[/bold] {meaning}" for code, meaning in MEANINGS.items()]

app = typer.Typer(
    name="toolwright",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n\n".join(["Exit codes:", *EXIT_CODES]),
)
for command in (tools, call, batch):
    app.command(epilog=f"Exit codes: {'; '.join(EXIT_CODES)}.")(command)


@app.callback(invoke_without_command=True)
def show_version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print it as JSON.")] = False,
) -> None:
    """Run the tools of an AI agent from the command line: list them, call one, or run a whole batch."""
    if version:
        if as_json:
            print_json({"version": toolwright.__version__})
        else:
            typer.echo(f"toolwright {toolwright.__version__}")
        raise typer.Exit()
