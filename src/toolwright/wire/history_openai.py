"""The histories of OpenAI's two APIs. Owns where calls and results stand; does not own the repair of a broken
history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolwright.tools.call import ToolCall
from toolwright.wire import openai_chat, openai_responses
from toolwright.wire.arguments import FREE
from toolwright.wire.history import AskedCall, Asking, Entry, Other, Result, id_of, name_of
from toolwright.wire.payload_reader import Part, plain
from toolwright.wire.results import INTERRUPTED_TEXT, interrupted


class ChatLayout:
    """An assistant message with `tool_calls`, and a tool message for each call directly after it."""

    together = False

    def split(self, messages: Sequence[Any]) -> list[Entry]:
        """Take a history apart, in order."""
        return [
            self._entry(home, message, Part(message, openai_chat.SHAPE, f"messages[{home}]"))
            for home, message in enumerate(messages)
        ]

    def _entry(self, home: int, message: object, part: Part) -> Entry:
        part.object("a message")
        if part.field("role").value == "tool":
            synthetic = part.field("content").value == INTERRUPTED_TEXT
            return Result(home, id_of(part.field("tool_call_id")), message, synthetic)
        if part.field("role").value == "assistant" and part.has("tool_calls"):
            calls = tuple(_chat_call(item) for item in part.field("tool_calls").each("a list of tool calls"))
            if calls:
                return Asking(home, message, calls)
        return Other(home, message)

    def renamed(self, asking: Asking, ids: Sequence[str]) -> object:
        """The message of `asking`, with these ids for its calls."""
        message = plain(asking.message)
        calls = [{**plain(call), "id": call_id} for call, call_id in zip(message["tool_calls"], ids, strict=True)]
        return {**message, "tool_calls": calls}

    def addressed(self, result: Result, call_id: str) -> object:
        """The content of a result, as the answer to this call."""
        return {**plain(result.content), "tool_call_id": call_id}

    def interrupted(self, call_id: str, call: AskedCall) -> object:
        """The content of a result for a call whose outcome is unknown."""
        return openai_chat.write_results([interrupted(call_id, call.name)])[0]

    def join(self, entries: Sequence[Entry], messages: Sequence[Any]) -> list[Any]:
        """Make a history of entries in their final order."""
        return [entry.content if isinstance(entry, Result) else entry.message for entry in entries]


class ResponsesLayout:
    """Calls as separate items. The calls of one answer, and the items between them, are one message."""

    together = False

    def split(self, messages: Sequence[Any]) -> list[Entry]:
        """Take a history apart, in order."""
        entries: list[Entry] = []
        run: list[tuple[int, Any, Part]] = []
        for home, item in enumerate(messages):
            part = Part(item, openai_responses.SHAPE, f"messages[{home}]")
            part.object("an item")
            kind = part.kind()
            answers = kind in openai_responses.OUTPUTS
            if kind in openai_responses.CALLS or (run and not answers and _from_model(part)):
                run.append((home, item, part))
                continue
            entries += _closed(run, answers)
            run = []
            if answers:
                synthetic = part.field("output").value == INTERRUPTED_TEXT
                entries.append(Result(home, id_of(part.field("call_id")), item, synthetic))
            else:
                entries.append(Other(home, item))
        return entries + _closed(run, False)

    def renamed(self, asking: Asking, ids: Sequence[str]) -> object:
        """The items of `asking`, with these ids for its calls."""
        fresh = iter(ids)
        return [
            {**plain(item), "call_id": next(fresh)} if _kind(item) in openai_responses.CALLS else item
            for item in asking.message
        ]

    def addressed(self, result: Result, call_id: str) -> object:
        """The content of a result, as the answer to this call."""
        return {**plain(result.content), "call_id": call_id}

    def interrupted(self, call_id: str, call: AskedCall) -> object:
        """The content of a result for a call whose outcome is unknown."""
        kind, arguments = ("custom", {FREE: ""}) if call.custom else (None, None)
        asked = ToolCall(name=call.name, id=call_id, kind=kind, arguments=arguments)
        return openai_responses.write_results([interrupted(call_id, call.name)], [asked])[0]

    def join(self, entries: Sequence[Entry], messages: Sequence[Any]) -> list[Any]:
        """Make a history of entries in their final order."""
        joined: list[Any] = []
        for entry in entries:
            if isinstance(entry, Asking):
                joined.extend(entry.message)
            else:
                joined.append(entry.content if isinstance(entry, Result) else entry.message)
        return joined


def _chat_call(part: Part) -> AskedCall:
    part.object("a tool call")
    called = part.field("custom" if part.has("custom") else "function")
    name = name_of(called.field("name")) if isinstance(called.value, dict) else ""
    return AskedCall(id_of(part.field("id")), name)


def _from_model(part: Part) -> bool:
    """True for an item that a model gives: all but the messages that others write."""
    return part.field("role").value in (None, "assistant")


def _closed(run: list[tuple[int, Any, Part]], answered: bool) -> list[Entry]:
    """The calls of one answer as one entry, with all that the model gave before their results.

    Without results, the items after the last call belong to the next message.
    """
    asking = [at for at, (_, _, part) in enumerate(run) if part.kind() in openai_responses.CALLS]
    if not asking:
        return []
    end = len(run) if answered else asking[-1] + 1
    calls = tuple(_responses_call(run[at][2]) for at in asking)
    rest: list[Entry] = [Other(home, item) for home, item, _ in run[end:]]
    return [Asking(run[0][0], [item for _, item, _ in run[:end]], calls), *rest]


def _responses_call(part: Part) -> AskedCall:
    return AskedCall(id_of(part.field("call_id")), name_of(part.field("name")), part.kind() == "custom_tool_call")


def _kind(item: object) -> object:
    return plain(item).get("type")
