"""Background runs as they are shown. Owns their tables and plain data, and which run a word means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from toolwright import jsonx
from toolwright.cli.display.outcome_table import explain
from toolwright.cli.display.output import instant
from toolwright.cli.display.styles import Name, new_table, plain, readable, seconds, state_text
from toolwright.cli.display.time_format import length, moment, until
from toolwright.cli.exits import BadInput
from toolwright.stores.contracts.background_run import PREFIX, BackgroundRun, Progress
from toolwright.stores.contracts.inspection import Named
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.schedule import PREFIX as SCHEDULE
from toolwright.stores.contracts.turns import PREFIX as TURN
from toolwright.stores.opening import inspect_store
from toolwright.tools.outcome import ToolOutcome

_SHOWN = 12
"""How many characters of an id a table shows at least."""
_EVENTS = 30
"""How many of the last events are shown."""


async def find_run(store: str, word: str, session: str | None) -> str:
    """The id of the run that a word means: its id, or the beginning of it.

    Raises:
        BadInput: there is none, or more than one.
        StoreError: the store cannot be read.
    """
    return the_one("run", await inspect_store(store).find_runs(word, session), word, session)


def the_one(kind: str, found: Sequence[Named], word: str, session: str | None) -> str:
    """The id of the only match.

    Raises:
        BadInput: it is none, or more than one.
    """
    if not found:
        where = "" if session is None else f" in session {session!r}"
        command = "toolwright schedules list shows" if kind == "schedule" else f"toolwright {kind}s lists"
        raise BadInput(f"There is no {kind} {word!r}{where}; {command} them")
    if len(found) > 1:
        choices = "".join(f"\n  {one.id} of session {one.session!r}: {plain(one.title)}" for one in found[:5])
        more = "\n  and more" if len(found) > 5 else ""
        raise BadInput(f"More than one {kind} is called {word!r}; write more of it:{choices}{more}")
    return found[0].id


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The shortest prefixes that distinguish the ids; all have the same length."""
    bare = {id: id.removeprefix(PREFIX).removeprefix(SCHEDULE).removeprefix(TURN) for id in ids}
    longest = max(map(len, bare.values()), default=0)
    room = next((room for room in range(_SHOWN, longest) if len({one[:room] for one in bare.values()}) == len(bare)), 0)
    return {id: plain(one[: room or longest]) for id, one in bare.items()}


