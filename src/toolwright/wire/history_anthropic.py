"""The histories of Anthropic. Owns where calls and results stand; does not own the repair of a broken history.

The rule: after a message with `tool_use` blocks comes one user message that begins with a `tool_result` for
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolwright.wire import anthropic
from toolwright.wire.history import AskedCall, Asking, Entry, Other, Result, id_of, name_of
from toolwright.wire.payload_reader import Part, plain
from toolwright.wire.results import INTERRUPTED_TEXT, interrupted

OPENING = "(The beginning of this conversation is not shown.)"
"""Stands first where a repair took away the user message that a history must begin with."""


class AnthropicLayout:
    """Calls and results as blocks in messages. A message that held only results is removed when they are taken out."""

    together = True

    def split(self, messages: Sequence[Any]) -> list[Entry]:
        """Take a history apart, in order. A message that mixes results with other blocks comes in pieces."""
        entries: list[Entry] = []
        for home, message in enumerate(messages):
            part = Part(message, anthropic.SHAPE, f"messages[{home}]")
            part.object("a message")
            content = part.field("content")
            blocks = content.each() if content.is_list else []
            for block in blocks:
                block.object("a content block")
            asked = [block for block in blocks if block.kind() == "tool_use"]
            if asked and part.field("role").value == "assistant":
                rest = [block for block in blocks if block.kind() != "tool_result"]
                entries.append(Asking(home, _with(message, rest, blocks), tuple(map(_call, asked))))
                entries += [_result(home, block) for block in blocks if block.kind() == "tool_result"]
            else:
                entries += self._pieces(home, message, blocks)
        return entries

    def _pieces(self, home: int, message: object, blocks: list[Part]) -> list[Entry]:
        if not any(block.kind() == "tool_result" for block in blocks):
            return [Other(home, message)]
        pieces: list[Entry] = []
        rest: list[Part] = []
        for block in blocks:
            if block.kind() != "tool_result":
                rest.append(block)
                continue
            if rest:
                pieces.append(Other(home, _with(message, rest, blocks)))
                rest = []
            pieces.append(_result(home, block))
        return [*pieces, Other(home, _with(message, rest, blocks))] if rest else pieces

    def renamed(self, asking: Asking, ids: Sequence[str]) -> object:
        """The message of `asking`, with these ids for its calls."""
        message, fresh = plain(asking.message), iter(ids)
        blocks = [plain(block) for block in message["content"]]
        content = [{**block, "id": next(fresh)} if block.get("type") == "tool_use" else block for block in blocks]
        return {**message, "content": content}

    def addressed(self, result: Result, call_id: str) -> object:
        """The content of a result, as the answer to this call."""
        return {**plain(result.content), "tool_use_id": call_id}

    def interrupted(self, call_id: str, call: AskedCall) -> object:
        """The content of a result for a call whose outcome is unknown."""
        return anthropic.write_results([interrupted(call_id, call.name)])[0]["content"][0]

    def join(self, entries: Sequence[Entry], messages: Sequence[Any]) -> list[Any]:
        """Make a history of entries in their final order: results become messages, pieces become whole."""
        joined: list[Any] = []
        results: list[Result] = []
        asked = -1
        for entry in [*_whole(entries), None]:
            if isinstance(entry, Result):
                results.append(entry)
                continue
            if results:
                blocks = [result.content for result in results]
                if isinstance(entry, Other) and _belongs(entry, results, asked):
                    entry = _filled(entry, blocks + _content(entry.message))
                else:
                    joined.append({"role": "user", "content": blocks})
                results = []
            if isinstance(entry, Asking):
                asked = entry.home
            if entry is not None:
                joined.append(entry.message)
        if joined and _role(messages[0]) == "user" and _role(joined[0]) != "user":
            joined.insert(0, {"role": "user", "content": OPENING})
        return joined


def _whole(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with the pieces of a message, between which nothing stands any more, put together."""
    whole: list[Entry] = []
    for entry in entries:
        before = whole[-1] if whole else None
        if isinstance(entry, Other) and isinstance(before, Other) and before.home == entry.home:
            whole[-1] = _filled(entry, _content(before.message) + _content(entry.message))
        else:
            whole.append(entry)
    return whole


def _filled(entry: Other, content: list[Any]) -> Other:
    return Other(entry.home, {**plain(entry.message), "content": content})


def _belongs(entry: Other, results: list[Result], asked: int) -> bool:
    """True when results go into the user message that follows, and not into one of their own before it."""
    if _role(entry.message) != "user":
        return False
    return not any(result.home is not None and asked < result.home < entry.home for result in results)


def _call(block: Part) -> AskedCall:
    return AskedCall(id_of(block.field("id")), name_of(block.field("name")))


def _result(home: int, block: Part) -> Result:
    synthetic = block.field("content").value == INTERRUPTED_TEXT
    return Result(home, id_of(block.field("tool_use_id")), block.value, synthetic)


def _with(message: object, rest: list[Part], blocks: list[Part]) -> object:
    """The message with only these of its blocks; the message itself when they are all of them."""
    return message if len(rest) == len(blocks) else {**plain(message), "content": [part.value for part in rest]}


def _content(message: object) -> list[Any]:
    content = plain(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return list(content or ())


def _role(message: object) -> object:
    return plain(message).get("role")
