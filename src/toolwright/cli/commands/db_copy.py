"""`toolwright db copy`: a whole store to another place. Owns showing how far it is, and what its keeper must know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from toolwright.cli.display.output import Screen, echo, print_json
from toolwright.cli.exits import BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.stores import require_store
from toolwright.session.secrets.master_keys import VARIABLE
from toolwright.stores.contracts.scheme import file_of
from toolwright.stores.copying import Copied, CopyProgress, Tell, copy_store
from toolwright.stores.opening import MEMORY

_STAGES = {"copy": "Copying", "check": "Checking"}


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to copy: a file or a URL.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Where to: a file or a URL, such as postgresql://host/database.")
    ],
    as_json: options.Json = False,
) -> None:
    """Copy a whole store to another place, of any kind, and compare the two. No program may have either of them open.

    A copy that was cut off continues when the command is given again. Until it is whole, it cannot be opened.
    """
    with reported():
        if MEMORY in (source, target):
            raise BadInput("A store in memory ends with its program, and cannot be copied; name a file or a URL")
        require_store(source)
        with _shown(not as_json) as tell:
            try:
                copied = asyncio.run(copy_store(source, target, tell=tell))
            except KeyboardInterrupt:
                echo("The copy is not finished; give the same command again to continue.", err=True)
                raise
        key_file = _key_file(source) if copied.master_keys else None
        if as_json:
            print_json(
                {**copied.to_json(), "rows": copied.rows, "key_file": None if key_file is None else str(key_file)}
            )
            return
        what = f"{copied.rows:,} rows in {len(copied.tables)} tables, with the same counts and hashes of their content"
        if copied.written:
            echo(f"Copied {copied.source} to {copied.target}: {what}.")
        else:
            echo(f"All of {copied.source} is in {copied.target} already: {what}.")
        if copied.master_keys:
            _tell_keys(copied, key_file, file_of(target))
        echo("From now on, use one of them only: both would fire the same schedules and take the same completion keys.")


def _key_file(source: str) -> Path | None:
    """The file beside a store that has its master keys, if there is one."""
    path = file_of(source)
    beside = None if path is None else path.with_name(f"{path.name}.key")
    return beside if beside is not None and beside.is_file() else None


def _tell_keys(copied: Copied, key_file: Path | None, target: Path | None) -> None:
    keys = ", ".join(copied.master_keys)
    echo(f"Its secrets were copied sealed. The target needs the same master key ({keys}), which is not in a store:")
    if key_file is None:
        echo(f"  give it as {VARIABLE}, or as master_key= of the app, as for {copied.source}")
    elif target is not None:
        echo(f"  cp -p {quote(str(key_file))} {quote(f'{target}.key')}")
    else:
        # The last line of the file is the current key, and so is the first one of the variable.
        echo(f"  export {VARIABLE}=$(tac {quote(str(key_file))} | paste -sd, -)")


@contextmanager
def _shown(wanted: bool) -> Iterator[Tell | None]:
    """Show how far the copy is, to a person at a terminal."""
    screen = Screen(stderr=True)
    if not wanted or not screen.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("Opening", total=None)

        def tell(progress: CopyProgress) -> None:
            bar.update(
                task,
                description=f"{_STAGES[progress.stage]} {progress.table.replace('_', ' ')}",
                completed=progress.rows,
                total=progress.of,
            )

        yield tell
