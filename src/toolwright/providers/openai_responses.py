"""OpenAI responses. Owns the request and the answer of this protocol. Nothing is kept at the provider: each request has
the whole conversation, with the reasoning of the model in encrypted form."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.providers.conversation import (
    UNPARSED,
    Raw,
    count,
    field,
    in_words,
    is_object_schema,
    is_strict,
    native_items,
    own_id,
    parsed_arguments,
    read_request,
    rebuilt_calls,
    rebuilt_results,
    rebuilt_text,
    used_ids,
    without_last,
)
from toolwright.providers.openai_client import ADDRESS, ADDRESS_VARIABLE, KEYS, new_client
from toolwright.providers.provider_errors import error_said, words_of
from toolwright.providers.provider_model import AnswerReader, LibraryResponse, ModelOptions, ProviderModel
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.model import (
    CallDelta,
    Delta,
    Item,
    ModelAnswer,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    Stop,
    TextDelta,
    ToolResults,
    Usage,
    UserMessage,
)
from toolwright.tools.names import wire_name
from toolwright.tools.outcome import Image, encodable
from toolwright.wire import images as pictures
from toolwright.wire import openai_responses as wire
from toolwright.wire.arguments import takes_free_text

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_WITHOUT_REASONING = ("gpt-3", "gpt-4", "chatgpt", "gpt-5-chat", "ft:gpt-3", "ft:gpt-4")
"""The beginnings of the names of models that refuse a request which asks for their reasoning."""
_INCOMPLETE: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}
_TEXT = ("response.output_text.delta", "response.refusal.delta")
_REASONING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class OpenAIResponses(ProviderModel):
    """A model behind OpenAI's responses, or behind a server that speaks this protocol.

    Args:
        reasoning: whether the model reasons, so that its reasoning is asked for and sent back. By default its name
            tells.
        structured: False for a server that takes no `text.format`: the schema of an answer is told in words then.
    """

    provider = "openai"
    extra: ClassVar[str] = "openai"
    format: ClassVar[str] = wire.NAME
    key_variables: ClassVar[tuple[str, ...]] = KEYS
    address_variable: ClassVar[str] = ADDRESS_VARIABLE

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai",
        reasoning: bool | None = None,
        structured: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        super().__init__(name, **options)
        self.provider = provider
        self.reasoning = not name.startswith(_WITHOUT_REASONING) if reasoning is None else reasoning
        self.structured = structured

    def _default_address(self) -> str:
        return ADDRESS

    def _new_client(self) -> AsyncOpenAI:
        return new_client(self._key(), self.address, self.timeout)

    def _sent(self, client: Any, body: dict[str, Any], stream: bool) -> AbstractAsyncContextManager[LibraryResponse]:
        # All in `extra_body`: the library copies and converts the fields that it knows, item by item.
        create = client.responses.with_streaming_response.create
        sent: AbstractAsyncContextManager[LibraryResponse] = create(model=self.name, extra_body=body)
        return sent

    def _reader(self, request: ModelRequest) -> AnswerReader:
        return _ResponsesReader(self, request)

    # --- the request

    def _body(self, request: ModelRequest, stream: bool) -> dict[str, Any]:
        read = read_request(request)
        instructions, schema = read.instructions, read.answer_schema
        body: dict[str, Any] = {"model": self.name, "store": False, **self.settings, **read.options}
        if schema is not None:
            if self.structured and is_object_schema(schema):
                form = {"type": "json_schema", "name": "answer", "schema": dict(schema), "strict": is_strict(schema)}
                given = body.get("text")
                body["text"] = {**(given if isinstance(given, dict) else {}), "format": form}
            else:
                instructions = "\n\n".join(filter(None, (instructions, in_words(schema))))
        if instructions:
            body["instructions"] = instructions
        if request.tools:
            # In the order of their names, so that the beginning of each request is the same and can be cached.
            body["tools"] = sorted(wire.write_tools(request.tools), key=lambda tool: str(tool["name"]))
            body["tool_choice"] = _tool_choice(request.tool_choice, request.tools)
            if request.parallel is not None:
                body["parallel_tool_calls"] = request.parallel
        if limit := read.max_tokens or self.max_tokens:
            body["max_output_tokens"] = limit
        if self.reasoning and not body["store"]:
            body.setdefault("include", ["reasoning.encrypted_content"])
        if request.session:
            body.setdefault("prompt_cache_key", jsonx.digest(request.session.encode("utf-8", "replace"))[:32])
        if stream:
            body["stream"] = True
        body["input"] = self._input(read.items)
        return body

    def _input(self, items: list[Item | Raw]) -> list[Raw]:
        written: list[Raw] = []
        calls: list[ToolCall] = []
        renamed = False
        for item in items:
            if isinstance(item, UserMessage):
                written.append({"role": "user", "content": _user_content(item)})
            elif isinstance(item, ToolResults):
                outcomes = rebuilt_results(item) if renamed else list(item.outcomes)
                written += wire.write_results(outcomes, calls)
            elif isinstance(item, ModelAnswer):
                native = native_items(item, self.format, self.server)
                if native is not None:
                    # Reasoning is refused without the item after it, such as that of an answer that was cut in it.
                    native = without_last(native, ("reasoning",))
                renamed = native is None
                calls = rebuilt_calls(item) if renamed else list(item.calls)
                written += _rebuilt(item, calls) if native is None else native
            else:
                written.append(item)
        return written


def _tool_choice(choice: str, tools: tuple[ToolDefinition, ...]) -> object:
    if choice in ("auto", "required", "none"):
        return choice
    custom = any(tool.name == choice and takes_free_text(tool) for tool in tools)
    return {"type": "custom" if custom else "function", "name": wire_name(choice)}


def _user_content(message: UserMessage) -> str | list[Raw]:
    text = encodable(message.text)
    if not message.images:
        return text
    parts: list[Raw] = [{"type": "input_text", "text": text}] if text.strip() else []
    for image in message.images:
        if pictures.viewable(image):
            parts.append({"type": "input_image", "image_url": pictures.to_url(image), "detail": "auto"})
        else:
            parts.append({"type": "input_text", "text": pictures.stand_in(image)})
    return parts


def _rebuilt(answer: ModelAnswer, calls: list[ToolCall]) -> list[Raw]:
    text = rebuilt_text(answer)
    said: list[Raw] = [{"role": "assistant", "content": text}] if text else []
    return said + wire.write_calls(calls)


# --- the answer


class _ResponsesReader:
    """Puts an answer of this protocol together: items that are done, and the last event, which has all of them."""

    def __init__(self, model: OpenAIResponses, request: ModelRequest) -> None:
        self.ended = False
        self._model = model
        self._used = used_ids(request)
        self._items: dict[int, Raw] = {}
        self._begun: dict[int, tuple[str, str]] = {}
        self._summaries: dict[object, object] = {}
        self._response: Raw | None = None

    def take(self, name: str, data: bytes) -> list[Delta]:
        """Take one event."""
        if data.strip() == b"[DONE]":
            self.ended = True
            return []
        event = self._model._json(data)
        if not isinstance(event, dict):
            raise self._wrong("an event that is not an object")
        kind = event.get("type", name)
        if kind == "error" or (event.get("error") and "type" not in event):
            raise self._failed(event)
        if kind in _TEXT:
            return [TextDelta(event["delta"])] if isinstance(event.get("delta"), str) else []
        if kind in _REASONING:
            return self._reasoning(event)
        if kind in _ARGUMENTS:
            begun = self._begun.get(_index(event))
            if begun is not None and isinstance(event.get("delta"), str):
                return [CallDelta(*begun, event["delta"])]
        elif kind == "response.output_item.added":
            return self._added(event)
        elif kind == "response.output_item.done":
            self._done(event)
        elif kind in _LAST:
            self._close(event.get("response"))
        return []

    def whole(self, response: object) -> list[Delta]:
        """Take a whole response."""
        self._close(response)
        text, _ = _text([*self._items.values()])
        return [TextDelta(text)] if text else []

    def _reasoning(self, event: Raw) -> list[Delta]:
        if not isinstance(event.get("delta"), str):
            return []
        part = (event.get("summary_index"), event.get("content_index"))
        place = _index(event)
        another = place in self._summaries and self._summaries[place] != part
        self._summaries[place] = part
        return [ReasoningDelta(f"\n\n{event['delta']}" if another else event["delta"])]

    def _added(self, event: Raw) -> list[Delta]:
        item = event.get("item")
        if isinstance(item, dict) and item.get("type") in wire.CALLS:
            name = item.get("name")
            begun = (own_id(item.get("call_id"), self._used), name if isinstance(name, str) else "")
            self._begun[_index(event)] = begun
            return [CallDelta(*begun, "")]
        return []

    def _done(self, event: Raw) -> None:
        item = event.get("item")
        if not isinstance(item, dict):
            raise self._wrong("an item that is not an object")
        self._items[_index(event)] = item

    def _close(self, response: object) -> None:
        if not isinstance(response, dict):
            raise self._wrong("a response that is not an object")
        status = response.get("status")
        if status == "failed" or (response.get("error") and status != "incomplete"):
            raise self._failed(response)
        if status == "cancelled":
            raise ModelError(f"{self._model.spec} cancelled its answer; ask again", "unavailable", retry=True)
        output = response.get("output")
        if output is None and self._items:
            output = []
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            raise self._wrong("no output, or one of another kind")
        self._response = response
        if output:
            self._items = dict(enumerate(output))
        self.ended = True

    def answer(self) -> ModelAnswer:
        """The answer, once its last event has come."""
        response = self._response
        if response is None:
            raise ModelError(
                f"The answer of {self._model.spec} broke off before its end; ask again", "unavailable", retry=True
            )
        items, unparsed = self._own_items()
        calls = wire.read_calls({**response, "output": items})
        calls = [replace(call, arguments=unparsed[call.id]) if call.id in unparsed else call for call in calls]
        text, refused = _text(items)
        reason = field(response, "incomplete_details", "reason")
        stop: Stop = "calls" if calls else "refusal" if refused else "end"
        if response.get("status") == "incomplete":
            stop = _INCOMPLETE.get(reason if isinstance(reason, str) else "", "length")
        given = response.get("id")
        return ModelAnswer(
            text=text,
            calls=tuple(calls),
            stop=stop,
            usage=_usage(response.get("usage")),
            native={"format": wire.NAME, "server": self._model.server, "items": items} if items else None,
            reasoning="\n\n".join(each for item in items for each in _reasoning_texts(item)),
            images=tuple(image for item in items if (image := _image(item)) is not None),
            id=given if isinstance(given, str) else "",
            model=self._model.spec,
        )

    def _own_items(self) -> tuple[list[Raw], dict[str | None, str]]:
        """The items, with an id for each call that no other call has; and arguments that are not JSON, by call."""
        items: list[Raw] = []
        unparsed: dict[str | None, str] = {}
        used = set(self._used)
        for place in sorted(self._items):
            item = self._items[place]
            if item.get("type") in wire.CALLS:
                begun = self._begun.get(place)
                call_id = begun[0] if begun is not None else own_id(item.get("call_id"), used)
                if call_id != item.get("call_id"):
                    item = {**item, "call_id": call_id}
                arguments = item.get("arguments")
                if isinstance(arguments, dict):
                    item = {**item, "arguments": jsonx.encode(arguments).decode("utf-8")}
                elif isinstance(arguments, str) and parsed_arguments(arguments) is None:
                    unparsed[call_id] = arguments
                    item = {**item, "arguments": jsonx.encode({UNPARSED: arguments}).decode("utf-8")}
            items.append(item)
        return items, unparsed

    def _failed(self, event: Raw) -> ModelError:
        kinds, message = words_of(event)
        return error_said(self._model.spec, kinds=kinds, message=message, secrets=self._model._secrets())

    def _wrong(self, found: str) -> ModelError:
        return ModelError(
            f"{self._model.spec} gave {found}, which responses do not have; check that {self._model.server} speaks "
            "this protocol",
            "bad_answer",
        )


def _index(event: Raw) -> int:
    place = event.get("output_index")
    return place if isinstance(place, int) else 0


def _text(items: list[Raw]) -> tuple[str, bool]:
    """The text of an answer, and whether the model refuses in it."""
    texts: list[str] = []
    refused = False
    for item in items:
        content = item.get("content") if item.get("type") == "message" else None
        for part in content if isinstance(content, list) else ():
            kind = field(part, "type")
            said = field(part, "refusal" if kind == "refusal" else "text")
            if isinstance(said, str):
                texts.append(said)
                refused = refused or kind == "refusal"
    return "".join(texts), refused


def _reasoning_texts(item: Raw) -> list[str]:
    if item.get("type") != "reasoning":
        return []
    parts = [part for name in ("summary", "content") for part in _list(item.get(name))]
    return [text for part in parts if isinstance(text := field(part, "text"), str) and text]


def _image(item: Raw) -> Image | None:
    made = item.get("result") if item.get("type") == "image_generation_call" else None
    if not isinstance(made, str) or not made:
        return None
    form = item.get("output_format")
    return Image(made, f"image/{form}" if form in ("png", "jpeg", "webp") else "image/png")


def _usage(given: object) -> Usage:
    return Usage(
        input=count(field(given, "input_tokens")),
        output=count(field(given, "output_tokens")),
        cache_read=count(field(given, "input_tokens_details", "cached_tokens")),
        cache_write=count(field(given, "input_tokens_details", "cache_write_tokens")),
        reasoning=count(field(given, "output_tokens_details", "reasoning_tokens")),
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
