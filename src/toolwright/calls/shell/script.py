"""What a script would run, as far as it can be known. Owns `Script` and reading one from its text.

The text is parsed with tree-sitter's grammar of bash. What the parser or this page can not be sure of is a doubt: a
rule that denies or asks takes it for the worst, one that allows does not apply.
"""

from __future__ import annotations

import functools
import posixpath
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from toolwright.calls.shell import runners, wrappers
from toolwright.calls.shell.doubts import REDIRECTS, comment, evaluated_name, run_together, subscript, unread
from toolwright.calls.shell.words import Word, literal, names, word_of, words_of
from toolwright.errors import PolicyError

MOST_BYTES = 64 * 1024
MOST_COMMANDS = 2_000
MOST_DEPTH = 120
MOST_SCRIPTS = 200
"""How many scripts may be in a script: those of `eval`, `bash -c` and the like."""
MOST_NESTING = 16
"""How deep commands that run commands may be in each other."""

MOST_SECONDS = 1.0
"""How much of a processor reading may take. A script of the greatest length takes half of it, unless made slow."""

_BIT = 4 * 1024
_TOO_MUCH = f"the script is longer than {MOST_BYTES} bytes, or too deep"
_TOO_SLOW = "the script takes too long to read"
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
_RESERVED = names("{ } ! ( ) then do else elif if fi while until done in esac")
_NO_FILES = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/\d+)")


class Command(Struct, frozen=True):
    """A command that a script may run. `name` is the last part of how it is called, None if that is not known."""

    name: str | None
    words: tuple[Word, ...]

    @property
    def by_path(self) -> bool:
        """True when it is called by a path, so that it may be any program."""
        return "/" in self.words[0].spelled

    def __str__(self) -> str:
        return " ".join(word.spelled for word in self.words)[:80]


