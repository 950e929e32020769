"""Batches and calls of a store as they are shown. Owns their tables and plain data; the store owns the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from toolwright import jsonx
from toolwright.cli.display.outcome_table import explain, first_line
from toolwright.cli.display.output import data_of, instant
from toolwright.cli.display.styles import Name, look_of, new_table, place, plain, readable, seconds, state_text
from toolwright.cli.display.time_format import moment
from toolwright.cli.exits import BadInput
from toolwright.stores.contracts.inspection import PastBatch, PastCall

_PREFIX = "batch_"
_SHOWN = 12
"""How many characters of an id a table shows; they are enough to name it again."""
_WAITS = {"approval": "approval", "crash": "a person: it was cut off, and may have run", "completion": "its completion"}


def batch_table(batches: Sequence[PastBatch]) -> Table:
    """One line for each batch."""
    table = new_table()
    table.add_column("batch", no_wrap=True, style="cyan")
    table.add_column("session", no_wrap=True)
    table.add_column("begun", no_wrap=True)
    table.add_column("calls", justify="right")
    table.add_column("how they stand")
    for batch in batches:
        table.add_row(
            Text(short_id(batch.batch)),
            place(batch.session, batch.scope),
            moment(batch.first_at)[:16],
            str(batch.calls),
            _counts(batch.statuses),
        )
    return table


def _counts(statuses: dict[str, int]) -> Text:
    line = Text()
    for status, count in sorted(statuses.items(), key=lambda item: item[0] != "unfinished"):
        look = look_of(status)
        line.append(f"{look.sign} {count} {status.replace('_', ' ')} ", style=look.style)
    line.rstrip()
    return line


def call_table(calls: Sequence[PastCall]) -> Table:
    """Two lines for each call: its state and arguments, then its outcome or the reason why it waits."""
    table = new_table(expand=True)
    table.add_column("call", no_wrap=True)
    table.add_column("tool", no_wrap=True, style="cyan")
    table.add_column("status", no_wrap=True)
    table.add_column("tries", justify="right")
    table.add_column("begun", no_wrap=True)
    table.add_column("took", no_wrap=True, justify="right")
    table.add_column("arguments and outcome", ratio=1, no_wrap=True, overflow="ellipsis")
    for call in calls:
        name = Name("└ " if call.parent else "", call.key.call_id)
        about = Text.assemble((plain(call.arguments.decode("utf-8", "replace")), "dim"), "\n", result(call))
        begun = "-" if call.started_at is None else moment(call.started_at)[11:]
        table.add_row(name, Name(call.tool), state_text(call.status), str(call.attempts), begun, _took(call), about)
    return table


def result(call: PastCall) -> Text:
    """The outcome of a call, or the reason why it has none yet."""
    if call.outcome is None:
        if call.waits_for:
            gone = ", and no process runs it" if call.cut_off else ""
            waits = ", ".join(_WAITS.get(wait.partition(":")[0], wait.replace(":", " ")) for wait in call.waits_for)
            return Text(plain(f"waits for {waits}{gone}"), style="magenta")
        if call.resolved:
            gone = ", and waits for a program to continue it, as toolwright recover does" if call.cut_off else ""
            return Text(f"resolved{gone}", style="magenta")
        if call.cut_off:
            # The start of a call is written before it begins, unless its tool may simply run again.
            begun = "had begun, and may have run" if call.attempts else "had not begun, or may simply run again"
            return Text(f"cut off: it {begun}; toolwright recover finishes it", style="yellow")
        return Text("")
    if call.outcome.ok:
        return first_line(call.outcome)
    return Text(readable(call.outcome.failure.message if call.outcome.failure is not None else explain(call.outcome)))


def _took(call: PastCall) -> str:
    if call.started_at is None or call.finished_at is None:
        return "-"
    return seconds(max(0.0, call.finished_at - call.started_at))


def batch_data(batch: PastBatch) -> dict[str, Any]:
    """A batch as plain data."""
    data: dict[str, Any] = data_of(batch)
    return {**data, "unfinished": batch.statuses.get("unfinished", 0)}


def call_data(call: PastCall) -> dict[str, Any]:
    """A call as plain data, its outcome as everywhere else."""
    return {
        **call.key._asdict(),
        "batch": call.batch,
        "tool": call.tool,
        "status": call.status,
        "attempts": call.attempts,
        "arguments": jsonx.decode(call.arguments),
        "source": call.source,
        "parent": call.parent,
        "queued_at": instant(call.queued_at),
        "started_at": instant(call.started_at),
        "finished_at": instant(call.finished_at),
        "cut_off": call.cut_off,
        "waits_for": list(call.waits_for),
        "resolved": call.resolved,
        "outcome": None if call.outcome is None else call.outcome.to_json(),
    }


def short_id(batch: str) -> str:
    """As much of a batch's id as a table shows."""
    return batch.removeprefix(_PREFIX)[:_SHOWN]


def find_batch(batches: Sequence[PastBatch], word: str) -> PastBatch:
    """The batch whose id begins like this, with or without the part that all ids share.

    Raises:
        BadInput: there is none, or more than one.
    """
    found = [batch for batch in batches if word and batch.batch.removeprefix(_PREFIX).startswith(_bare(word))]
    if not found:
        raise BadInput(f"There is no batch {word!r}; toolwright batches lists them")
    if len(found) > 1:
        choices = "; ".join(
            f"{batch.batch} of session {batch.session!r}" + (f", scope {batch.scope!r}" if batch.scope else "")
            for batch in found[:5]
        )
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        raise BadInput(f"{len(found)} batches are called {word!r}: {choices}{more}; write more of it, or add --session")
    return found[0]


def _bare(word: str) -> str:
    return word.removeprefix(_PREFIX)
