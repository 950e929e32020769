"""What a tracer is told of calls, turns and requests to models. Owns the protocols; `toolwright.telemetry` implements
them with OpenTelemetry.

A trace is told by the W3C header `traceparent`, as text: so it is stored with a call, a run or a turn, and read in
another process. No method of these raises, whatever the tracer does: watching never breaks a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias

from toolwright.events import CallFacts, CallNote
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.model import ModelRequest
from toolwright.tools.turn_protocols import TurnOutcome

LinkKind: TypeAlias = Literal["replay", "shared", "takeover", "continued"]
"""Why a span is linked to an earlier one: the call has the outcome of that one, or shares its execution; the work was
cut off and is taken over; or the turn continues after a wait."""
Redact: TypeAlias = Callable[[bytes], bytes]
"""Takes the secrets of a session out of JSON."""


class TimedCall(CallFacts, Protocol):
    """The facts of a call with the marks of its clock, in seconds: when it came, and when its tool began and ended."""

    queued: float
    started: float | None
    finished: float | None


class CallSpan(Protocol):
    """The span of one call, from when it comes to its outcome."""

    @property
    def trace(self) -> str:
        """Its `traceparent`; empty if it has none."""
        ...

    @property
    def mark(self) -> object:
        """What `link` knows it by, in this process and for as long as it runs. It costs less than the text."""
        ...

    def enter(self) -> None:
        """Let the code that runs in this context, which is the call's own, be inside of it."""
        ...

    def in_child(self) -> Callable[[Any], AbstractContextManager[object]] | None:
        """Makes the context manager by which code in a child process is inside of it. It can be pickled."""
        ...

    def link(self, earlier: object, why: LinkKind) -> None:
        """Link it to an earlier span, by its `traceparent` or its mark."""
        ...

    def note(self, event: CallNote) -> None:
        """Something happened to the call, such as a retry or a wait. The event has no secrets."""
        ...

    def ended(self, record: TimedCall) -> None:
        """The call has its outcome, or is left while it waits."""
        ...


class OpenCallSpan(Protocol):
    """Makes the span of a call of a batch. `tool` is None for a tool that is not known."""

    def __call__(self, call_id: str, name: str, tool: ToolDefinition | None, source: str, /) -> CallSpan: ...


class TurnSpan(Protocol):
    """The span of the work on one turn, from its claim until it ends or waits."""

    @property
    def trace(self) -> str:
        """Its `traceparent`; empty if it has none."""
        ...

    def ended(self, outcome: TurnOutcome) -> None:
        """The turn has ended, or waits."""
        ...


class ModelSpan(Protocol):
    """The span of one request to a model, with its retries."""

    def retrying(self, data: Mapping[str, Any]) -> None:
        """An attempt failed, and another follows."""
        ...

    def answered(self, answer: object) -> None:
        """The model has answered."""
        ...


class WorkerCounts(Protocol):
    """Gives the numbers of a worker, as its `/metrics` has them; None while there is no worker."""

    def __call__(self) -> Mapping[str, Any] | None: ...


class Tracing(Protocol):
    """Makes the spans of a runtime. Everything is below the span that is current where it begins."""

    def calls(self, session: str, scope: str) -> OpenCallSpan:
        """Makes the spans of the calls of a batch that came just now."""
        ...

    def turn(
        self, session: str, turn_id: str, model: str, agent: str | None, asked_in: str, before: str, why: LinkKind
    ) -> AbstractContextManager[TurnSpan]:
        """The span of the work on a turn. `asked_in` is the trace of the program that asked; `before` that of the work
        on the turn that was cut off or ended with a wait, and `why` which of the two; both may be empty."""
        ...

    def model_call(
        self, model: object, request: ModelRequest, redact: Redact | None
    ) -> AbstractContextManager[ModelSpan]:
        """The span of a request to a model. `redact` is for its content, where that is wanted."""
        ...

    def current(self) -> str:
        """The `traceparent` of the span that is current here; empty if there is none."""
        ...

    def inside(self, trace: str) -> AbstractContextManager[object]:
        """Let code be inside of a span that another program, or another process, has begun."""
        ...

    def opened(self, worker: WorkerCounts) -> Callable[[], None]:
        """A runtime was opened, and counts what its worker does. What is returned is called when it is closed."""
        ...
