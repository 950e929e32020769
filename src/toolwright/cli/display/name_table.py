"""A table of names in a session. Owns how it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from toolwright.cli.display.styles import new_table, plain
from toolwright.cli.display.time_format import moment
from toolwright.tools.service_protocols import KeyInfo


def key_table(called: str, found: Sequence[KeyInfo]) -> Table:
    """A line for each name, with when it was first and last written."""
    table = new_table()
    for column in (called, "created", "updated"):
        table.add_column(column, overflow="fold")
    for info in found:
        table.add_row(Text(plain(info.key)), moment(info.created_at), moment(info.updated_at))
    return table
