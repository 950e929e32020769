"""Events of running calls. Owns the kinds of events and their JSON form; `event_bus.py` delivers them."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from msgspec import Struct

from toolwright.plain_data import instant_text

LARGEST = 64 * 1024
"""Bytes of arguments or of a value in the JSON form of an event."""
_INSTANTS = frozenset({"at", "deadline"})


class CallFacts(Protocol):
    """The facts of a call in its events; the call's record has them."""

    session: str
    batch: str
    call_id: str
    tool: str
    source: str
    parent: str | None
    scope: str
    raw_arguments: bytes
    outcome: Any

    @property
    def attempts(self) -> int: ...

    @property
    def queued_at(self) -> float: ...

    @property
    def started_at(self) -> float | None: ...

    @property
    def finished_at(self) -> float | None: ...

    @property
    def queue_time(self) -> float: ...

    @property
    def run_time(self) -> float: ...

    @property
    def arguments(self) -> Any: ...

    @property
    def status(self) -> str: ...

    @property
    def category(self) -> str | None: ...

    @property
    def code(self) -> str | None: ...

    @property
    def replayed(self) -> bool: ...


class Event(Struct, frozen=True, gc=False):
    """Something that happened in a session. `at` is in seconds since the epoch, and RFC 3339 text in its JSON form.

    `unsearched` are the fields that hold nothing a tool wrote: redaction searches all others, also those of an event
    type that is added later.
    """

    kind: ClassVar[str] = "event"
    droppable: ClassVar[bool] = False
    unsearched: ClassVar[frozenset[str]] = frozenset({"session", "batch", "at"})

    session: Any
    batch: Any
    at: Any

    def to_json(self) -> dict[str, Any]:
        """The event as plain data."""
        told = {"kind": self.kind} | {name: getattr(self, name) for name in self.__struct_fields__}
        for name in _INSTANTS & told.keys():
            if isinstance(told[name], (int, float)):
                told[name] = instant_text(told[name])
        return told


class BatchStarted(Event, frozen=True, gc=False):
    """A batch was taken on: the id and tool of each of its calls, in order."""

    kind: ClassVar[str] = "batch.started"
    unsearched: ClassVar[frozenset[str]] = Event.unsearched | {"calls", "parent", "scope"}

    calls: tuple[tuple[str, str], ...]
    parent: str | None = None
    scope: str = ""


class BatchFinished(Event, frozen=True, gc=False):
    """Every call of a batch has its outcome."""

    kind: ClassVar[str] = "batch.finished"
    unsearched: ClassVar[frozenset[str]] = Event.unsearched | {"statuses", "scope"}

    statuses: dict[str, int]
    scope: str = ""


class CallNote(Event, frozen=True, gc=False):
    """A note by a running call, or about it."""

    unsearched: ClassVar[frozenset[str]] = Event.unsearched | {"call_id", "tool", "scope"}

    call_id: str
    tool: str
    scope: str


class CallProgress(CallNote, frozen=True, gc=False):
    """The progress of a running call."""

    kind: ClassVar[str] = "call.progress"
    droppable: ClassVar[bool] = True

    current: float | None = None
    total: float | None = None
    label: str | None = None
    unit: str | None = None


class CallStatus(CallNote, frozen=True, gc=False):
    """The status text of a running call."""

    kind: ClassVar[str] = "call.status"
    droppable: ClassVar[bool] = True

    text: str


class CallOutput(CallNote, frozen=True, gc=False):
    """A running call sent a piece of output."""

    kind: ClassVar[str] = "call.output"
    droppable: ClassVar[bool] = True

    stream: str
    text: str


class CallEmitted(CallNote, frozen=True, gc=False):
    """An event of a running call that its tool declared."""

    kind: ClassVar[str] = "call.emitted"
    unsearched: ClassVar[frozenset[str]] = CallNote.unsearched | {"name"}

    name: str
    payload: Any


class CallRetrying(CallNote, frozen=True, gc=False):
    """An attempt failed and another will follow after `delay` seconds."""

    kind: ClassVar[str] = "call.retrying"
    unsearched: ClassVar[frozenset[str]] = CallNote.unsearched | {"attempt", "delay"}

    attempt: int
    delay: float
    code: str


class CallWaiting(CallNote, frozen=True, gc=False):
    """A call waits for something outside: its completion, an event, a signal, the end of a sleep, an approval or answer
    of a person, or whatever its sub-agent waits for (`what` is "agent").

    `what` is the kind of the wait, `name` the name that the tool gave it, and `deadline` an instant.
    """

    kind: ClassVar[str] = "call.waiting"
    unsearched: ClassVar[frozenset[str]] = CallNote.unsearched | {"what", "deadline"}

    what: str
    name: str = ""
    deadline: float | None = None


class CallWarning(CallNote, frozen=True, gc=False):
    """Something about a call that its owner should look at, such as a loop."""

    kind: ClassVar[str] = "call.warning"
    unsearched: ClassVar[frozenset[str]] = CallNote.unsearched | {"code"}

    code: str
    message: str


