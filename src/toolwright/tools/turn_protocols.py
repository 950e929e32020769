"""A turn: from a message to the model's answer. Owns its budget, its outcome, its events, and the protocols of its
handle and of a session's turns; `toolwright.turns` runs turns.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from msgspec import Struct

from toolwright.argument_checks import is_number
from toolwright.errors import ToolwrightError
from toolwright.plain_data import plain_data
from toolwright.tools.model import ModelClient, Usage
from toolwright.tools.outcome import Image, ToolOutcome

TurnStatus: TypeAlias = Literal["answered", "out_of_budget", "cancelled", "failed", "waiting"]
"""How a turn ended, or that it waits: for a person, a completion, a connection, or another turn that does."""
TurnAction: TypeAlias = Literal["started", "answered", "out_of_budget", "cancelled", "failed", "waiting", "handed_back"]
"""The actions of a worker on a turn: it began or continued to work on it, or stopped, with this status of the turn. A
turn that is not finished when the worker closes is "handed_back"."""
TurnState: TypeAlias = Literal["queued", "running", "waiting", "answered", "out_of_budget", "cancelled", "failed"]
"""The state of a turn in its store."""
Delivery: TypeAlias = Literal["next_model_call", "next_turn"]
"""When a message that is sent to a running turn reaches the model."""


class Budget(Struct, frozen=True, kw_only=True):
    """How much one turn may use. None is no limit.

    A turn ends as "out_of_budget" before it would use more; `limit` of its outcome names the budget that was used up.
    The use of its sub-agents counts for it, too: a sub-agent has its own budget, and no more than its turn has left.
    The time that a turn waits for something outside, or in the queue, does not count.
    """

    model_calls: int | None = 10
    """Calls of the model, those of sub-agents included."""
    tool_calls: int | None = None
    """Calls of tools, those of sub-agents included. An answer with more calls than are left is not run at all."""
    tokens: int | None = None
    """Tokens of input and output together. The last model call may exceed it; none follows."""
    cost: float | None = None
    """Cost in the currency of the model's price. It needs a model with a price."""
    seconds: float | None = None
    """Seconds of work. The model call or the tools that are running then are stopped."""
    depth: int | None = 5
    """How deep sub-agents may be nested below the turn; with 0 none can run."""

    def __post_init__(self) -> None:
        for name in ("model_calls", "tool_calls", "tokens", "depth"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ToolwrightError(f"Budget {name}={value!r:.200} is not usable; use a whole number, or None")
        for name in ("cost", "seconds"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0 <= value < math.inf):
                raise ToolwrightError(f"Budget {name}={value!r:.200} is not usable; use a number from 0, or None")

    def to_json(self) -> dict[str, Any]:
        """The limits as plain data."""
        return plain_data(self)


class ContextWindow(Struct, frozen=True, kw_only=True):
    """How long a conversation may become, and what happens before it is too long for its model.

    The size of a conversation is the one that the provider told with the last answer, and an estimate of what came
    since: a token for four characters. Near the window, `when_near` decides:

    - "shorten": the oldest results of tools are left out of the requests, and the model reads the names of the files of
      the session that have them instead. The newest stay. The history is not changed.
    - "summarise": the model is asked for a summary of the older part, which stands for it in all later requests. It is
      stored in the history, so that it is asked for once.
    - "fail": the turn fails with the code "context_overflow".
    """

    tokens: int = 200_000
    """The context window of the model, in tokens."""
    near: float = 0.8
    """The part of it that a request may fill."""
    when_near: Literal["shorten", "summarise", "fail"] = "shorten"

    def __post_init__(self) -> None:
        if isinstance(self.tokens, bool) or not isinstance(self.tokens, int) or self.tokens < 1:
            raise ToolwrightError(f"ContextWindow tokens={self.tokens!r:.200} is not usable; use a number from 1")
        if isinstance(self.near, bool) or not isinstance(self.near, int | float) or not 0 < self.near <= 1:
            raise ToolwrightError(
                f"ContextWindow near={self.near!r:.200} is not usable; use a number above 0 and up to 1"
            )
        if self.when_near not in ("shorten", "summarise", "fail"):
            raise ToolwrightError(
                f"ContextWindow when_near={self.when_near!r:.200} is not usable; use 'shorten', 'summarise' or 'fail'"
            )

    @property
    def limit(self) -> float:
        """The tokens of a request from which on something is done."""
        return self.tokens * self.near

    def to_json(self) -> dict[str, Any]:
        """The options as plain data."""
        return plain_data(self)


class TurnWait(Struct, frozen=True):
    """A call that its turn waits for. `what` is the kind of the wait, such as "approval".

    `session` is the session of the call: for a call of a sub-agent, that of the sub-agent.
    """

    call_id: str
    tool: str
    what: str = ""
    session: str = ""

    def to_json(self) -> dict[str, Any]:
        """The wait as plain data."""
        return plain_data(self)


class TurnOutcome(Struct, frozen=True, kw_only=True):
    """The end of a turn, or the reason why it waits.

    `text` is the model's answer; for a turn that did not answer, what the model said last. `value` is the validated
    value of a turn that was asked for one.
    """

    turn_id: str
    session: str
    status: TurnStatus
    text: str = ""
    value: Any = None
    images: tuple[Image, ...] = ()
    """The images of the answer."""
    limit: str | None = None
    """The budget that was used up, such as "model_calls", for the status "out_of_budget"."""
    code: str | None = None
    """A short stable word for why it failed."""
    reason: str | None = None
    """Why it failed, was cancelled or waits, in words."""
    usage: Usage = Usage()
    """The tokens of all model calls, those of sub-agents included."""
    usage_by_model: Mapping[str, Usage] = {}
    """The same for each model, by "provider:name"."""
    model_calls: int = 0
    """Calls of the model, those of sub-agents included."""
    calls: tuple[ToolOutcome, ...] = ()
    """The outcomes of its tool calls, in order."""
    waits: tuple[TurnWait, ...] = ()
    """The calls it waits for, for the status "waiting"."""

    @property
    def ok(self) -> bool:
        """True when the model has answered."""
        return self.status == "answered"

    @property
    def parts(self) -> tuple[str | Image, ...]:
        """The answer in parts: its text, if it has some, and its images."""
        return (self.text, *self.images) if self.text else self.images

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return plain_data(self)


class TurnEvent(Struct, frozen=True, gc=False):
    """Something that happened in a turn. Numbers grow, with gaps where a turn continued after a crash.

    The kinds: "turn.started"; "text" and "reasoning", a piece of what the model writes; "model.retrying", after which
    the text of this model call begins again; "model.answered", with text, calls and usage; "context.shortened" and
    "context.summarised"; "call.started",
    "call.progress", "call.finished" and the other events of calls; "turn.steered"; "turn.waiting"; "turn.continued";
    and "turn.ended", the last. Events of a sub-agent, its text and reasoning excepted, have "agent." before their kind,
    as in "agent.call.started"; their data has its `session` and `turn`, and the `parent_call_id` of the call it is.
    """

    number: int
    at: float
    kind: str
    data: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The piece of text, or the text that the event tells; empty if it has none."""
        return str(self.data.get("text") or "")

    def to_json(self) -> dict[str, Any]:
        """The event as plain data."""
        return plain_data(self)


class TurnInfo(Struct, frozen=True, kw_only=True):
    """A turn as a list shows it."""

    id: str
    session: str
    number: int
    """Its place among the turns of its session."""
    state: TurnState
    message: str
    """The text that it was started with."""
    model: str
    model_calls: int
    tool_calls: int
    usage: Usage
    created_at: float
    started_at: float | None
    ended_at: float | None
    text: str = ""
    reason: str | None = None
    cancel_reason: str | None = None
    """Why it is to stop, or was stopped."""
    cut_off: bool = False
    """True when the process that worked on it is gone, and no other has taken it yet; `recover` continues it."""
    parent_session: str | None = None
    """For the turn of a sub-agent: the session of the call that runs it."""
    parent_call_id: str | None = None
    """For the turn of a sub-agent: the id of that call."""

    def to_json(self) -> dict[str, Any]:
        """The turn as plain data."""
        return plain_data(self)


class AskOptions(TypedDict, total=False):
    """The options of a turn."""

    model: str | ModelClient | None
    """The model that answers, such as "openai:gpt-5", in place of the app's."""
    budget: Budget | None
    """How much it may use, in place of the app's budget."""
    answer: Any
    """A type, such as a pydantic model: the answer is asked for in this form, validated, and given as `value`."""
    images: Sequence[Image]
    """Images that go with the message."""
    tool_choice: str
    """Whether the first answer calls tools: "auto", "required", "none", or the name of the tool that it must call."""
    parallel: bool | None
    """Whether an answer may have several calls; None leaves that to the provider."""
    max_tokens: int | None
    """The longest answer of one model call; None leaves that to the provider."""
    id: str | None
    """An id of the caller's choice; asked again with the same message it is the same turn."""


class TurnClient(Protocol):
    """The handle of a turn: await it, follow it, steer it, cancel it."""

    @property
    def id(self) -> str: ...

    @property
    def session_id(self) -> str: ...

    def __await__(self) -> Generator[Any, None, TurnOutcome]:
        """The outcome, once the turn has ended or waits for something outside."""
        ...

    async def wait(self, timeout: float | None = None) -> TurnOutcome | None:
        """The outcome once the turn has ended, also after it waited; None if it has not after `timeout` seconds."""
        ...

    def follow(self, after: int = 0) -> AsyncGenerator[TurnEvent]:
        """The events beyond a number, in order, until the turn has ended; from any process."""
        ...

    async def steer(self, message: str, *, when: Delivery = "next_model_call") -> None:
        """Send a message while the turn runs: to its next model call, or as the next turn.

        It is not delivered when the turn ends before its next model call without an answer."""
        ...

    async def cancel(self, reason: str = ...) -> bool:
        """Stop the turn, in any process; False when it has ended already."""
        ...

    async def info(self) -> TurnInfo:
        """The turn as it is now."""
        ...


class TurnsClient(Protocol):
    """The turns of one session."""

    async def ask(self, message: str, options: AskOptions) -> TurnOutcome: ...

    async def start(self, message: str, options: AskOptions, *, background: bool = False) -> TurnClient: ...

    async def list(
        self, *, active: bool = False, limit: int = 100, before: int | None = None
    ) -> builtins.list[TurnInfo]: ...

    async def get(self, id: str) -> TurnClient: ...

    async def ask_in_call(self, call: Any, message: str, options: AskOptions) -> TurnOutcome:
        """Run a turn as part of a running call, in a session that this call opened."""
        ...
