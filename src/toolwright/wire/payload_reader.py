"""A position in a payload. Owns reading with a path and naming the expected type in errors; knows no provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolwright.errors import ConversionError


def plain(value: object) -> Any:
    """Take an SDK's object, or any mapping, as a dict; everything else as it is."""
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return dict(value) if isinstance(value, Mapping) and type(value) is not dict else value
    try:
        dumped = dump(by_alias=True, warnings=False)
    except TypeError:  # a stand-in for a model, which takes no options
        dumped = dump()
    if not isinstance(dumped, dict):
        return dumped
    # A model dumps unset fields as None, and providers refuse some of these when they are sent back.
    return {name: item for name, item in dumped.items() if item is not None}


class Part:
    """A value in a payload and its path. A missing value reads as None, as SDKs write it."""

    __slots__ = ("path", "shape", "value")

    def __init__(self, value: object, shape: str, path: str) -> None:
        self.value = plain(value)
        self.shape = shape
        self.path = path

    def field(self, name: str) -> Part:
        """The part under a name.

        Raises:
            ConversionError: this part is not an object.
        """
        return Part(self.object().get(name), self.shape, f"{self.path}.{name}")

    def has(self, *names: str) -> bool:
        """True when this is an object and one of its fields, at least, is there and not null."""
        return isinstance(self.value, dict) and any(self.value.get(name) is not None for name in names)

    @property
    def is_list(self) -> bool:
        """True for a list or a tuple."""
        return isinstance(self.value, (list, tuple))

    def each(self, expected: str = "a list") -> list[Part]:
        """The parts of a list.

        Raises:
            ConversionError: this part is not a list.
        """
        if not self.is_list:
            raise self.wrong(expected)
        return [Part(item, self.shape, f"{self.path}[{index}]") for index, item in enumerate(self.value)]

    def object(self, expected: str = "an object") -> dict[str, Any]:
        """This part as a dict.

        Raises:
            ConversionError: it is something else.
        """
        if not isinstance(self.value, dict):
            raise self.wrong(expected)
        return self.value

    def text(self, expected: str = "a string") -> str:
        """This part as a string, which may be empty.

        Raises:
            ConversionError: it is something else.
        """
        if not isinstance(self.value, str):
            raise self.wrong(expected)
        return self.value

    def name(self, expected: str = "a non-empty string") -> str:
        """This part as a string with something in it.

        Raises:
            ConversionError: it is something else, or empty.
        """
        if not self.text(expected):
            raise self.wrong(expected)
        return self.text()

    def kind(self) -> str | None:
        """The `type` of an object, if it has one."""
        value = self.object().get("type")
        return value if isinstance(value, str) else None

    def wrong(self, expected: str) -> ConversionError:
        """The error that names the value found here and the type expected in its place."""
        if self.value is None:
            found = "nothing"
        elif isinstance(self.value, dict):
            found = "an object with " + (", ".join(repr(name) for name in list(self.value)[:8]) or "no fields")
        else:
            found = f"{self.value!r:.80}"
        return ConversionError(f"{self.shape}: {self.path} is {found}; expected {expected}")
