"""Patterns on commands and on written paths. Owns the tests of a rule on a script.

A pattern is matched against a text of which pieces may not be known, and the answer is yes, no, or perhaps.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import unicodedata
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolwright.calls.authorise.shell.braces import Piece
from toolwright.calls.authorise.shell.script import Command, Script, Write
from toolwright.calls.authorise.shell.words import Word
from toolwright.errors import PolicyError

_MOST_CHARACTERS = 400
"""Characters of a text that is not known whole which are compared; the rest counts as not known."""
_MOST_STEPS = 20_000
"""How much comparing one question about a script may take; after that, everything may match."""
_MOST_DIRECTORIES = 16
_LINKS = re.compile(r"/+(?:\./+)*(?:proc|dev/+fd)/")
"""Directories of links that the system makes: `/proc/self/root/etc` is `/etc`."""
_SLASHES = re.compile(r"/(?:\.?/)+")
_COMMAND_STARTS = re.compile(r"[;&|\n(){}`\"']+")


class Place(Struct, frozen=True):
    """Where a script starts, None if that is not known, and where it sees the session's files, None if nowhere."""

    directory: str | None = None
    mount: str | None = None

    def without_mount(self, path: str) -> str:
        """A path as the session's files spell it: `/workspace/a` is `/a`."""
        mount = self.mount
        if mount is not None and (path == mount or path.startswith(f"{mount}/")):
            return path[len(mount) :] or "/"
        return path


ANYWHERE = Place()
SESSION_FILES = Place("/", "/workspace")
"""The files of a session, where a pattern may have any spelling that a path has."""


class Match(Struct, frozen=True):
    """Why a rule matches a script."""

    why: str


class WrittenPath(Struct, frozen=True):
    """A path that a tool without a script writes, as the session's files spell it; None if it cannot be known.

    `below` means that everything below it is written too.
    """

    path: str | None
    below: bool

    @property
    def words(self) -> list[Word]:
        if self.path is None:
            return [Word((None,), "")]
        whole = Word((self.path,), self.path)
        return [whole, Word((f"{self.path.rstrip('/')}/", None), self.path)] if self.below else [whole]


class _Patience(Struct):
    left: int = _MOST_STEPS


class CommandPattern:
    """A name, such as "rm", for the command with any arguments, or a name and more, such as "git push*"."""

    def __init__(self, pattern: str) -> None:
        name, _, rest = pattern.partition(" ")
        if not name or "/" in name or not rest.strip() == rest:
            raise PolicyError(
                f"Rule commands hold {pattern!r}; use a command's name without its path, or a name and arguments with "
                "one space between them, as in 'git push*'"
            )
        # A file system may not distinguish upper case from lower case.
        self._name = re.compile(fnmatch.translate(name), re.I)
        self._exact = re.compile(fnmatch.translate(name))
        self._glob = _tokens(pattern)
        self._line = re.compile(fnmatch.translate(pattern)) if rest else None

    def surely(self, command: Command) -> bool:
        """True when the command, as it is written, matches."""
        if command.name is None or not self._name.match(command.name):
            return False
        return self._line is None or bool(self._line.match(_line(command)))

    def perhaps(self, command: Command, patience: _Patience) -> bool:
        """True when the command may turn out to match."""
        if command.name is None:
            return True
        if not self._name.match(command.name):
            return False
        return self._line is None or _meet(self._glob, _line_tokens(command.name, command.words), patience)

    def within(self, command: Command, patience: _Patience) -> bool:
        """True when a program of which nothing is known is given a command that matches, to run it for all we know."""
        for at, word in enumerate(command.words[1:], 1):
            text = word.text
            if text is None:
                continue
            name = text.rpartition("/")[2]
            if self._name.match(name):
                if self._line is None or _meet(self._glob, _line_tokens(name, command.words[at:]), patience):
                    return True
            elif re.search(r"\s", text) and len(text) < 4_000:
                for part in _COMMAND_STARTS.split(text):
                    first, _, rest = part.strip().partition(" ")
                    if first and self._name.match(first.rpartition("/")[2]) and self._line is None:
                        return True
                    if first and self._line is not None and self._line.match(f"{first} {rest}"):
                        return True
        return False

    def always(self, command: Command) -> bool:
        """True when the command matches whatever its arguments turn out to be."""
        if command.name is None or command.by_path or not self._exact.match(command.name):
            return False
        if self._line is None:
            return True
        return all(self._line.match(_line(command, unknown)) for unknown in ("", "\ufffd", "\ufffd \ufffd"))


