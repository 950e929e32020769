"""What a script would run and write, as far as it can be known. Owns `Script`, not reading its text.

The text is read by the reader of this package. Text that is not understood is a doubt: a rule that denies or asks takes
it for the worst, and a rule that allows does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from toolwright.calls.authorise.shell.programs import BUILTINS
from toolwright.calls.authorise.shell.reader import (
    Assign,
    Evaluate,
    Function,
    Item,
    NotUnderstoodError,
    Reader,
    Redirect,
    Simple,
    Steps,
    Tested,
    Text,
)
from toolwright.calls.authorise.shell.words import UNKNOWN, Word, names, spelled

MOST_BYTES = 64 * 1024
MOST_COMMANDS = 1_000
MOST_STEPS = 6_000
"""How much reading one script may take, with all that is in it: words, signs and expansions. It takes about 25 ms."""
MOST_NESTING = 16
"""How deep commands that run commands may be in each other."""

_RESERVED = names("{ } ! ( ) then do else elif if fi while until done in esac")
_NO_FILES = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/\d+)")
_NUMERIC = names("wc date id grep nproc")
_DIRECTORIES = names("cd pushd popd builtin command")
_COMPARED = names("-eq -ne -lt -le -gt -ge")
_PATHS = names("HOME PWD OLDPWD TMPDIR USER LOGNAME HOSTNAME")
"""Variables that come from outside, and do not begin with a dash."""
_EVALUATED = re.compile(r"[\[$`]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Command(Struct, frozen=True):
    """A command that a script may run. `name` is the last part of its path, None if it is not known.

    `stranger` means that a program of this name is not known.
    """

    name: str | None
    words: tuple[Word, ...]
    stranger: bool = False

    @property
    def by_path(self) -> bool:
        """True when it is called by a path, so that it may be any program."""
        return "/" in self.words[0].spelled

    def __str__(self) -> str:
        return spelled(self.words)


class Write(Struct, frozen=True):
    """A path that is written. `below` adds everything below it; `directories` counts the directory changes before it.

    `sure` is False for a word of a program of which nothing is known: it may be a path, and be written.
    """

    target: Word
    below: bool
    sure: bool
    directories: int


class Meaning(NamedTuple):
    """What the commands and variables of a script mean: `read_script.py` brings them together."""

    is_known: Callable[[str], bool]
    """True when something is known of the program of a name."""
    look_into: Callable[[Script, str, Sequence[Word], Sequence[Redirect], bool], None]
    """Adds what a command runs and writes in turn; the last says that it stands in the script itself."""
    assign: Callable[[Script, str, Word], None]
    """Notes what setting a variable means."""


class Script:
    """Everything that a script may do.

    `doubts` are the parts of it that cannot be known, and `write_doubts` the further ones about its writes.
    """

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self.commands: list[Command] = []
        self.writes: list[Write] = []
        self.directories: list[Word] = []
        self.wanders = False
        """True when the directory changes in a loop or a function, so that no order of the changes is known."""
        self.doubts: list[str] = []
        self.write_doubts: list[str] = []
        self.renamed = False
        """True when names of commands may mean other programs than usual."""
        self.changes_tree = False
        """True when git may change files of a working tree, which may begin in a directory above."""
        self.values: dict[str, list[Word]] = {}
        self.steps = Steps(MOST_STEPS)
        self._nesting = 0
        self._evaluated: list[Evaluate] = []
        self._maps: set[str] = set()
        self._operands: list[tuple[Word, str, bool]] = []

    def doubt(self, why: str) -> None:
        """Note a part that cannot be known."""
        if len(self.doubts) < 20 and why not in self.doubts:
            self.doubts.append(why)

    def doubt_writes(self, why: str) -> None:
        """Note a written file that cannot be known."""
        if len(self.write_doubts) < 20:
            self.write_doubts.append(why)

    def read(self, text: str, *, posix: bool = False) -> None:
        """Add the commands and writes of a text. `posix` is for other shells than bash."""
        if len(text) > MOST_BYTES or self._nesting > MOST_NESTING:
            return self.doubt(f"the script is longer than {MOST_BYTES} bytes, or too deep")
        if "\0" in text:
            return self.doubt("the script has a zero byte")
        try:
            text.encode()
        except UnicodeEncodeError:
            return self.doubt("the script is not text")
        self._nesting += 1
        reader = Reader(text, self.steps, posix=posix)
        try:
            reader.read()
        except NotUnderstoodError as error:
            self.doubt(str(error))
        try:
            for item in reader.items:
                self._item(item, posix=posix)
        except NotUnderstoodError as error:
            self.doubt(str(error))
        self._nesting -= 1
        return None

    def _item(self, item: Item, *, posix: bool) -> None:
        if isinstance(item, Simple):
            if item.words:
                self.run(item.words, item.redirects, repeats=item.repeats, outermost=item.outermost)
        elif isinstance(item, Redirect):
            self._redirect(item)
        elif isinstance(item, Assign):
            self.assign(item.name, item.value)
        elif isinstance(item, Evaluate):
            self._evaluated.append(item)
        elif isinstance(item, Tested):
            self._tested(item.words)
        elif isinstance(item, Text):
            self.read(item.text, posix=posix)
        elif isinstance(item, Function):
            self._function(item.name)

    def run(
        self, words: Sequence[Word], fed: Sequence[Redirect] = (), *, repeats: bool = True, outermost: bool = False
    ) -> None:
        """Add a command, and the commands that it runs. `fed` are its redirections."""
        words = list(words)
        while words and words[0].spelled in _RESERVED:
            words.pop(0)
        if not words:
            return
        self.steps.take(2)
        if len(self.commands) > MOST_COMMANDS or self._nesting > MOST_NESTING:
            return self.doubt("the script runs too many commands to look at, or they are too deep")
        name = words[0].text
        if name is None:
            self.doubt(f"{words[0].shown} is known only when it runs")
        else:
            name = name.rpartition("/")[2]
        if len(words) > 1 and "{" in words[0].spelled and words[0].spelled == words[1].spelled:
            # Nobody needs a name and its first argument in one word.
            self.doubt(f"{words[0].shown} is a command and more")
        stranger = name is not None and not self._meaning.is_known(name)
        self.commands.append(Command(name, tuple(words), stranger))
        if name is not None:
            self._nesting += 1
            before = len(self.directories)
            self._meaning.look_into(self, name, words, fed, outermost)
            self.wanders |= repeats and len(self.directories) > before
            self._nesting -= 1

    def add_spelling(self, words: Sequence[Word]) -> None:
        """Add a command as it may be written too, so that patterns on its arguments match: `git -C x push`."""
        self.commands.append(Command(self.commands[-1].name, tuple(words)))

    def assign(self, name: str, value: Word) -> None:
        """Note that a variable is set."""
        self.steps.take(2)
        self._meaning.assign(self, name, value)
        self.values.setdefault(name, []).append(value)
        if len(self.values[name]) > 200:
            self.values[name] = [UNKNOWN]

    def is_map(self, name: str) -> None:
        """Note that a variable is an associative array, whose subscripts are not arithmetic."""
        self._maps.add(name)

    def evaluate(self, word: Word) -> None:
        """Note that the shell evaluates a word as an arithmetic expression, or as the name of a variable."""
        self.steps.take(2)
        text = word.text if word.text is not None else " ".join(piece or " " for piece in word.pieces)
        found = {hole.name for hole in word.holes if hole.kind == "variable"}
        unknown = any(hole.kind == "anything" for hole in word.holes) or bool(_EVALUATED.search(text))
        unknown |= any(hole.kind == "text" and _EVALUATED.search(hole.name) for hole in word.holes)
        unknown |= word.text is None and not word.holes
        self._evaluated.append(Evaluate(frozenset(found | set(_IDENTIFIER.findall(text))), word.spelled[:60], unknown))

    def operand(self, word: Word, name: str, *, writes: bool = False) -> None:
        """Note that a word is taken for an operand: if it may be an option, that is a doubt."""
        if word.start.startswith("-") or not word.start:
            self._operands.append((word, name, writes))

    def finish(self) -> None:
        """Judge the parts that depend on all the values that variables get in the script."""
        for each in self._evaluated:
            if each.array in self._maps:
                continue
            if len(self.doubts) > 10 or each.unknown or not all(self._is_number(name, set()) for name in each.names):
                self.doubt(f"the value that {each.spelled!r} evaluates is known only when it runs")
        for word, name, writes in self._operands:
            if not self._is_operand(word, set()):
                why = f"{word.shown} may be an option of {name!r}; put './' or a known text before it"
                (self.doubt_writes if writes else self.doubt)(why)

    def _is_number(self, name: str, seen: set[str]) -> bool:
        """True when all values that a variable is given here may be evaluated without harm."""
        if name in seen:
            return True
        seen.add(name)
        for value in self.values.get(name, ()):
            texts = [piece for piece in value.pieces if piece]
            for hole in value.holes:
                if hole.kind == "anything" or (hole.kind == "variable" and not self._is_number(hole.name, seen)):
                    return False
                if hole.kind == "text":
                    texts.append(hole.name)
            if not value.holes and None in value.pieces:
                return False
            for text in texts:
                if _EVALUATED.search(text) or len(text) > 200:
                    return False
                if not all(self._is_number(other, seen) for other in _IDENTIFIER.findall(text)):
                    return False
        return True

    def _is_operand(self, word: Word, seen: set[str]) -> bool:
        """True when a word does not begin with a dash, whatever its variables hold."""
        if word.start:
            return not word.start.startswith("-") or word.start == "-"
        if word.text is not None:
            return True
        if not word.holes:
            return False
        for hole in word.holes:
            if hole.kind == "anything" or (hole.kind == "text" and hole.name.startswith("-")):
                return False
            if hole.kind == "variable" and hole.name not in seen:
                seen.add(hole.name)
                if hole.name not in self.values and hole.name not in _PATHS:
                    return False
                if not all(self._is_operand(value, seen) for value in self.values.get(hole.name, ())):
                    return False
        return True

    def write(self, target: Word, *, below: bool = False, sure: bool = True) -> None:
        """Note that a file is written, or a directory with all that is `below` it."""
        if not _NO_FILES.fullmatch(target.text or ""):
            self.steps.take(4)
            self.writes.append(Write(target, below, sure, len(self.directories)))

    def _redirect(self, redirect: Redirect) -> None:
        sign, target = redirect.sign, redirect.target
        if ">" not in sign:
            return
        if "&" in sign and re.fullmatch(r"\d*-?", target.text if target.text is not None else "?"):
            return  # another descriptor
        if not target.process:
            self.write(target)

    def _tested(self, words: Sequence[Word]) -> None:
        for at, word in enumerate(words):
            text = word.text
            if text in _COMPARED and 0 < at < len(words) - 1:
                self.evaluate(words[at - 1])
                self.evaluate(words[at + 1])
            elif text in ("-v", "-R") and at < len(words) - 1:
                self.evaluate(words[at + 1])

    def _function(self, name: str) -> None:
        if name in _DIRECTORIES:
            self.directories.append(UNKNOWN)
        if name in _NUMERIC or name in BUILTINS:
            self.doubt(f"the function {name!r} has the name of a command that is looked into")
