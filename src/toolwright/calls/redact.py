"""Removing secrets from the output of calls. Owns where they are searched; not how, nor which there are."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, reports_of
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.redactor import AtOnce, Redactor, Stream
from toolwright.errors import SecretsError, ServiceError
from toolwright.events import CallNote, CallOutput
from toolwright.large_json import is_within
from toolwright.tools.arguments import HIDDEN, is_hidden
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import Failure, ToolOutcome
from toolwright.tools.tool import Tool

_T = TypeVar("_T")
S = TypeVar("S", bound=Struct)

AT_ONCE = 16 * 1024
"""Bytes that are searched on the event loop; more of them would hold up other calls, and go to a thread."""


MOST_SEARCHED = 70_000
"""Items and fields of arguments that are searched before their call is prepared. With more, it is refused."""
MOST_LIVE = 64 * 1024
"""Characters of one piece of live output that are searched for secrets and shown."""

CUT = "…"
"""What a failure shows instead of the end of a value."""
MOST_BEGUN = 4
"""Characters of the shortest beginning of a secret that is taken out where a value is cut in it."""

SEALED = b'{"toolwright.sealed":'
"""The beginning of the JSON of sealed data."""


async def sealed(env: CallEnvironment[ActiveCall], name: str, payload: bytes) -> bytes:
    """The result of a step, as it may be written down: a tool that asks for it again must get it with its secrets."""
    redactor = env.redactor
    if redactor is None or await off_loop(len(payload), redactor.json, payload) is payload:
        return payload
    return env.keeper.seal(name, payload)


def unsealed(env: CallEnvironment[ActiveCall], name: str, payload: bytes) -> bytes:
    """The result of a step that was perhaps sealed."""
    return env.keeper.unseal(name, payload) if payload.startswith(SEALED) else payload


def weight(value: object) -> int:
    """About how many bytes of a value must be searched."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, Struct):
        unsearched = getattr(value, "unsearched", ())
        return sum([weight(getattr(value, name)) for name in value.__struct_fields__ if name not in unsearched])
    if isinstance(value, (list, tuple)):
        return 8 * len(value) + sum(map(weight, value))
    if isinstance(value, dict):
        return 8 * len(value) + sum(map(weight, value)) + sum(map(weight, value.values()))
    return 0


def redact_fields(redactor: Redactor, item: S, but: frozenset[str] = frozenset()) -> S:
    """An outcome, an event or a part of one without secrets; the same object when it has none.

    Every field is searched except those that its type calls `unsearched`, so that a new field is never forgotten.
    """
    if isinstance(item, Failure) and CUT in item.message:
        item = _without_cut_secrets(redactor, item)
    changes: dict[str, Any] = {}
    unsearched, encoded = getattr(item, "unsearched", but), getattr(item, "encoded", _PLAIN)
    for name in item.__struct_fields__:
        if name not in unsearched and name not in but:
            value = getattr(item, name)
            redacted = _redacted(redactor, value, encoded.get(name))
            if redacted is not value:
                changes[name] = redacted
    if "payload" in changes and encoded.get("cached_value") == "of payload":
        changes["cached_value"] = UNSET
    return replace(item, **changes) if changes else item


_PLAIN: dict[str, str] = {}


def _without_cut_secrets(redactor: Redactor, failure: Any) -> Any:
    """A failure whose message or data shows the beginnings of values, without the beginnings of secrets in them."""
    message, data = _cut_values(redactor, failure.message), _cut_values(redactor, failure.data)
    return (
        failure if (message, data) == (failure.message, failure.data) else replace(failure, message=message, data=data)
    )


def _cut_values(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, list):
        return [_cut_values(redactor, each) for each in value]
    if isinstance(value, dict):
        return {_cut_values(redactor, name): _cut_values(redactor, each) for name, each in value.items()}
    if not isinstance(value, str) or CUT not in value:
        return value
    *cut, rest = value.split(CUT)
    shown = []
    for part in cut:
        stream = redactor.stream()
        begun = stream.feed(part)
        # What is held back may be the beginning of a secret; of a few characters it tells nothing.
        held = stream.end()
        shown.append(begun if len(held) >= MOST_BEGUN else begun + held)
    return CUT.join([*shown, rest])


def _redacted(redactor: Redactor, value: object, encoding: str | None) -> object:
    if value is None or value is UNSET or isinstance(value, bool) or encoding == "of payload":
        return value
    if encoding == "base64":
        return _data(redactor, value)
    if encoding == "hash" and isinstance(value, str):
        return _hash(redactor, value)
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, bytes):
        return redactor.json(value)
    if isinstance(value, Struct):
        return redact_fields(redactor, value)
    if isinstance(value, tuple):
        redacted = [_redacted(redactor, each, None) for each in value]
        return value if all(map(operator.is_, redacted, value)) else tuple(redacted)
    return redactor.value(value)


def redact_outcome(redactor: Redactor, outcome: ToolOutcome) -> ToolOutcome:
    """The outcome without secrets, wherever a tool could have put one."""
    return redact_fields(redactor, outcome)


