"""A model, as turns and tools ask it. Owns the protocol of a model, its request, its answer, the pieces of a streamed
answer, and the conversation that a request holds; `toolwright.providers` has the models of real providers.

A conversation is neutral: each provider writes it in its own form. An answer keeps the form in which its provider gave
it (`native`), which goes back to that provider unread and unchanged, and is left out for any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from toolwright.errors import ToolwrightError
from toolwright.plain_data import plain_data
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Image, ToolOutcome

Stop: TypeAlias = Literal["end", "calls", "length", "refusal", "pause", "context"]
"""Why a model stopped: it has answered, it calls tools, its answer was cut at the limit of its length, it refuses, it
wants to be asked again to continue, or the conversation is longer than its context window."""
ToolChoice: TypeAlias = str
""""auto", "required", "none", or the name of the one tool that the model must call."""


class ModelError(ToolwrightError):
    """A model could not answer. `code` says why; `retry` says whether asking again may help.

    The codes are "rate_limited", "overloaded", "unavailable", "timeout", "context_overflow", "content_refused",
    "unauthorised", "bad_request" and "bad_answer". The message never holds a key.
    """

    def __init__(self, message: str, code: str = "unavailable", *, retry: bool = False, after: float | None = None):
        super().__init__(message)
        self.code = code
        self.retry = retry
        self.after = after
        """Seconds that the provider asks to wait before the next attempt."""


class Usage(Struct, frozen=True, gc=False):
    """The tokens of one model call, or of several. `input` counts all tokens of the request, cached ones included.

    `cost` is in the currency of the model's price; None where no price is known.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    """Tokens of the input that the provider had cached."""
    cache_write: int = 0
    """Tokens of the input that the provider wrote to its cache."""
    reasoning: int = 0
    """Tokens of the output that the model used to reason."""
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            cost,
        )

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain data."""
        return plain_data(self)


# --- a conversation


class UserMessage(Struct, frozen=True):
    """A message to the model: text, and images."""

    text: str
    images: tuple[Image, ...] = ()


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """One answer of a model: text, calls, or both.

    `native` is the answer in the form of its provider: `{"format": ..., "items": [...]}`, as JSON.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: Stop = "end"
    usage: Usage = Usage()
    native: Mapping[str, Any] | None = None
    reasoning: str = ""
    """The part of its reasoning that the provider shows."""
    images: tuple[Image, ...] = ()
    id: str = ""
    """The provider's id of the answer."""
    model: str = ""
    """The name of the model that gave it, as "provider:name"."""

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data."""
        return plain_data(self)


class ToolResults(Struct, frozen=True):
    """The results of the calls of the answer before it, in the order of the calls."""

    outcomes: tuple[ToolOutcome, ...]


Item: TypeAlias = UserMessage | ModelAnswer | ToolResults
"""One part of a conversation. An answer with calls is directly followed by its results."""


# --- asking


class ModelRequest(Struct, frozen=True):
    """A request to a model: of a turn, or of a tool that uses `ctx.complete`.

    The messages of a turn are a conversation of `Item`s. Those of a tool are what the tool gave: usually mappings with
    `role` and `content`; `options` are its arguments beside the messages. `call_id` and `tool` name the call that
    asks, so that its tokens can be counted as its own; `scope` is its batch's.
    """

    session: str
    messages: Sequence[Any]
    options: Mapping[str, Any] = {}
    call_id: str = ""
    tool: str = ""
    scope: str = ""
    turn: str = ""
    """The id of the turn that asks; empty for a tool."""
    number: int = 0
    """How many answers the conversation of the session had before, shortened or not."""
    instructions: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel: bool | None = None
    """Whether the answer may have several calls; None leaves it to the provider."""
    max_tokens: int | None = None
    answer_schema: Mapping[str, Any] | None = None
    """The JSON schema that the text of the final answer must fulfil."""

    def to_json(self) -> dict[str, Any]:
        """The request as plain data."""
        return plain_data(self)


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the text of an answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    """A piece of the reasoning of an answer that the provider shows."""

    text: str


class CallDelta(Struct, frozen=True, gc=False):
    """A piece of a call, as its model writes it: `arguments` is a part of their JSON text."""

    call_id: str
    name: str
    arguments: str


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta


class ModelClient(Protocol):
    """The least that a model must have: tools and turns can ask it, and nothing is streamed.

    A `ModelError` or `ToolError` with `retry` is not recorded in the step of a tool that asked; any other result is.
    """

    async def complete(self, request: ModelRequest) -> object:
        """The answer: a `ModelAnswer`, a text, or a list of `ToolCall`s. A tool may be given any JSON value."""
        ...


@runtime_checkable
class Model(Protocol):
    """A model that turns ask. `toolwright.testing.conformance` has its suite.

    Cancelling `complete`, or closing the iterator of `stream`, ends the request. A failure is a `ModelError`.
    """

    @property
    def provider(self) -> str:
        """The name of its provider, such as "anthropic"."""
        ...

    @property
    def name(self) -> str:
        """Its name at the provider."""
        ...

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The whole answer."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelAnswer]:
        """The answer in pieces as they come; the last item is the whole answer."""
        ...


@runtime_checkable
class HoldsConnections(Protocol):
    """A model with connections, which are kept between requests while somebody holds it, as an open runtime does."""

    def hold(self) -> None:
        """Keep the connections of this event loop from now on, once they are made."""
        ...

    async def release(self) -> None:
        """Close the connections, unless somebody else holds them."""
        ...


def to_answer(given: object, model: str = "") -> ModelAnswer:
    """What a model gave as a `ModelAnswer`: a text is an answer, and a list of calls is one that calls tools.

    Raises:
        ModelError: it is none of these.
    """
    if isinstance(given, ModelAnswer):
        return given if given.model or not model else replace(given, model=model)
    if isinstance(given, str):
        return ModelAnswer(text=given, model=model)
    if isinstance(given, list | tuple) and all(isinstance(call, ToolCall) for call in given):
        return ModelAnswer(calls=tuple(given), stop="calls" if given else "end", model=model)
    raise ModelError(
        f"A model gave {type(given).__name__}, which is no answer; give text, a list of ToolCall, or a ModelAnswer",
        "bad_answer",
    )
