"""What the tests of the wire share: calls and outcomes of every kind, and a stand-in for an SDK's objects."""

import json
from typing import Any

from hypothesis import strategies as st

from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import Failure, Image, Status, ToolOutcome

STATUSES: list[Status] = ["success", "failure", "cancelled", "pending"]
PROVIDERS = ["openai-chat", "openai-responses", "anthropic", "mcp", "plain"]

WRITTEN = '{ "city":"Zürich",\n "days": 1e0 }'

CHAT: Any = {
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": WRITTEN}},
                    {"id": "c2", "type": "custom", "custom": {"name": "run", "input": "print(1)"}},
                ],
            },
        }
    ],
}
RESPONSES: Any = {
    "object": "response",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": WRITTEN},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A moment."}]},
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "run", "input": "print(1)"},
    ],
}
ANTHROPIC: Any = {
    "type": "message",
    "role": "assistant",
    "stop_reason": "tool_use",
    "content": [
        {"type": "text", "text": "A moment."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Zürich", "days": None}},
    ],
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text("abcXYZ019_-", min_size=1, max_size=12)
ids = st.text("abcXYZ019_-", min_size=1, max_size=12) | texts.filter(lambda text: text.strip() != "")
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
arguments = st.dictionaries(texts, values, max_size=5)


@st.composite
def calls(draw: st.DrawFn, /, min_size: int = 0) -> list[ToolCall]:
    """Calls with ids of their own, their arguments as an object or as the text a model wrote."""
    made = []
    for call_id in draw(st.lists(ids, unique=True, min_size=min_size, max_size=6)):
        given = draw(arguments)
        written = json.dumps(given, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
        made.append(ToolCall(name=draw(names), arguments=draw(st.sampled_from([given, written])), id=call_id))
    return made


images = st.builds(Image.from_bytes, st.binary(max_size=8), st.sampled_from(["image/png", "image/jpeg", "image/webp"]))


@st.composite
def outcomes(draw: st.DrawFn, /, min_size: int = 0) -> list[ToolOutcome]:
    """Outcomes of every status that a model may be shown."""
    made = []
    for call_id in draw(st.lists(ids, unique=True, min_size=min_size, max_size=6)):
        pictures = tuple(draw(st.lists(images, max_size=2)))
        common: dict[str, Any] = {"call_id": call_id, "tool": draw(names), "images": pictures}
        status: Status = draw(st.sampled_from(STATUSES))
        if status == "success":
            common["payload"] = json.dumps(draw(values), ensure_ascii=False, separators=(",", ":")).encode()
        elif status == "failure":
            common["failure"] = Failure(message=draw(texts))
        made.append(ToolOutcome(status=status, **common))
    return made


def meaning(call: ToolCall) -> tuple[str | None, str, Any]:
    """A call with its arguments as the value they stand for, read by the standard library."""
    given = call.arguments
    return call.id, call.name, json.loads(given) if isinstance(given, str) else given


class Dumped:
    """Stands in for an SDK's object: only `model_dump`, and inside it more such objects."""

    def __init__(self, given: dict[str, Any], **unset: Any) -> None:
        self._given = {**given, **unset}

    def model_dump(self) -> dict[str, Any]:
        return {name: dumped(value) for name, value in self._given.items()}


def dumped(value: Any) -> Any:
    """The same payload, with each object in it that has a type or a role as an SDK would hand it over."""
    if isinstance(value, list):
        return [dumped(item) for item in value]
    if isinstance(value, dict) and ("type" in value or "role" in value or "choices" in value):
        return Dumped(value, refusal=None, audio=None)
    return value
