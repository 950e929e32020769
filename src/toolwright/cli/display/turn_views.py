"""A turn while it runs. Owns showing its events: on a terminal, as text and lines for a pipe, or as JSON lines.

Everything in an event was written by a model or a tool. On a terminal it goes through `readable` or `plain`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol, TextIO

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from toolwright import jsonx
from toolwright.cli.display.batch_progress import Row
from toolwright.cli.display.live import progress_bar
from toolwright.cli.display.output import Screen, echo, instant, safe_json
from toolwright.cli.display.styles import look_of, pick, plain, readable, seconds, short, state_text
from toolwright.tools.turn_protocols import TurnEvent, TurnOutcome

_AROUND = 4  # lines that are not rows of calls
_ARGUMENTS = 60
"""Characters of the arguments of a call in a line."""
_RESULT = 80
"""Characters of its result."""
_URGENCY = {"running": 0, "waiting": 1}


class TurnView(Protocol):
    """Shows the events of turns, one after the other."""

    def show(self, turn: str, event: TurnEvent) -> None:
        """Show the next event of a turn."""
        ...

    def tick(self) -> None:
        """Redraw the part that moves."""
        ...

    def pause(self) -> None:
        """Stop moving and begin a line of its own, as somebody else is about to write."""
        ...

    def end(self, outcome: TurnOutcome) -> None:
        """Show how a turn ended, or that it waits."""
        ...


class CallRows:
    """The calls of one answer, read from the events of its turn."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._arguments: dict[str, str] = {}

    @property
    def finished(self) -> bool:
        """True when every call has its outcome."""
        return all(row.finished is not None for row in self.rows.values())

    def arguments(self, row: Row) -> str:
        """The arguments of a call in one line."""
        return self._arguments.get(row.call_id, "")

    def take(self, event: TurnEvent) -> Row | None:
        """Apply the next event, and return the row that it changes, if it is about a call."""
        data = event.data
        if event.kind == "model.answered":
            self.rows, self._arguments = {}, {}
            for call in data.get("calls") or ():
                self._add(str(call["id"]), str(call["name"]), call["arguments"], 0, event.at)
            return None
        if event.kind == "agent.call.started" and data.get("parent_call_id") in self.rows:
            self.rows[data["parent_call_id"]].note = f"its agent calls {data['tool']}"
        if not event.kind.startswith("call.") or "call_id" not in data:
            return None
        id = data["call_id"]
        if id not in self.rows:  # a call that a call runs, or one of before a follower came
            self._add(id, data["tool"], data.get("arguments"), int(bool(data.get("parent"))), event.at)
        row = self.rows[id]
        _apply(row, event)
        return row

    def _add(self, id: str, tool: str, arguments: object, depth: int, at: float) -> None:
        self.rows[id] = Row(id, tool, depth, at)
        if arguments is not None:
            text = arguments if isinstance(arguments, str) else jsonx.encode(arguments).decode()
            self._arguments[id] = plain(text)


def _apply(row: Row, event: TurnEvent) -> None:
    data = event.data
    if event.kind == "call.finished":
        row.state, row.finished, row.note = data["status"], event.at, _result(data)
    elif event.kind == "call.started":
        row.state, row.started, row.note = "running", event.at, ""
    elif event.kind == "call.progress":
        row.current, row.total, row.note = data.get("current") or 0.0, data.get("total"), data.get("label") or ""
    elif event.kind == "call.status":
        row.note = data["text"]
    elif event.kind == "call.output":
        row.note = data["text"].rstrip("\n").rpartition("\n")[2]
    elif event.kind == "call.retrying":
        row.current, row.total = 0.0, None
        row.note = f"attempt {data['attempt']} failed ({data['code']}), again in {data['delay']:.1f} s"
    elif event.kind == "call.waiting":
        row.state = "pending"
        row.note = f"waits for {data['what']}" + (
            f" {data['name']}" if data["what"] in ("event", "signal", "question") else ""
        )
    elif event.kind == "call.warning":
        row.note = data["message"]