class EventsDropped(Event, frozen=True, gc=False):
    """The subscriber was too slow: this many events before the next one were dropped."""

    kind: ClassVar[str] = "events.dropped"
    unsearched: ClassVar[frozenset[str]] = Event.unsearched | {"count"}

    count: int


class CallEvent(Struct, frozen=True, gc=False):
    """The start or the end of a call, told by its record: a view, so that making one costs next to nothing."""

    kind: ClassVar[str] = "call"
    droppable: ClassVar[bool] = False
    shown: ClassVar[tuple[str, ...]] = ()

    _record: CallFacts

    @property
    def at(self) -> float:
        """When it happened, in seconds since the epoch."""
        return self._record.queued_at

    @property
    def session(self) -> str:
        """The session's id."""
        return self._record.session

    @property
    def batch(self) -> str:
        """The batch's id."""
        return self._record.batch

    @property
    def scope(self) -> str:
        """The scope of the batch, such as the message that it belongs to."""
        return self._record.scope

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self._record.call_id

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self._record.tool

    def to_json(self) -> dict[str, Any]:
        """The event as plain data."""
        told = {"kind": self.kind, "session": self.session, "batch": self.batch, "at": instant_text(self.at)}
        told |= {"call_id": self.call_id, "tool": self.tool, "scope": self.scope}
        return told | {name: getattr(self, name) for name in self.shown}

    def __repr__(self) -> str:
        """The same as `to_json`; a record holds more, which not every subscriber may see."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.to_json().items())})"


class CallStarted(CallEvent, frozen=True, gc=False):
    """A call begins. Each has exactly one `CallFinished`, also where the tool never ran."""

    kind: ClassVar[str] = "call.started"
    shown: ClassVar[tuple[str, ...]] = ("arguments", "source", "parent")

    @property
    def at(self) -> float:
        """When it began; for a call that never ran, when it came."""
        started = self._record.started_at
        return self._record.queued_at if started is None else started

    @property
    def arguments(self) -> Any:
        """The arguments it was given."""
        return self._record.arguments

    @property
    def source(self) -> str:
        """The caller."""
        return self._record.source

    @property
    def parent(self) -> str | None:
        """The id of the call it is part of."""
        return self._record.parent


class CallFinished(CallEvent, frozen=True, gc=False):
    """A call has its outcome. In its JSON form, arguments and values of more than 64 KiB are left out, and so is the
    content of images and attachments.
    """

    kind: ClassVar[str] = "call.finished"
    shown: ClassVar[tuple[str, ...]] = (
        "status",
        "category",
        "code",
        "attempts",
        "queue_time",
        "run_time",
        "replayed",
        "source",
        "parent",
    )

    def to_json(self) -> dict[str, Any]:
        """The event as plain data."""
        record = self._record
        told = super().to_json()
        size = len(record.raw_arguments)
        told["arguments"] = self.arguments if size <= LARGEST else {"omitted_bytes": size}
        told["outcome"] = None if record.outcome is None else _outcome(record.outcome)
        return told

    @property
    def arguments(self) -> Any:
        """The arguments it ran with, as others may see them."""
        return self._record.arguments

    @property
    def outcome(self) -> Any:
        """Its `ToolOutcome`; without its value, if that is longer than a record may be."""
        return self._record.outcome

    @property
    def source(self) -> str:
        """The caller."""
        return self._record.source

    @property
    def parent(self) -> str | None:
        """The id of the call it is part of."""
        return self._record.parent

    @property
    def at(self) -> float:
        """When it ended."""
        return self._record.finished_at or self._record.queued_at

    @property
    def status(self) -> str:
        """The outcome's status."""
        return self._record.status

    @property
    def category(self) -> str | None:
        """The failure's category."""
        return self._record.category

    @property
    def code(self) -> str | None:
        """The failure's code."""
        return self._record.code

    @property
    def attempts(self) -> int:
        """How often the tool was tried."""
        return self._record.attempts

    @property
    def queue_time(self) -> float:
        """Seconds it waited."""
        return self._record.queue_time

    @property
    def run_time(self) -> float:
        """Seconds it ran."""
        return self._record.run_time

    @property
    def replayed(self) -> bool:
        """True when the outcome was a recorded one."""
        return self._record.replayed


def _outcome(outcome: Any) -> dict[str, Any]:
    """The JSON form of an outcome, bounded: without the content of images and attachments, or text that is too long."""
    told: dict[str, Any] = outcome.to_json()
    for name in ("call_id", "tool", "status", "attempts", "replayed"):
        told.pop(name, None)  # the event has them
    given_text = told.pop("given_text", None)  # it is in the text, which is bounded
    if len(outcome.payload) > LARGEST:
        told["value"] = {"omitted_bytes": len(outcome.payload)}
    elif outcome.status == "success" and given_text is None:
        told.pop("text", None)  # it repeats the value
    if len(told.get("raw_output") or "") > LARGEST:
        told["raw_output"] = None
    for kind in ("images", "attachments"):
        for item in told.get(kind, ()):
            item["base64_characters"] = len(item.pop("data"))
    return told


AnyEvent = Event | CallEvent
