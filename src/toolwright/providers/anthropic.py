"""Anthropic messages. Owns the request, the marks of the prompt cache and the answer of this protocol."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

from msgspec.structs import replace

from toolwright.errors import ToolwrightError
from toolwright.providers.conversation import (
    UNPARSED,
    Raw,
    count,
    field,
    in_words,
    is_object_schema,
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
from toolwright.providers.half_characters import joined_halves
from toolwright.providers.provider_errors import error_said, words_of
from toolwright.providers.provider_model import AnswerReader, LibraryResponse, ModelOptions, ProviderModel
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
from toolwright.tools.outcome import encodable
from toolwright.wire import anthropic as wire
from toolwright.wire import images as pictures
from toolwright.wire.history_anthropic import OPENING

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

ADDRESS = "https://api.anthropic.com"
MAX_TOKENS = 16_384
"""The most tokens of an answer, where nothing else is said: the protocol needs a number."""
_NO_KEY = "none"
_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context",
}
_THINKING = ("thinking", "redacted_thinking")
"""Blocks that cannot have a mark of the cache, and with which a message cannot end."""


class Anthropic(ProviderModel):
    """A model behind Anthropic's messages, or behind a server that speaks this protocol.

    Args:
        cache: how long the provider keeps the beginning of a conversation: "5m", "1h", or None to mark nothing.
        structured: False for a server that takes no `output_config`: the schema of an answer is told in words then.
    """

    provider = "anthropic"
    extra: ClassVar[str] = "anthropic"
    format: ClassVar[str] = wire.NAME
    key_variables: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    other_credentials: ClassVar[tuple[str, ...]] = (
        "ANTHROPIC_PROFILE",
        "ANTHROPIC_IDENTITY_TOKEN",
        "ANTHROPIC_IDENTITY_TOKEN_FILE",
    )
    address_variable: ClassVar[str] = "ANTHROPIC_BASE_URL"

    def __init__(
        self,
        name: str,
        *,
        provider: str = "anthropic",
        cache: Literal["5m", "1h"] | None = "5m",
        structured: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        super().__init__(name, **options)
        if cache not in ("5m", "1h", None):
            raise ToolwrightError(f"Model {name!r} has cache {cache!r:.80}; use '5m', '1h' or None")
        self.provider = provider
        self.cache = cache
        self.structured = structured

    def _default_address(self) -> str:
        return ADDRESS

    def _new_client(self) -> AsyncAnthropic:
        """A client that does not retry. Imports the library."""
        import anthropic

        from toolwright.providers.http_limits import bound_error, timeouts

        options: dict[str, Any] = {
            "base_url": self.address or ADDRESS,
            "timeout": timeouts(self.timeout),
            "max_retries": 0,
        }
        if self._given_key is not None or self._base_url is not None:
            options["api_key"] = self._key() or _NO_KEY
        elif self._key() is None and self.address is not None:
            options["api_key"] = _NO_KEY
        http = anthropic.DefaultAsyncHttpxClient(event_hooks={"response": [bound_error]})
        client = anthropic.AsyncAnthropic(**options, http_client=http)
        _ = client.messages.with_streaming_response  # imports a good part of the library, which takes long
        return client

    def _sent(self, client: Any, body: dict[str, Any], stream: bool) -> AbstractAsyncContextManager[LibraryResponse]:
        # All in `extra_body`: the library copies and converts the fields that it knows, message by message.
        create = client.messages.with_streaming_response.create
        # With a timeout of the request, the library does not refuse long answers that are not streamed.
        fixed = {"messages": (), "model": self.name, "max_tokens": body["max_tokens"], "timeout": client.timeout}
        sent: AbstractAsyncContextManager[LibraryResponse] = create(**fixed, extra_body=body)
        return sent

    def _reader(self, request: ModelRequest) -> AnswerReader:
        return _MessageReader(self, request)

    # --- the request

    def _body(self, request: ModelRequest, stream: bool) -> dict[str, Any]:
        read = read_request(request)
        instructions, schema = read.instructions, read.answer_schema
        body: dict[str, Any] = {"model": self.name, **self.settings, **read.options}
        body["max_tokens"] = read.max_tokens or self.max_tokens or MAX_TOKENS
        if schema is not None:
            if self.structured and is_object_schema(schema):
                given = body.get("output_config")
                form = {"type": "json_schema", "schema": dict(schema)}
                body["output_config"] = {**(given if isinstance(given, dict) else {}), "format": form}
            else:
                instructions = "\n\n".join(filter(None, (instructions, in_words(schema))))
        if instructions:
            body["system"] = [{"type": "text", "text": instructions}]
        if request.tools:
            # In the order of their names, so that the beginning of each request is the same and can be cached.
            body["tools"] = sorted(wire.write_tools(request.tools), key=lambda tool: str(tool["name"]))
            body["tool_choice"] = _tool_choice(request.tool_choice, request.parallel)
        if stream:
            body["stream"] = True
        body["messages"] = self._messages(read.items)
        if "thinking" in body and not _may_think(body):
            del body["thinking"]
        if self.cache is not None:
            _mark(body, {"type": "ephemeral"} if self.cache == "5m" else {"type": "ephemeral", "ttl": self.cache})
        return body

    def _messages(self, items: list[Item | Raw]) -> list[Raw]:
        messages: list[Raw] = []
        renamed = False
        for item, following in zip(items, [*items[1:], None], strict=True):
            if isinstance(item, UserMessage):
                _append(messages, "user", _user_blocks(item))
            elif isinstance(item, ToolResults):
                outcomes = rebuilt_results(item) if renamed else item.outcomes
                for message in wire.write_results(outcomes):
                    _append(messages, "user", message["content"])
            elif isinstance(item, ModelAnswer):
                native = native_items(item, self.format, self.server)
                if native is not None and not isinstance(following, ModelAnswer):
                    # A message may not end with thinking, such as that of an answer that was cut in it.
                    native = without_last(native, _THINKING)
                renamed = native is None
                _append(messages, "assistant", _rebuilt(item) if native is None else native)
            else:
                messages.append(item)
        if messages and messages[0].get("role") != "user":
            messages.insert(0, {"role": "user", "content": OPENING})
        return messages


def _append(messages: list[Raw], role: str, blocks: list[Raw]) -> None:
    """Add blocks: to the last message where that is of the same role, as the roles must alternate."""
    if not blocks:
        return  # the provider refuses a message without content
    last = messages[-1] if messages else {}
    if last.get("role") == role and isinstance(last.get("content"), list):
        messages[-1] = {**last, "content": [*last["content"], *blocks]}
    else:
        messages.append({"role": role, "content": list(blocks)})


def _user_blocks(message: UserMessage) -> list[Raw]:
    text = encodable(message.text)
    blocks: list[Raw] = [{"type": "text", "text": text}] if text.strip() else []
    for image in message.images:
        if pictures.viewable(image):
            source = {"type": "base64", "media_type": image.media_type, "data": image.data}
            blocks.append({"type": "image", "source": source})
        else:
            blocks.append({"type": "text", "text": pictures.stand_in(image)})
    return blocks


def _rebuilt(answer: ModelAnswer) -> list[Raw]:
    text, written = rebuilt_text(answer), wire.write_calls(rebuilt_calls(answer))
    said: list[Raw] = [{"type": "text", "text": text}] if text.strip() else []
    return said + [block for message in written for block in message["content"]]


def _tool_choice(choice: str, parallel: bool | None) -> Raw:
    kinds = {"auto": "auto", "required": "any", "none": "none"}
    written: Raw = {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": wire_name(choice)}
    if parallel is not None and written["type"] != "none":
        written["disable_parallel_tool_use"] = not parallel
    return written


def _may_think(body: dict[str, Any]) -> bool:
    """Whether the provider accepts a request that lets the model think.

    It does not when the model must call a tool, nor when it is to continue an answer whose thinking is not there: that
    of another provider.
    """
    if field(body, "tool_choice", "type") in ("any", "tool"):
        return False
    for message in reversed(body["messages"]):
        blocks = message.get("content")
        if message.get("role") == "assistant":
            kinds = [field(block, "type") for block in blocks] if isinstance(blocks, list) else []
            return "tool_use" not in kinds or kinds[0] in _THINKING
        if not isinstance(blocks, list) or not any(field(block, "type") == "tool_result" for block in blocks):
            return True  # a new message of the user: a new answer begins
    return True


def _mark(body: dict[str, Any], mark: Raw) -> None:
    """Mark what stays the same in the next request: the tools, the instructions, and the conversation up to here.

    Four marks are allowed. The one before the last message lets the provider find the last request again, also when
    the last message is long.
    """
    for name in ("tools", "system"):
        if body.get(name):
            body[name] = [*body[name][:-1], {**body[name][-1], "cache_control": mark}]
    messages: list[Raw] = body["messages"]
    marked = 0
    for place in range(len(messages) - 1, -1, -1):
        blocks = messages[place].get("content")
        if messages[place].get("role") != "user" or not isinstance(blocks, list) or not blocks:
            continue
        if isinstance(blocks[-1], dict) and blocks[-1].get("type") not in _THINKING:
            content = [*blocks[:-1], {**blocks[-1], "cache_control": mark}]
            messages[place] = {**messages[place], "content": content}
            marked += 1
        if marked == 2:
            return


# --- the answer


class _Block:
    """A block of an answer, as far as it has come."""

    __slots__ = ("done", "fields", "input", "texts")

    def __init__(self, fields: Raw) -> None:
        self.fields = fields
        self.input: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.done = False

    def add(self, name: str, text: str) -> None:
        self.texts.setdefault(name, []).append(text)

    def written(self) -> Raw:
        """The block with all its pieces."""
        block = dict(self.fields)
        for name, pieces in self.texts.items():
            begun = block.get(name)
            block[name] = "".join([begun if isinstance(begun, str) else "", *pieces])
        return block


class _MessageReader:
    """Puts an answer of this protocol together, from events or from a whole message."""

    def __init__(self, model: Anthropic, request: ModelRequest) -> None:
        self.ended = False
        self._model = model
        self._used = used_ids(request)
        self._blocks: dict[int, _Block] = {}
        self._begun = False
        self._message: Raw = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None

    def take(self, name: str, data: bytes) -> list[Delta]:
        """Take one event."""
        event = self._model._json(data)
        if not isinstance(event, dict):
            raise self._wrong("an event that is not an object")
        kind = event.get("type", name)
        if kind == "error" or (event.get("error") and "type" not in event):
            kinds, message = words_of(event)
            raise error_said(self._model.spec, kinds=kinds, message=message, secrets=self._model._secrets())
        if kind == "message_start":
            begun = event.get("message")
            if not isinstance(begun, dict):
                raise self._wrong("a message that is not an object")
            self._begin(begun)
        elif kind == "content_block_start":
            return self._start(_index(event), event.get("content_block"))
        elif kind == "content_block_delta":
            return self._delta(_index(event), event.get("delta"))
        elif kind == "content_block_stop":
            if (block := self._blocks.get(_index(event))) is not None:
                block.done = True
        elif kind == "message_delta":
            stop = field(event, "delta", "stop_reason")
            self._stop = stop if isinstance(stop, str) else self._stop
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.ended = True
        return []

    def whole(self, response: object) -> list[Delta]:
        """Take a whole message."""
        if not isinstance(response, dict) or not isinstance(response.get("content"), list):
            raise self._wrong("a response that is not a message")
        self._begin(response)
        stop = response.get("stop_reason")
        self._stop = stop if isinstance(stop, str) else "end_turn"
        deltas: list[Delta] = []
        for place, block in enumerate(response["content"]):
            deltas += self._start(place, block)
            self._blocks[place].done = True
        self.ended = True
        return deltas

    def _begin(self, message: Raw) -> None:
        self._begun = True
        self._message = message
        self._count(message.get("usage"))

    def _count(self, usage: object) -> None:
        # Each number is that of the answer so far.
        if isinstance(usage, dict):
            self._usage.update((name, value) for name, value in usage.items() if value is not None)

    def _start(self, place: int, given: object) -> list[Delta]:
        if not isinstance(given, dict):
            raise self._wrong("a block that is not an object")
        block = self._blocks[place] = _Block(given)
        kind = given.get("type")
        if kind == "tool_use":
            name = given.get("name")
            call_id = own_id(given.get("id"), self._used, "toolu")
            block.fields = {**given, "id": call_id, "name": name if isinstance(name, str) else ""}
            return [CallDelta(call_id, block.fields["name"], "")]
        if kind == "text" and isinstance(given.get("text"), str) and given["text"]:
            return [TextDelta(given["text"])]
        if kind == "thinking" and isinstance(given.get("thinking"), str) and given["thinking"]:
            return [ReasoningDelta(given["thinking"])]
        return []

    def _delta(self, place: int, delta: object) -> list[Delta]:
        block = self._blocks.get(place)
        if block is None or not isinstance(delta, dict):
            raise self._wrong("a piece of no block")
        kind = delta.get("type")
        if kind == "input_json_delta":
            piece = delta.get("partial_json")
            if isinstance(piece, str) and piece:
                block.input.append(piece)
                if block.fields.get("type") == "tool_use":
                    return [CallDelta(block.fields["id"], block.fields["name"], piece)]
        elif kind == "citations_delta":
            known = block.fields.get("citations")
            block.fields["citations"] = [*(known if isinstance(known, list) else ()), delta.get("citation")]
        elif kind in ("text_delta", "thinking_delta", "signature_delta"):
            name = str(kind).removesuffix("_delta")
            piece = delta.get(name)
            if isinstance(piece, str) and piece:
                block.add(name, piece)
                if name == "text":
                    return [TextDelta(piece)]
                if name == "thinking":
                    return [ReasoningDelta(piece)]
        return []

    def answer(self) -> ModelAnswer:
        """The answer, once its last event has come."""
        if not self._begun or not self.ended:
            raise ModelError(
                f"The answer of {self._model.spec} broke off before its end; ask again", "unavailable", retry=True
            )
        items: list[Raw] = []
        unparsed: dict[str | None, str] = {}
        incomplete: set[str | None] = set()
        for place in sorted(self._blocks):
            block = self._blocks[place]
            item = block.written()
            if block.input:
                text = joined_halves("".join(block.input))
                found = parsed_arguments(text)
                item["input"] = {UNPARSED: text} if found is None else found
                if found is None and item.get("type") == "tool_use":
                    unparsed[item["id"]] = text
            elif item.get("type") == "tool_use" and not isinstance(item.get("input"), dict):
                item["input"] = {} if item.get("input") is None else {UNPARSED: item["input"]}
            if not block.done and item.get("type") == "tool_use":
                incomplete.add(item["id"])
            if item.get("type") != "text" or str(item.get("text") or "").strip():
                items.append(item)  # the provider refuses a blank text when it comes back
        stop = _STOPS.get(self._stop or "", "end")
        calls = wire.read_calls({"role": "assistant", "content": items, "stop_reason": self._stop})
        for at, call in enumerate(calls):
            if call.id in unparsed:
                calls[at] = call = replace(call, arguments=unparsed[call.id])
            if call.id in incomplete and call.cut_off is None:
                calls[at] = replace(call, cut_off="incomplete")
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        given = self._message.get("id")
        return ModelAnswer(
            text=_joined(items, "text"),
            calls=tuple(calls),
            stop=stop,
            usage=_usage(self._usage),
            native={"format": wire.NAME, "server": self._model.server, "items": items} if items else None,
            reasoning=_joined(items, "thinking"),
            id=given if isinstance(given, str) else "",
            model=self._model.spec,
        )

    def _wrong(self, found: str) -> ModelError:
        return ModelError(
            f"{self._model.spec} gave {found}, which messages do not have; check that {self._model.server} speaks this "
            "protocol",
            "bad_answer",
        )


def _index(event: Raw) -> int:
    place = event.get("index")
    return place if isinstance(place, int) else 0


def _joined(items: list[Raw], kind: str) -> str:
    return "".join(str(item.get(kind) or "") for item in items if item.get("type") == kind)


def _usage(given: dict[str, Any]) -> Usage:
    read, written = count(given.get("cache_read_input_tokens")), count(given.get("cache_creation_input_tokens"))
    return Usage(
        input=count(given.get("input_tokens")) + read + written,  # the provider leaves the cached ones out
        output=count(given.get("output_tokens")),
        cache_read=read,
        cache_write=written,
        reasoning=count(field(given, "output_tokens_details", "thinking_tokens")),
    )
