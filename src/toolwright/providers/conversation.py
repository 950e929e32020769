"""A request in neutral parts. Owns messages that a tool wrote itself, the ids of calls and the choice of native parts;
does not own any provider's form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import ConversionError
from toolwright.ids import new_id
from toolwright.tools.call import ToolCall
from toolwright.tools.model import Item, ModelAnswer, ModelRequest, ToolResults, UserMessage
from toolwright.tools.names import wire_name
from toolwright.tools.outcome import Image, ToolOutcome, encodable
from toolwright.wire import images as pictures
from toolwright.wire.arguments import as_object

Raw: TypeAlias = dict[str, Any]
"""A message in the form of the provider that is asked, which a tool wrote itself."""

UNPARSED = "_unparsed"
"""The argument that holds the text of arguments which are not JSON, for the providers that take objects only."""
_RESERVED = ("input", "messages", "model", "n", "stream", "tools")


class Conversation(Struct, frozen=True):
    """A request, read: its instructions, its items, and the fields that a tool gave beside its messages."""

    instructions: str
    items: list[Item | Raw]
    options: dict[str, Any]
    max_tokens: int | None
    answer_schema: Mapping[str, Any] | None


def read_request(request: ModelRequest) -> Conversation:
    """Read a request of a turn, or of a tool.

    Messages of a tool are texts, mappings with `role` and `content`, or items of a conversation. Of its options,
    `instructions` (or `system`), `max_tokens` and `answer_schema` mean the same for every provider; all others are
    fields of the provider's own request.

    Raises:
        ConversionError: a message has another form, or an option is one that only the runtime sets.
    """
    options = dict(request.options)
    told = [request.instructions, options.pop("instructions", None), options.pop("system", None)]
    max_tokens = options.pop("max_tokens", None) or request.max_tokens
    schema = options.pop("answer_schema", None) or request.answer_schema
    for name in options:
        if name in _RESERVED:
            raise ConversionError(f"the option {name!r} is set by the runtime; leave it out")
    given = request.messages
    items: list[Item | Raw] = []
    for message in [given] if isinstance(given, (str, Mapping)) else given:
        if isinstance(message, str):
            items.append(UserMessage(message))
        elif isinstance(message, (UserMessage, ModelAnswer, ToolResults)):
            items.append(message)
        elif isinstance(message, Mapping):
            read = _read_message(message)
            if isinstance(read, str):
                told.append(read)
            else:
                items.append(read)
        else:
            raise ConversionError(f"a message is {message!r:.80}; give text, or a mapping with 'role' and 'content'")
    instructions = "\n\n".join(encodable(each) for each in told if isinstance(each, str) and each.strip())
    return Conversation(instructions, items, options, max_tokens, schema)


def _read_message(message: Mapping[str, Any]) -> Item | Raw | str:
    """A message of a tool: instructions as text, an item, or the message itself where only its provider knows it."""
    role, content = message.get("role"), message.get("content")
    parts = _read_content(content) if set(message) <= {"role", "content"} else None
    if parts is None or role not in ("system", "developer", "user", "assistant"):
        return dict(message)
    text, images = parts
    if role in ("system", "developer"):
        return text
    return UserMessage(text, images) if role == "user" else ModelAnswer(text=text)


def _read_content(content: object) -> tuple[str, tuple[Image, ...]] | None:
    """Text and images, in the form of any provider; None for content of another kind."""
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, Sequence):
        return None
    texts: list[str] = []
    images: list[Image] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            return None
        found = part.get("text") if part.get("type") in ("text", "input_text", "output_text") else None
        if isinstance(found, str) and set(part) <= {"type", "text"}:
            texts.append(found)
        elif (image := _read_image(part)) is not None:
            images.append(image)
        else:
            return None
    return "\n".join(texts), tuple(images)


def _read_image(part: Mapping[str, Any]) -> Image | None:
    kind, url, source = part.get("type"), part.get("image_url"), part.get("source")
    if kind == "image" and isinstance(source, Mapping) and source.get("type") == "base64":
        data, media_type = source.get("data"), source.get("media_type")
        return Image(data, media_type) if isinstance(data, str) and isinstance(media_type, str) else None
    if kind == "image_url" and isinstance(url, Mapping):
        url = url.get("url")
    return pictures.from_url(url) if kind in ("image_url", "input_image") and isinstance(url, str) else None


# --- answers


def native_items(answer: ModelAnswer, form: str, server: str) -> list[Any] | None:
    """The answer as its provider gave it; None when another provider did, and it must be written again."""
    native = answer.native
    if native is None or native.get("format") != form or native.get("server", server) != server:
        return None
    items = native.get("items")
    if not isinstance(items, (list, tuple)) or not items or not all(isinstance(each, dict) for each in items):
        return None  # of a message that somebody else appended
    return list(items)


def without_last(items: list[Any], kinds: Collection[str]) -> list[Any] | None:
    """The native parts of an answer without those of some kinds at its end; None when nothing is left."""
    end = len(items)
    while end and field(items[end - 1], "type") in kinds:
        end -= 1
    return items[:end] or None


def rebuilt_text(answer: ModelAnswer) -> str:
    """The text of an answer of another provider; its images are mentioned, as no provider takes them from a model."""
    notes = [f"[an image of type {image.media_type} was made here]" for image in answer.images]
    return encodable("\n".join(each for each in (answer.text, *notes) if each.strip()))


def rebuilt_calls(answer: ModelAnswer) -> list[ToolCall]:
    """The calls of an answer of another provider, with ids that every provider takes, and arguments that are objects.

    Their results need the ids of `rebuilt_results`.
    """
    return [
        replace(call, id=wire_name(call.id or ""), arguments=arguments_object(call), meta=None) for call in answer.calls
    ]


def rebuilt_results(results: ToolResults) -> list[ToolOutcome]:
    """Results with the ids that `rebuilt_calls` gives to their calls."""
    return [replace(outcome, call_id=wire_name(outcome.call_id)) for outcome in results.outcomes]


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as an object; text that is not the JSON of one stands in it as `_unparsed`."""
    try:
        return as_object(call, "")
    except ConversionError:
        given = call.arguments
        return {UNPARSED: given if isinstance(given, str) else f"{given!r:.1000}"}