def redact_failure(redactor: Redactor, failure: Failure) -> Failure:
    """The failure without secrets."""
    return redact_fields(redactor, failure)


def _hash(redactor: Redactor, digest: str) -> str:
    """The hash of content. Any few digits stand in some hash by chance, and it would lead nowhere without them."""
    data = digest.encode("utf-8", "surrogatepass")
    redacted = redactor.content(data, sparing=True)
    return digest if redacted is data else redacted.decode("utf-8", "surrogatepass")


def _data(redactor: Redactor, data: object) -> object:
    """Content in base64. Looked at as it was before: in the middle of base64, a handle would spoil the rest."""
    if not isinstance(data, str):
        return data
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return redactor.text(data)
    redacted = redact_content(redactor, content)
    if redacted is not content:
        return base64.b64encode(redacted).decode("ascii")
    # It may be no base64 after all, and only look like it.
    written = data.encode("ascii")
    redacted = redactor.content(written, sparing=True)
    return data if redacted is written else redacted.decode()


def redact_content(redactor: Redactor, content: bytes) -> bytes:
    """Text or other bytes without secrets; in bytes that are no text, a short value would be found by chance."""
    return redactor.content(content, sparing=not _is_text(content))


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- the arguments of a call


def shown_arguments(call: ActiveCall, raw: bytes | None = None) -> bytes:
    """The arguments of a call as others may see them: those it has, or `raw`, which it had before."""
    redactor, raw = call.env.redactor, call.raw if raw is None else raw
    if call.env.know is not None and call.tool is not None and call.tool.definition.secret is not None:
        return NOT_SHOWN  # The secret may stand elsewhere in them, too, and is not known yet.
    if call.tool is not None and call.tool.definition.secret is not None:
        raw = _hidden(raw, call.tool.definition.secret, lambda value: HIDDEN)
    return raw if redactor is None else redactor.json(raw)


def shown_later(call: ActiveCall) -> bool:
    """True where the arguments of a call are so long that they are searched in a thread, before it is launched."""
    return call.env.redactor is not None and len(call.raw) > AT_ONCE


NOT_SHOWN = jsonx.encode(HIDDEN)
"""The placeholder of arguments that were not searched yet."""


async def show_arguments(call: ActiveCall) -> None:
    """Put the arguments of a call into its record, as others may see them."""
    shown = await asyncio.to_thread(shown_arguments, call) if shown_later(call) else shown_arguments(call)
    call.record.raw_arguments = shown


async def off_loop(size: int, function: Callable[..., _T], *arguments: object) -> _T:
    """The result of a function that searches some bytes: on the loop where these are few, else in a thread."""
    return function(*arguments) if size <= AT_ONCE else await asyncio.to_thread(function, *arguments)


def written_arguments(call: ActiveCall) -> bytes:
    """The arguments of a call as they may be written down and hashed: without secrets where a tool gave them.

    Arguments from outside are recorded unchanged, because after a crash the call may have to run with the record. A
    secret parameter is not: only a fingerprint of its value is recorded.
    """
    redactor, raw = call.env.redactor, call.raw
    if call.tool is not None and (secret := call.tool.definition.secret) is not None:
        raw = _hidden(raw, secret, lambda value: _told_apart(call.env, call.name, value))
    return raw if call.parent_id is None or redactor is None else redactor.json(raw)


def learn_secret(call: ActiveCall, *, at_once: AtOnce | None) -> None:
    """Let the secret that a call is given be redacted: its tool may echo it, or fail with it in its message.

    `at_once` for a nested call, whose identity comes from its redacted arguments.
    """
    if call.tool is not None and (secret := call.tool.definition.secret) is not None:
        env = call.env
        with contextlib.suppress(jsonx.DecodeError, RecursionError):
            arguments = jsonx.decode(call.raw)
            if isinstance(arguments, dict) and is_hidden(arguments.get(secret)):
                # It is the answer unless the journal has the outcome of the call.
                call.answer = _not_kept(call.name, secret)
            elif isinstance(arguments, dict):
                try:
                    known = env.keeper.learn_argument(secret, arguments.get(secret), at_once=at_once)
                except ServiceError as refused:
                    call.fail(_too_long(refused))
                    return
                if not known and env.know is None:
                    env.know = env.keeper.catch_up


async def learn_secrets(
    env: CallEnvironment[ActiveCall], calls: Iterable[Any], tools: Mapping[str, Tool], most_bytes: int
) -> None:
    """Learn the secrets of calls that a tool is about to make, and search their arguments, off the event loop."""
    for call in calls:
        name, arguments = _name_and_arguments(call)
        tool = tools.get(name) if isinstance(name, str) and isinstance(arguments, Mapping) else None
        if tool is not None and (secret := tool.definition.secret) is not None:
            value = arguments.get(secret)
            if is_hidden(value):
                continue
            with contextlib.suppress(ServiceError):  # The call itself will fail by that.
                env.keeper.learn_argument(secret, value, at_once=None)
    if env.keeper.behind:
        await env.keeper.catch_up()
    if env.redactor is not None:
        for call in calls:
            _, arguments = _name_and_arguments(call)
            if not isinstance(arguments, Mapping):
                continue
            with contextlib.suppress(Exception):  # The call itself will fail by that.
                if is_within(arguments, most_bytes, MOST_SEARCHED) and weight(arguments) > AT_ONCE:
                    await asyncio.to_thread(_search, env.redactor, arguments)


