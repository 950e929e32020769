"""Calls shown in little space. Owns signs and colours of states, the style of tables, short
names, and which details are omitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Item = TypeVar("Item")
ENDLESS = 1 << 30
"""The width of output that is not a terminal, where nothing may be cut."""


class Look(NamedTuple):
    """The sign and style of a state."""

    sign: str
    style: str


LOOKS = {
    "waiting": Look("○", "dim"),
    "running": Look("●", "bold cyan"),
    "success": Look("✓", "green"),
    "failure": Look("✗", "bold red"),
    "cancelled": Look("⊘", "yellow"),
    "pending": Look("…", "magenta"),
    "cut off": Look("!", "bold yellow"),
    "unfinished": Look("○", "bold yellow"),
    "connection_required": Look("⇄", "magenta"),
    "queued": Look("○", "dim"),
    "completed": Look("✓", "green"),
    "failed": Look("✗", "bold red"),
    "abandoned": Look("!", "bold yellow"),
    "answered": Look("✓", "green"),
    "out_of_budget": Look("✗", "bold yellow"),
}


def new_table(*, expand: bool = False) -> Table:
    """A table without columns, in the style of all tables of the commands; `expand` makes it as wide as the screen."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=expand, header_style="bold")


def look_of(state: str) -> Look:
    """The look of a state; an unknown state looks plain."""
    return LOOKS.get(state, Look("·", ""))


def state_text(state: str) -> Text:
    """A state with its sign, in its colour."""
    look = look_of(state)
    return Text(f"{look.sign} {state.replace('_', ' ')}", style=look.style)


def seconds(duration: float) -> str:
    """A duration in as few characters as possible."""
    if duration < 1:
        return f"{duration * 1000:.0f} ms"
    return f"{duration:.2f} s" if duration < 10 else f"{duration:.0f} s"


def short(name: str, room: int = 22) -> str:
    """A name in one line, cut in its middle: ids of providers are long, and differ at their ends."""
    name = plain(name)
    return name if len(name) <= room else f"{name[: room // 2]}…{name[len(name) - room // 2 + 1 :]}"


class Name:
    """One name or several joined names in a table: short on a screen, and complete elsewhere."""

    def __init__(self, *parts: str, room: int = 22) -> None:
        self._parts = parts
        self._room = room

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._text(console))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._text(console)

    def _text(self, console: Console) -> Text:
        whole = console.width >= ENDLESS
        return Text("".join(plain(part) if whole else short(part, self._room) for part in self._parts))


def place(session: str, scope: str) -> Name:
    """Where a call belongs: its session, and its scope if it has one."""
    return Name(session, " / ", scope) if scope else Name(session)


def plain(text: str) -> str:
    """A text in one line without control characters: a tool or a model may have written it."""
    return "".join(character if character.isprintable() else " " for character in text)


def readable(text: str) -> str:
    """A text of many lines without control characters."""
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def pick(items: Sequence[Item], most: int, rank: Callable[[Item], Any]) -> list[Item]:
    """The items of the lowest rank where not all can be shown, in the order they came in."""
    if len(items) <= most:
        return list(items)
    ranked = sorted(range(len(items)), key=lambda place: rank(items[place]))
    return [items[place] for place in sorted(ranked[:most])]


def join_some(names: Sequence[str], most: int = 2) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - most
    return ", ".join(map(short, names[:most])) + (f" +{more}" if more > 0 else "")
