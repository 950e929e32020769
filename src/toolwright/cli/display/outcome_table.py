"""The outcomes of calls, for a person. Owns the table of outcomes; the model reads their whole text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from toolwright.cli.display.styles import new_table, pick, plain, short, state_text
from toolwright.tools.outcome import ToolOutcome


def outcome_table(outcomes: Sequence[ToolOutcome], *, most: int = 200) -> Table:
    """One line for each outcome, with the text for the model. If there are too many, failures come first."""
    table = new_table(expand=True)
    table.add_column("call", no_wrap=True)
    table.add_column("tool", no_wrap=True, style="cyan")
    table.add_column("outcome", no_wrap=True, min_width=11)
    table.add_column("what the model reads", ratio=1, no_wrap=True, overflow="ellipsis")
    shown = pick(outcomes, most, lambda outcome: outcome.ok)
    for outcome in shown:
        state = state_text(outcome.status)
        table.add_row(Text(short(outcome.call_id)), Text(short(outcome.tool)), state, first_line(outcome))
    if len(shown) < len(outcomes):
        table.caption = f"{len(shown)} of {len(outcomes)} outcomes, failures first; --json prints all of them"
        table.caption_justify = "left"
    return table


def first_line(outcome: ToolOutcome) -> Text:
    """The first line of an outcome's text, after the size of the rest: the end of a line may be cut off."""
    first, *rest = outcome.text.split("\n")
    if outcome.spilled_to is not None:
        extent = f"[{_size(len(outcome.payload))}, whole in a file] "
    elif rest:
        extent = f"[{len(rest) + 1} lines] "
    else:
        extent = ""
    return Text.assemble((extent, "dim"), plain(first))


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def explain(outcome: ToolOutcome) -> str:
    """In a few words why a call did not succeed, with the cause that only its owner may see."""
    if outcome.failure is not None:
        failure = outcome.failure
        cause = f": {failure.detail}" if failure.detail else ""
        remedy = (
            f"; let it run with --approve {outcome.tool}, or wait with --db" if failure.code == "needs_approval" else ""
        )
        return f"{failure.category}/{failure.code}{cause}{remedy}"
    if outcome.status == "connection_required":
        return f"needs a connection to {outcome.provider}"
    if outcome.status == "cancelled":
        return f"{outcome.reason}; {outcome.how_far}"
    return ""
