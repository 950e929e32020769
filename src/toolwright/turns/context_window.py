"""The conversation of a turn within the context window of its model. Owns its size, which old results are shown as
notes, and the summary that stands for its older part. The history has all of it, always.

Sizes are in tokens. The provider tells the size of a request with its answer; what came since is estimated by its
characters. A result that was once shown as a note stays one, so that the beginning of a request stays the same and the
caches of the provider stay valid: many results become notes at once, and seldom.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from toolwright import jsonx
from toolwright.tools.call import ToolCall
from toolwright.tools.model import Item, ModelAnswer, ToolResults, UserMessage
from toolwright.tools.outcome import ToolOutcome

CHARACTERS = 4
"""Characters of a token, roughly."""
IMAGE = 1_500
"""Tokens of an image, roughly."""
NOTE = 60
"""Tokens of a note in place of a result, roughly."""
MOST_TOKENS = 2**53
"""Tokens of a conversation. A model may tell any number, also one that no float can hold."""
AFTER_SHORTENING = 0.5
"""The part of the limit that a conversation may still have after old results were left out."""
AFTER_SUMMARY = 0.25
"""The part of the limit that the newest part of a conversation may have, which a summary leaves as it is."""
ASK_FOR_SUMMARY = (
    "The conversation is about to be too long. Summarise it, so that you can continue with the summary alone: what the "
    "user asked for, in their words; what was decided and done, and why; facts, names, numbers and paths of files that "
    "may be needed; what is still to be done. Answer with the summary only, and call no tools."
)
SUMMARY = "[Summary of the conversation before, which is left out to save room]\n"

Save = Callable[[int, ToolOutcome], Awaitable[str | None]]
"""Writes a result, of which it is given the number, to a file, and returns the path; None where that failed."""


class Shortened(Struct, omit_defaults=True):
    """Which results are shown as notes: all with numbers below `results`. `files` has those that were written to files
    for that, by their numbers, as text."""

    results: int = 0
    files: dict[str, str] = {}


class Conversation:
    """All that was said in a session, and how it is shown to the model."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.answers = 0
        """How many answers the model gave, summaries included."""
        self.size = 0.0
        """Tokens of the conversation as it is shown, roughly."""
        self.measured = False
        """True when a provider told its size, instructions and tools included."""
        self.is_history = False
        """True while it has what was read from the history, and nothing that was said since."""
        self._shown: list[Item] = []
        self._summarised = 0  # items that the summary stands for
        self._summary: str | None = None
        self._results = 0
        self._shortened = Shortened()

    def add(self, *items: Item) -> None:
        """Add what was said."""
        self.is_history = False
        for item in items:
            self.items.append(item)
            if type(item) is ModelAnswer:
                self.answers += 1
                self.size += _size(item)
                if item.usage.tokens:
                    self.measure(item.usage.tokens)
            else:
                self.size += _size(item)
            if type(item) is ToolResults:
                self._shown.append(self._with_notes(item, self._results))
                self._results += len(item.outcomes)
            else:
                self._shown.append(item)

    def measure(self, tokens: int) -> None:
        """The provider told the size of the conversation up to here."""
        self.size, self.measured = float(min(tokens, MOST_TOKENS)), True

    @property
    def shown(self) -> list[Item]:
        """The conversation as the model is to see it."""
        return self._shown

    def _show_again(self) -> None:
        shown: list[Item] = [] if self._summary is None else [UserMessage(SUMMARY + self._summary)]
        number = 0
        for place, item in enumerate(self.items):
            if place >= self._summarised:
                shown.append(self._with_notes(item, number) if isinstance(item, ToolResults) else item)
            if isinstance(item, ToolResults):
                number += len(item.outcomes)
        self._shown = shown

    # --- leaving out old results

    def apply(self, shortened: Shortened) -> None:
        """Show results as notes, as an earlier request did."""
        files = {**self._shortened.files, **shortened.files}
        self._shortened = Shortened(max(shortened.results, self._shortened.results), files)
        self._show_again()

    async def shorten(self, most: float, save: Save) -> Shortened | None:
        """Show old results as notes, the oldest first, until the size is at most `most`. The newest stay whole.

        Returns what was changed; None when there is nothing that could be left out.
        """
        changed = Shortened(self._shortened.results)
        last = max((place for place, item in enumerate(self.items) if isinstance(item, ToolResults)), default=0)
        number, gained, count = 0, 0.0, 0
        for place, item in enumerate(self.items[:last]):
            if not isinstance(item, ToolResults):
                continue
            for outcome in item.outcomes:
                if number >= self._shortened.results and self.size - gained > most:
                    changed.results = number + 1
                    gain = _text_size(outcome) - NOTE
                    if gain > 0:
                        count += 1
                        gained += gain if place >= self._summarised else 0.0
                        path = None if outcome.spilled_to is not None else await save(number, outcome)
                        if path is not None:
                            changed.files[str(number)] = path
                number += 1
        if not count:
            return None
        self.apply(changed)
        self.size -= gained
        return changed

    def _with_notes(self, item: ToolResults, first: int) -> ToolResults:
        if first >= self._shortened.results:
            return item
        return ToolResults(
            tuple(
                self._note(outcome, number) if number < self._shortened.results else outcome
                for number, outcome in enumerate(item.outcomes, first)
            )
        )

    def _note(self, outcome: ToolOutcome, number: int) -> ToolOutcome:
        if _text_size(outcome) <= NOTE:
            return outcome
        path = outcome.spilled_to or self._shortened.files.get(str(number))
        where = f"; the whole result is in the session file {path}" if path else ", and is no longer available"
        images = f" and {len(outcome.images)} images" if outcome.images else ""
        text = f"[This result of {len(outcome.text)} characters{images} is left out to save room{where}]"
        return ToolOutcome(outcome.call_id, outcome.tool, outcome.status, model_text=text, spilled_to=path)

    # --- a summary in the place of the older part

    def older_part(self, most: float) -> int:
        """How many items a summary should stand for, so that the rest has at most so many tokens; 0 for none.

        The rest begins with a message or an answer, and has the newest answer with its results.
        """
        place, size = len(self.items), 0.0
        while place > self._summarised:
            size += _size(self.items[place - 1])
            if size > most:
                break
            place -= 1
        newest = max(
            (n for n, item in enumerate(self.items) if isinstance(item, ModelAnswer)), default=len(self.items) - 1
        )
        place = min(place, newest)
        while place > self._summarised and isinstance(self.items[place], ToolResults):
            place -= 1
        return place if place - self._summarised >= 2 else 0

    def part(self, items: int) -> list[Item]:
        """The first items as they are shown, with the summary before them."""
        return self._shown[: len(self._shown) - (len(self.items) - items)]

    def summarise(self, text: str, items: int) -> None:
        """Show a summary in the place of the first items, but never results without the answer before them."""
        self.answers += 1
        self._summary, self._summarised = text, min(items, len(self.items))
        if self._summarised < len(self.items) and isinstance(self.items[self._summarised], ToolResults):
            self._summarised -= 1
        self._show_again()
        self.size, self.measured = sum(map(_size, self._shown), 0.0), False


def _size(item: Item) -> float:
    if isinstance(item, ToolResults):
        return sum(map(_result_size, item.outcomes))
    images = len(item.images) * IMAGE
    if isinstance(item, ModelAnswer):
        return images + (len(item.text) + _argument_size(item.calls)) / CHARACTERS
    return images + len(item.text) / CHARACTERS


def _argument_size(calls: Sequence[ToolCall]) -> int:
    if not calls:
        return 0
    try:
        return len(jsonx.encode_unchecked([call.arguments for call in calls]))  # JSON is made faster than text
    except (TypeError, ValueError, OverflowError, RecursionError):
        return sum([len(str(call.arguments)) for call in calls])


def _text_size(outcome: ToolOutcome) -> float:
    """The size of a result by its text, which is the same now and when it is read from the history."""
    return len(outcome.images) * IMAGE + len(outcome.text) / CHARACTERS


def _result_size(outcome: ToolOutcome) -> float:
    """The same without making the text."""
    text = outcome.given_text if outcome.model_text is None else outcome.model_text
    length = len(outcome.payload) if text is None else len(text)
    if outcome.failure is not None:
        length += len(outcome.failure.message)
    return len(outcome.images) * IMAGE + length / CHARACTERS
