"""The words of a script, as the shell sees them without quotes and escapes. Owns the known parts of a word.

A piece that only the shell can know, such as the value of a variable or the files that a pattern finds, is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import Literal

from msgspec import Struct

from toolwright.calls.authorise.shell.braces import Piece, expand


class Hole(Struct, frozen=True):
    """An unknown piece of a word.

    `variable` holds the value of the variable `name`; `number` is digits for certain; `text` is `name` itself, one of
    the values that the piece may have; `anything` is the output of a command or a value of another kind.
    """

    kind: Literal["variable", "number", "text", "anything"]
    name: str = ""


class Word(Struct, frozen=True):
    """One word. `spelled` is its text in the script; `splits` means that it may become several words, or none.

    `process` is True for a process substitution such as `<(…)`, which stands for a path below /dev/fd.
    """

    pieces: tuple[Piece, ...]
    spelled: str
    splits: bool = False
    holes: tuple[Hole, ...] = ()
    process: bool = False

    @property
    def text(self) -> str | None:
        """The text of the word where all of it is known, or None."""
        if None in self.pieces:
            return None
        return "".join(piece for piece in self.pieces if piece is not None)

    @property
    def start(self) -> str:
        """The known text that the word begins with, however that is quoted."""
        return "".join(piece for piece in takewhile(lambda piece: piece is not None, self.pieces) if piece)

    @property
    def shown(self) -> str:
        """The word for a message."""
        return repr(self.spelled[:40])


def names(text: str) -> frozenset[str]:
    """The names in a text, for a table of them."""
    return frozenset(text.split())


ANYTHING = Hole("anything")
NUMBER = Hole("number")
UNKNOWN = Word((None,), "…", True, (ANYTHING,))
"""A word, or several, of which nothing is known."""


def literal(text: str) -> Word:
    """A word that is exactly its text."""
    return Word((text,), text)


class RawWord(Struct):
    """A word as it was read, before its braces are expanded. `quoted` means that some of it was quoted or escaped."""

    pieces: list[Piece]
    spelled: str
    holes: list[Hole]
    splits: bool = False
    quoted: bool = False
    process: bool = False

    def add_unknown(self) -> None:
        """Add a piece whose text is only known when the script runs."""
        self.pieces.append(None)
        self.holes.append(ANYTHING)

    @property
    def plain(self) -> str | None:
        """The text of a word without quotes, escapes and expansions, such as a reserved word."""
        if self.quoted or self.holes or self.splits:
            return None
        return self.spelled

    def word(self) -> Word:
        """The one word that it stands for, with its braces as they are."""
        return Word(tuple(_joined(self.pieces)) or ("",), self.spelled, self.splits, tuple(self.holes), self.process)

    def words(self) -> list[Word]:
        """The words that it becomes: several, or none, if it has braces."""
        if "{" not in self.spelled:
            return [self.word()]
        expanded = expand(self.pieces)
        if expanded is None:
            return [Word((None,), self.spelled, True, (*self.holes, ANYTHING), self.process)]
        holes = tuple(self.holes)
        found = [Word(tuple(_joined(each)), self.spelled, self.splits and None in each, holes) for each in expanded]
        return [word for word in found if word.pieces]

    def expanded_word(self) -> Word:
        """The one word that it becomes; one of which nothing is known when braces make it several."""
        words = self.words()
        return words[0] if len(words) == 1 else Word((None,), self.spelled, True, (ANYTHING,))


def _joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    if pieces and None not in pieces:  # as in most words: braces can make thousands of pieces
        yield "".join(filter(None, pieces))
        return
    for known, run in groupby(pieces, lambda piece: piece is not None):
        yield "".join(piece or "" for piece in run) if known else None


def after(word: Word, count: int) -> Word:
    """The word without its first characters, all of which are known: the value in `-ofile`, or in `of=file`."""
    rest: list[Piece] = []
    for piece in word.pieces:
        if count and piece is not None:
            taken = min(count, len(piece))
            piece, count = piece[taken:], count - taken
        rest.append(piece)
    return Word(tuple(rest), word.spelled, word.splits, word.holes)


def spelled(words: Sequence[Word]) -> str:
    """Words on one line, as they are written, for a message."""
    return " ".join(word.spelled for word in words[:20])[:80]