def run_table(runs: Sequence[BackgroundRun], now: float) -> Table:
    """One line for each run."""
    names = short_ids([run.id for run in runs])
    # The id and state of a run are never cut; titles and labels share the remaining width.
    table = new_table(expand=True)
    table.add_column("run", no_wrap=True, style="cyan", min_width=max(map(len, names.values())))
    table.add_column("session", no_wrap=True)
    table.add_column("title", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("tool", no_wrap=True)
    table.add_column("status", no_wrap=True, min_width=11)
    table.add_column("progress", ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column("age", no_wrap=True, justify="right", min_width=4)
    for run in runs:
        table.add_row(
            Text(names[run.id]),
            Name(run.session, room=12),
            Text(plain(run.title)),
            Name(run.tool, room=16),
            _status(run, now, "\n(worker gone)"),
            Text(progress_text(run.progress)),
            length(now - run.created_at),
        )
    return table


def lost(run: BackgroundRun, now: float) -> bool:
    """True when the worker of a run lets its lease pass: it is dead or frozen, and no other has taken the run."""
    return not run.over and run.lease_until is not None and run.lease_until <= now


def _status(run: BackgroundRun, now: float, gone: str) -> Text:
    status = state_text(run.status)
    return status.append(gone, style="bold yellow") if lost(run, now) else status


def progress_text(progress: Progress | None) -> str:
    """The progress of a run in a few words."""
    if progress is None:
        return ""
    unit = f" {progress.unit}" if progress.unit else ""
    label = f" {progress.label}" if progress.label else ""
    if progress.current is None:
        of = "" if progress.total is None else f"of {progress.total:g}{unit}"
        return plain(f"{of}{label}".strip())
    if not progress.total:
        return plain(f"{progress.current:g}{unit}{label}")
    share = 100 * progress.current / progress.total
    return plain(f"{share:.0f}% ({progress.current:g} of {progress.total:g}{unit}){label}")


def run_data(run: BackgroundRun) -> dict[str, Any]:
    """A run as plain data, with its outcome."""
    return {
        **run.to_json(),
        "arguments": run.arguments,
        "worker": run.worker,
        "lease_until": instant(run.lease_until),
        "deadline": instant(run.deadline),
        "disposition": run.options.disposition,
        "timeout": run.options.timeout,
        "signal_on_completion": run.options.signal_on_completion,
        "provenance": run.provenance,
        "cancel_reason": run.cancel_reason,
        "outcome": None if run.outcome is None else run.outcome.to_json(),
    }


def event_data(event: RunEvent) -> dict[str, Any]:
    """An event of a run as plain data."""
    payload = msgspec.to_builtins(event.payload)
    return {"number": event.number, "type": event.type, "at": instant(event.at), "payload": payload}


def run_details(tree: Sequence[BackgroundRun], events: Sequence[RunEvent], now: float) -> RenderableType:
    """Everything about a run: facts, the runs below it, its events, and its outcome."""
    run = tree[0]
    parts: list[RenderableType] = [_facts(run, now)]
    if len(tree) > 1:
        parts += [Text("runs", style="bold"), _tree(tree), Text()]
    parts += [Text("events", style="bold"), _events(events)]
    if run.tail:
        parts += [Text("\noutput", style="bold"), Text(readable(run.tail).rstrip("\n"), style="dim")]
    if run.outcome is not None:
        parts += [Text("\noutcome", style="bold"), outcome_text(run.outcome)]
    return Group(*parts)


def _facts(run: BackgroundRun, now: float) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    ended = run.ended_at or now
    took = "" if run.started_at is None else f", {seconds(max(0.0, ended - run.started_at))}"
    rows: dict[str, Any] = {
        "run": run.id,
        "title": run.title,
        "session": run.session,
        "work" if run.options.tracked else "tool": run.tool,
        "arguments": jsonx.encode(run.arguments).decode(),
        "status": Text.assemble(_status(run, now, " (its worker is gone)"), f"  {plain(run.status_text)}{took}"),
        "progress": progress_text(run.progress),
        "started by": _origin(run),
        "created": moment(run.created_at),
        "started": moment(run.started_at),
        "ended": moment(run.ended_at),
        "deadline": "" if run.deadline is None or run.over else until(run.deadline, now),
        "attempts": str(run.attempts),
        "worker": _worker(run, now),
        "when its worker is gone": "" if run.over or run.options.tracked else run.options.disposition,
        "to stop": "" if run.over else run.cancel_reason,
        "artifacts": run.artifact_dir if run.over and run.options.artifacts else "",
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    return table


def _origin(run: BackgroundRun) -> str:
    if run.parent is not None:
        return f"the run {run.parent}"
    origin = run.provenance if isinstance(run.provenance, dict) else {}
    said = ", ".join(f"{name} {value}" for name, value in origin.items() if name != "by")
    return f"{origin.get('by', '')}{f': {said}' if said else ''}"


def _worker(run: BackgroundRun, now: float) -> str:
    if run.worker is None or run.over:
        return run.worker or ""
    if run.status == "queued":
        return f"{run.worker} has handed it over"
    left = (run.lease_until or 0.0) - now
    held = f"its lease lasts {seconds(left)}" if left > 0 else "its lease has passed: another may take the run"
    return f"{run.worker}, {held}"


def _tree(tree: Sequence[BackgroundRun]) -> Tree:
    nodes: dict[str, Tree] = {}
    for run in tree:
        line = Text.assemble(
            (plain(run.id), "cyan"),
            f" {plain(run.title)} ",
            state_text(run.status),
            f" {plain(run.tool)}",
        )
        above = nodes.get(run.parent or "")
        nodes[run.id] = Tree(line) if above is None else above.add(line)
    return nodes[tree[0].id]


def _events(events: Sequence[RunEvent]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    if len(events) > _EVENTS:
        table.add_row("", "", Text(f"{len(events) - _EVENTS} earlier ones; --json has all of them", style="dim"))
    for event in events[-_EVENTS:]:
        table.add_row(moment(event.at), Text(plain(event.type.replace("_", " "))), Text(event_text(event)))
    return table


def event_text(event: RunEvent) -> str:
    """An event in one line."""
    payload = event.payload
    if not isinstance(payload, dict):  # a tool may declare events of its own
        return plain(jsonx.encode(payload).decode())
    if event.type == "progress":
        return progress_text(msgspec.convert(payload, Progress))
    if event.type == "started":
        before = payload.get("taken_over_from")
        return plain(f"by {payload['worker']}" + (f", taken over from {before}" if before else ""))
    said = [f"{value}" if name in ("text", "summary", "reason", "what", "worker") else f"{name} {value}"
            for name, value in payload.items() if value not in (None, "")]  # fmt: skip
    return plain(", ".join(said))


def outcome_text(outcome: ToolOutcome) -> Text:
    """The outcome of a run: the text that a model reads, or why there is none."""
    if outcome.ok:
        return Text(readable(outcome.text))
    message = outcome.failure.message if outcome.failure is not None else ""
    return Text(plain(": ".join(filter(None, (explain(outcome), message)))))
