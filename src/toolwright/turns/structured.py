"""An answer in a given form. Owns its JSON schema, and reading the value from the text of the model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from toolwright import jsonx
from toolwright.errors import TurnError


class AnswerForm:
    """The type that an answer must have, or only its schema, where a turn continues in another process."""

    def __init__(self, schema: dict[str, Any], adapter: TypeAdapter[Any] | None = None) -> None:
        self.schema = schema
        self._adapter = adapter
        self.is_text = schema == {"type": "string"}
        """True for text of any kind: the answer of the model is the value, and no JSON is asked for."""

    @classmethod
    def of(cls, kind: Any) -> AnswerForm:
        """The form of a type.

        Raises:
            TurnError: the type has no JSON schema.
        """
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            return cls(adapter.json_schema(), adapter)
        except PydanticUserError as error:
            raise TurnError(f"answer={kind!r:.200} has no JSON schema; use a pydantic model or plain types") from error

    def read(self, text: str) -> object:
        """The value that the text of an answer is.

        Raises:
            ValueError: it is no JSON, or does not fit; the message is for the model.
        """
        if self.is_text:
            return text
        return self._read_json(_without_fence(text))

    def read_value(self, value: object) -> object:
        """The value of an answer that was stored, or that was read in another form.

        Raises:
            ValueError: it does not fit.
        """
        return self._read_json(jsonx.encode(value).decode())

    def stored(self, value: object, text: str) -> bytes:
        """A value that was read from this text as the outcome of its turn stores it: as plain JSON.

        Raises:
            ValueError: it cannot be stored, such as one that is nested too deeply; the message is for the model.
        """
        plain = value
        if self._adapter is not None:
            try:
                plain = self._adapter.dump_python(
                    value, mode="json", by_alias=True, warnings=False, fallback=jsonx.builtin_form
                )
            except Exception:  # the type has a serializer of its own, or has no form in JSON
                plain = json.loads(_without_fence(text))
        return jsonx.encode([plain])[1:-1]  # in a list, since it is one level deeper in the outcome

    def _read_json(self, text: str) -> object:
        if self._adapter is not None:
            try:
                value = self._adapter.validate_json(text)
            except ValidationError as error:
                raise ValueError(describe(error)) from None
            _decoded(text)  # the adapter reads NaN and infinite numbers too, which would be stored as null
            return value
        value = _decoded(text)
        try:
            jsonschema_rs.validate(self.schema, value)
        except jsonschema_rs.ValidationError as error:
            raise ValueError(error.message) from None
        return value


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply; give fewer levels") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON; give a number, or null where that is allowed")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text:.20} is too large for a number; give a smaller one")
    return number


def describe(error: ValidationError) -> str:
    """What does not fit, in words, without the value itself."""
    first = error.errors(include_url=False, include_input=False)[:5]
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in first)


def _without_fence(text: str) -> str:
    """The JSON of an answer: all of it, or its only block of code, which models like to write."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and len(text) > 6 and text.count("```") == 2:
        first, _, rest = text[3:-3].partition("\n")
        return rest if first.strip().isalpha() or not first.strip() else text[3:-3]
    if "```" not in text or _is_json(text):
        return text
    blocks = list(islice(_blocks(text), 2))
    return blocks[0] if len(blocks) == 1 else text


def _blocks(text: str) -> Iterator[str]:
    """The blocks of code of a text. Their fences stand in lines of their own, and each line is looked at once."""
    begin: int | None = None
    for fence in _FENCE.finditer(text):
        if begin is None:
            begin = fence.end() + 1
        elif not fence[1].strip(" \t"):
            yield text[begin : fence.start()]
            begin = None


_FENCE = re.compile(r"^[ \t]*```([^\n`]*)$", re.MULTILINE)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