def _result(data: Mapping[str, Any]) -> str:
    """The result of a call in a few words."""
    text = data.get("text") or ""
    if data["status"] == "success":
        return text
    with suppress(jsonx.DecodeError, RecursionError):  # a failure is told to the model as an object
        told = jsonx.decode(text)
        if isinstance(told, dict):
            text = str(told.get("error") or told.get("cancelled") or text)
    return f"{data['code']}: {text}" if data.get("code") else text


def _cut(text: str, room: int) -> str:
    text = plain(" ".join(text.split()))
    return text if len(text) <= room else f"{text[: room - 1]}…"


def call_line(row: Row, arguments: str) -> Text:
    """One call in one line: its state, tool, arguments, time, and its result or why there is none."""
    look = look_of(row.state)
    text = Text.assemble("  " * row.depth, (look.sign, look.style), " ", (short(row.tool, 40), "cyan"))
    if arguments:
        text.append(f" {_cut(arguments, _ARGUMENTS)}", style="dim")
    if row.finished is not None and row.started is not None:
        text.append(f" {seconds(row.elapsed(row.finished))}")
    if row.note:
        text.append(f" → {_cut(row.note, _RESULT)}", style="" if row.state == "success" else look.style)
    return text


def summary(outcome: TurnOutcome, took: float | None = None) -> Text:
    """How a turn ended, in one line: its status and reason, and how much it used."""
    line = state_text(outcome.status)
    why = outcome.reason if outcome.code is None else f"{outcome.code}: {outcome.reason}"
    if outcome.status not in ("answered", "waiting") and why:
        line.append(f": {_cut(why, 400)}", style="not bold")
    tools = len(outcome.calls)
    used = [] if took is None else [seconds(took)]
    used += [f"{outcome.model_calls} model call{'' if outcome.model_calls == 1 else 's'}"]
    used += [f"{tools} tool call{'' if tools == 1 else 's'}"] if tools else []
    used += [f"{outcome.usage.tokens:,} tokens"] if outcome.usage.tokens else []
    used += [f"cost {outcome.usage.cost:.4f}"] if outcome.usage.cost is not None else []
    return line.append(f" ({', '.join(used)})", style="not bold dim")


class JsonView:
    """Each event as one line of JSON."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, turn: str, event: TurnEvent) -> None:
        told = {"turn": turn, "number": event.number, "at": instant(event.at), "kind": event.kind, "data": event.data}
        self._out.write(safe_json(told).decode() + "\n")
        self._out.flush()

    def tick(self) -> None:
        """Nothing moves."""

    def pause(self) -> None:
        """Every line is whole."""

    def end(self, outcome: TurnOutcome) -> None:
        """The last event has told it."""


class LinesView:
    """The model's text on stdout, as it is; its calls, and how the turn ended, as lines on stderr."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._calls = CallRows()
        self._streamed = False
        self._open = False
        self._began = time.time()

    def show(self, turn: str, event: TurnEvent) -> None:
        row = self._calls.take(event)
        if event.kind == "turn.started":
            self._began = event.at
        elif event.kind == "text":
            self._streamed = True
            self._write(event.text)
        elif event.kind == "model.answered":
            if not self._streamed:
                self._write(event.text)
            self._streamed = False
            self.pause()
        elif event.kind == "call.finished" and row is not None:
            echo(call_line(row, self._calls.arguments(row)).plain, err=True)
        elif is_note(event):
            self.pause()
            echo(note_line(event), err=True)

    def tick(self) -> None:
        """Nothing moves."""

    def pause(self) -> None:
        if self._open:
            self._write("\n")

    def end(self, outcome: TurnOutcome) -> None:
        self.pause()
        Screen(stderr=True).print(summary(outcome, time.time() - self._began), soft_wrap=True)

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text.encode("utf-8", "replace").decode())
            self._out.flush()
            self._open = not text.endswith("\n")


