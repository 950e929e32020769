"""Arguments as a raw-schema handler reads them, and the placeholder of a secret one. Owns typed access; does not own
schema validation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, KeysView, Mapping
from typing import Any, TypeVar, cast, overload

from toolwright import jsonx
from toolwright.errors import InvalidArguments
from toolwright.tools.validation_messages import ArgumentProblem, json_path, listed, preview

T = TypeVar("T")
D = TypeVar("D")

_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def _named(kind: type) -> str:
    return _NAMES.get(kind) or str(getattr(kind, "__name__", kind))


class Arguments:
    """The arguments of one call. A null counts as absent, and true is not an integer."""

    __slots__ = ("_secret", "_values")

    def __init__(self, values: Mapping[str, Any], secret: str | None = None) -> None:
        """`secret` is the parameter whose value is never shown."""
        self._values = values
        self._secret = secret

    def require(self, name: str, kind: type[T]) -> T:
        """Return the value of `name`; a missing or wrong one is a failure that the model reads.

        Raises:
            InvalidArguments: the field is missing, null, or of another type.
        """
        value = self._values.get(name)
        if value is None:
            given = listed(self._values) or "no fields"
            raise InvalidArguments(
                [
                    ArgumentProblem(
                        path=json_path([name]),
                        message=f"missing required field {name!r}; the call gave {given}",
                        given="nothing",
                        expected=_named(kind),
                    )
                ]
            )
        return self._check(name, value, kind)

    @overload
    def get(self, name: str, kind: type[T]) -> T | None: ...
    @overload
    def get(self, name: str, kind: type[T], default: D) -> T | D: ...
    def get(self, name: str, kind: type[T], default: object = None) -> object:
        """Return the value of `name`, or the default when it is absent or null.

        Raises:
            InvalidArguments: the field is there, and of another type.
        """
        value = self._values.get(name)
        return default if value is None else self._check(name, value, kind)

    def _check(self, name: str, value: object, kind: type[T]) -> T:
        if isinstance(value, kind) and not (isinstance(value, bool) and kind in (int, float)):
            return value
        if kind is int and type(value) is float and value.is_integer():
            return cast("T", int(value))  # to JSON Schema, 2.0 is an integer
        if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            return cast("T", float(value))
        expected = _named(kind)
        raise InvalidArguments(
            [
                ArgumentProblem(
                    path=json_path([name]),
                    message=f"field {name!r} is not {expected}",
                    given=preview(value),
                    expected=expected,
                )
            ]
        )

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> KeysView[str]:
        """The names given, so that `dict(arguments)` and `**arguments` work."""
        return self._values.keys()

    def __repr__(self) -> str:
        return f"Arguments({hide_secret(self._values, self._secret)!r})"

    def to_json(self) -> dict[str, Any]:
        """The arguments as plain data; a placeholder stands for the one that the tool declares secret."""
        shown: dict[str, Any] = jsonx.decode(jsonx.encode(hide_secret(self._values, self._secret)))
        return shown


HIDDEN = "[secret]"
"""The placeholder of an argument that its tool declares secret."""
_HIDDEN = re.compile(r"\[secret(?: #[0-9a-f]{16})?\]")


def hide_secret(arguments: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
    """A copy of the arguments of a call, with the placeholder in place of the one that its tool declares secret."""
    return {name: HIDDEN if name == secret else value for name, value in arguments.items()}


def is_hidden(value: object) -> bool:
    """True for the placeholder of a secret argument: a caller that sends it does not have the secret."""
    return isinstance(value, str) and _HIDDEN.fullmatch(value) is not None
