"""Values on the command line. Owns reading words or stdin as JSON; does not own whether they fit a tool."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from toolwright import jsonx
from toolwright.cli.exits import BadInput
from toolwright.tools.tool import Tool


def read_arguments(words: Sequence[str], tool: Tool) -> dict[str, Any]:
    """Read JSON text, `-` for stdin, or `key=value` pairs.

    A value is JSON, or plain text when it is not. For a tool that wants text there, `zip=90210` stays text.

    Raises:
        BadInput: the words are none of these.
    """
    if len(words) == 1 and words[0] == "-":
        try:
            return read_object(sys.stdin.buffer.read().decode(), "on stdin")
        except UnicodeDecodeError as error:
            raise BadInput(f"The arguments on stdin are not text in UTF-8 ({error}); encode them first") from None
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return read_object(words[0], "given")
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise BadInput(f"{word!r} is not an argument; use key=value pairs, a JSON object, or - for stdin")
        if key in found:
            raise BadInput(
                f"The argument {key!r} is given twice; give it once, as JSON if it is a list: {key}='[1, 2]'"
            )
        found[key] = _read_value(text, tool.definition.input_schema.get("properties", {}).get(key))
    return found


def read_object(text: str, where: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        BadInput: it is none.
    """
    try:
        found = jsonx.decode(text)
    except (jsonx.DecodeError, RecursionError) as error:
        raise BadInput(
            f'The arguments {where} are not JSON ({error}); use an object, as in \'{{"path": "a"}}\''
        ) from None
    if not isinstance(found, dict):
        raise BadInput(f"The arguments {where} are {text.strip()[:60]!r} and not a JSON object; use {{...}}")
    return found


def read_json(text: str) -> object:
    """Read a value as JSON, or the JSON on stdin for `-`.

    Raises:
        BadInput: it is none.
    """
    try:
        return jsonx.decode(sys.stdin.buffer.read() if text == "-" else text)
    except (jsonx.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"The value is not JSON ({error}); text goes in quotes, as in '\"done\"'") from None


def _read_value(text: str, schema: object) -> object:
    try:
        value = jsonx.decode(text)
    except jsonx.DecodeError:
        return text
    wants_text = isinstance(schema, dict) and schema.get("type") == "string"
    return text if wants_text and not isinstance(value, str) else value
