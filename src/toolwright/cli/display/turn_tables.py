"""Turns as they are shown. Owns their tables and plain data, and which turn a word means."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from toolwright.cli.display.outcome_table import outcome_table
from toolwright.cli.display.output import instant
from toolwright.cli.display.run_tables import short_ids, the_one
from toolwright.cli.display.styles import Name, new_table, plain, readable, seconds, state_text
from toolwright.cli.display.time_format import length, moment
from toolwright.errors import TurnError
from toolwright.runtime.runtime import Runtime
from toolwright.stores.contracts.inspection import Named
from toolwright.stores.contracts.turns import PREFIX
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.turn_protocols import TurnInfo

_MOST = 100
"""Turns that have the same beginning of an id, and are named for a choice."""
_TIMES = ("created_at", "started_at", "ended_at")


async def find_turn(runtime: Runtime, word: str, session: str | None) -> str:
    """The id of the turn that a word means: its id, or the beginning of it.

    Raises:
        BadInput: there is none, or more than one.
    """
    beginnings = (word, PREFIX + word) if word else ()
    for each in beginnings:
        with suppress(TurnError):
            exact = await runtime.turn(each)
            if session in (None, exact.session_id):
                return exact.id
    found = [turn for each in beginnings for turn in await runtime.turns(session, limit=_MOST, prefix=each)]
    return the_one("turn", [Named(turn.id, turn.session, turn.message) for turn in found], word, session)


def turn_data(turn: TurnInfo) -> dict[str, Any]:
    """A turn as plain data, with instants as text."""
    return {**turn.to_json(), **{name: instant(getattr(turn, name)) for name in _TIMES}}


def turn_table(turns: Sequence[TurnInfo], now: float) -> Table:
    """One line for each turn."""
    names = short_ids([turn.id for turn in turns])
    table = new_table(expand=True)
    table.add_column("turn", no_wrap=True, style="cyan", min_width=max(map(len, names.values())))
    table.add_column("session", no_wrap=True)
    table.add_column("message", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True, min_width=11)
    table.add_column("calls", no_wrap=True, justify="right")
    table.add_column("tokens", no_wrap=True, justify="right")
    table.add_column("answer", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("age", no_wrap=True, justify="right", min_width=4)
    for turn in turns:
        table.add_row(
            Text(names[turn.id]),
            Name(turn.session, room=20),
            Text(plain(turn.message)),
            state_of(turn),
            str(turn.tool_calls),
            f"{turn.usage.tokens:,}",
            Text(plain(turn.text or turn.reason or "")),
            length(now - turn.created_at),
        )
    return table


def state_of(turn: TurnInfo) -> Text:
    """The state of a turn; "cut off" where its process is gone."""
    return state_text("cut off" if turn.cut_off else turn.state)


def turn_details(turn: TurnInfo, outcomes: Sequence[ToolOutcome], now: float) -> list[RenderableType]:
    """Everything about a turn, to be printed one after the other: facts, its calls, and the answer."""
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    usage = turn.usage
    took = "" if turn.started_at is None else f", {seconds(max(0.0, (turn.ended_at or now) - turn.started_at))}"
    rows: dict[str, Any] = {
        "turn": turn.id,
        "session": f"{turn.session}, its turn {turn.number}",
        "message": turn.message,
        "state": Text.assemble(state_of(turn), took),
        "why": turn.reason,
        "to stop": turn.cancel_reason if turn.ended_at is None else None,
        "model": turn.model,
        "model calls": str(turn.model_calls),
        "tool calls": str(turn.tool_calls),
        "input tokens": f"{usage.input:,}, {usage.cache_read:,} of them cached",
        "output tokens": f"{usage.output:,}, {usage.reasoning:,} of them reasoning",
        "cost": None if usage.cost is None else f"{usage.cost:.4f}",
        "created": moment(turn.created_at),
        "started": moment(turn.started_at),
        "ended": moment(turn.ended_at),
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    parts: list[RenderableType] = [table]
    if outcomes:
        parts += [Text("calls", style="bold"), outcome_table(outcomes)]
    if turn.text:
        parts += [Text("answer" if turn.state == "answered" else "last text of the model", style="bold")]
        parts += [Text(readable(turn.text))]
    return parts
