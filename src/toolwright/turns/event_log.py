"""The events of one turn that this process works on. Owns their numbers, waking its followers, and writing them to the
store: many events in one row, and a few rows a second however many events there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, TypeAlias

from toolwright import jsonx
from toolwright.clock import Clock
from toolwright.events import AnyEvent, CallFinished, CallStarted
from toolwright.stores.contracts.turns import EventChunk
from toolwright.tools.model import ModelAnswer
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.turn_protocols import TurnEvent, TurnOutcome
from toolwright.turns.waiters import Waiters

Source: TypeAlias = Mapping[str, Any] | AnyEvent | ModelAnswer | ToolOutcome | TurnOutcome
"""The data of an event: a mapping, or a value that it is made of when somebody reads it."""
LONGEST_TEXT = 2_000
"""Characters of the text of an outcome in an event; the history has all of it."""
END = "turn.ended"
"""The kind of the last event of a turn."""
NESTED = "agent."
"""Prefix of the kinds of a sub-agent's events in the log of the turn above it."""
MOST = 20_000
"""How many events are remembered here. A store has them all; without one, the oldest of a longer turn are gone."""
REMEMBERED = 2_000
"""How many of those that the store has are remembered here, for followers that lag a little behind."""


class TurnLog:
    """The events of a turn, in order. `stored` says whether there is a store that wants them."""

    def __init__(self, last: int, clock: Clock, *, stored: bool) -> None:
        self.last = last
        """The number of the last event."""
        self.ended = False
        self.left = False
        """True while only the store has its next events: this process left it while it waits, or another one had it."""
        self.stored = stored
        self._clock = clock
        self._events: deque[tuple[int, float, str, Source]] = deque()
        self._unwritten = 0
        self._hidden: int | None = None
        """The number of the last event of the turn, while it is not known that its end is written."""
        self._waiters = Waiters()
        self.followers = 0
        self.has_handle = False
        """True when somebody was given a handle of the turn, and may follow it later."""
        self._above: TurnLog | None = None
        self._about: Mapping[str, Any] = {}

    @property
    def watched(self) -> bool:
        """True when somebody reads every event, or may: the store, a follower, or the holder of a handle."""
        if self.stored or self.followers > 0 or self.has_handle:
            return True
        return self._above is not None and self._above.watched

    def tell_above(self, above: TurnLog, about: Mapping[str, Any]) -> None:
        """Add the events to the log of the turn above, too, with some data about this one."""
        self._above, self._about = above, about

    def add(self, kind: str, data: Source) -> None:
        """Add an event, and wake the followers."""
        self.last += 1
        self._events.append((self.last, self._clock.now(), kind, data))
        if self.stored:
            self._unwritten += 1
        if len(self._events) > MOST and len(self._events) > self._unwritten:
            self._events.popleft()
        if self._waiters:
            self.wake()
        if self._above is not None and kind not in ("text", "reasoning"):
            if kind.startswith(NESTED):
                self._above.add(kind, data)  # of a sub-agent of this one, whose data says so
            else:
                self._above.add(NESTED + kind, {**_data(data), **self._about})

    def add_all(self, kind: str, data: Sequence[Source]) -> None:
        """Add events of one kind and one instant, and wake the followers."""
        if self.stored or self._above is not None or len(self._events) + len(data) > MOST:
            for each in data:
                self.add(kind, each)
            return
        at, first = self._clock.now(), self.last + 1
        self.last += len(data)
        self._events.extend([(number, at, kind, each) for number, each in enumerate(data, first)])
        if data and self._waiters:
            self.wake()

    def push(self, event: AnyEvent) -> None:
        """Add the event of a call."""
        self.add(event.kind, event)

    def add_end(self, outcome: TurnOutcome) -> None:
        """Add the last event, which is written with the end of the turn; followers are shown it by `end`."""
        self.last += 1
        self._hidden = self.last
        self._events.append((self.last, self._clock.now(), END, outcome))
        if self.stored:
            self._unwritten += 1

    def end(self) -> None:
        """No event follows; followers that wait are told."""
        number, self._hidden = self._hidden, None
        if number is not None and self._above is not None:
            self._above.add(NESTED + END, {**_data(self._end_of(number)[3]), **self._about})
        self.ended = True
        self.wake()

    def _end_of(self, number: int) -> tuple[int, float, str, Source]:
        return next(event for event in reversed(self._events) if event[0] == number)

    def leave(self) -> None:
        """This process has left the turn; followers that wait are told."""
        self.left = True
        self.wake()

    def has_after(self, number: int) -> bool:
        """True when all events beyond a number that are still anywhere are remembered here; those of an earlier process
        never are."""
        if not self.stored or number >= self.last:
            return True
        return bool(self._events) and self._events[0][0] <= number + 1

    def after(self, number: int) -> list[TurnEvent]:
        """The events beyond a number that are remembered here, and that followers may be shown."""
        events = self._events
        skipped = 0
        for entry in events:
            if entry[0] > number:
                break
            skipped += 1
        shown: Iterable[tuple[int, float, str, Source]] = islice(events, skipped, None)
        if self._hidden is not None:
            shown = takewhile(lambda entry: entry[0] != self._hidden, shown)
        return [TurnEvent(each, at, kind, _data(data)) for each, at, kind, data in shown]

    def changed(self) -> asyncio.Future[None]:
        """Done when there is another event, or the end."""
        waiter = self._waiters.add()
        if self.ended:
            waiter.set_result(None)
        return waiter

    def wake(self) -> None:
        """Wake the followers that wait."""
        self._waiters.wake()

    # --- writing

    @property
    def unwritten(self) -> int:
        """How many events the store does not have."""
        return self._unwritten

    @property
    def written(self) -> int:
        """The number up to which all events were taken to be written."""
        return self._events[-self._unwritten][0] - 1 if self._unwritten else self.last

    def take(self) -> EventChunk | None:
        """The events that are to be written next, as one row; None if there are none."""
        if not self._unwritten:
            return None
        while len(self._events) - self._unwritten > REMEMBERED:
            self._events.popleft()
        events = list(islice(self._events, len(self._events) - self._unwritten, None))
        self._unwritten = 0
        data = [{"number": each, "at": at, "kind": kind, "data": _data(data)} for each, at, kind, data in events]
        return EventChunk(self.last, jsonx.encode(data))

    def put_back(self, written: int) -> None:
        """What was taken beyond a number was not written: it is to be taken again, without the end of the turn."""
        if self._hidden is not None:
            self._events.remove(self._end_of(self._hidden))
            if self._hidden == self.last:
                self.last -= 1
            self._hidden = None
        if self.stored:
            self._unwritten = sum(number > written for number, *_ in self._events)