class PathPattern:
    """A pattern on a path that is written: `*` goes through directories, and a pattern without `/` is for names."""

    def __init__(self, pattern: str) -> None:
        if not pattern or pattern.strip() != pattern:
            raise PolicyError(f"Rule writes hold {pattern!r}; use a path or a pattern such as '/etc/*'")
        self._given = pattern
        self._by_name = "/" not in pattern
        self._resolved: dict[Place, tuple[re.Pattern[str], list[str | None], str | None]] = {}

    def _at(self, place: Place) -> tuple[re.Pattern[str], list[str | None], str | None]:
        """The pattern in a directory: a pattern that does not begin with a slash is below it."""
        found = self._resolved.get(place)
        if found is None:
            pattern = self._given
            if pattern.startswith("~/"):
                pattern = "*" + pattern[1:]
            elif not self._by_name and not pattern.startswith(("/", "*")) and place.directory is not None:
                pattern = posixpath.join(place.directory, pattern)
            pattern = place.without_mount(pattern)
            if place is SESSION_FILES:
                pattern = unicodedata.normalize("NFC", pattern)
            # Removing or replacing a directory changes its content.
            above = pattern.rstrip("*").rstrip("/") if pattern.endswith("/*") else None
            found = re.compile(fnmatch.translate(pattern), re.S), _tokens(pattern), above
            self._resolved[place] = found
        return found

    def surely(self, path: Word, place: Place) -> bool:
        """True when the path matches, as far as it is known."""
        text = path.text
        if text is None:
            return False
        pattern, _, above = self._at(place)
        if self._by_name:
            text = text.rpartition("/")[2]
        return bool(pattern.match(text)) or text == above

    def covers(self, path: str, place: Place, *, below: bool) -> bool:
        """True when the path matches, and with `below` everything that is below it too."""
        if not below:
            return self.surely(Word((path,), path), place)
        # Only a `*` at the end of a pattern on whole paths matches whatever follows.
        return not self._by_name and self._given.endswith("*") and self.surely(Word((path,), path), place)

    def perhaps(self, path: Word, place: Place, patience: _Patience) -> bool:
        """True when the path may turn out to match."""
        if path.text is not None:
            return self.surely(path, place)
        _, glob, above = self._at(place)
        pieces = path.pieces
        if self._by_name:
            last = pieces[-1]
            if last is None or "/" not in last:
                return last is None or _meet(glob, [None, *last], patience)
            return _meet(glob, list(last.rpartition("/")[2]), patience)
        text = [char for piece in pieces for char in ([None] if piece is None else piece)]
        return _meet(glob, text, patience) or (above is not None and _meet(list(above), text, patience))


