"""The problems a model reads when arguments do not fit. Owns their words, and how a schema is put in words;
does not own validation, nor the failure the problems end up in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from toolwright import jsonx
from toolwright.large_json import room_after
from toolwright.plain_data import plain_data

PREVIEW_LENGTH = 120
PROBLEMS_SHOWN = 50
MOST_PROBLEMS = 1_000
"""How many items a value may have, or problems be found in it, for all of them to be told."""
_PREVIEWED = 16 * 1024
"""How large a value may be, as `room_after` counts, to be encoded for the sake of its beginning."""

Path = Sequence[str | int]


class ArgumentProblem(msgspec.Struct, frozen=True):
    """One position where arguments do not fit: where, why, the value and the expected one."""

    path: str
    message: str
    given: str
    expected: str

    def to_json(self) -> dict[str, Any]:
        """The problem as plain data."""
        return plain_data(self)


def summarise(problems: Sequence[ArgumentProblem]) -> str:
    """Return the text a model reads: one line a problem, the first fifty of them."""
    lines = [f"{p.path}: {p.message} (expected {p.expected}; given {p.given})" for p in problems[:PROBLEMS_SHOWN]]
    if len(problems) > PROBLEMS_SHOWN:
        lines.append(f"and {len(problems) - PROBLEMS_SHOWN} more")
    return "\n".join(lines)


def as_data(problems: Sequence[ArgumentProblem]) -> dict[str, Any]:
    """The same for programs: the first fifty, with paths that are cut."""
    return {
        "problems": [
            {
                "path": shorten(p.path, 300),
                "message": shorten(p.message, 300),
                "given": p.given,
                "expected": shorten(p.expected, 300),
            }
            for p in problems[:PROBLEMS_SHOWN]
        ],
        "count": len(problems),
    }


def shorten(text: str, length: int = PREVIEW_LENGTH) -> str:
    """Cut text to a length in characters, an ellipsis included."""
    return text if len(text) <= length else text[: length - 1] + "…"


def preview(value: object) -> str:
    """Return the JSON of a value, cut to 120 characters."""
    if isinstance(value, str):
        value = value[: PREVIEW_LENGTH + 1]  # A megabyte of text is not encoded to show its first line.
    try:
        if isinstance(value, list):
            value = value[:PREVIEW_LENGTH]
        if isinstance(value, list | dict) and room_after(value, _PREVIEWED) < 0:
            return "a long list" if isinstance(value, list) else f"an object of {len(value)} fields"
        text = jsonx.encode(value).decode()
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = repr(value)
    return shorten(text)


def json_path(path: Path) -> str:
    """Write a path as `$.items[2].name`; a name that is not a plain word, as one made of digits, is quoted."""
    steps = ["$"]
    for step in path:
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            steps.append(f".{step}" if re.fullmatch(r"[^\W\d]\w{0,63}", step) else f"[{preview(step)}]")
    return "".join(steps)


def listed(names: Iterable[object], most: int = 30) -> str:
    """Quote names for a sentence, and count those beyond the first thirty."""
    quoted = [shorten(repr(name)) for name in names]
    return ", ".join(quoted[:most]) + (f" and {len(quoted) - most} more" if len(quoted) > most else "")


def missing_field(schema: object, path: Path, given: Iterable[str]) -> ArgumentProblem:
    """The problem of a missing field at `path`, beside the fields that were given."""
    names = listed(given)
    came = f"the fields given are {names}" if names else "no fields were given"
    message = f"the required field {shorten(repr(path[-1]))} is missing; {came}"
    return ArgumentProblem(json_path(path), message, "nothing", expected_at(schema, path))


def unexpected_field(schema: object, path: Path, value: object) -> ArgumentProblem:
    """The problem of an unexpected field at `path`, beside the allowed fields."""
    allowed = [name for name in fields_at(schema, path[:-1]) if name != path[-1]]
    known = f"the fields allowed are {listed(allowed)}" if allowed else "no further field is allowed"
    message = f"the field {shorten(repr(path[-1]))} is not known; {known}"
    return ArgumentProblem(json_path(path), message, preview(value), "no such field")


def unreadable(raw: bytes, error: object, expected: str) -> ArgumentProblem:
    """The problem of text that is not JSON at all."""
    why = "nested too deeply" if isinstance(error, (jsonx.TooDeep, RecursionError)) else error
    return ArgumentProblem("$", f"not readable: {why}", shorten(raw[:500].decode(errors="replace")), expected)


def typed_problem(
    kind: str, loc: tuple[str | int, ...], text: str, value: Any, schema: dict[str, Any]
) -> ArgumentProblem:
    """Put one error of pydantic in words, given the JSON value it was found in."""
    path: list[str | int] = []
    for step in loc:
        # A step that leads nowhere names a branch of a union and not a place.
        if step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value)):
            path.append(step)
            value = value[step]
    if kind == "missing":
        path.append(loc[-1])
        if isinstance(value, dict):
            return missing_field(schema, path, value)
        return ArgumentProblem(json_path(path), "this item is missing", "nothing", expected_at(schema, path))
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return unexpected_field(schema, path, value)
    if loc[-1:] == ("[key]",):
        value = path[-1]
    text = " ".join(text.split())
    message = text.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    subject, should, wanted = text.partition(" should ")
    if not should or message != text:
        expected = expected_at(schema, path)
    elif wanted.startswith("be "):
        expected = wanted[3:].partition(", unable to")[0]
    else:
        expected = f"{subject.lower()} to {wanted}"
    return ArgumentProblem(json_path(path), shorten(message, 500), preview(value), shorten(expected, 500))


def fields_at(schema: object, path: Path) -> list[str]:
    """Return the names of the fields a schema knows for the object at a path."""
    return list(dict.fromkeys(name for node in _nodes_at(schema, path) for name in node.get("properties", ())))


def expected_at(schema: object, path: Path) -> str:
    """The expectation of a schema at a path, in a few words."""
    words = []
    for node in _nodes_at(schema, path):
        if "enum" in node:
            words.append(one_of(node["enum"]))
        elif "const" in node:
            words.append(preview(node["const"]))
        elif "type" in node:
            words.append(types_named([node["type"]] if isinstance(node["type"], str) else node["type"]))
    return " or ".join(dict.fromkeys(words)) or "a value"


def one_of(options: Sequence[Any]) -> str:
    return shorten("one of " + ", ".join(preview(option) for option in options[:50]), 1000)


def types_named(types: Sequence[str]) -> str:
    return " or ".join(
        name if name == "null" else f"a{'n' * (name[0] in 'aio')} {name}" for name in sorted(types, key="null".__eq__)
    )


def _nodes_at(schema: object, path: Path) -> list[dict[str, Any]]:
    """Return the parts of a schema that speak of the value at a path, through references and combinations."""
    nodes = _expand(schema, [schema])
    for step in path:
        nodes = _expand(schema, [child for node in nodes for child in _children(node, step)])
    return nodes


def _expand(root: object, queue: list[Any]) -> list[dict[str, Any]]:
    nodes: dict[int, dict[str, Any]] = {}
    while queue:
        node = queue.pop(0)
        if not isinstance(node, dict) or id(node) in nodes:
            continue
        nodes[id(node)] = node
        queue.append(_follow(root, node.get("$ref")))
        for keyword in ("allOf", "anyOf", "oneOf"):
            queue.extend(node.get(keyword, ()))
        queue.extend((node.get("then"), node.get("else")))
    return list(nodes.values())


def _follow(root: object, reference: str | None) -> object:
    if reference is None or not reference.startswith("#"):
        return None
    for step in unquote(reference).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            root = root.get(key) if isinstance(root, dict) else None
    return root


def _children(node: dict[str, Any], step: str | int) -> list[Any]:
    if isinstance(step, str):
        properties = node.get("properties", {})
        return [properties[step] if step in properties else node.get("additionalProperties")]
    items = node.get("items")
    first = node.get("prefixItems", items if isinstance(items, list) else [])
    return [first[step] if step < len(first) else items]
