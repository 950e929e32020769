"""What a provider says, in the protocol of each: a `ModelAnswer` as a stream of events, and as one response.

Owns the shapes of answers on the server's side, and the check of a request by the types of the provider's own library.
"""

import json
from collections.abc import Iterable
from typing import Any, ClassVar

import anthropic.types
import openai.types.chat
import openai.types.responses
from pydantic import TypeAdapter

from tests.providers.loopback import Asked, Loopback, Reply, streamed, whole
from toolwright import ToolCall
from toolwright.providers import Anthropic, OpenAIChat, OpenAIResponses
from toolwright.providers.provider_model import ProviderModel
from toolwright.tools.model import ModelAnswer


def events(*given: Any, named: bool = False) -> bytes:
    """Server-sent events; `named` ones have the name of their type."""
    lines = []
    for event in given:
        if named and isinstance(event, dict):
            lines.append(f"event: {event['type']}\n")
        lines.append(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "".join(lines).encode()


def pieces(text: str, size: int = 3) -> Iterable[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def written(call: ToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments or {})


class Dialect:
    name: str
    kind: type[ProviderModel]
    path: str
    base = ""

    def __repr__(self) -> str:
        return self.name

    def model(self, server: Loopback, **options: Any) -> Any:
        return self.kind("a-model", **{"base_url": server.address + self.base, "api_key": "key-of-a-test", **options})

    def stream(self, answer: ModelAnswer) -> bytes:
        raise NotImplementedError

    def response(self, answer: ModelAnswer) -> dict[str, Any]:
        raise NotImplementedError

    def reply(self, answer: ModelAnswer, *, size: int = 0) -> Any:
        """A reply that streams when it is asked to."""

        def reply(asked: Asked) -> Reply:
            if asked.body.get("stream"):
                return streamed(self.stream(answer), size=size)
            return whole(self.response(answer))

        return reply

    def check(self, body: dict[str, Any]) -> None:
        """Check a request by the library's own types.

        Raises:
            ValidationError: it is not of these types.
        """
        raise NotImplementedError


class Chat(Dialect):
    name = "openai-chat"
    kind = OpenAIChat
    path = "/v1/chat/completions"
    base = "/v1"
    stops: ClassVar[dict[str, str]] = {
        "end": "stop",
        "calls": "tool_calls",
        "length": "length",
        "refusal": "content_filter",
    }

    def stream(self, answer: ModelAnswer) -> bytes:
        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            return {**self.about(), "object": "chat.completion.chunk", "choices": [choice]}

        said = [chunk({"role": "assistant", "content": ""})]
        said += [chunk({"reasoning_content": piece}) for piece in pieces(answer.reasoning)]
        said += [chunk({"content": piece}) for piece in pieces(answer.text)]
        for index, call in enumerate(answer.calls):
            named = {
                "index": index,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": ""},
            }
            said.append(chunk({"tool_calls": [named]}))
            said += [
                chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
                for piece in pieces(written(call), 4)
            ]
        said.append(chunk({}, self.stops[answer.stop]))
        said.append({**self.about(), "object": "chat.completion.chunk", "choices": [], "usage": self.usage(answer)})
        return events(*said, "[DONE]")

    def response(self, answer: ModelAnswer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written(call)}}
                for call in answer.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self.stops[answer.stop], "logprobs": None}
        return {**self.about(), "object": "chat.completion", "choices": [choice], "usage": self.usage(answer)}

    def about(self) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "created": 1_790_000_000, "model": "a-model-2026"}

    def usage(self, answer: ModelAnswer) -> dict[str, Any]:
        usage = answer.usage
        return {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }

    def check(self, body: dict[str, Any]) -> None:
        TypeAdapter(list[openai.types.chat.ChatCompletionMessageParam]).validate_python(body["messages"])
        TypeAdapter(list[openai.types.chat.ChatCompletionToolUnionParam]).validate_python(body.get("tools", []))