class Script:
    """Everything that a script may do. `doubts` says what of it can not be known."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.writes: list[Word] = []
        self.directories: list[Word] = []
        self._trees: set[Word] = set()
        self.doubts: list[str] = []
        self.renamed = False
        """True when names of commands may mean other programs than usual."""
        self._scripts = 0
        self._nesting = 0
        self._deadline = time.thread_time() + MOST_SECONDS

    def doubt(self, why: str) -> None:
        """Note what can not be known."""
        if len(self.doubts) < 50 and why not in self.doubts:
            self.doubts.append(why)

    def _doubt_all(self, whys: Iterable[str]) -> None:
        for why in whys:
            self.doubt(why)

    def read(self, text: str) -> None:
        """Add what the script of this text would do."""
        self._scripts += 1
        try:
            source = text.encode()
        except UnicodeEncodeError:
            return self.doubt("the script is not text")
        if len(source) > MOST_BYTES or self._scripts > MOST_SCRIPTS or self._nesting > MOST_NESTING:
            return self.doubt(_TOO_MUCH)
        if "\0" in text:
            return self.doubt("the script has a zero byte")
        self._nesting += 1
        self._read(source)
        # The shell joins such lines before it looks at them, but not in a comment: so it is read both ways.
        joined = _CONTINUED.sub(r"\1", text)
        if joined != text:
            self._read(joined.encode())
        self._nesting -= 1

    def _read(self, source: bytes) -> None:
        # Some texts take the parser time that grows with their square, and it can not be stopped: so a long one is
        # given to it bit by bit, to notice in time.
        for end in (*range(_BIT, len(source), _BIT), len(source)):
            began = time.thread_time()
            root = parser().parse(source[:end]).root_node
            if time.thread_time() - began > MOST_SECONDS / 5:
                return self.doubt(_TOO_SLOW)
            if self._is_late():
                return None
        if root.has_error:
            self.doubt("the script does not parse")
        self._visit(root, 0)
        return None

    def _is_late(self) -> bool:
        late = time.thread_time() > self._deadline
        if late:
            self.doubt(_TOO_SLOW)
        return late

    def _visit(self, node: Any, depth: int) -> None:
        if depth > MOST_DEPTH or len(self.commands) > MOST_COMMANDS or self._is_late():
            return self.doubt(_TOO_MUCH)
        kind = node.type
        if kind == "redirected_statement":
            body = node.child_by_field_name("body")
            redirects = [child for child in node.named_children if body is None or child.id != body.id]
            if body is not None and body.type == "command":
                self._command(body, redirects)
        elif kind == "command" and (node.parent is None or node.parent.type != "redirected_statement"):
            self._command(node, [])
        elif kind in ("declaration_command", "unset_command"):
            name = literal(node.children[0].text.decode())
            self._doubt_all(run_together(node))
            self.run([name, *(word for child in node.named_children for word in words_of(child))])
        elif kind == "variable_assignment":
            self._assignment(node)
        elif kind == "file_redirect":
            self._redirect(node)
        elif kind == "comment":
            self._doubt_all(comment(node))
        elif kind == "command_substitution" and node.text.startswith(b"`"):
            inner = re.sub(r"\\([$`\\])", r"\1", node.text.decode()[1:-1])
            return self.read(inner)
        elif kind in ("raw_string", "ansi_c_string"):
            self._doubt_all(subscript(node))
        elif kind == "expansion" and b"@P" in node.text:
            self.doubt(f"{node.text.decode()[:40]!r} evaluates what it holds")
        elif kind == "heredoc_body":
            return self._here_document(node, depth)
        elif kind in ("string", "expansion") or not node.named_child_count:
            self._doubt_all(unread(node))
            self._doubt_all(subscript(node))
        for child in node.named_children:
            self._visit(child, depth + 1)

    def _command(self, node: Any, redirects: Sequence[Any]) -> None:
        words: list[Word] = []
        fed: list[Any] = []
        self._doubt_all(run_together(node))
        for child in [*node.named_children, *redirects]:
            if child.type in REDIRECTS:
                fed.append(child)
                # `env > file rm x` runs rm: what follows the name of a file is a word of the command.
                for extra in (*_destinations(child)[1:], *child.children_by_field_name("argument")):
                    words += words_of(extra)
            elif child.type != "variable_assignment" and child.type != "comment":
                # Braces make many words of little text.
                words += words_of(child) if len(words) < MOST_COMMANDS else [word_of(child)]
        if words:
            self.run(words, fed)

    def run(self, words: Sequence[Word], fed: Sequence[Any] = ()) -> None:
        """Add a command, and the commands that it runs in turn. `fed` are its redirections."""
        words = list(words)
        while words and words[0].spelled in _RESERVED:
            words.pop(0)
        if not words:
            return
        if len(self.commands) > MOST_COMMANDS or self._nesting > MOST_NESTING:
            return self.doubt(_TOO_MUCH)
        name = words[0].text
        if name is None:
            self.doubt(f"{words[0].spelled[:40]!r} is known only when it runs")
        else:
            name = name.rpartition("/")[2]
        if len(words) > 1 and "{" in words[0].spelled and words[0].spelled == words[1].spelled:
            # Nobody needs a name and its first argument in one: whoever writes it hides something.
            self.doubt(f"{words[0].spelled[:40]!r} is a command and more")
        self.commands.append(Command(name, tuple(words)))
        if name is not None:
            self._nesting += 1
            wrappers.look_into(self, name, words, fed)
            self._nesting -= 1

    def assign(self, name: str, value: Word) -> None:
        """Note that a variable is set."""
        runners.assign(self, name, value)

    def write(self, target: Word, *, below: bool = False) -> None:
        """Note that a file is written, or a directory with all that is `below` it."""
        if not _NO_FILES.fullmatch(target.text or ""):
            self.writes.append(target)
            if below and target.text is not None:
                self._trees.add(target)

    def paths(self, target: Word) -> list[Word]:
        """The paths that a word may stand for, as the script changes its directory; with pieces that are not known."""
        found = self._paths(target)
        if target in self._trees:
            known = [path.text for path in found if (path.text or "").startswith("/")]
            found += [Word((f"{text.rstrip('/')}/", None), target.spelled) for text in known if text]
        return found

    def _paths(self, target: Word) -> list[Word]:
        text = target.text
        if text is None:
            # What is not known may have `..` in it; only a pattern that finds files has not.
            found = target.start.startswith("/") and not re.search(r"[$`]|\.\.", target.spelled)
            return [target if found else Word((None, target.pieces[-1]), target.spelled)]
        if text.startswith("/"):
            return [literal(posixpath.normpath("/" + text.lstrip("/")))]
        bases = [directory.text or ".." for directory in self.directories]
        absolute = [base.startswith("/") for base in bases]
        # From one directory into another below it, or out of it: too many ways to follow.
        if any(".." in path.split("/") for path in (text, *bases)) or (any(absolute) and not all(absolute)):
            return [Word((None, "/" + posixpath.basename(text)), target.spelled)]
        return [
            literal(posixpath.normpath(posixpath.join(base, text))) for base in ("", *bases, posixpath.join("", *bases))
        ]

    def _assignment(self, node: Any) -> None:
        name = node.child_by_field_name("name")
        self._doubt_all(evaluated_name(node))
        value = node.child_by_field_name("value")
        if name is not None:
            self.assign(re.split(r"[\[+]", name.text.decode())[0], literal("") if value is None else word_of(value))

    def _redirect(self, node: Any) -> None:
        signs = "".join(child.type for child in node.children if not child.is_named)
        targets = _destinations(node)
        if ">" not in signs or not targets:
            return
        target = word_of(targets[0])
        if "&" in signs and re.fullmatch(r"\d*-?", target.text if target.text is not None else "?"):
            return  # another descriptor
        self.write(target)

    def _here_document(self, node: Any, depth: int) -> None:
        start = next((child for child in node.parent.children if child.type == "heredoc_start"), None)
        if start is None or not re.search(rb"['\"\\]", start.text):
            self._doubt_all(unread(node))
            for child in node.named_children:
                self._visit(child, depth + 1)


def _destinations(node: Any) -> list[Any]:
    found: list[Any] = node.children_by_field_name("destination")
    return found


@functools.lru_cache(maxsize=64)
def read_script(text: str) -> Script:
    """What the script of this text would do. Rules that look at the same call share it."""
    script = Script()
    script.read(text)
    return script


@functools.cache
def parser() -> Any:
    """The parser.

    Raises:
        PolicyError: it is not installed.
    """
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError as missing:
        raise PolicyError("Rules about commands need a parser; pip install 'toolwright[shell]'") from missing
    return Parser(Language(tree_sitter_bash.language()))