class ScriptPatterns:
    """The patterns of one rule for scripts."""

    def __init__(self, commands: Sequence[str], writes: Sequence[str]) -> None:
        self._commands = [CommandPattern(pattern) for pattern in commands]
        self._writes = [PathPattern(pattern) for pattern in writes]

    def surely(self, script: Script, place: Place = ANYWHERE) -> Match | None:
        """The parts of the script that certainly match, for a rule that denies or asks.

        `place` is where the script starts.
        """
        for command in script.commands:
            if any(pattern.surely(command) for pattern in self._commands):
                return Match(f"it runs {str(command)!r}")
        for write, paths in self._paths(script, place):
            if write.sure and any(pattern.surely(path, place) for path in paths for pattern in self._writes):
                return Match(f"it writes {write.target.spelled[:80]!r}")
        return None

    def perhaps(self, script: Script, place: Place = ANYWHERE) -> Match | None:
        """The parts of the script that may match."""
        for doubt in script.doubts:
            return Match(f"its commands cannot be known: {doubt}")
        patience = _Patience()
        for command in script.commands:
            if any(pattern.perhaps(command, patience) for pattern in self._commands):
                return Match(f"it may run a command that is not allowed: {str(command)!r}")
            strange = command.stranger and not command.by_path
            if strange and any(pattern.within(command, patience) for pattern in self._commands):
                return Match(
                    f"{command.name!r} is not known, and may run a command that is not allowed: {str(command)!r}"
                )
        for doubt in script.write_doubts if self._writes else ():
            return Match(f"its writes cannot be known: {doubt}")
        for write, paths in self._paths(script, place):
            if any(pattern.perhaps(path, place, patience) for path in paths for pattern in self._writes):
                return Match(f"it may write where it is not allowed: {write.target.spelled[:80]!r}")
        return None

    def always(self, script: Script, place: Place = ANYWHERE) -> bool:
        """True when the script does nothing that the rule does not name, for a rule that allows."""
        if script.doubts or script.renamed or script.write_doubts:
            return False
        return all(any(pattern.always(command) for pattern in self._commands) for command in script.commands) and all(
            any(pattern.surely(path, place) for pattern in self._writes)
            for write, paths in self._paths(script, place)
            if write.sure
            for path in paths
        )

    def surely_paths(self, written: Sequence[WrittenPath]) -> Match | None:
        """Which of the paths that a tool declares as written matches for certain, for a rule that denies or asks."""
        for each in written:
            if any(pattern.surely(word, SESSION_FILES) for word in each.words for pattern in self._writes):
                return Match(f"it writes {(each.path or '')[:80]!r}")
        return None

    def perhaps_paths(self, written: Sequence[WrittenPath]) -> Match | None:
        """Which of the paths that a tool declares as written may match."""
        patience = _Patience()
        for each in written:
            if each.path is None:
                return Match("the paths that it writes cannot be known from its arguments")
            if any(pattern.perhaps(word, SESSION_FILES, patience) for word in each.words for pattern in self._writes):
                return Match(f"it may write where it is not allowed: below {each.path[:80]!r}")
        return None

    def allows_paths(self, written: Sequence[WrittenPath]) -> bool:
        """True when every path that a tool declares as written is among the patterns, for a rule that allows."""
        return bool(written) and all(
            each.path is not None
            and any(pattern.covers(each.path, SESSION_FILES, below=each.below) for pattern in self._writes)
            for each in written
        )

    def _paths(self, script: Script, place: Place) -> Iterator[tuple[Write, list[Word]]]:
        if not script.writes:
            return
        places = _places(script, place.directory)
        for write in script.writes:
            count = len(places) - 1 if script.wanders else min(write.directories, len(places) - 1)
            yield write, [_as_files(path, place) for path in _resolved(write, places[count], script.changes_tree)]


def _places(script: Script, directory: str | None) -> list[list[str | None]]:
    """The directories in which a script may be, before it changes them and after each change; None is any."""
    found: list[str | None] = [directory if directory is not None else ""]
    places = [list(found)]
    for word in script.directories:
        text = word.text
        if text is None or _LINKS.match(text):
            added: list[str | None] = [None]
        elif text.startswith("/"):
            added = [posixpath.normpath("/" + text.lstrip("/"))]
        elif script.wanders:
            added = [None]
        else:
            added = [None if each is None else _below(each, text) for each in found]
        found += [each for each in added if each not in found]
        if len(found) > _MOST_DIRECTORIES:
            found = [None]
        places.append(list(found))
    return places


def _below(base: str, text: str) -> str | None:
    """A path from a directory; relative, if the directory is below an unknown one, and None if it leaves that."""
    path = posixpath.normpath(posixpath.join(base, text))
    if path.startswith("//"):
        path = path[1:]
    return None if path == ".." or path.startswith("../") else path


