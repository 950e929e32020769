"""Outcomes of calls. Owns outcomes, failures and the text a model reads; does not own how they come about.

Each type declares how its own fields are transformed. `unsearched` are the fields that hold nothing a tool wrote:
redaction searches all others. `encoded` says how a field is searched that is neither text nor plain data. `untold` are
the fields that its JSON form leaves out, or has in another way: it has all others.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from toolwright import jsonx
from toolwright.errors import ToolwrightError
from toolwright.large_json import decode_text
from toolwright.plain_data import instant_text, plain_data

if TYPE_CHECKING:
    from toolwright.tools.service_protocols import AttachmentInfo

Verdict = Literal["approved", "denied", "answered", "declined", "expired", "cancelled"]
Status = Literal["success", "failure", "cancelled", "pending", "connection_required"]
Source = Literal["runtime", "tool", "policy", "hook"]
SOURCES: tuple[Source, ...] = get_args(Source)

CATEGORIES = frozenset(
    {
        "invalid_arguments",
        "not_found",
        "unavailable",
        "permission_denied",
        "timeout",
        "execution",
        "external",
        "resource_limit",
        "interrupted",
        "internal",
    }
)
"""The classes of failure. A program branches on these; `code` is more specific."""


LONGEST_NOTE = 2_000
"""Characters of arguments that a model is shown when a person changed them."""
LONGEST = 2**63
"""Seconds that cannot be waited for, and that a store cannot write."""


LARGEST_DATA = 64 * 1024
"""Bytes of the JSON of a failure's data and of a success' metadata."""


def bounded_json(what: str, value: object) -> Any:
    """A value in its JSON form, as it is after a replay; for a value that is too long, only its length.

    Raises:
        ToolwrightError: it has no JSON form.
    """
    try:
        encoded = jsonx.encode(value)
        if len(encoded) > LARGEST_DATA:
            return {"omitted_bytes": len(encoded)}
        return jsonx.decode(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolwrightError(f"{what} {value!r:.200} has no JSON form ({error}); use plain values") from error


class Failure(Struct, frozen=True, gc=False, kw_only=True):
    """Why a call failed, as a value that a model reads.

    Return one from a tool, or raise `ToolError`, which makes one. `message` is for the model; `detail` is private: it
    goes to the log and the record, never into text, artifacts or events. `data` is for programs: the facts of the
    message, such as the limit that was exceeded, as JSON of up to 64 KiB. The model does not read it.
    """

    unsearched: ClassVar[frozenset[str]] = frozenset({"category", "source", "retry", "retry_after", "attempts"})
    untold: ClassVar[frozenset[str]] = frozenset({"detail", "attempts"})  # the outcome has the attempts

    message: str
    """The text for the model."""
    category: str = "execution"
    """The class of failure, such as "timeout" or "permission_denied"."""
    code: str = "tool_error"
    """A short stable word for programs."""
    source: Source = "tool"
    """The part that failed: "tool", "runtime", "policy" or "hook"."""
    retry: bool = False
    """Whether running the call again is safe and may help."""
    retry_after: float | None = None
    """Seconds to wait before that."""
    attempts: int = 1
    """How often the tool was tried."""
    detail: str | None = None
    """Private text for the log and the record, never for the model."""
    data: Any = None
    """JSON for programs, which the model does not read."""

    def __post_init__(self) -> None:
        if self.data is not None:
            force_setattr(self, "data", bounded_json("Failure data", self.data))
        # What is not of its type here could be written, and never be read again.
        for name in ("message", "code", "category", "source", "detail"):
            text = getattr(self, name)
            if type(text) is str and text.isascii():
                continue
            if text is None and name == "detail":
                continue
            if not isinstance(text, str):
                raise ToolwrightError(f"Failure {name} {text!r:.200} is not text; use a string")
            # A lone surrogate, as in the name of an odd file, has no place in JSON; nor has a subclass of text.
            force_setattr(self, name, encodable(text))
        if self.category not in CATEGORIES:
            raise ToolwrightError(
                f"Failure category {self.category!r} is not known; use one of {', '.join(sorted(CATEGORIES))}"
            )
        if self.source not in SOURCES:
            raise ToolwrightError(f"Failure source {self.source!r:.200} is not known; use one of {', '.join(SOURCES)}")
        if type(self.retry) is not bool:
            raise ToolwrightError(f"Failure retry {self.retry!r:.200} is not usable; use True or False")
        if type(self.attempts) is not int or not 0 <= self.attempts < 2**63:
            raise ToolwrightError(f"Failure attempts {self.attempts!r:.200} is not usable; use a whole number")
        after = self.retry_after
        if after is not None and (type(after) not in (int, float) or not 0 <= after < LONGEST):
            raise ToolwrightError(f"Failure retry_after {after!r:.200} is not usable; use seconds, 0 or more")

    def to_json(self) -> dict[str, Any]:
        """The failure as plain data. Leaves out private detail."""
        return _told(self)


class ToolError(Exception):
    """Raise it inside a tool to fail with a message that the model may read.

    Any other exception counts as internal: the model sees one generic sentence, the record has the cause.

    Args:
        message: the text for the model.
        category: one of the failure categories.
        code: a short stable word for programs.
        retry: whether running the call again is safe and may help.
        retry_after: seconds to wait before that; implies `retry`.
        detail: private text for the record and the log, never for the model.
        data: JSON of up to 64 KiB for programs, which the model does not read.
    """

    def __init__(
        self,
        message: str,
        *,
        category: str = "execution",
        code: str = "tool_error",
        retry: bool = False,
        retry_after: float | None = None,
        detail: str | None = None,
        data: object = None,
    ) -> None:
        super().__init__(message)
        self.failure = Failure(
            category=category,
            code=code,
            message=message,
            source="tool",
            retry=retry or retry_after is not None,
            retry_after=retry_after,
            detail=detail,
            data=data,
        )


GONE = ""
"""The hash of content that was in an attachment, which the session no longer has."""


class Image(Struct, frozen=True, gc=False):
    """A picture that a model sees natively: base64 data and its media type. Return it from a tool, alone or inside a
    value, or among the images of a `Success`.

    With a `hash`, the data is that of an attachment of the session, and comes in when results are written for a
    provider: outcomes and records stay small.
    """

    encoded: ClassVar[dict[str, str]] = {"data": "base64", "hash": "hash"}
    untold: ClassVar[frozenset[str]] = frozenset()

    data: str
    media_type: str = "image/png"
    hash: str | None = None

    @classmethod
    def from_bytes(cls, content: bytes, media_type: str = "image/png") -> Image:
        """Make an image of its raw bytes."""
        return cls(base64.b64encode(content).decode("ascii"), media_type)

    @classmethod
    def from_attachment(cls, info: AttachmentInfo) -> Image:
        """Make an image of an attachment of the session."""
        return cls("", info.media_type, info.hash)

    def to_json(self) -> dict[str, Any]:
        """The image as plain data."""
        return _told(self)


class Attachment(Struct, frozen=True, gc=False):
    """Content that travels with an outcome: a name, a media type, base64 data, or the `hash` of an attachment."""

    encoded: ClassVar[dict[str, str]] = {"data": "base64", "hash": "hash"}
    untold: ClassVar[frozenset[str]] = frozenset()

    name: str
    data: str
    media_type: str = "application/octet-stream"
    hash: str | None = None

    @classmethod
    def from_attachment(cls, info: AttachmentInfo) -> Attachment:
        """Make one of an attachment of the session."""
        return cls(info.name, "", info.media_type, info.hash)

    def to_json(self) -> dict[str, Any]:
        """The attachment as plain data."""
        return _told(self)


class Success(Struct, frozen=True):
    """Return it from a tool that has more to give than a value.

    `text` is what the model reads in place of the value, such as a sentence or a table; programs have the value. It is
    redacted, cut and stored like any text for the model. `raw_output` travels beside the value and never inside it, so
    that no key of the value can collide with it. References from `ctx.attachments.put` may stand among the images and
    attachments; pictures go to the images automatically. `metadata` is for programs that show the outcome, as JSON of
    up to 64 KiB; the model does not read it. A text under "summary" becomes the summary of a finished background run,
    in place of the beginning of the value.
    """

    value: Any = None
    raw_output: str | None = None
    images: Sequence[Image | AttachmentInfo] = ()
    attachments: Sequence[Attachment | AttachmentInfo] = ()
    metadata: Mapping[str, Any] | None = None
    text: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The value, and all that comes with it, as plain data."""
        return plain_data(self)