def _name_and_arguments(call: object) -> tuple[Any, Any]:
    """The name and the arguments of a call in either of its forms."""
    if isinstance(call, ToolCall):
        return call.name, call.arguments
    return (call.get("name"), call.get("arguments")) if isinstance(call, Mapping) else (None, None)


def _search(redactor: Redactor, arguments: object) -> None:
    redactor.json(jsonx.canonical(arguments))


def _too_long(refused: ServiceError) -> Failure:
    return Failure(category="invalid_arguments", code="secret_too_long", message=str(refused), source="runtime")


def _not_kept(tool: str, secret: str) -> Failure:
    message = f"Tool {tool!r} cannot run: the value of {secret!r} was not recorded, and only its placeholder is given; "
    return Failure(
        category="interrupted",
        code="value_not_kept",
        message=message + "call the tool again with the value itself",
        source="runtime",
    )


def without_secrets(call: ToolCall, tool: Tool | None, known: Callable[[Any], str] = lambda value: HIDDEN) -> ToolCall:
    """A call that a model wrote as it may be shown and recorded: `known` gives the placeholder of a secret argument."""
    if tool is None or (secret := tool.definition.secret) is None or call.arguments is None:
        return call
    arguments = call.arguments
    if isinstance(arguments, str | bytes):
        try:
            arguments = jsonx.decode(arguments)
        except (jsonx.DecodeError, RecursionError, UnicodeEncodeError):
            arguments = None
    if not isinstance(arguments, Mapping):
        return replace(call, arguments=HIDDEN)  # no JSON object was written, so the secret may be anywhere in it
    if secret not in arguments:
        return call
    return replace(call, arguments={**arguments, secret: known(arguments[secret])})


def fingerprint_of(env: CallEnvironment[ActiveCall], tool: Tool | None, value: Any) -> str:
    """The placeholder with which the journal records a secret argument."""
    return value if tool is None or is_hidden(value) else _told_apart(env, tool.definition.name, value)


def _hidden(raw: bytes, parameter: str, instead: Callable[[Any], str]) -> bytes:
    arguments = jsonx.decode(raw)
    if not isinstance(arguments, dict):
        return jsonx.encode(HIDDEN)  # no JSON object was written, so the secret may be anywhere in it
    if parameter not in arguments or is_hidden(arguments[parameter]):
        return raw
    return jsonx.canonical({**arguments, parameter: instead(arguments[parameter])})


def _told_apart(env: CallEnvironment[ActiveCall], name: str, value: object) -> str:
    try:
        return f"[secret #{env.keeper.fingerprint(name, jsonx.canonical(value))[:16]}]"
    except SecretsError:
        return HIDDEN


# --- reports of a running call


def redact_event(call: ActiveCall, event: CallNote) -> CallNote | None:
    """A report of a running call without secrets; None when all of it is held back for now."""
    redactor = call.env.redactor
    assert redactor is not None
    if isinstance(event, CallOutput):
        return _output(call, redactor, event)
    return redact_fields(redactor, event)


def _output(call: ActiveCall, redactor: Redactor, event: CallOutput) -> CallOutput | None:
    if not isinstance(event.text, str) or not isinstance(event.stream, str):
        return redact_fields(redactor, event)
    event = redact_fields(redactor, event, but=_STREAMED)
    streams = reports_of(call).streams
    stream = streams.get(event.stream)
    if stream is None:
        stream = streams[event.stream] = redactor.stream()
    text = _feed(stream, event.text)
    return replace(event, text=text) if text else None


def _feed(stream: Stream, text: str) -> str:
    """The part of a piece of output that can be shown now. Watchers see the beginning of a very long one."""
    if len(text) <= MOST_LIVE:
        return stream.feed(text)
    shown = stream.feed(text[:MOST_LIVE])
    # A secret may have begun in the part that is left out.
    stream.feed(text[MOST_LIVE:][-MOST_LIVE:])
    stream.end()
    return f"{shown}[… {len(text) - MOST_LIVE} characters omitted …]"


_STREAMED = frozenset({"text"})


def publish(env: CallEnvironment[ActiveCall], call: ActiveCall, event: CallNote) -> None:
    """Publish a report of a call to the subscribers of events, without secrets."""
    if env.redactor is not None:
        redacted = redact_event(call, event)
        if redacted is None:
            return
        event = redacted
    if call.span is not None and not event.droppable:
        call.span.note(event)
    env.channel.publish(event)


def rest_of_output(call: ActiveCall, about: tuple[str, str, float, str, str, str]) -> list[CallOutput]:
    """The rest of the streams of a finished call."""
    reports = call.reports
    rest = [] if reports is None else [(name, stream.end()) for name, stream in reports.streams.items()]
    return [CallOutput(*about, name, text) for name, text in rest if text]
