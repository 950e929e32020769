"""The command line. Owns what people and scripts see of a run; does not own running anything.

Only `main` lives here, so that it can say what is missing when the packages of the extra are not installed.
"""

import sys

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
    app(prog_name="toolwright")