class Pending(Struct, frozen=True, gc=False):
    """Return it from a tool whose result comes later, from outside. `deadline` is seconds from now."""

    deadline: float | None = None

    def __post_init__(self) -> None:
        after = self.deadline
        if after is not None and (type(after) not in (int, float) or not 0 <= after <= sys.float_info.max):
            raise ToolwrightError(f"Pending deadline {after!r:.200} is not usable; use seconds from now, 0 or more")

    def to_json(self) -> dict[str, Any]:
        """The deadline, in seconds from now, as plain data."""
        return {"deadline": self.deadline}


class ConnectionRequired(Struct, frozen=True, gc=False):
    """Return it from a tool that needs the session connected to a provider first."""

    provider: str

    def to_json(self) -> dict[str, Any]:
        """The provider as plain data."""
        return plain_data(self)


class Decision(Struct, frozen=True, gc=False, omit_defaults=True):
    """A person's decision about a call that needed an approval, or about a question of its tool: by whom, when, from
    where, why.

    `verdict` is "approved" or "denied", for a question "answered" or "declined", "expired" where nobody decided in
    time, or "cancelled". `edited` means that a person gave other arguments, which are then in `arguments`. `always`
    means that the decision applies to later calls too; these carry the original decision. `at` is in seconds
    since the epoch.
    """

    unsearched: ClassVar[frozenset[str]] = frozenset({"verdict", "at", "edited", "always"})
    untold: ClassVar[frozenset[str]] = frozenset()

    verdict: Verdict
    at: float
    by: str | None = None
    reason: str | None = None
    edited: bool = False
    always: bool = False
    arguments: Any = None
    via: str | None = None

    @property
    def note(self) -> str | None:
        """The note for the model beside the result: that a person changed its arguments."""
        if not self.edited:
            return None
        written = jsonx.encode(self.arguments).decode()
        to = f" to {written}" if len(written) <= LONGEST_NOTE else ""
        return f"A person changed the arguments of this call{to} before it ran."

    def to_json(self) -> dict[str, Any]:
        """The decision as plain data."""
        return _told(self)


