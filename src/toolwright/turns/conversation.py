"""The conversation of a session, as a model is given it. Owns how messages of the session's history become a
conversation, and how an answer and its results are stored: as one unit, so that no provider ever sees half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert

from toolwright import jsonx
from toolwright.stores.contracts.sessions import NewMessage
from toolwright.tools.call import ToolCall
from toolwright.tools.model import Item, ModelAnswer, ToolResults, Usage, UserMessage
from toolwright.tools.outcome import Image, Status, ToolOutcome
from toolwright.tools.service_protocols import Message
from toolwright.turns.context_window import Conversation, Shortened

SUMMARY = "summary"
"""The `kind` in the metadata of a message that is a summary of the conversation before."""
RESULTS = "results"
"""The `kind` in the metadata of a message that holds the results of the answer before it."""


class _Said(Struct, frozen=True, gc=False, omit_defaults=True):
    """The content of an answer that has more than text."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    images: tuple[Image, ...] = ()


class _Result(Struct, frozen=True, gc=False, omit_defaults=True):
    """The result of a call, as the model reads it."""

    call_id: str
    tool: str
    status: Status
    text: str
    images: tuple[Image, ...] = ()
    spilled_to: str | None = None


# --- storing


def user_content(text: str, images: Sequence[Image] = ()) -> bytes:
    """The content of a user's message."""
    if not images:
        return jsonx.encode(text)
    return jsonx.encode({"text": text, "images": [image.to_json() for image in images]})


def note(text: str, turn: str) -> NewMessage:
    """A message of the runtime to the model, such as why its answer does not fit."""
    return NewMessage("runtime", jsonx.encode(text), jsonx.encode({"turn": turn, "kind": "note"}))


def steered(text: str, turn: str) -> NewMessage:
    """A message that a user sent while the turn ran."""
    return NewMessage("user", jsonx.encode(text), jsonx.encode({"turn": turn, "kind": "steering"}))


def summary(text: str, items: int, turn: str) -> NewMessage:
    """A summary that stands for the first items of the conversation from now on."""
    return NewMessage("runtime", jsonx.encode(text), jsonx.encode({"turn": turn, "kind": SUMMARY, "items": items}))


def answered(
    answer: ModelAnswer, outcomes: Sequence[ToolOutcome], turn: str, step: int, shortened: Shortened | None = None
) -> list[NewMessage]:
    """An answer with the results of all its calls, to be appended together. `step` numbers the answers of a turn, and
    `shortened` are the results that its request was the first to leave out."""
    about: dict[str, Any] = {"turn": turn, "step": step, "model": answer.model, "stop": answer.stop}
    if answer.usage.tokens:
        about["tokens"] = answer.usage.tokens
    if shortened is not None:
        about["shortened"] = shortened
    if answer.native is not None:
        about["native"] = answer.native
    if answer.reasoning:
        about["reasoning"] = answer.reasoning
    content: Any = answer.text
    if answer.calls or answer.images:
        content = _Said(answer.text, answer.calls, answer.images)
    unit = [NewMessage("assistant", jsonx.encode(content), jsonx.encode(about))]
    if answer.calls:
        results = [_Result(one.call_id, one.tool, one.status, one.text, one.images, one.spilled_to) for one in outcomes]
        about = {"turn": turn, "step": step, "kind": RESULTS}
        # Results hold texts alone: they cannot be nested too deeply.
        unit.append(NewMessage("tool", jsonx.encode_unchecked({"results": results}), jsonx.encode(about)))
    return unit


# --- reading


