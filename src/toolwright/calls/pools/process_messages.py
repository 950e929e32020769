"""The messages of a child process to its parent. Owns the messages and their JSON; does not own the socket between the
two.

The parent trusts nothing that a child writes: a message is data, has a bound, and is refused if it is anything else.
A child imports this module to answer, so it imports little.
"""

from __future__ import annotations

import traceback
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.exception_failures import failure_told_by
from toolwright.calls.returned_json import Encoded, encode_result
from toolwright.errors import ToolwrightError
from toolwright.tools.outcome import (
    Attachment,
    ConnectionRequired,
    Failure,
    Image,
    Pending,
    ToolOutcome,
    bounded_json,
    encodable,
    told,
)

LARGEST_MESSAGE = 16 * 1024 * 1024
"""The most bytes of one message. A message of this size is read without holding up the event loop for long."""
LONGEST_TEXT = 20_000
"""The most characters of an exception's text and of its traceback."""
LONGEST_FAILURE = 1024 * 1024
"""The most characters of a failure's message."""
LONGEST_NAME = 200
"""The most characters of a class's name."""
MOST_NAMES = 100
"""The most classes of an exception that are reported."""


class Message(Struct, frozen=True, array_like=True, tag_field="kind", tag=str.lower):
    """One message of a child. `job` is the number of the job that it is about."""

    job: int


class Progress(Message, frozen=True):
    """The tool reports how far it is, in whatever words it likes."""

    current: Any
    total: Any
    label: Any
    unit: Any


class Status(Message, frozen=True):
    """The tool reports its activity."""

    text: str


class Output(Message, frozen=True):
    """The tool reports a piece of its output."""

    stream: str
    text: str


class Key(Message, frozen=True):
    """The tool has taken its completion key."""


class Value(Message, frozen=True):
    """The tool returned a value."""

    payload: Raw
    raw_output: str | None
    images: tuple[Image, ...]
    attachments: tuple[Attachment, ...]
    metadata: dict[str, Any] | None
    text: str | None


class Failed(Message, frozen=True):
    """The tool returned a failure."""

    failure: Failure


class Waits(Message, frozen=True):
    """The tool returned `Pending`."""

    deadline: float | None


class Unconnected(Message, frozen=True):
    """The tool returned `ConnectionRequired`."""

    provider: str


class Raised(Message, frozen=True):
    """The tool raised an exception: its class and that class's bases by name, its text, and where it came from.

    `failure` is set for an exception with a text that a model may read.
    """

    classes: list[str]
    text: str
    trace: str
    failure: Failure | None


Report = Progress | Status | Output | Key
"""The reports of a child while the tool runs."""
AnyMessage = Report | Value | Failed | Waits | Unconnected | Raised
_decoder = msgspec.json.Decoder(AnyMessage)


class NoMessage(ToolwrightError):
    """A child wrote something that is not a message."""


def read_message(data: bytes) -> AnyMessage:
    """Read a message of a child.

    Raises:
        NoMessage: it is not a message, or one that a child may not send.
    """
    try:
        data.decode("utf-8")  # of a value, the decoder looks only at the structure
        message: AnyMessage = _decoder.decode(data)
        if type(message) is Value:
            jsonx.require_readable(bytes(message.payload))
        return message
    except (msgspec.MsgspecError, ValueError, ToolwrightError, RecursionError) as error:
        raise NoMessage("the tool's process wrote something that is not an answer") from error


def write_result(job: int, result: object) -> bytes:
    """The message with a tool's return value; its JSON form is made here, by the same rules as in the parent."""
    if type(result) is ToolOutcome:
        result = _of_outcome(result)
    message: Message
    if type(result) is Pending:
        message = Waits(job, result.deadline)
    elif type(result) is ConnectionRequired and isinstance(result.provider, str):
        message = Unconnected(job, encodable(result.provider))
    else:
        encoded: Encoded | Failure = (
            result if type(result) is Failure or type(result) is Encoded else encode_result(result)
        )
        if isinstance(encoded, Failure):
            message = Failed(job, bounded(encoded))
        else:
            message = Value(
                job,
                Raw(encoded.payload),
                encoded.raw_output,
                encoded.images,
                encoded.attachments,
                encoded.metadata,
                encoded.text,
            )
    data = jsonx.encode(message)
    return data if len(data) <= LARGEST_MESSAGE else jsonx.encode(Failed(job, too_long(len(data))))


def too_long(size: int) -> Failure:
    """The failure of a tool that gives more than may cross from its process."""
    return Failure(
        category="resource_limit",
        code="output_too_long",
        message=f"The tool returned {size} bytes from its process and the limit is {LARGEST_MESSAGE}; "
        "return less, or write it to a file",
        source="runtime",
    )


def write_error(job: int, name: str, error: BaseException) -> bytes:
    """The message for an exception of the tool's code."""
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:  # an exception may have code of its own for its text
        trace = ""
    names = [_name(kind) for kind in type(error).__mro__[:MOST_NAMES]]
    _, _, text = told(error).partition(": ")
    failure = failure_told_by(name, error)
    # The end of a traceback is more useful than its beginning.
    message = Raised(
        job,
        names,
        encodable(text[:LONGEST_TEXT]),
        encodable(trace[-LONGEST_TEXT:]),
        None if failure is None else bounded(failure),
    )
    return jsonx.encode(message)


def _name(kind: type) -> str:
    # By its bare name: a class that travels with its function loses the rest on the way.
    return encodable(f"{kind.__module__}.{kind.__name__}")[:LONGEST_NAME]


def bounded(failure: Failure) -> Failure:
    """A failure whose texts are short enough for a message; the text for a model is cut far earlier."""
    texts = {"message": failure.message, "code": failure.code, "detail": failure.detail}
    changes: dict[str, Any] = {
        field: encodable(text)[:LONGEST_FAILURE] for field, text in texts.items() if text is not None
    }
    if failure.data is not None:
        changes["data"] = bounded_json("Failure data", failure.data)
    return replace(failure, **changes)


def _of_outcome(outcome: ToolOutcome) -> Encoded | ConnectionRequired | Failure:
    """The result of a tool that returns the outcome of another call."""
    if outcome.status == "success":
        return Encoded(
            outcome.payload,
            outcome.raw_output,
            outcome.images,
            outcome.attachments,
            outcome.metadata,
            outcome.given_text,
        )
    if outcome.status == "connection_required" and outcome.provider is not None:
        return ConnectionRequired(outcome.provider)
    return outcome.failure or Failure(message=f"The call {outcome.call_id!r} ended as {outcome.status!r}")


def names_of(kinds: tuple[type[BaseException], ...]) -> set[str]:
    """Classes of exceptions by the names that a child gives them."""
    return {_name(kind) for kind in kinds}