NOT_KNOWN = ", before the journal said whether it had run earlier"
"""How the reason of a call ends that was stopped before anything was known of its past."""
CUT_OFF_EARLIER = ", before anything was done for it after a crash had cut it off"
"""How the reason of a call ends that was stopped before it could continue: it may have had an effect earlier."""
RUN_BY_ANOTHER = ", while another batch ran it"
"""The end of the reason of a call that shared the execution of another one, which continues."""


INTERNAL_MESSAGE = "The tool failed with an internal error; its details are in the log."
"""All that a model learns of an unexpected exception."""


class ToolOutcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """The end of one call. `value` is the JSON form of the tool's return value, the same now and after a replay.

    `payload` is that value encoded; `value` and `text` are derived from it when first used. `may_have_run` means that a
    call that failed or was cancelled may have had an effect; a cancelled call without an effect may run another time.
    `decided_by` is the rule that decided whether it may run, and `decision` the answer of a person. `metadata` is data
    of the tool for programs, and not for the model.
    """

    unsearched: ClassVar[frozenset[str]] = frozenset(
        {"call_id", "tool", "status", "attempts", "decided_by", "may_have_run", "replayed", "spilled_to"}
    )
    encoded: ClassVar[dict[str, str]] = {"payload": "json", "cached_value": "of payload"}
    untold: ClassVar[frozenset[str]] = frozenset({"payload", "cached_value", "model_text"})  # it has `value` and `text`

    call_id: str
    """The id of the call."""
    tool: str
    """The name of the tool."""
    status: Status
    """"success", "failure", "cancelled", "pending" or "connection_required"."""
    payload: bytes = b"null"
    """The value as JSON."""
    attempts: int = 0
    """How often the tool was tried; 0 if it never ran."""
    decided_by: str | None = None
    """The rule that decided whether the call may run."""
    failure: Failure | None = None
    """Why it failed, for the status "failure"."""
    raw_output: str | None = None
    """Text beside the value, such as the output of a program."""
    images: tuple[Image, ...] = ()
    """The images that the model sees."""
    attachments: tuple[Attachment, ...] = ()
    """The files that travel with the outcome."""
    provider: str | None = None
    """The provider to connect to, for the status "connection_required"."""
    reason: str | None = None
    """Why it was cancelled, for the status "cancelled"."""
    may_have_run: bool = False
    """Whether a call that failed or was cancelled can have had an effect."""
    replayed: bool = False
    """True when the outcome was recorded earlier, and nothing ran now."""
    spilled_to: str | None = None
    """The file that holds the whole output, if the model reads less."""
    decision: Decision | None = None
    """A person's decision about the call."""
    model_text: str | None = None
    """The text that the model reads, if it was shortened or projected; read `text` instead."""
    metadata: dict[str, Any] | None = None
    """Data of the tool for programs, beside its value."""
    given_text: str | None = None
    """The text for the model that the tool gave beside its value, before any bound; read `text` instead."""
    cached_value: Any | UnsetType = UNSET

    @property
    def ok(self) -> bool:
        """True for a success."""
        return self.status == "success"

    @property
    def value(self) -> Any:
        """The tool's value in its JSON form; None unless the call succeeded."""
        value = self.cached_value
        if value is UNSET:
            value = jsonx.decode(self.payload)
            force_setattr(self, "cached_value", value)
        return value

    @property
    def text(self) -> str:
        """The text for the model, bounded: the one that the tool gave, else the value as JSON, or a string as it is."""
        text = self.model_text
        if text is None:
            text = self.full_text()
            force_setattr(self, "model_text", text)
        return text

    def full_text(self) -> str:
        """The text before any bound or projector."""
        note = None if self.decision is None else self.decision.note
        if self.status == "success":
            payload, given = self.payload, self.given_text
            if note is not None:
                result = payload if given is None else jsonx.encode(given)
                return f'{{"note":{jsonx.encode(note).decode()},"result":{result.decode()}}}'
            if given is not None:
                return given
            return decode_text(payload) if payload[:1] == b'"' else payload.decode("utf-8")
        if self.failure is not None:
            return error_text(self.failure.message if note is None else f"{self.failure.message} ({note})")
        if self.status == "connection_required":
            return jsonx.encode({"connection_required": self.provider}).decode("utf-8")
        if self.status == "pending":
            return '{"status":"pending"}'
        return error_text(f"Cancelled: {self.reason or 'the batch was cancelled'}; {self.how_far}.")

    @property
    def how_far(self) -> str:
        """The effect that a cancelled call may have had, in words."""
        if self.reason is not None and self.reason.endswith(NOT_KNOWN):
            return "whether it ran then is not known"
        if self.may_have_run:
            return "it may have had an effect"
        return "it had no effect" if self.attempts else "it did not run"

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data, for logs, files and other programs. Leaves out private detail."""
        shown: dict[str, Any] = {"call_id": self.call_id, "tool": self.tool, "status": self.status}
        if self.status == "success":
            shown["value"] = self.value
        shown |= _told(self, _TOLD_FIRST | _TOLD_LAST)
        if self.status in ("cancelled", "failure"):
            shown["may_have_run"] = self.may_have_run
        shown["attempts"] = self.attempts
        shown["replayed"] = self.replayed
        shown["text"] = self.text
        return shown


_TOLD_FIRST = frozenset({"call_id", "tool", "status"})
_TOLD_LAST = frozenset({"may_have_run", "attempts", "replayed"})


def _told(item: Any, but: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The JSON form of a value by its fields. A field that holds nothing is left out, unless readers expect it."""
    shown = {}
    for name in item.__struct_fields__:
        if name not in item.untold and name not in but:
            held = getattr(item, name)
            value = instant_text(held) if name == "at" else _told_value(held)
            if (value is not None and value != []) or name in _ALWAYS_TOLD:
                shown[name] = value
    return shown


def _told_value(value: object) -> object:
    if isinstance(value, tuple):
        return [_told_value(each) for each in value]
    return _told(value) if isinstance(value, Struct) else value


_ALWAYS_TOLD = frozenset({"retry_after"})


def error_text(message: str) -> str:
    """The JSON a model reads for an error, whatever the message contains."""
    return jsonx.encode({"error": encodable(message)}).decode("utf-8")


def encodable(text: str) -> str:
    """The text as it is, or with every lone surrogate written out, so that it has a form in UTF-8."""
    if text.isascii():
        return str.__str__(text)  # of a subclass, which JSON does not know, the plain string
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def told(error: BaseException) -> str:
    """The type and text of an exception, also of one whose own text cannot be read."""
    try:
        text = str(error)
    except Exception:  # the exception's own code
        text = "(its text could not be read)"
    return f"{type(error).__name__}: {text}"
