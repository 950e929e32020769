"""The command line. Owns input and output for people and scripts; does not own running anything.

Only `main` is here, so that it can name the missing extra when its packages are not installed.
"""

import sys
from collections.abc import Callable
from typing import Any, NoReturn

_NEEDED = ("rich", "typer")


def main() -> None:
    """Run the `toolwright` command; its exit codes are those of `toolwright.cli.exits`."""
    try:
        from toolwright.cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        remedy = "pip install 'toolwright[cli]'"
        print(f"The toolwright command needs {missing!r}, which is missing; run: {remedy}", file=sys.stderr)
        sys.exit(2)
    if "--json" in sys.argv[1:]:
        _run_for_a_program(app)
    else:
        app(prog_name="toolwright")


def _run_for_a_program(app: Callable[..., Any]) -> NoReturn:
    """Run a command with --json: usage errors are JSON, too."""
    from toolwright.cli.exits import BAD_INPUT, error_json

    try:
        sys.exit(app(prog_name="toolwright", standalone_mode=False))
    except Exception as error:  # typer's own, of a class that it does not export
        if not hasattr(error, "format_message"):
            raise
        print(error_json(error.format_message(), "usage"), file=sys.stderr)
        sys.exit(BAD_INPUT)
