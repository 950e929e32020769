"""The calls of a streamed chat completion. Owns putting them together from the pieces of any server; does not own the
rest of the answer.

OpenAI sends the id and the name of a call once, and its arguments in pieces under an index. Compatible servers leave
out the index or the id, begin to count at one, give all calls the index 0, repeat the id and the name in each piece,
send the arguments as an object, or send all of them a second time at the end.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.providers.conversation import UNPARSED, own_id, parsed_arguments
from toolwright.providers.half_characters import joined_halves
from toolwright.tools.call import ToolCall
from toolwright.tools.model import CallDelta

_LONGEST_COMPARED = 64 * 1024
"""Characters of arguments that are looked at to find out whether a call has ended."""


class _Call:
    __slots__ = ("beside", "called", "custom", "given_id", "id", "index", "name", "pieces", "within")

    def __init__(self, index: int | None, given_id: str, call_id: str) -> None:
        self.index = index
        self.given_id = given_id
        self.id = call_id
        self.name = ""
        self.pieces: list[str] = []
        self.custom = False
        self.beside: dict[str, Any] = {}
        self.within: dict[str, Any] = {}

    @property
    def arguments(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def has_ended(self) -> bool:
        """True when the arguments are complete JSON."""
        if not self.pieces or sum(map(len, self.pieces)) > _LONGEST_COMPARED:
            return False
        text = self.arguments.strip()
        return text.endswith("}") and parsed_arguments(text) is not None


class ChatCalls:
    """The calls of one answer, in the order in which they began. `used` are ids that no call of it may have."""

    def __init__(self, used: set[str]) -> None:
        self._used = used
        self._calls: list[_Call] = []

    def take(self, piece: object, *, whole: bool) -> list[CallDelta]:
        """Take one piece, or a whole call. A piece that is no object is a call without a name, which fails alone."""
        given = piece if isinstance(piece, dict) else {}
        custom = isinstance(given.get("custom"), dict)
        called = given.get("custom" if custom else "function")
        called = called if isinstance(called, dict) else {}
        name = called.get("name")
        name = name if isinstance(name, str) else "" if name is None else _json_text(name)[:64]
        said = called.get("input" if custom else "arguments")
        given_id = given.get("id")
        given_id = given_id if isinstance(given_id, str) else "" if given_id is None else _json_text(given_id)
        index = given.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None

        call = None if whole else self._known(index, given_id, name, said)
        if call is None:
            call = _Call(index, given_id, own_id(given_id, self._used))
            self._calls.append(call)
        if name and name != call.name and not call.pieces:
            call.name += name
        call.custom = call.custom or custom
        _keep(call.beside, given, ("id", "index", "type", "function", "custom"))
        _keep(call.within, called, ("name", "arguments", "input"))
        added = self._arguments(call, said)
        return [CallDelta(call.id, call.name, added)] if name or added else []

    def _known(self, index: int | None, given_id: str, name: str, said: object) -> _Call | None:
        """The call that a piece continues; None when it begins one."""
        call = self._latest(index)
        if call is None:
            return None
        if given_id:
            if call.given_id and call.given_id != given_id:
                # With an index, ids may come in any order; without one, only the latest call goes on.
                same = [each for each in self._calls if each.index == index and each.given_id == given_id]
                call = same[-1] if same else None
            elif not call.given_id and (call.name and name):
                return None
        if call is None or not name:
            return call
        # A name again: of the same call, from a server that repeats it, or of the next one.
        if said in (None, "") and name == call.name:
            return call
        if call.has_ended():
            return call if said == call.arguments and name == call.name else None
        if call.pieces and name != call.name:
            return None
        return call

    def _latest(self, index: int | None) -> _Call | None:
        if index is None:
            return self._calls[-1] if self._calls else None
        return next((call for call in reversed(self._calls) if call.index == index), None)

    def _arguments(self, call: _Call, said: object) -> str:
        """Add a piece of the arguments, and give the text that is new."""
        if said is None or said == "":
            return ""
        if not isinstance(said, str):  # an object is whole
            call.pieces = [_json_text(said)]
            return call.pieces[0]
        if call.pieces and len(call.pieces) == 1 and call.pieces[0] == "{}" and said.lstrip().startswith("{"):
            call.pieces = [] if said.strip() != "{}" else call.pieces  # the empty object held the place
            if call.pieces:
                return ""
        elif call.pieces and len(said) > 1 and said == call.arguments and call.has_ended():
            return ""
        call.pieces.append(said)
        return said

    def written(self) -> list[dict[str, Any]]:
        """The calls as they go back to the server, when all has come: arguments are text, and JSON."""
        for call in self._calls:
            call.pieces = [joined_halves(call.arguments)]
        return [_written(call) for call in self._calls]

    def as_given(self, calls: list[ToolCall]) -> list[ToolCall]:
        """The calls that were read from `written`, with arguments exactly as the model wrote them."""
        return [
            call
            if mine.custom or parsed_arguments(mine.arguments) is not None
            else replace(call, arguments=mine.arguments)
            for call, mine in zip(calls, self._calls, strict=True)
        ]


def _written(call: _Call) -> dict[str, Any]:
    if call.custom:
        called = {**call.within, "name": call.name, "input": call.arguments}
        return {**call.beside, "id": call.id, "type": "custom", "custom": called}
    # A template of a server may read the arguments, and fail for all that follows when they are not JSON.
    valid = parsed_arguments(call.arguments) is not None
    arguments = call.arguments or "{}" if valid else _json_text({UNPARSED: call.arguments})
    return {
        **call.beside,
        "id": call.id,
        "type": "function",
        "function": {**call.within, "name": call.name, "arguments": arguments},
    }


def _keep(known: dict[str, Any], given: dict[str, Any], read: tuple[str, ...]) -> None:
    known.update((name, value) for name, value in given.items() if name not in read and value is not None)


def _json_text(value: object) -> str:
    return jsonx.encode(value).decode("utf-8")