def _data(data: Source) -> Mapping[str, Any]:
    if isinstance(data, Mapping):
        return data
    if isinstance(data, ModelAnswer):
        return {
            "text": data.text,
            "calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in data.calls],
            "stop": data.stop,
            "model": data.model,
            "usage": {name: value for name, value in data.usage.to_json().items() if value},
        }
    if isinstance(data, ToolOutcome):
        return {"call_id": data.call_id, "tool": data.tool, "status": data.status, "text": data.text[:LONGEST_TEXT]}
    if isinstance(data, TurnOutcome):
        told = {name: getattr(data, name) for name in ("status", "text", "limit", "code", "reason")}
        return {name: value for name, value in told.items() if value} | {"usage": data.usage.to_json()}
    if isinstance(data, CallStarted):
        return {"call_id": data.call_id, "tool": data.tool, "arguments": data.arguments}
    if isinstance(data, CallFinished):
        return _finished(data)
    told = data.to_json()
    for name in ("kind", "session", "batch", "at", "scope"):
        told.pop(name, None)
    return told


def _finished(event: CallFinished) -> dict[str, Any]:
    told: dict[str, Any] = {"call_id": event.call_id, "tool": event.tool, "status": event.status}
    outcome: ToolOutcome | None = event.outcome
    if outcome is not None:
        told["text"] = outcome.text[:LONGEST_TEXT]
        if outcome.failure is not None:
            told["code"] = outcome.failure.code
    return told


def read_chunk(chunk: EventChunk, after: int) -> list[TurnEvent]:
    """The events of a row that are beyond a number."""
    return [
        TurnEvent(each["number"], each["at"], each["kind"], each["data"])
        for each in jsonx.decode(chunk.data)
        if each["number"] > after
    ]