def read(messages: Iterable[Message]) -> Conversation:
    """The conversation that messages make, shown as in the last request.

    A message of another shape than an answer with its results is text: what tools and background runs append is told as
    a note, since a model knows only users, itself and results. An answer whose results do not follow it directly, which
    no turn writes, is told without its calls.
    """
    told = Conversation()
    waiting: ModelAnswer | None = None
    for message in messages:
        if waiting is not None:
            outcomes = _outcomes(message, waiting)
            told.add(*([waiting, ToolResults(outcomes)] if outcomes is not None else _without_calls(waiting)))
            waiting = None
            if outcomes is not None:
                continue
        if message.sender == "assistant":
            shortened = _shortened(message)
            if shortened is not None:
                told.apply(shortened)
            answer = _answer(message)
            if answer.calls:
                waiting = answer
            else:
                told.add(answer)
        elif message.sender == "user":
            text, images = _text_and_images(message.content)
            told.add(UserMessage(text, images))
        elif (items := _summarised(message)) > 0:
            told.summarise(str(message.content), items)
        else:
            told.add(UserMessage(_note(message)))
    if waiting is not None:
        told.add(*_without_calls(waiting))
    told.is_history = True
    return told


def _shortened(message: Message) -> Shortened | None:
    given = message.metadata.get("shortened")
    try:
        return None if given is None else convert(given, Shortened)
    except ValidationError:
        return None


def _summarised(message: Message) -> int:
    """How many items a message is the summary of; 0 where it is none, or where it does not say so."""
    items = message.metadata.get("items")
    is_summary = message.sender == "runtime" and message.metadata.get("kind") == SUMMARY
    return items if is_summary and type(items) is int else 0


def results_of(turn: str, messages: Iterable[Message]) -> list[tuple[int, ToolOutcome]]:
    """The results of a turn as its history has them, in order, each with the step that it belongs to."""
    found: list[tuple[int, ToolOutcome]] = []
    for message in messages:
        step = message.metadata.get("step")
        if message.metadata.get("turn") == turn and type(step) is int:
            found += [(step, outcome) for outcome in _results_in(message) or ()]
    return found


def _without_calls(answer: ModelAnswer) -> list[Item]:
    return [ModelAnswer(text=answer.text, model=answer.model)] if answer.text else []


def _answer(message: Message) -> ModelAnswer:
    text, images = _text_and_images(message.content)
    calls: tuple[ToolCall, ...] = ()
    if isinstance(message.content, dict) and isinstance(message.content.get("calls"), list):
        try:
            calls = tuple(convert(message.content["calls"], list[ToolCall]))
        except ValidationError:
            calls = ()
    about = message.metadata
    native = about.get("native")
    return ModelAnswer(
        text=text,
        calls=calls,
        images=images,
        native=native if isinstance(native, dict) else None,
        usage=Usage(tokens) if isinstance(tokens := about.get("tokens"), int) else Usage(),
        model=str(about.get("model") or ""),
        stop="calls" if calls else "end",
    )


def _outcomes(message: Message, answer: ModelAnswer) -> tuple[ToolOutcome, ...] | None:
    """The results that a message holds, if they are those of the answer's calls, in order."""
    outcomes = _results_in(message)
    if outcomes is None or [one.call_id for one in outcomes] != [call.id for call in answer.calls]:
        return None
    return outcomes


def _results_in(message: Message) -> tuple[ToolOutcome, ...] | None:
    """The results that a message holds; None where it holds none."""
    if message.sender != "tool" or message.metadata.get("kind") != RESULTS or not isinstance(message.content, dict):
        return None
    try:
        return _read_results(message.content["results"])
    except (KeyError, TypeError, ValidationError):
        return None


def _read_results(results: object) -> tuple[ToolOutcome, ...]:
    return tuple(
        ToolOutcome(
            each.call_id,
            each.tool,
            each.status,
            model_text=each.text,
            images=each.images,
            spilled_to=each.spilled_to,
        )
        for each in convert(results, list[_Result])
    )


def _text_and_images(content: object) -> tuple[str, tuple[Image, ...]]:
    if isinstance(content, str):
        return content, ()
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        try:
            return content["text"], _images(content.get("images"))
        except ValidationError:
            return content["text"], ()
    return jsonx.encode(content).decode("utf-8"), ()


def _images(given: object) -> tuple[Image, ...]:
    return tuple(convert(given, list[Image])) if given else ()


def _note(message: Message) -> str:
    content = message.content
    text = content if isinstance(content, str) else jsonx.encode(content).decode("utf-8")
    own = message.sender == "runtime" and message.metadata.get("kind") == "note"
    return text if own else f"[{message.sender}] {text}"