class Responses(Dialect):
    name = "openai-responses"
    kind = OpenAIResponses
    path = "/v1/responses"
    base = "/v1"

    def items(self, answer: ModelAnswer) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if answer.reasoning:
            summary = [{"type": "summary_text", "text": part} for part in answer.reasoning.split("\n\n")]
            items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA-sealed="})
        if answer.text:
            kind = "refusal" if answer.stop == "refusal" else "output_text"
            part: dict[str, Any] = {"type": kind, "refusal" if kind == "refusal" else "text": answer.text}
            if kind == "output_text":
                part |= {"annotations": [], "logprobs": []}
            items.append(
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
            )
        for number, call in enumerate(answer.calls):
            items.append(
                {
                    "type": "function_call",
                    "id": f"fc_{number}",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": written(call),
                    "status": "incomplete" if answer.stop == "length" else "completed",
                }
            )
        return items

    def response(self, answer: ModelAnswer) -> dict[str, Any]:
        usage = answer.usage
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_790_000_000,
            "model": "a-model-2026",
            "status": "incomplete" if answer.stop == "length" else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if answer.stop == "length" else None,
            "error": None,
            "output": self.items(answer),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.tokens,
            },
        }

    def stream(self, answer: ModelAnswer) -> bytes:
        whole = self.response(answer)
        said: list[dict[str, Any]] = [{"type": "response.created", "response": {**whole, "output": [], "usage": None}}]
        for place, item in enumerate(whole["output"]):
            about = {"output_index": place, "item_id": item["id"]}
            begun = {**item, "status": "in_progress"}
            if item["type"] == "function_call":
                begun["arguments"] = ""
            elif item["type"] == "message":
                begun["content"] = []
            said.append({"type": "response.output_item.added", "output_index": place, "item": begun})
            if item["type"] == "reasoning":
                for part, summary in enumerate(item["summary"]):
                    here, kind = {**about, "summary_index": part}, "response.reasoning_summary"
                    said.append({"type": f"{kind}_part.added", **here, "part": {"type": "summary_text", "text": ""}})
                    said += [{"type": f"{kind}_text.delta", **here, "delta": each} for each in pieces(summary["text"])]
                    said.append({"type": f"{kind}_text.done", **here, "text": summary["text"]})
                    said.append({"type": f"{kind}_part.done", **here, "part": summary})
            elif item["type"] == "message":
                [content] = item["content"]
                here, kind, word = {**about, "content_index": 0}, content["type"], "text"
                logs: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
                if kind == "refusal":
                    word = "refusal"
                said.append({"type": "response.content_part.added", **here, "part": {**content, word: ""}})
                said += [
                    {"type": f"response.{kind}.delta", **here, **logs, "delta": each} for each in pieces(content[word])
                ]
                said.append({"type": f"response.{kind}.done", **here, **logs, word: content[word]})
                said.append({"type": "response.content_part.done", **here, "part": content})
            else:
                kind = "response.function_call_arguments"
                said += [{"type": f"{kind}.delta", **about, "delta": each} for each in pieces(item["arguments"], 4)]
                said.append({"type": f"{kind}.done", **about, "name": item["name"], "arguments": item["arguments"]})
            said.append({"type": "response.output_item.done", "output_index": place, "item": item})
        said.append({"type": f"response.{whole['status']}", "response": whole})
        return events(*({**event, "sequence_number": number} for number, event in enumerate(said)), named=True)

    def check(self, body: dict[str, Any]) -> None:
        TypeAdapter(openai.types.responses.ResponseInputParam).validate_python(body["input"])
        TypeAdapter(list[openai.types.responses.ToolParam]).validate_python(body.get("tools", []))


class Messages(Dialect):
    name = "anthropic"
    kind = Anthropic
    path = "/v1/messages"
    stops: ClassVar[dict[str, str]] = {
        "end": "end_turn",
        "calls": "tool_use",
        "length": "max_tokens",
        "refusal": "refusal",
        "pause": "pause_turn",
        "context": "model_context_window_exceeded",
    }

    def blocks(self, answer: ModelAnswer) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if answer.reasoning:
            blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": "EqQB-sig=="})
        if answer.text:
            blocks.append({"type": "text", "text": answer.text})
        for call in answer.calls:
            arguments = json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments or {}
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
        return blocks

    def about(self, answer: ModelAnswer) -> dict[str, Any]:
        usage = answer.usage
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "a-model-2026",
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input - usage.cache_read - usage.cache_write,
                "cache_read_input_tokens": usage.cache_read,
                "cache_creation_input_tokens": usage.cache_write,
                "output_tokens": 1,
            },
        }

    def response(self, answer: ModelAnswer) -> dict[str, Any]:
        whole = {**self.about(answer), "content": self.blocks(answer), "stop_reason": self.stops[answer.stop]}
        whole["usage"] |= self.last(answer)
        return whole

    def last(self, answer: ModelAnswer) -> dict[str, Any]:
        details = {"output_tokens_details": {"thinking_tokens": answer.usage.reasoning}}
        return {"output_tokens": answer.usage.output, **details}

    def stream(self, answer: ModelAnswer) -> bytes:
        said: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**self.about(answer), "content": [], "stop_reason": None}},
            {"type": "ping"},
        ]
        for index, block in enumerate(self.blocks(answer)):
            if block["type"] == "text":
                begun, deltas = (
                    {**block, "text": ""},
                    [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])],
                )
            elif block["type"] == "thinking":
                begun = {**block, "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            else:
                begun = {**block, "input": {}}
                text = written(next(call for call in answer.calls if call.id == block["id"]))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(text, 4)]]
            said.append({"type": "content_block_start", "index": index, "content_block": begun})
            said += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            said.append({"type": "content_block_stop", "index": index})
        ending = {"stop_reason": self.stops[answer.stop], "stop_sequence": None}
        said.append({"type": "message_delta", "delta": ending, "usage": self.last(answer)})
        said.append({"type": "message_stop"})
        return events(*said, named=True)

    def check(self, body: dict[str, Any]) -> None:
        TypeAdapter(list[anthropic.types.MessageParam]).validate_python(body["messages"])
        TypeAdapter(list[anthropic.types.ToolUnionParam]).validate_python(body.get("tools", []))


CHAT, RESPONSES, MESSAGES = Chat(), Responses(), Messages()
DIALECTS = (CHAT, RESPONSES, MESSAGES)
