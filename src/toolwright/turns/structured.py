"""An answer in a given form. Owns its JSON schema, and reading the value from the text of the model."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from toolwright.errors import TurnError


class AnswerForm:
    """The type that an answer must have, or only its schema, where a turn continues in another process."""

    def __init__(self, schema: dict[str, Any], adapter: TypeAdapter[Any] | None = None) -> None:
        self.schema = schema
        self._adapter = adapter

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

    def read(self, text: str) -> Any:
        """The value that the text of an answer is.

        Raises:
            ValueError: it is no JSON, or does not fit; the message is for the model.
        """
        text = _without_fence(text)
        if self._adapter is not None:
            try:
                return self._adapter.validate_json(text)
            except ValidationError as error:
                raise ValueError(describe(error)) from None
        value = json.loads(text)
        try:
            jsonschema_rs.validate(self.schema, value)
        except jsonschema_rs.ValidationError as error:
            raise ValueError(error.message) from None
        return value


def describe(error: ValidationError) -> str:
    """What does not fit, in words, without the value itself."""
    first = error.errors(include_url=False, include_input=False)[:5]
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in first)


def _without_fence(text: str) -> str:
    """The text without a fence of a code block around it, which models like to write."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        first, _, rest = text[3:-3].partition("\n")
        return rest if first.strip().isalpha() or not first.strip() else text[3:-3]
    return text
