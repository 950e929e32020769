"""Histories that providers would refuse, made acceptable. Owns pairing calls and results; knows no layout."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from toolwright.errors import ConversionError
from toolwright.plain_data import plain_data
from toolwright.wire.history import AskedCall, Asking, Entry, Layout, Result
from toolwright.wire.history_anthropic import AnthropicLayout
from toolwright.wire.history_openai import ChatLayout, ResponsesLayout

_LAYOUTS = MappingProxyType[str, Layout](
    {"openai-chat": ChatLayout(), "openai-responses": ResponsesLayout(), "anthropic": AnthropicLayout()}
)


class Repaired(Struct, frozen=True):
    """A history in which every call has exactly one result, and a list of the changes in words."""

    messages: list[Any]
    changes: list[str]

    def to_json(self) -> dict[str, Any]:
        """The history and the changes as plain data."""
        return plain_data(self)


class _Slot:
    """A call in a history and the result found for it."""

    __slots__ = ("call", "id", "result")

    def __init__(self, call: AskedCall) -> None:
        self.call = call
        self.id = call.id
        self.result: Result | None = None


_Slots = dict[Asking, list[_Slot]]


class _Asked:
    """The calls with one id, and the places of those that have no result, and of those that have a synthetic one."""

    __slots__ = ("calls", "open", "synthetic")

    def __init__(self, calls: list[_Slot]) -> None:
        self.calls = calls
        self.open = deque(place for place, slot in enumerate(calls) if slot.result is None)
        # A heap: the first of them is replaced first, whenever it got its result.
        self.synthetic = [
            place for place, slot in enumerate(calls) if slot.result is not None and slot.result.synthetic
        ]


def repair(messages: Sequence[Any], provider: str) -> Repaired:
    """Give every call of a whole history exactly one result, where the provider wants it.

    A call without a result gets one that says that it was interrupted. A result that answers nothing, or answers again,
    is dropped, but a real one replaces one of an earlier repair. A result that does not stand directly after the
    message of its call is moved there; results of one message may be in any order. Ids that are missing or used twice
    are replaced. A history that needs no repair is returned as it is, and so is one that was repaired before. The input
    is never changed.

    The history must be complete and at rest: calls that still run have no results either, and results whose calls only
    the provider remembers (`previous_response_id`) look as if they answered nothing.

    Raises:
        ConversionError: the provider has no histories, or a message has another shape.
    """
    layout = _LAYOUTS.get(provider)
    if layout is None:
        raise ConversionError(
            f"Provider {provider!r} has no history to repair; use one of {', '.join(sorted(_LAYOUTS))}"
        )
    changes: list[str] = []
    entries = layout.split(messages)
    slots = {entry: [_Slot(call) for call in entry.calls] for entry in entries if isinstance(entry, Asking)}
    _match(entries, slots, changes)
    _name(slots, changes)
    kept = {slot.result for each in slots.values() for slot in each}
    left = [entry for entry in entries if not isinstance(entry, Result) or entry in kept]
    in_place = _in_place(left, slots, layout)
    laid = [piece for entry in left for piece in _laid_out(entry, slots, layout, in_place, changes)]
    return Repaired(layout.join(laid, messages) if changes else list(messages), changes)


def _match(entries: list[Entry], slots: _Slots, changes: list[str]) -> None:
    """Find the result of every call: an id used twice means the latest call before the result that has it."""
    latest: dict[str, _Asked] = {}
    early: list[Result] = []
    for entry in entries:
        if isinstance(entry, Asking):
            latest |= _by_id(slots[entry])
        elif isinstance(entry, Result):
            if entry.id in latest:
                _take(entry, latest[entry.id], changes)
            else:
                early.append(entry)
    asked = _by_id([slot for each in slots.values() for slot in each]) if early else {}
    for result in early:
        if result.id in asked:
            _take(result, asked[result.id], changes)
        else:
            changes.append(f"Dropped a result for {result.id!r}: no call in the history has that id.")


def _by_id(slots: list[_Slot]) -> dict[str, _Asked]:
    found: dict[str, list[_Slot]] = {}
    for slot in slots:
        found.setdefault(slot.id, []).append(slot)
    return {call_id: _Asked(each) for call_id, each in found.items()}


def _take(result: Result, asked: _Asked, changes: list[str]) -> None:
    if asked.open:
        place = asked.open.popleft()
        asked.calls[place].result = result
        if result.synthetic:
            heappush(asked.synthetic, place)
    elif asked.synthetic and not result.synthetic:
        asked.calls[heappop(asked.synthetic)].result = result
        changes.append(f"Replaced the synthetic result of call {result.id!r} by the real one.")
    else:
        changes.append(f"Dropped another result of call {result.id!r}, which has one already.")


def _name(slots: _Slots, changes: list[str]) -> None:
    """Give every call an id of its own. The first that uses an id keeps it."""
    every = [slot for each in slots.values() for slot in each]
    reserved = {slot.id for slot in every}
    seen: set[str] = set()
    numbers: dict[tuple[str, bool], int] = {}
    for slot in every:
        given = slot.id
        if given and given not in seen:
            seen.add(given)
            continue
        # Providers bound the length of an id, at 64 characters where they say.
        stem = given[:56] or "call"
        number = numbers.get((stem, bool(given)), 2 if given else 1)
        while (name := f"{stem}_{number}") in reserved:
            number += 1
        numbers[stem, bool(given)] = number + 1
        slot.id = name
        reserved.add(name)
        if given:
            changes.append(f"Renamed a further call with the id {given!r} to {name!r}.")
        else:
            changes.append(f"Gave the id {name!r} to a call of {slot.call.name!r} that had none.")


def _in_place(left: list[Entry], slots: _Slots, layout: Layout) -> dict[Result, int]:
    """The results that stand directly after the message of their calls, with their places. They may be in any order."""
    owners = {slot.result: asking for asking, each in slots.items() for slot in each if slot.result is not None}
    found: dict[Result, int] = {}
    asking: Asking | None = None
    home: int | None = None
    for place, entry in enumerate(left):
        if not isinstance(entry, Result):
            asking, home = (entry if isinstance(entry, Asking) else None), None
        elif asking is not None and owners[entry] is asking:
            home = entry.home if home is None else home
            if not layout.together or entry.home == home != asking.home:
                found[entry] = place
    return found


def _laid_out(
    entry: Entry, slots: _Slots, layout: Layout, in_place: dict[Result, int], changes: list[str]
) -> list[Entry]:
    """An entry as it goes into the repaired history: a message with calls brings its results along.

    Results in place keep their order; the others follow in the order of their calls.
    """
    if isinstance(entry, Result):
        return []
    if not isinstance(entry, Asking):
        return [entry]
    asked = slots[entry]
    if any(slot.id != slot.call.id for slot in asked):
        entry = Asking(entry.home, layout.renamed(entry, [slot.id for slot in asked]), entry.calls)
    laid: list[Entry] = [entry]
    for slot in sorted(asked, key=lambda slot: _order(slot, in_place)):
        result = slot.result
        if result is None:
            laid.append(Result(None, slot.id, layout.interrupted(slot.id, slot.call), True))
            changes.append(f"Added a result for call {slot.id!r} of {slot.call.name!r}, which had none: interrupted.")
            continue
        if result not in in_place:
            changes.append(f"Moved the result of call {slot.id!r} to its place after the call.")
        laid.append(_answering(slot, result, layout))
    return laid


def _answering(slot: _Slot, result: Result, layout: Layout) -> Result:
    """The result under the id that its call has now."""
    if slot.id == result.id:
        return result
    return Result(result.home, slot.id, layout.addressed(result, slot.id), result.synthetic)


def _order(slot: _Slot, in_place: dict[Result, int]) -> tuple[bool, int]:
    place = None if slot.result is None else in_place.get(slot.result)
    return (place is None, place or 0)
