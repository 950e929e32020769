"""Halves of characters. A server that counts in UTF-16 may cut a text inside of a character, such as an emoji, and send
each half in an event of its own. Owns putting the halves together; knows no provider."""

from __future__ import annotations

from msgspec.structs import replace

from toolwright.tools.model import CallDelta, Delta, ReasoningDelta, TextDelta


def joined_halves(text: str) -> str:
    """The text with the halves of each character joined. A half that stands alone becomes the replacement character."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def joined_everywhere(value: object) -> object:
    """The same for all texts of a JSON value."""
    if isinstance(value, str):
        return joined_halves(value)
    if isinstance(value, dict):
        return {joined_halves(name): joined_everywhere(item) for name, item in value.items()}
    return [joined_everywhere(item) for item in value] if isinstance(value, (list, tuple)) else value


class HalfCharacters:
    """Holds the first half of a character back, until a later piece of the same text brings the second."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[object, Delta] = {}

    def completed(self, delta: Delta) -> Delta | None:
        """The piece as far as its characters are whole; None when nothing is left of it."""
        text = _text(delta)
        if not text or (not self._held and text.isascii()):
            return delta
        held = self._held.pop(_place(delta), None)
        text = text if held is None else _text(held) + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._held[_place(delta)] = _with(delta, text[-1])
            text = text[:-1]
        return _with(delta, joined_halves(text)) if text else None

    def rest(self) -> list[Delta]:
        """The halves whose second half never came."""
        return [_with(delta, joined_halves(_text(delta))) for delta in self._held.values()]


def _text(delta: Delta) -> str:
    return delta.arguments if isinstance(delta, CallDelta) else delta.text


def _with(delta: Delta, text: str) -> Delta:
    if isinstance(delta, CallDelta):
        return replace(delta, arguments=text)
    return TextDelta(text) if isinstance(delta, TextDelta) else ReasoningDelta(text)


def _place(delta: Delta) -> object:
    return delta.call_id if isinstance(delta, CallDelta) else type(delta)
