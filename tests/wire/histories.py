"""Histories for the tests of repair: made of simple atoms, damaged as such, and laid out for each provider.

The checks of the providers' rules share nothing with the code under test.
"""

from typing import Any

from hypothesis import strategies as st

Atom = tuple[Any, ...]
"""("user", text), ("ask", (id, ...)) or ("result", id, text)."""


@st.composite
def whole(draw: st.DrawFn) -> list[Atom]:
    """A history in good order: every call has its result, in any order among those of one answer."""
    atoms: list[Atom] = [("user", "0")]
    for turn in range(draw(st.integers(0, 4))):
        ids = tuple(f"c{turn}{at}" for at in range(draw(st.integers(1, 3))))
        atoms.append(("ask", ids))
        atoms += [("result", call_id, f"result of {call_id}") for call_id in draw(st.permutations(ids))]
        if draw(st.booleans()):
            atoms.append(("user", str(turn + 1)))
    return atoms


@st.composite
def damaged(draw: st.DrawFn, *, same_ids: bool = False) -> list[Atom]:
    """A history after some accidents: results lost, doubled, strayed or invented, calls of one id."""
    atoms = draw(whole())
    kinds = ["drop", "double", "stray", "orphan", *(["same id", "no id"] if same_ids else [])]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=5)):
        results = [at for at, atom in enumerate(atoms) if atom[0] == "result"]
        asks = [at for at, atom in enumerate(atoms) if atom[0] == "ask"]
        place = draw(st.integers(0, len(atoms)))
        if kind == "orphan":
            atoms.insert(place, ("result", draw(st.sampled_from(["x1", "x2"])), "orphan"))
        elif kind in ("same id", "no id") and asks:
            at = draw(st.sampled_from(asks))
            ids = list(atoms[at][1])
            shared = draw(st.sampled_from([call_id for other in asks for call_id in atoms[other][1]]))
            ids[draw(st.integers(0, len(ids) - 1))] = "" if kind == "no id" else shared
            atoms[at] = ("ask", tuple(ids))
        elif results:
            at = draw(st.sampled_from(results))
            if kind == "double":
                atoms.insert(place, ("result", atoms[at][1], f"again {atoms[at][1]}"))
            else:
                atom = atoms.pop(at)
                if kind == "stray":
                    atoms.insert(min(place, len(atoms)), atom)
    return atoms


def chat(atoms: list[Atom]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for kind, what, *rest in atoms:
        if kind == "user":
            messages.append({"role": "user", "content": what})
        elif kind == "ask":
            asked = [{"id": i, "type": "function", "function": {"name": "t", "arguments": "{}"}} for i in what]
            messages.append({"role": "assistant", "content": "I ask.", "tool_calls": asked})
        else:
            messages.append({"role": "tool", "tool_call_id": what, "content": rest[0]})
    return messages


def responses(atoms: list[Atom]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for at, (kind, what, *rest) in enumerate(atoms):
        if kind == "user":
            items.append({"role": "user", "content": what})
        elif kind == "ask":
            for call_id in what:
                items.append({"type": "reasoning", "id": f"rs_{at}_{call_id}", "summary": []})
                items.append({"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"})
        else:
            items.append({"type": "function_call_output", "call_id": what, "output": rest[0]})
    return items


def anthropic(atoms: list[Atom]) -> list[dict[str, Any]]:
    """Results and what a user says stand in one message as long as no assistant message comes between."""
    messages: list[dict[str, Any]] = []
    for kind, what, *rest in atoms:
        if kind == "ask":
            asked = [{"type": "tool_use", "id": i, "name": "t", "input": {}} for i in what]
            messages.append({"role": "assistant", "content": [{"type": "text", "text": "I ask."}, *asked]})
            continue
        if kind == "user":
            block = {"type": "text", "text": what}
        else:
            block = {"type": "tool_result", "tool_use_id": what, "content": rest[0]}
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"].append(block)
        else:
            messages.append({"role": "user", "content": [block]})
    return messages


def anthropic_apart(atoms: list[Atom]) -> list[dict[str, Any]]:
    """The same with every result and every text in a message of its own."""
    messages: list[dict[str, Any]] = []
    for atom in atoms:
        messages += anthropic([atom])
    for message in messages:
        if message["content"][0]["type"] == "text" and message["role"] == "user":
            message["content"] = message["content"][0]["text"]
    return messages


def chat_rule(messages: list[dict[str, Any]]) -> list[str]:
    """Check a chat history; return the ids of its calls."""
    seen: list[str] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        assert message["role"] != "tool", f"a tool message that answers nothing: {message}"
        asked = [call["id"] for call in message.get("tool_calls", ())]
        answers = messages[at : at + len(asked)]
        assert [answer["role"] for answer in answers] == ["tool"] * len(asked)
        assert sorted(answer["tool_call_id"] for answer in answers) == sorted(asked)
        seen += asked
        at += len(asked)
    return seen


def responses_rule(items: list[dict[str, Any]]) -> list[str]:
    """Check a history of items; return the ids of its calls."""
    seen: list[str] = []
    waiting: list[str] = []
    before = ""
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            assert not waiting or before != "function_call_output", "a call before the results of the last ones"
            waiting.append(item["call_id"])
            seen.append(item["call_id"])
        elif kind == "function_call_output":
            assert before in ("function_call", "function_call_output"), "a result away from its calls"
            assert waiting, f"a result that answers nothing: {item}"
            waiting.remove(item["call_id"])
        else:
            assert not waiting or kind == "reasoning", "calls without results"
        before = kind
    assert not waiting, f"calls without results: {waiting}"
    return seen


def anthropic_rule(messages: list[dict[str, Any]]) -> list[str]:
    """Check a history of messages; return the ids of its calls."""
    seen: list[str] = []
    expected: list[str] = []
    assert all(message["content"] for message in messages)
    for message in [*messages, {"role": "user", "content": []}]:
        content = message["content"] if isinstance(message["content"], list) else []
        answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        assert sorted(answered) == sorted(expected)
        assert [block["type"] for block in content[: len(expected)]] == ["tool_result"] * len(expected)
        assert not expected or message["role"] == "user"
        expected = [block["id"] for block in content if block["type"] == "tool_use"]
        seen += expected
    return seen


RULES: dict[str, Any] = {
    "openai-chat": chat_rule,
    "openai-responses": responses_rule,
    "anthropic": anthropic_rule,
}
FORMS: dict[str, tuple[str, Any]] = {
    "openai-chat": ("openai-chat", chat),
    "openai-responses": ("openai-responses", responses),
    "anthropic": ("anthropic", anthropic),
    "anthropic, apart": ("anthropic", anthropic_apart),
}


def said_by_users(messages: list[dict[str, Any]]) -> list[str]:
    """What users said, in order, whatever else stands in the same message."""
    said: list[str] = []
    for message in messages:
        if message.get("role") == "user":
            content = message["content"]
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            said += [block["text"] for block in blocks if block["type"] == "text"]
    return said


def texts_of_results(messages: list[dict[str, Any]]) -> dict[str, str]:
    """The text of each result under its call's id."""
    found: dict[str, str] = {}
    for message in messages:
        if message.get("role") == "tool":
            found[message["tool_call_id"]] = message["content"]
        elif message.get("type") == "function_call_output":
            found[message["call_id"]] = message["output"]
        elif isinstance(message.get("content"), list):
            for block in message["content"]:
                if block["type"] == "tool_result":
                    found[block["tool_use_id"]] = block["content"]
    return found
