"""Keeping secrets out of what a call gives. Owns where they are looked for; not how, nor which there are."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import SecretsError
from toolwright.events import CallNote, CallOutput, CallProgress, CallRetrying, CallStatus, CallWaiting, CallWarning
from toolwright.tools.arguments import HIDDEN, is_hidden
from toolwright.tools.outcome import Attachment, Failure, Image, ToolOutcome

if TYPE_CHECKING:
    from toolwright.calls.execute import CallRun
    from toolwright.calls.host import CallHost

AT_ONCE = 128 * 1024
"""Bytes that are searched on the event loop; more of them would hold up other calls, and go to a thread."""


class Stream(Protocol):
    """A stream of text, of which secrets are taken out also where they are split."""

    def feed(self, text: str) -> str:
        """What can be shown now."""
        ...

    def end(self) -> str:
        """What was held back."""
        ...


class Redactor(Protocol):
    """Takes the secrets of a session out of things: each is replaced by its handle. Any thread may use it."""

    def text(self, text: str) -> str: ...

    def json(self, payload: bytes) -> bytes:
        """Of JSON, which stays JSON: numbers and keys are looked at too."""
        ...

    def value(self, value: Any) -> Any:
        """Of a value that a tool gave, whatever it is."""
        ...

    def content(self, data: bytes, *, sparing: bool) -> bytes:
        """Of bytes; `sparing` leaves alone what is so short that it turns up by chance in a picture."""
        ...

    def stream(self) -> Stream: ...


class Keeper(Protocol):
    """Seals what must be written down with a secret in it. It is there also where there is nothing to redact."""

    def seal(self, name: str, payload: bytes) -> bytes:
        """JSON that tells nothing of the JSON it is made of."""
        ...

    def unseal(self, name: str, payload: bytes) -> bytes: ...

    def fingerprint(self, name: str, payload: bytes) -> str:
        """What tells one payload from another, and nobody what it is.

        Raises:
            SecretsError: there is no usable key.
        """
        ...

    def learn_argument(self, name: str, value: Any) -> None:
        """From now on redact what a call was given as a secret, where it is long enough to be looked for."""
        ...

    def pass_on(self, heir: Any) -> None:
        """Let the keeper of a child session redact what is redacted here."""
        ...


SEALED = b'{"toolwright.sealed":'
"""How the JSON of what was sealed begins."""


def sealed(host: CallHost, name: str, payload: bytes) -> bytes:
    """The result of a step, as it may be written down: a tool that asks for it again must get it with its secrets."""
    redactor = host.redactor
    return payload if redactor is None or redactor.json(payload) is payload else host.keeper.seal(name, payload)


def unsealed(host: CallHost, name: str, payload: bytes) -> bytes:
    """The result of a step that was perhaps sealed."""
    return host.keeper.unseal(name, payload) if payload.startswith(SEALED) else payload


def weight(outcome: ToolOutcome) -> int:
    """About how many bytes must be searched."""
    size = len(outcome.payload) + len(outcome.raw_output or "") + len(outcome.model_text or "")
    return size + sum(len(item.data) for item in outcome.images) + sum(len(item.data) for item in outcome.attachments)


def redact_outcome(redactor: Redactor, outcome: ToolOutcome) -> ToolOutcome:
    """The outcome without secrets, wherever a tool could have put one."""
    changes: dict[str, Any] = {}
    if (payload := redactor.json(outcome.payload)) is not outcome.payload:
        changes |= {"payload": payload, "cached_value": UNSET}
    for name in ("raw_output", "provider", "reason", "model_text"):
        text = getattr(outcome, name)
        if text is not None and (redacted := redactor.text(text)) is not text:
            changes[name] = redacted
    if outcome.failure is not None and (failure := redact_failure(redactor, outcome.failure)) is not outcome.failure:
        changes["failure"] = failure
    if outcome.images:
        changes["images"] = tuple(_image(redactor, image) for image in outcome.images)
    if outcome.attachments:
        changes["attachments"] = tuple(_attachment(redactor, item) for item in outcome.attachments)
    return replace(outcome, **changes) if changes else outcome


def redact_failure(redactor: Redactor, failure: Failure) -> Failure:
    """The failure without secrets."""
    changes = {}
    for name in ("message", "code", "detail"):
        text = getattr(failure, name)
        if isinstance(text, str) and (redacted := redactor.text(text)) is not text:
            changes[name] = redacted
    return replace(failure, **changes) if changes else failure


def _image(redactor: Redactor, image: Image) -> Image:
    return Image(_data(redactor, image.data), _text(redactor, image.media_type))


def _attachment(redactor: Redactor, item: Attachment) -> Attachment:
    return Attachment(_text(redactor, item.name), _data(redactor, item.data), _text(redactor, item.media_type))


def _text(redactor: Redactor, text: Any) -> Any:
    return redactor.text(text) if isinstance(text, str) else text


def _data(redactor: Redactor, data: Any) -> Any:
    """Content in base64. Looked at as it was before: in the middle of base64, a handle would spoil the rest."""
    if not isinstance(data, str):
        return data
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return redactor.text(data)
    redacted = redactor.content(content, sparing=not _is_text(content))
    if redacted is not content:
        return base64.b64encode(redacted).decode("ascii")
    # It may be no base64 after all, and only look like it.
    written = data.encode("ascii")
    redacted = redactor.content(written, sparing=True)
    return data if redacted is written else redacted.decode()


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- the arguments of a call


def shown_arguments(run: CallRun, raw: bytes | None = None) -> bytes:
    """The arguments of a call as others may see them: those it has, or `raw`, which it had before."""
    redactor, raw = run.host.redactor, run.raw if raw is None else raw
    if run.tool is not None and run.tool.definition.secret is not None:
        raw = _hidden(raw, run.tool.definition.secret, lambda value: HIDDEN)
    return raw if redactor is None else redactor.json(raw)


def written_arguments(run: CallRun) -> bytes:
    """The arguments of a call as they may be written down and hashed: without secrets where a tool gave them.

    What came from outside is written as it came, for after a crash the call may have to run by what is written. The
    parameter that a tool says is secret is not: of its value there is only what tells it from another.
    """
    redactor, raw = run.host.redactor, run.raw
    if run.tool is not None and (secret := run.tool.definition.secret) is not None:
        raw = _hidden(raw, secret, lambda value: _told_apart(run.host, run.name, value))
    return raw if run.parent_id is None or redactor is None else redactor.json(raw)


def learn_secret(run: CallRun) -> None:
    """Let the secret that a call is given be redacted: its tool may echo it, or fail with it in its message."""
    if run.tool is not None and (secret := run.tool.definition.secret) is not None:
        with contextlib.suppress(jsonx.DecodeError, RecursionError):
            arguments = jsonx.decode(run.raw)
            if isinstance(arguments, dict) and not is_hidden(arguments.get(secret)):
                run.host.keeper.learn_argument(secret, arguments.get(secret))


def _hidden(raw: bytes, parameter: str, instead: Callable[[Any], str]) -> bytes:
    arguments = jsonx.decode(raw)
    if not isinstance(arguments, dict):
        return jsonx.encode(HIDDEN)  # no JSON object was written, so the secret may be anywhere in it
    if parameter not in arguments or is_hidden(arguments[parameter]):
        return raw
    return jsonx.canonical({**arguments, parameter: instead(arguments[parameter])})


def _told_apart(host: CallHost, name: str, value: Any) -> str:
    try:
        return f"[secret #{host.keeper.fingerprint(name, jsonx.canonical(value))[:16]}]"
    except SecretsError:
        return HIDDEN


# --- what a running call reports


def redact_event(run: CallRun, event: CallNote) -> CallNote | None:
    """A report of a running call without secrets; None when all of it is held back for now."""
    redactor: Redactor = run.host.redactor  # type: ignore[assignment]
    if isinstance(event, CallOutput):
        return _output(run, redactor, event)
    if isinstance(event, CallProgress):
        shown = (event.current, event.total, event.label, event.unit)
        current, total, label, unit = (redactor.value(each) for each in shown)
        return replace(event, current=current, total=total, label=label, unit=unit)
    for kind, name in ((CallRetrying, "code"), (CallStatus, "text"), (CallWaiting, "name"), (CallWarning, "message")):
        if isinstance(event, kind):
            return replace(event, **{name: redactor.value(getattr(event, name))})
    return event


def _output(run: CallRun, redactor: Redactor, event: CallOutput) -> CallOutput | None:
    name = redactor.value(event.stream)
    if not isinstance(event.text, str) or not isinstance(name, str):
        return replace(event, stream=name, text=redactor.value(event.text))
    if run.streams is None:
        run.streams = {}
    stream = run.streams.get(name)
    if stream is None:
        stream = run.streams[name] = redactor.stream()
    text = stream.feed(event.text)
    return replace(event, stream=name, text=text) if text else None


def publish(host: CallHost, run: CallRun, event: CallNote) -> None:
    """Tell whoever watches what a call reports, without secrets."""
    if host.redactor is not None:
        redacted = redact_event(run, event)
        if redacted is None:
            return
        event = redacted
    host.channel.publish(event)


def rest_of_output(run: CallRun, about: tuple[str, str, float, str, str]) -> list[CallOutput]:
    """What the streams of a call that is over held back."""
    streams, run.streams = run.streams or {}, None
    rest = [(name, stream.end()) for name, stream in streams.items()]
    return [CallOutput(*about, name, text) for name, text in rest if text]