def parsed_arguments(text: str) -> dict[str, Any] | None:
    """The object that the text of a call's arguments stands for; None when it is not JSON, or not an object."""
    try:
        found = jsonx.decode(text) if text.strip() else {}
    except (jsonx.DecodeError, RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def used_ids(request: ModelRequest) -> set[str]:
    """The ids of all calls in a conversation, none of which a new call may have."""
    return {
        call.id
        for item in request.messages
        if isinstance(item, ModelAnswer)
        for call in item.calls
        if call.id is not None
    }


def own_id(given: object, used: set[str], prefix: str = "call") -> str:
    """The id of a call: the one given, or a new one when there is none, or another call has it. It counts as used."""
    call_id = given if isinstance(given, str) and given.strip() and given not in used else new_id(prefix)
    used.add(call_id)
    return call_id


# --- answers with a schema


def in_words(schema: Mapping[str, Any]) -> str:
    """The instruction for a server that takes no schema."""
    text = jsonx.encode(schema).decode("utf-8")
    return f"The final answer must be only JSON, without any text around it, that fulfils this JSON schema:\n{text}"


def is_strict(schema: object) -> bool:
    """True for a schema whose objects all require each of their properties and allow no others.

    OpenAI can then guarantee that an answer fulfils it.
    """
    if isinstance(schema, (list, tuple)):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or properties is not None:
        if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
        if not all(map(is_strict, properties.values())):
            return False
    if "default" in schema or "oneOf" in schema or "allOf" in schema:
        return False
    return all(is_strict(schema.get(name)) for name in ("items", "anyOf")) and all(
        map(is_strict, (schema.get("$defs") or {}).values())
    )


def is_object_schema(schema: Mapping[str, Any]) -> bool:
    """True for the schema of an object: providers take no other as the schema of an answer."""
    return schema.get("type") == "object"


def count(value: object) -> int:
    """A number of tokens as a provider tells it; 0 for a value that is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 <= value < 2**53 else 0


def field(data: object, *names: str) -> object:
    """A value inside of objects; None where there is none."""
    for name in names:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def texts(parts: Iterable[object]) -> str:
    """The strings among some values, joined."""
    return "".join(part for part in parts if isinstance(part, str))