def _resolved(write: Write, places: Sequence[str | None], changes_tree: bool) -> list[Word]:
    """The paths that a word may stand for, in the directories where the script may be."""
    target = write.target
    paths: list[Word] = []
    text = target.text
    if text is None:
        target = Word(
            tuple(None if piece is None else _SLASHES.sub("/", piece) for piece in target.pieces), target.spelled
        )
        start = target.start
        # An unknown part may have `..` in it; only a pattern that finds files has not.
        plain = not re.search(r"[$`…]|\.\.", target.spelled) and None in target.pieces and len(target.pieces) > 1
        known = start.startswith("/") and plain
        if known and not write.below:
            return [target]
        tail = target.pieces[-1]
        if known:
            return [
                Word(
                    (posixpath.normpath("/" + start.lstrip("/")) if start.endswith("/") else start, None),
                    target.spelled,
                )
            ]
        if plain and start and not start.startswith("~") and not write.below:
            return [_in(place, target, "/".join(["", start]).lstrip("/")) for place in places]
        return [Word((None, tail) if tail is not None and not write.below else (None,), target.spelled)]
    if _LINKS.match(text):
        return [Word((None,), target.spelled)]
    if text.startswith("/"):
        paths = [Word((posixpath.normpath("/" + text.lstrip("/")),), target.spelled)]
    else:
        for place in places:
            path = None if place is None else _below(place, text)
            if path is None:
                paths.append(Word((None, "/" + posixpath.basename(posixpath.normpath(text))), target.spelled))
            elif path.startswith("/"):
                paths.append(Word((path,), target.spelled))
            else:
                # Below a directory that is not known: a pattern that is no whole path may match it as it is.
                paths += [Word((path,), target.spelled), Word((None, "/" + path), target.spelled)]
    if write.below:
        more: list[Word] = []
        for resolved in paths:
            known_path = resolved.text
            if known_path is not None and changes_tree and target.spelled == "git":
                known_path = "/" + known_path.lstrip("/").partition("/")[0]
            more.append(
                Word((None,), target.spelled)
                if known_path is None
                else Word((f"{known_path.rstrip('/')}/", None), target.spelled)
            )
        paths += more
    return paths


def _as_files(path: Word, place: Place) -> Word:
    if place.mount is None or path.pieces[0] is None:
        return path
    if len(path.pieces) > 1 and f"{place.mount}/".startswith(path.pieces[0]):
        return Word((None, *path.pieces[1:]), path.spelled)
    return Word((place.without_mount(path.pieces[0]), *path.pieces[1:]), path.spelled)


def _in(place: str | None, target: Word, start: str) -> Word:
    """A word with a pattern in it, such as `src/*.py`, in a directory."""
    rest = target.pieces[next(at for at, piece in enumerate(target.pieces) if piece is None) :]
    if place is None or not place.startswith("/"):
        return Word((None, "/" + start, *rest), target.spelled)
    return Word((f"{place.rstrip('/')}/{start}", *rest), target.spelled)


def _line(command: Command, unknown: str | None = None) -> str:
    """The command on one line, its words as they are or, where that is not known, as they are written."""
    texts = [command.name or ""]
    for word in command.words[1:]:
        text = word.text
        texts.append(text if text is not None else word.spelled if unknown is None else _filled(word, unknown))
    return " ".join(texts)


def _filled(word: Word, unknown: str) -> str:
    return "".join(unknown if piece is None else piece for piece in word.pieces)


def _line_tokens(name: str, words: Sequence[Word]) -> list[Piece]:
    tokens: list[Piece] = list(name)
    for word in words[1:]:
        if not word.splits or word.start:
            tokens.append(" ")
        for piece in word.pieces:
            tokens += [None] if piece is None else piece[:_MOST_CHARACTERS]
        if len(tokens) > _MOST_CHARACTERS:
            return [*tokens[:_MOST_CHARACTERS], None]
    return tokens


def _tokens(pattern: str) -> list[str | None]:
    """The pattern as characters; None stands for any text, "" for any one character."""
    simple = re.sub(r"\[!?\]?[^\]]*\]", "?", pattern)
    return [None if char == "*" else "" if char == "?" else char for char in simple]


def _meet(pattern: Sequence[str | None], text: Sequence[Piece], patience: _Patience) -> bool:
    """True when some text fits both; None in either stands for any text."""
    reached = _skip({0}, pattern)
    for char in text:
        patience.left -= 1 + len(reached)
        if patience.left < 0:
            return True
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