class ScreenView:
    """A turn on a terminal: text as it comes, calls as lines that move until they are finished."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._calls = CallRows()
        self._live: Live | None = None
        self._thinking: float | None = None
        """Since when the model has been asked, while it has written nothing."""
        self._streamed = False
        self._open = False
        self._paused = False
        self._began = time.time()

    def show(self, turn: str, event: TurnEvent) -> None:
        self._paused = False
        self._calls.take(event)
        kind = event.kind
        if kind == "turn.started":
            self._began = self._thinking = event.at
        elif kind == "text":
            self._thinking, self._streamed = None, True
            self._write(event.text)
        elif kind == "model.answered":
            self._thinking = None
            if not self._streamed:
                self._write(event.text)
            self._streamed = False
            self._close_line()
        elif is_note(event):
            self._close_line()
            self._screen.print(Text(note_line(event), style="dim"), soft_wrap=True)
        if kind == "turn.ended":
            self._thinking = None
            self._print_calls()
        elif self._calls.rows and self._calls.finished:
            self._print_calls()
            self._thinking = event.at
        self.tick()

    def tick(self) -> None:
        if self._paused or (self._thinking is None and not self._calls.rows):
            return
        if self._live is None:
            self._close_line()
            self._live = Live(
                console=self._screen, auto_refresh=False, transient=True, vertical_overflow="crop", redirect_stdout=True
            )
            self._live.start()
        self._live.update(self._draw(time.time()), refresh=True)

    def pause(self) -> None:
        self._close_line()
        self._paused = True

    def end(self, outcome: TurnOutcome) -> None:
        self._thinking = None
        if outcome.status != "waiting":
            self._print_calls()
        self.pause()
        self._screen.print(summary(outcome, time.time() - self._began), soft_wrap=True)

    def _draw(self, now: float) -> RenderableType:
        if self._thinking is not None:
            return Text(f"… the model is asked {seconds(max(0.0, now - self._thinking))}", style="dim")
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(no_wrap=True, ratio=3, overflow="ellipsis")
        table.add_column(width=18)
        table.add_column(no_wrap=True, justify="right", min_width=6)
        table.add_column(no_wrap=True, ratio=2, overflow="ellipsis")
        rows = list(self._calls.rows.values())
        for row in pick(rows, max(3, self._screen.height - _AROUND), lambda row: _URGENCY.get(row.state, 9)):
            look = look_of(row.state)
            name = Text.assemble("  " * row.depth, (look.sign, look.style), " ", (short(row.tool, 40), "cyan"))
            name.append(f" {_cut(self._calls.arguments(row), _ARGUMENTS)}", style="dim")
            table.add_row(name, progress_bar(row, now), seconds(row.elapsed(now)), Text(_cut(row.note, _RESULT)))
        return table

    def _print_calls(self) -> None:
        self._close_line()
        for row in self._calls.rows.values():
            self._screen.print(call_line(row, self._calls.arguments(row)), soft_wrap=True)
        self._calls = CallRows()

    def _write(self, text: str) -> None:
        if text:
            self._stop()
            self._screen.file.write(readable(text.encode("utf-8", "replace").decode()))
            self._screen.file.flush()
            self._open = not text.endswith("\n")

    def _close_line(self) -> None:
        self._stop()
        if self._open:
            self._write("\n")

    def _stop(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()


def is_note(event: TurnEvent) -> bool:
    """True for an event that is told by a line of its own."""
    if event.kind == "turn.continued":
        return bool(event.data.get("taken_over"))
    return event.kind in ("model.retrying", "turn.steered", "answer.refused")


def note_line(event: TurnEvent) -> str:
    """An event that `is_note` as a line."""
    data = event.data
    if event.kind == "model.retrying":
        return plain(
            f"The model is asked again in {data['delay']:.1f} s, as it failed ({data['code']}): {data['reason']}"
        )
    if event.kind == "turn.continued":
        return "The turn continues here, as the process that worked on it is gone"
    if event.kind == "turn.steered":
        return plain(f"The model is told: {event.text}")
    return plain(f"The answer is not usable, and is asked for again: {data['reason']}")
