"""OpenAI chat completions, which many servers speak: vLLM, Ollama, llama.cpp, OpenRouter and others. Owns the request
and the answer of this protocol; `chat_calls` puts streamed calls together."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from toolwright import jsonx
from toolwright.providers.chat_calls import ChatCalls
from toolwright.providers.conversation import (
    Raw,
    count,
    field,
    in_words,
    is_object_schema,
    is_strict,
    native_items,
    read_request,
    rebuilt_calls,
    rebuilt_results,
    rebuilt_text,
    used_ids,
)
from toolwright.providers.openai_client import ADDRESS, ADDRESS_VARIABLE, KEYS, new_client
from toolwright.providers.provider_errors import error_said, words_of
from toolwright.providers.provider_model import AnswerReader, LibraryResponse, ModelOptions, ProviderModel
from toolwright.tools.model import (
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
from toolwright.wire import openai_chat as wire

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "refusal",
}
_READ_FIELDS = ("role", "content", "refusal", "tool_calls", "function_call", "images")
_REASONING = ("reasoning_content", "reasoning")
"""The two names under which servers stream reasoning. Each chunk is read under the first that it has."""
_SAME = ("type", "id", "index", "format")
"""Fields of a part of the reasoning that come again in each of its pieces."""


class OpenAIChat(ProviderModel):
    """A model behind OpenAI's chat completions, or behind a server that speaks this protocol.

    `OpenAIChat("llama3.2", base_url="http://localhost:11434/v1")` is a model of such a server.

    Args:
        provider: the name of the provider in `ModelAnswer.model`.
        streaming: False for a server that cannot stream, or not when there are tools.
        structured: False for a server that takes no `response_format`: the schema of an answer is told in words then.
        send_reasoning: False for a server that refuses its own reasoning in a conversation.
    """

    provider = "openai-chat"
    extra: ClassVar[str] = "openai"
    format: ClassVar[str] = wire.NAME
    key_variables: ClassVar[tuple[str, ...]] = KEYS
    address_variable: ClassVar[str] = ADDRESS_VARIABLE

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai-chat",
        streaming: bool = True,
        structured: bool = True,
        send_reasoning: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        super().__init__(name, **options)
        self.provider = provider
        self.streaming = streaming
        self.structured = structured
        self.send_reasoning = send_reasoning

    def _default_address(self) -> str:
        return ADDRESS

    def _new_client(self) -> AsyncOpenAI:
        return new_client(self._key(), self.address, self.timeout)

    def _sent(self, client: Any, body: dict[str, Any], stream: bool) -> AbstractAsyncContextManager[LibraryResponse]:
        # All in `extra_body`: the library copies and converts the fields that it knows, message by message.
        create = client.chat.completions.with_streaming_response.create
        sent: AbstractAsyncContextManager[LibraryResponse] = create(messages=(), model=self.name, extra_body=body)
        return sent

    def _reader(self, request: ModelRequest) -> AnswerReader:
        return _ChatReader(self, request)

    # --- the request

    def _body(self, request: ModelRequest, stream: bool) -> dict[str, Any]:
        read = read_request(request)
        instructions, schema = read.instructions, read.answer_schema
        body: dict[str, Any] = {"model": self.name, **self.settings, **read.options}
        if schema is not None:
            if self.structured and is_object_schema(schema):
                form = {"name": "answer", "schema": dict(schema), "strict": is_strict(schema)}
                body["response_format"] = {"type": "json_schema", "json_schema": form}
            else:
                instructions = "\n\n".join(filter(None, (instructions, in_words(schema))))
        if request.tools:
            # In the order of their names, so that the beginning of each request is the same and can be cached.
            body["tools"] = sorted(wire.write_tools(request.tools), key=_tool_name)
            body["tool_choice"] = self._tool_choice(request.tool_choice)
            if request.parallel is not None:
                body["parallel_tool_calls"] = request.parallel
        if limit := read.max_tokens or self.max_tokens:
            body["max_completion_tokens" if self._is_openai else "max_tokens"] = limit
        if self._is_openai and request.session:
            body.setdefault("prompt_cache_key", jsonx.digest(request.session.encode("utf-8", "replace"))[:32])
        if stream and self.streaming:
            body["stream"] = True
            body.setdefault("stream_options", {"include_usage": True})
        body["messages"] = self._messages(instructions, read.items)
        return body

    @property
    def _is_openai(self) -> bool:
        return self.server.endswith((".openai.com", ".openai.azure.com"))

    def _tool_choice(self, choice: str) -> object:
        if choice in ("auto", "required", "none"):
            return choice
        return {"type": "function", "function": {"name": wire_name(choice)}}

    def _messages(self, instructions: str, items: list[Item | Raw]) -> list[Raw]:
        messages: list[Raw] = [{"role": "system", "content": instructions}] if instructions else []
        renamed = False
        for item in items:
            if isinstance(item, UserMessage):
                messages.append({"role": "user", "content": _user_content(item)})
            elif isinstance(item, ToolResults):
                messages += wire.write_results(rebuilt_results(item) if renamed else item.outcomes)
            elif isinstance(item, ModelAnswer):
                native = native_items(item, self.format, self.server)
                if native is not None and not any(map(_says_something, native)):
                    native = None
                renamed = native is None
                messages += _rebuilt(item) if native is None else [self._echoed(each) for each in native]
            else:
                messages.append(item)
        return messages

    def _echoed(self, message: Raw) -> Raw:
        if self.send_reasoning:
            return message
        return {name: value for name, value in message.items() if not name.startswith("reasoning")}


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool[tool["type"]]["name"])


def _user_content(message: UserMessage) -> str | list[Raw]:
    text = encodable(message.text)
    if not message.images:
        return text
    parts: list[Raw] = [{"type": "text", "text": text}] if text.strip() else []
    for image in message.images:
        if pictures.viewable(image):
            parts.append({"type": "image_url", "image_url": {"url": pictures.to_url(image)}})
        else:
            parts.append({"type": "text", "text": pictures.stand_in(image)})
    return parts


def _says_something(message: Raw) -> bool:
    """False for a message that has only reasoning, such as one that was cut in it: servers refuse it later."""
    return any(message.get(name) for name in ("content", "refusal", "tool_calls", "audio"))


def _rebuilt(answer: ModelAnswer) -> list[Raw]:
    text, written = rebuilt_text(answer), wire.write_calls(rebuilt_calls(answer))
    if not written:
        return [{"role": "assistant", "content": text}] if text else []
    return [{**written[0], "content": text or None}]


# --- the answer


class _ChatReader:
    """Puts an answer of this protocol together, from chunks or from a whole completion."""

    def __init__(self, model: OpenAIChat, request: ModelRequest) -> None:
        self.ended = False
        self._model = model
        self._calls = ChatCalls(used_ids(request))
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._images: list[Image] = []
        self._other: dict[str, Any] = {}
        self._usage = Usage()
        self._finish: str | None = None
        self._id = ""

    def take(self, name: str, data: bytes) -> list[Delta]:
        """Take one chunk."""
        if data.strip() == b"[DONE]":
            self.ended = True
            if self._finish is None:
                self._finish = "stop"
            return []
        return self._completion(self._model._json(data), whole=False)

    def whole(self, response: object) -> list[Delta]:
        """Take a whole completion."""
        deltas = self._completion(response, whole=True)
        if self._finish is None:
            self._finish = "stop"
        self.ended = True
        return deltas

    def _completion(self, data: object, *, whole: bool) -> list[Delta]:
        if not isinstance(data, dict):
            raise self._wrong("an event that is not an object")
        if data.get("error"):
            kinds, message = words_of(data)
            status = field(data, "error", "code")
            raise error_said(
                self._model.spec,
                status=status if isinstance(status, int) and not isinstance(status, bool) else None,
                kinds=kinds,
                message=message,
                secrets=self._model._secrets(),
            )
        if isinstance(data.get("id"), str):
            self._id = data["id"]
        if isinstance(data.get("usage"), dict):
            self._usage = _usage(data["usage"])
        choices = data.get("choices")
        if whole and not choices:
            raise self._wrong("no choices")
        if choices is None or choices == []:  # the chunk that has only the usage
            return []
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise self._wrong("choices of another kind")
        if choice.get("index") not in (None, 0):
            return []
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish
        deltas: list[Delta] = []
        for place in ("message", "delta"):
            given = choice.get(place)
            if isinstance(given, dict):
                deltas += self._message(given, whole=whole or place == "message")
            elif given is not None:
                raise self._wrong(f"a {place} of another kind")
        return deltas

    def _message(self, given: dict[str, Any], *, whole: bool) -> list[Delta]:
        deltas: list[Delta] = []
        reasoning = next((given[name] for name in _REASONING if given.get(name)), None)
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
            deltas.append(ReasoningDelta(reasoning))
        text = _content(given.get("content"))
        if text is None:
            raise self._wrong("content of another kind")
        if text:
            self._text.append(text)
            deltas.append(TextDelta(text))
        refusal = given.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal.append(refusal)
            deltas.append(TextDelta(refusal))
        pieces = given.get("tool_calls")
        if pieces is None and isinstance(given.get("function_call"), dict):
            pieces = [{"type": "function", "index": 0, "function": given["function_call"]}]
        if pieces is not None:
            if not isinstance(pieces, list):
                raise self._wrong("tool_calls of another kind")
            for piece in pieces:
                deltas += self._calls.take(piece, whole=whole)
        for part in given.get("images") or () if isinstance(given.get("images"), list) else ():
            url = field(part, "image_url", "url")
            if isinstance(url, str) and (image := pictures.from_url(url)) is not None:
                self._images.append(image)
        for name, value in given.items():
            if name not in _READ_FIELDS and value is not None:
                self._other[name] = _joined(self._other[name], value) if name in self._other else value
        return deltas

    def answer(self) -> ModelAnswer:
        """The answer, once the stream has ended."""
        if self._finish is None:
            raise ModelError(
                f"The answer of {self._model.spec} broke off before its end; ask again", "unavailable", retry=True
            )
        if self._finish == "error":
            raise ModelError(
                f"{self._model.spec} failed in the middle of its answer; ask again", "unavailable", retry=True
            )
        text = "".join([*self._text, *self._refusal])
        written = self._calls.written()
        stop = _STOPS.get(self._finish, "end")
        if stop in ("end", "calls"):
            stop = "calls" if written else "end"
        if self._refusal and stop == "end":
            stop = "refusal"
        message: Raw = {"role": "assistant", **self._other, "content": "".join(self._text) or None}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if written:
            message["tool_calls"] = written
        calls = wire.read_calls({"choices": [{"finish_reason": self._finish, "message": message}]})
        calls = self._calls.as_given(calls)
        empty = len(message) == 2 and message["content"] is None
        native = {"format": wire.NAME, "server": self._model.server, "items": [message]}
        return ModelAnswer(
            text=text,
            calls=tuple(calls),
            stop=stop,
            usage=self._usage,
            native=None if empty else native,
            reasoning="".join(self._reasoning),
            images=tuple(self._images),
            id=self._id,
            model=self._model.spec,
        )

    def _wrong(self, found: str) -> ModelError:
        return ModelError(
            f"{self._model.spec} gave {found}, which chat completions do not have; check that {self._model.server} "
            "speaks this protocol",
            "bad_answer",
        )


def _content(content: object) -> str | None:
    """The text of a message's content, in either of its two forms; None for anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    found = [field(part, "text") for part in content if field(part, "type") in ("text", "output_text")]
    return "".join(each for each in found if isinstance(each, str))


def _usage(given: dict[str, Any]) -> Usage:
    return Usage(
        input=count(given.get("prompt_tokens")),
        output=count(given.get("completion_tokens")),
        cache_read=count(field(given, "prompt_tokens_details", "cached_tokens")),
        cache_write=count(field(given, "prompt_tokens_details", "cache_write_tokens")),
        reasoning=count(field(given, "completion_tokens_details", "reasoning_tokens")),
    )


def _joined(known: object, more: object) -> object:
    """A field of a message whose pieces came in several chunks: text goes on, and parts go on by their index."""
    if isinstance(known, str) and isinstance(more, str):
        return known + more
    if not (isinstance(known, list) and isinstance(more, list)):
        return more
    parts = list(known)
    for piece in more:
        last = parts[-1] if parts else None
        if isinstance(piece, dict) and isinstance(last, dict) and _goes_on(last, piece):
            parts[-1] = {
                **last,
                **{
                    name: _joined(last[name], value) if name in last and name not in _SAME else value
                    for name, value in piece.items()
                    if value is not None
                },
            }
        else:
            parts.append(piece)
    return parts


def _goes_on(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    same = all(piece.get(name) in (None, last.get(name)) for name in _SAME)
    return same and isinstance(piece.get("index"), int)
