"""Patterns on commands and on paths that are written. Owns what a rule asks of a script.

A pattern is matched against a text of which pieces may not be known, and the answer is yes, no, or perhaps.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from msgspec import Struct

from toolwright.calls.shell.braces import Piece
from toolwright.calls.shell.script import Command, Script
from toolwright.calls.shell.words import Word
from toolwright.errors import PolicyError

_MOST = 2_000
"""Characters of a text that are compared; the rest counts as not known."""


class Match(Struct, frozen=True):
    """Why a rule matches a script."""

    why: str


class CommandPattern:
    """A name, such as "rm", for the command with any arguments, or a name and more, such as "git push*"."""

    def __init__(self, pattern: str) -> None:
        name, _, rest = pattern.partition(" ")
        if not name or "/" in name or not rest.strip() == rest:
            raise PolicyError(
                f"Rule commands hold {pattern!r}; use a command's name without its path, or a name and arguments with "
                "one space between them, as in 'git push*'"
            )
        self._name = re.compile(fnmatch.translate(name))
        self._bare = name if not rest else None
        self._glob = _tokens(pattern)
        self._line = re.compile(fnmatch.translate(pattern)) if rest else None

    def surely(self, command: Command) -> bool:
        """True when the command, as it is written, matches."""
        if command.name is None or not self._name.match(command.name):
            return False
        return self._line is None or bool(self._line.match(_line(command)))

    def perhaps(self, command: Command) -> bool:
        """True when the command may turn out to match."""
        if command.name is None:
            return True
        if not self._name.match(command.name):
            return False
        return self._line is None or _meet(self._glob, _line_tokens(command))

    def always(self, command: Command) -> bool:
        """True when the command matches whatever its arguments turn out to be."""
        if command.name is None or command.by_path or not self._name.match(command.name):
            return False
        if self._line is None:
            return True
        return all(self._line.match(_line(command, unknown)) for unknown in ("", "\ufffd", "\ufffd \ufffd"))


class PathPattern:
    """A pattern on a path that is written: `*` goes through directories, and a pattern without `/` is for names."""

    def __init__(self, pattern: str) -> None:
        if not pattern or pattern.strip() != pattern:
            raise PolicyError(f"Rule writes hold {pattern!r}; use a path or a pattern such as '/etc/*'")
        self._by_name = "/" not in pattern
        self._pattern = re.compile(fnmatch.translate(pattern))
        self._glob = _tokens(pattern)
        # What removes or replaces a directory changes what is in it.
        self._above = pattern.rstrip("*").rstrip("/") if pattern.endswith("/*") else None

    def surely(self, path: Word) -> bool:
        """True when the path matches, as far as it is known."""
        text = path.text
        if text is None:
            return False
        if self._by_name:
            text = text.rpartition("/")[2]
        return bool(self._pattern.match(text)) or text == self._above

    def perhaps(self, path: Word) -> bool:
        """True when the path may turn out to match."""
        if path.text is not None:
            return self.surely(path)
        if self._by_name:
            return True
        return _meet(self._glob, [char for piece in path.pieces for char in ([None] if piece is None else piece)])


class ScriptPatterns:
    """What one rule says of scripts."""

    def __init__(self, commands: Sequence[str], writes: Sequence[str]) -> None:
        self._commands = [CommandPattern(pattern) for pattern in commands]
        self._writes = [PathPattern(pattern) for pattern in writes]

    def surely(self, script: Script) -> Match | None:
        """What in the script matches for sure, for a rule that denies or asks."""
        for command in script.commands:
            if any(pattern.surely(command) for pattern in self._commands):
                return Match(f"it runs {str(command)!r}")
        for target in script.writes:
            if any(pattern.surely(path) for path in script.paths(target) for pattern in self._writes):
                return Match(f"it writes {target.spelled[:80]!r}")
        return None

    def perhaps(self, script: Script) -> Match | None:
        """What in the script may match, for all that can be known."""
        for doubt in script.doubts:
            return Match(f"what it runs can not be known: {doubt}")
        for command in script.commands:
            if any(pattern.perhaps(command) for pattern in self._commands):
                return Match(f"it may run what is not allowed: {str(command)!r}")
        for target in script.writes:
            if any(pattern.perhaps(path) for path in script.paths(target) for pattern in self._writes):
                return Match(f"it may write where it is not allowed: {target.spelled[:80]!r}")
        return None

    def always(self, script: Script) -> bool:
        """True when the script does nothing that the rule does not name, for a rule that allows."""
        if script.doubts or script.renamed:
            return False
        return all(any(pattern.always(command) for pattern in self._commands) for command in script.commands) and all(
            any(pattern.surely(path) for pattern in self._writes)
            for target in script.writes
            for path in script.paths(target)
        )


def _line(command: Command, unknown: str | None = None) -> str:
    """The command on one line, its words as they are or, where that is not known, as they are written."""
    texts = [command.name or ""]
    for word in command.words[1:]:
        text = word.text
        texts.append(text if text is not None else word.spelled if unknown is None else _filled(word, unknown))
    return " ".join(texts)


def _filled(word: Word, unknown: str) -> str:
    return "".join(unknown if piece is None else piece for piece in word.pieces)


def _line_tokens(command: Command) -> list[Piece]:
    tokens: list[Piece] = list(command.name or "")
    for word in command.words[1:]:
        if not word.splits or word.start:
            tokens.append(" ")
        for piece in word.pieces:
            tokens += [None] if piece is None else list(piece)
        if len(tokens) > _MOST:
            return [*tokens[:_MOST], None]
    return tokens


def _tokens(pattern: str) -> list[str | None]:
    """The pattern as characters; None stands for any text, "" for any one character."""
    simple = re.sub(r"\[!?\]?[^\]]*\]", "?", pattern)
    return [None if char == "*" else "" if char == "?" else char for char in simple]


def _meet(pattern: Sequence[str | None], text: Sequence[Piece]) -> bool:
    """True when some text fits both; None in either stands for any text."""
    reached = _skip({0}, pattern)
    for char in text:
        if char is None:
            # From here on it may be anything: every later place of the pattern can be reached.
            reached = set(range(min(reached), len(pattern) + 1)) if reached else reached
            continue
        following = set()
        for at in reached:
            if at < len(pattern):
                wanted = pattern[at]
                if wanted is None:
                    following.add(at)
                elif wanted in ("", char):
                    following.add(at + 1)
        reached = _skip(following, pattern)
        if not reached:
            return False
    return len(pattern) in reached


def _skip(places: set[int], pattern: Sequence[str | None]) -> set[int]:
    """The places themselves, and those behind a `*` that stands for nothing."""
    found = set(places)
    for at in places:
        while at < len(pattern) and pattern[at] is None:
            at += 1
            found.add(at)
    return found
