"""Reads a script as bash does. Owns the grammar: which commands, words, redirections and expansions a text holds.

The reader knows the constructs on this page and no others. Text that it does not understand ends the reading with
`NotUnderstoodError`: the script is then a doubt, and never taken for harmless. The work is linear in the length of
the text, and counted: a script that needs more steps than it may have is not understood either.
"""

from __future__ import annotations

import re

from msgspec import Struct

from toolwright.calls.authorise.shell.braces import Bare, Piece
from toolwright.calls.authorise.shell.words import ANYTHING, NUMBER, Hole, RawWord, Word, literal, names

MOST_DEPTH = 40
MOST_HERE_DOCUMENTS = 40

_BLANK = re.compile(r"(?:[ \t]|\\\n)*")
_COMMENT = re.compile(r"#[^\n]*")
_PLAIN = re.compile(r"[^\s;&|<>()$`\"'\\*?\[~{},]+")
_IN_QUOTES = re.compile(r"[^\"$`\\]+")
_IN_DOCUMENT = re.compile(r"[^$`\\]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(\+?=)|\[)")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!_-]")
_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_][A-Za-z0-9_]*\})?(&>>|&>|<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\())")
_ANSI = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.S)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_IDENTIFIER = re.compile(r"(?<![\w#])[A-Za-z_][A-Za-z0-9_]*")
_ARITHMETIC = re.compile(r"[^$`\"'\\()\[\]{};]+")
_MORE_COMMANDS = re.compile(r"[;&\n(){}]|\|\|", re.S)
_BRACKETS = re.compile(r"\[(?:[^\s;&|<>()\]]{0,100}\]|[^\s;&|<>()\]]{101}|\])")
_TIME_OPTION = re.compile(r"-p(?=\s)|--(?=\s)")
_IN_SUBSCRIPT = re.compile(r"[\[\]\n;]|\\.|'[^']*'|\$\(|`", re.S)
_SUBSCRIPT_ASSIGNED = re.compile(r"[^\n]*?\]\+?=")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_IN_ANSI = re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.S)
_BACKQUOTES = re.compile(r"`([^`\\]*(?:\\.[^`\\]*)*)`", re.S)
_LENGTH = re.compile(r"#(?:[A-Za-z_0-9@*#?$!-])")
_INDIRECT = re.compile(r"![A-Za-z_0-9@*#]")
_DEFAULT = re.compile(r":?[-=?+]")
_TRANSFORM = re.compile(r"@[UuLQEAKak]\}")
_PATTERN_OPERATOR = re.compile(r"##?|%%?|/[/#%]?|\^\^?|,,?")
_IN_OPERAND = re.compile(r"[^}$`\"'\\<>]+")
_IN_PARENTHESES = re.compile(r"[()]|\$\(|\"[^\"()\\`]*\"|'[^'()]*'|['\"`\\]")
_ENDS_OF_WORD = " \t\n;&|<>()"

_DECLARATIONS = names("declare typeset local export readonly alias eval let")
_COMPOUND = names("if while until for select case { [[ function")


class NotUnderstoodError(Exception):
    """The text has something that the reader does not know, or cannot be sure of."""


class Redirect(Struct):
    """A redirection. `body` is the text of a here-document, and `quoted` means that nothing in it is expanded."""

    sign: str
    target: Word
    body: str | None = None
    quoted: bool = False
    strips_tabs: bool = False


class Simple(Struct):
    """A simple command: its assignments were noted on their own.

    `repeats` means that it is in a loop or a function, and `outermost` that it is in no function and no subshell.
    """

    words: list[Word]
    redirects: list[Redirect]
    repeats: bool
    outermost: bool


class Assign(Struct):
    """A variable is given a value. `element` means that it is an element of an array."""

    name: str
    value: Word
    element: bool = False


class Evaluate(Struct):
    """An arithmetic expression: the variables whose values the shell evaluates in it, and its other parts."""

    names: frozenset[str]
    spelled: str
    unknown: bool
    array: str = ""
    """The array of which this is a subscript; that of an associative array is no arithmetic."""


class Tested(Struct):
    """The words of `[[ … ]]`."""

    words: list[Word]


class Function(Struct):
    """A function is defined."""

    name: str


class Text(Struct):
    """A script within the script, in backquotes."""

    text: str


Item = Simple | Assign | Evaluate | Tested | Function | Redirect | Text


class Steps(Struct):
    """How many steps are left, for a script and all that is in it."""

    left: int

    def take(self, count: int = 1) -> None:
        """Count some steps.

        Raises:
            NotUnderstoodError: none are left.
        """
        self.left -= count
        if self.left < 0:
            raise NotUnderstoodError("the script is too long, or too deep, to read")


class Reader:
    """Reads one text. `items` are the parts found, in the order of the text; those of a substitution come first."""

    def __init__(self, text: str, steps: Steps, *, posix: bool = False) -> None:
        self.items: list[Item] = []
        self._text = text
        self._at = 0
        self._steps = steps
        self._posix = posix
        self._depth = 0
        self._repeating = 0
        self._inner = 0
        self._pending: list[Redirect] = []
        self._documents = 0

    def read(self) -> None:
        """Read the whole text.

        Raises:
            NotUnderstoodError: something in it is not understood; `items` are those before it.
        """
        self._list(frozenset({""}))

    # Lists and commands

    def _list(self, stops: frozenset[str]) -> str:
        """Read commands up to a word or sign that ends them, and return that."""
        self._enter()
        while True:
            stop = self._command_of_list(stops)
            if stop is not None:
                self._depth -= 1
                return stop

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise NotUnderstoodError("the script is too deep to read")

    def _command_of_list(self, stops: frozenset[str]) -> str | None:
        self._steps.take()
        self._blanks()
        text, at = self._text, self._at
        char = text[at : at + 1]
        if not char:
            if "" not in stops or self._pending:
                raise NotUnderstoodError("the script does not parse")
            return ""
        if char == "\n":
            self._newline()
            return None
        if char == "#":
            self._comment()
            return None
        if char == ")":
            if ")" not in stops:
                raise NotUnderstoodError("the script does not parse")
            self._at += 1
            return ")"
        if char == ";":
            if text.startswith((";;", ";&"), at):
                if ";;" not in stops:
                    raise NotUnderstoodError("the script does not parse")
                self._at += 3 if text.startswith(";;&", at) else 2
                return ";;"
            self._at += 1
            return None
        if char in "&|" and not text.startswith("&>", at):
            self._at += 2 if text[at : at + 2] in ("&&", "||", "|&") else 1
            self._not_joined()
            return None
        return self._command(stops)

    def _not_joined(self) -> None:
        """Refuse a sign that a continued line may make longer: bash joins the lines before it looks at signs."""
        if self._text.startswith("\\\n", self._at):
            following = self._text[self._at + 2 : self._at + 3]
            if following in tuple("&|;<>()"):
                raise NotUnderstoodError("a sign is divided by the end of a line")

    def _command(self, stops: frozenset[str]) -> str | None:
        if self._text.startswith("(", self._at):
            self._parenthesis()
            return None
        if _REDIRECT.match(self._text, self._at) or self._is_assignment():
            self._simple([])
            return None
        raw = self._word()
        plain = raw.plain
        if plain in stops:
            return plain
        if plain in _KEYWORDS:
            getattr(self, _KEYWORDS[plain])()
            return None
        if plain in ("then", "do", "done", "fi", "else", "elif", "esac", "}", "in", "]]"):
            raise NotUnderstoodError("the script does not parse")
        self._blanks()
        if self._text.startswith("(", self._at):
            self._function(raw)
            return None
        self._simple(raw.words(), raw)
        return None

    def _parenthesis(self) -> None:
        if self._text.startswith("(\\\n(", self._at):
            raise NotUnderstoodError("a sign is divided by the end of a line")
        if self._text.startswith("((", self._at) and self._closes_twice(self._at + 2):
            if self._posix:
                raise NotUnderstoodError("'((' means other things in other shells")
            self._at += 2
            self._arithmetic("))")
        else:
            self._at += 1
            self._inner += 1
            self._list(frozenset({")"}))
            self._inner -= 1
        self._redirects_of_compound()

    def _group(self) -> None:
        self._list(frozenset({"}"}))
        self._redirects_of_compound()

    def _not(self) -> None:
        if self._text.startswith("(", self._at):
            raise NotUnderstoodError("'!(' may be a pattern")

    def _if(self) -> None:
        self._list(frozenset({"then"}))
        while True:
            stop = self._list(frozenset({"elif", "else", "fi"}))
            if stop == "fi":
                break
            if stop == "elif":
                self._list(frozenset({"then"}))
        self._redirects_of_compound()

    def _while(self) -> None:
        self._repeating += 1
        self._list(frozenset({"do"}))
        self._list(frozenset({"done"}))
        self._repeating -= 1
        self._redirects_of_compound()

    def _for(self) -> None:
        self._blanks()
        if self._text.startswith("((", self._at):
            if self._posix:
                raise NotUnderstoodError("'((' means other things in other shells")
            self._at += 2
            self._arithmetic("))")
        else:
            self._loop_words()
        self._repeating += 1
        while True:
            self._separators()
            word = self._word().plain
            if word == "do":
                self._list(frozenset({"done"}))
            elif word == "{":
                self._list(frozenset({"}"}))
            else:
                raise NotUnderstoodError("the script does not parse")
            break
        self._repeating -= 1
        self._redirects_of_compound()

    def _loop_words(self) -> None:
        name = self._word().plain
        if name is None or not _NAME.fullmatch(name):
            raise NotUnderstoodError("the script does not parse")
        self._separators()
        at = self._at
        values = [Word((None,), "$@", True, (ANYTHING,))]
        if self._text.startswith("in", at) and self._text[at + 2 : at + 3] in (*_ENDS_OF_WORD, ""):
            self._at += 2
            values = []
            while True:
                self._blanks()
                char = self._text[self._at : self._at + 1]
                if char in ("", "\n", ";"):
                    break
                if char == "#":
                    self._comment()
                else:
                    values += self._word().words()
        for value in values:
            self.items.append(Assign(name, value))

    def _case(self) -> None:
        self._blanks()
        self._word()
        self._separators()
        if self._word().plain != "in":
            raise NotUnderstoodError("the script does not parse")
        while True:
            self._separators()
            if self._text.startswith("(", self._at):
                self._at += 1
                self._blanks()
                first = self._word()
            else:
                first = self._word()
                if first.plain == "esac":
                    break
            while True:
                self._blanks()
                char = self._text[self._at : self._at + 1]
                self._at += 1
                if char == ")":
                    break
                if char != "|":
                    raise NotUnderstoodError("the script does not parse")
                self._blanks()
                self._word()
            if self._list(frozenset({";;", "esac"})) == "esac":
                break
        self._redirects_of_compound()

    def _function_keyword(self) -> None:
        self._blanks()
        raw = self._word()
        self._blanks()
        if self._text.startswith("(", self._at):
            return self._function(raw)
        return self._function_body(raw)

    def _function(self, raw: RawWord) -> None:
        self._at += 1
        self._blanks()
        if raw.plain is None or not self._text.startswith(")", self._at):
            raise NotUnderstoodError("the script does not parse")
        self._at += 1
        self._function_body(raw)

    def _function_body(self, raw: RawWord) -> None:
        name = raw.plain
        if name is None:
            raise NotUnderstoodError("the script does not parse")
        self.items.append(Function(name))
        self._separators()
        self._repeating += 1
        self._inner += 1
        if self._text.startswith("(", self._at):
            self._parenthesis()
        else:
            word = self._word().plain
            if word not in _COMPOUND:
                raise NotUnderstoodError("the script does not parse")
            getattr(self, _KEYWORDS[word])()
        self._inner -= 1
        self._repeating -= 1

    def _coproc(self) -> None:
        self._blanks()
        if self._text.startswith("(", self._at):
            return self._parenthesis()
        raw = self._word()
        plain = raw.plain
        if plain in _COMPOUND:
            getattr(self, _KEYWORDS[plain])()
            return None
        self._blanks()
        if plain is not None and _NAME.fullmatch(plain):
            # It may be a name, and the command may come next.
            at = self._at
            if self._text.startswith("(", at):
                return self._parenthesis()
            following = _PLAIN.match(self._text, at)
            if self._text.startswith("{", at) or (following and following[0] in _COMPOUND):
                self.items.append(Assign(plain, Word((None,), plain, True, (ANYTHING,))))
                word = self._word().plain
                if word not in _COMPOUND:
                    raise NotUnderstoodError("the script does not parse")
                getattr(self, _KEYWORDS[word])()
                return None
        simple = self._simple(raw.words(), raw)
        if len(simple.words) > 1:
            self.items.append(Simple(simple.words[1:], simple.redirects, True, False))
        return None

    def _time(self) -> None:
        self._blanks()
        at = self._at
        if found := _TIME_OPTION.match(self._text, at):
            self._at = found.end()
            self._blanks()
        rest = _PLAIN.match(self._text, self._at)
        head = self._text[self._at : self._at + 1]
        if head in ("(", "{", "!", "[", "", "\n", ";", "&", "|") or (rest and rest[0] in _KEYWORDS):
            return
        # The program of this name, or the word of the shell: both run the words that follow.
        self._at = at
        self._simple([literal("time")])

    def _test(self) -> None:
        if self._posix:
            raise NotUnderstoodError("'[[' means other things in other shells")
        words: list[Word] = []
        while True:
            self._separators(comments=False)
            text, at = self._text, self._at
            if text.startswith("]]", at) and text[at + 2 : at + 3] in (*_ENDS_OF_WORD, ""):
                self._at += 2
                break
            char = text[at : at + 1]
            if char in ("", "#", ";", "`") and char != "`":
                raise NotUnderstoodError("the script does not parse")
            if char in "&|()<>" and not text.startswith(("<(", ">("), at):
                self._at += 1
                words.append(literal(char))
                self._steps.take()
            else:
                words.append(self._word(testing=True).word())
        self.items.append(Tested(words))
        self._redirects_of_compound()

    def _redirects_of_compound(self) -> None:
        while True:
            self._blanks()
            if not _REDIRECT.match(self._text, self._at):
                return
            self.items.append(self._redirect())

    def _simple(self, words: list[Word], first: RawWord | None = None) -> Simple:
        redirects: list[Redirect] = []
        text = self._text
        declares = bool(words) and words[0].text in _DECLARATIONS
        while True:
            self._blanks()
            at = self._at
            char = text[at : at + 1]
            if char in ("", "\n", ";", ")") or (char in "&|" and not text.startswith("&>", at)):
                break
            if char == "#":
                self._comment()
                break
            if _REDIRECT.match(text, at):
                redirects.append(self._redirect())
            elif (declares or not words) and self._is_assignment():
                word = self._assignment()
                if declares:
                    words.append(word)
            else:
                found = self._word()
                expanded = found.words() if len(words) < 2_000 else [found.word()]
                words += expanded
                self._steps.take(len(expanded) // 4)
                if text.startswith("(", self._at):
                    raise NotUnderstoodError("the script does not parse")
                if words and len(words) == 1:
                    declares = words[0].text in _DECLARATIONS
        simple = Simple(words, redirects, self._repeating > 0, self._inner == 0)
        self.items.extend(redirects)
        self.items.append(simple)
        return simple

    # Assignments

    def _is_assignment(self) -> bool:
        found = _ASSIGNMENT.match(self._text, self._at)
        if found is None:
            return False
        if found[2]:
            return True
        self._steps.take(2)
        end = self._subscript_end(found.end())
        return end is not None and self._text.startswith(("=", "+="), end)

    def _subscript_end(self, at: int) -> int | None:
        """Where a subscript ends, looked at as quickly as that can be: the characters that matter are few."""
        depth = 1
        for found in _IN_SUBSCRIPT.finditer(self._text, at, at + 2_000):
            self._steps.take()
            mark = found[0]
            if mark == "[":
                depth += 1
            elif mark == "]":
                depth -= 1
                if not depth:
                    return found.end()
            elif mark in ("$(", "`"):
                # To be read with care, if it is a subscript at all.
                rest = _SUBSCRIPT_ASSIGNED.match(self._text, found.start(), found.start() + 2_000)
                if rest is not None:
                    raise NotUnderstoodError("a subscript has something to evaluate")
                return None
            elif mark in ("\n", ";"):
                break
        # The shell reads a subscript up to its end, whatever is in it.
        raise NotUnderstoodError("a subscript is not understood")

    def _assignment(self) -> Word:
        """Read `name=value` and note it; return it as a word."""
        self._steps.take(2)
        text, start = self._text, self._at
        found = _ASSIGNMENT.match(text, start)
        assert found is not None
        name, element = found[1], not found[2]
        self._at = found.end()
        if element:
            self._arithmetic("]", array=name)
            self._at += 2 if text.startswith("+=", self._at) else 1
        if text.startswith("(", self._at):
            self._at += 1
            self._array(name)
            return Word((f"{name}=", None), text[start : self._at], False, (ANYTHING,))
        char = text[self._at : self._at + 1]
        if char == "" or (char in _ENDS_OF_WORD and not text.startswith(("<(", ">("), self._at)):
            value = Word(("",), "")
        else:
            value = self._word(after_equals=True).word()
        append = text[found.end() - 2 : found.end()] == "+="
        holes = value.holes
        if append:
            holes = (*holes, Hole("variable", name))
        self.items.append(Assign(name, Word(value.pieces, value.spelled, value.splits, holes), element))
        head = text[start : found.end()]
        return Word((head, *value.pieces), text[start : self._at], False, value.holes)

    def _array(self, name: str) -> None:
        """Read the elements of `name=(…)`."""
        if self._posix:
            raise NotUnderstoodError("an array means other things in other shells")
        while True:
            self._separators()
            text, at = self._text, self._at
            char = text[at : at + 1]
            if char == ")":
                self._at += 1
                return
            if char in ("", ";", "&", "|", "(") or (char in "<>" and not text.startswith(("<(", ">("), at)):
                raise NotUnderstoodError("the script does not parse")
            if char == "[":
                end = self._subscript_end(at + 1)
                if end is not None and text.startswith(("=", "+="), end):
                    self._at += 1
                    self._arithmetic("]", array=name)
                    self._at += 2 if text.startswith("+=", self._at) else 1
                    if text[self._at : self._at + 1] in (*_ENDS_OF_WORD, ""):
                        continue
            self.items.extend(Assign(name, word, True) for word in self._word().words())

    # Redirections

    def _redirect(self) -> Redirect:
        self._steps.take()
        found = _REDIRECT.match(self._text, self._at)
        assert found is not None
        sign = found[2]
        self._at = found.end()
        self._not_joined()
        if self._text.startswith("&", self._at) and sign in ("<", ">", ">>"):
            raise NotUnderstoodError("the script does not parse")
        if found[1] and found[1].startswith("{"):
            self.items.append(Assign(found[1][1:-1], Word((None,), found[1], False, (NUMBER,))))
        self._blanks()
        if self._text[self._at : self._at + 1] in ("", "\n"):
            raise NotUnderstoodError("the script does not parse")
        raw = self._word()
        if sign in ("<<", "<<-"):
            return self._here_document(sign, raw)
        return Redirect(sign, raw.expanded_word())

    def _here_document(self, sign: str, raw: RawWord) -> Redirect:
        self._documents += 1
        if self._documents > MOST_HERE_DOCUMENTS:
            raise NotUnderstoodError("the script has too many here-documents")
        quoted = raw.quoted
        if raw.holes or (not quoted and "$" in raw.spelled):
            raise NotUnderstoodError("the end of a here-document is not understood")
        end = "".join(piece if piece is not None else "?" for piece in raw.pieces)
        if any(piece is None for piece in raw.pieces) or "\n" in end:
            raise NotUnderstoodError("the end of a here-document is not understood")
        redirect = Redirect(sign, literal(end), quoted=quoted, strips_tabs=sign == "<<-")
        self._pending.append(redirect)
        return redirect

    def _newline(self) -> None:
        """Go over the end of a line, and read the here-documents that follow it."""
        self._at += 1
        pending, self._pending = self._pending, []
        for redirect in pending:
            self._body(redirect)

    def _body(self, redirect: Redirect) -> None:
        text, start = self._text, self._at
        end = re.escape(redirect.target.text or "")
        tabs = r"\t*" if redirect.strips_tabs else ""
        found = re.compile(rf"^{tabs}{end}$", re.M).search(text, start)
        if found is None:
            raise NotUnderstoodError("a here-document has no end")
        body = text[start : found.start()]
        self._at = min(found.end() + 1, len(text))
        if redirect.strips_tabs:
            body = re.sub(r"^\t+", "", body, flags=re.M)
        redirect.body = body
        if redirect.quoted:
            return
        if re.search(rf"\\\n{tabs}{end}$", text[: found.end()][start:], re.M) or "\\\n" in body[-2:]:
            raise NotUnderstoodError("the end of a here-document may be continued")
        if not re.search(r"[$`\\]", body):
            return
        inner = Reader(body, self._steps, posix=self._posix)
        inner._depth, inner._inner, inner._repeating = self._depth + 1, self._inner, self._repeating
        try:
            inner._document()
        finally:
            self.items.extend(inner.items)

    def _document(self) -> None:
        """Read the expansions in a here-document."""
        self._enter()
        while self._at < len(self._text):
            if found := _IN_DOCUMENT.match(self._text, self._at):
                self._at = found.end()
            self._quoted_char([], [])
        self._depth -= 1

    # Words

    def _word(self, *, testing: bool = False, after_equals: bool = False) -> RawWord:
        """Read one word, which must be there."""
        self._steps.take()
        text, start = self._text, self._at
        word = RawWord([], "", [])
        pieces, holes = word.pieces, word.holes
        while self._at < len(text):
            at = self._at
            if found := _PLAIN.match(text, at):
                pieces.append(Bare(found[0]))
                self._at = found.end()
                if len(pieces) % 4 == 0:
                    self._steps.take()
                continue
            if pieces:
                self._steps.take()
            char = text[at]
            if char in " \t\n;&|)":
                break
            if char == "(":
                if not testing and at > start and text[at - 1] in "?*+@!" and not word.quoted:
                    raise NotUnderstoodError("a pattern in parentheses is not understood")
                break
            if char in "<>":
                if not text.startswith("(", at + 1):
                    break
                self._process_substitution(word)
            elif char == "\\":
                self._escape(word)
            elif char == "'":
                self._single_quotes(word)
            elif char == '"':
                word.quoted = True
                self._at += 1
                word.splits |= self._quotes(pieces, holes)
            elif char == "$":
                word.quoted |= text.startswith(("$'", '$"'), at)
                word.splits |= self._dollar(pieces, holes, in_quotes=False)
            elif char == "`":
                self._backquotes()
                word.add_unknown()
                word.splits = True
            elif char == "~":
                if not testing and (at == start or text[at - 1] in "{,:="):
                    word.add_unknown()  # a home directory
                else:
                    pieces.append(Bare("~"))
                self._at += 1
            elif char in "*?[":
                if testing or after_equals or (char == "[" and not _BRACKETS.match(text, at)):
                    pieces.append(Bare(char))
                else:
                    word.add_unknown()
                    word.splits = True
                self._at += 1
            else:  # a brace or a comma
                pieces.append(Bare(char))
                self._at += 1
        if self._at == start:
            raise NotUnderstoodError("the script does not parse")
        if self._posix and any(isinstance(piece, Bare) and piece == "{" for piece in pieces) and len(pieces) > 1:
            raise NotUnderstoodError("braces mean other things in other shells")
        word.spelled = text[start : self._at]
        return word

    def _process_substitution(self, word: RawWord) -> None:
        """Read `<(…)` or `>(…)`, which stands for a path that is not known."""
        if self._posix:
            raise NotUnderstoodError("a process substitution means other things in other shells")
        self._at += 2
        self._substitution()
        word.add_unknown()
        word.process = True

    def _escape(self, word: RawWord) -> None:
        """Read a backslash outside of quotes, and the character after it."""
        escaped = self._text[self._at + 1 : self._at + 2]
        if escaped == "\n":
            # The lines are one, and so the word may be a reserved word, or an assignment.
            raise NotUnderstoodError("a word is divided by the end of a line")
        word.pieces.append(escaped or "\\")
        word.quoted |= bool(escaped)
        self._at += 2

    def _single_quotes(self, word: RawWord) -> None:
        """Read a string in single quotes."""
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise NotUnderstoodError("the script does not parse")
        word.pieces.append(self._text[self._at + 1 : end])
        word.quoted = True
        self._at = end + 1

    def _quotes(self, pieces: list[Piece], holes: list[Hole]) -> bool:
        """Read the rest of a string in double quotes, and return whether it may become several words."""
        splits = False
        pieces.append("")
        while True:
            if found := _IN_QUOTES.match(self._text, self._at):
                pieces.append(found[0])
                self._at = found.end()
            if self._text.startswith('"', self._at):
                self._at += 1
                return splits
            if self._at >= len(self._text):
                raise NotUnderstoodError("the script does not parse")
            splits |= self._quoted_char(pieces, holes, escapes='$`"\\')

    def _quoted_char(self, pieces: list[Piece], holes: list[Hole], escapes: str = "$`\\") -> bool:
        """Read an escape or an expansion within quotes or a here-document, if there is one here."""
        self._steps.take()
        text, at = self._text, self._at
        char = text[at : at + 1]
        if char == "\\":
            following = text[at + 1 : at + 2]
            if following != "\n":
                pieces.append(following if following and following in escapes else "\\" + following)
            self._at = min(at + 2, len(text))
        elif char == "$":
            return self._dollar(pieces, holes, in_quotes=True)
        elif char == "`":
            self._backquotes()
            pieces.append(None)
            holes.append(ANYTHING)
        return False

    # Expansions

    def _dollar(self, pieces: list[Piece], holes: list[Hole], *, in_quotes: bool) -> bool:
        """Read an expansion, and return whether it may become several words."""
        self._steps.take()
        text, at = self._text, self._at
        following = text[at + 1 : at + 2]
        if following == "\\" and text.startswith("\\\n", at + 1):
            raise NotUnderstoodError("an expansion is divided by the end of a line")
        if following == "(":
            if text.startswith("\\\n(", at + 2):
                raise NotUnderstoodError("an expansion is divided by the end of a line")
            if text.startswith("$((", at) and self._closes_twice(at + 3):
                self._at += 3
                self._arithmetic("))")
                holes.append(NUMBER)
            else:
                self._at += 2
                holes.append(NUMBER if self._substitution() else ANYTHING)
            pieces.append(None)
            return not in_quotes
        if following == "{":
            self._at += 2
            many = self._parameter(holes, in_quotes=in_quotes)
            pieces.append(None)
            return many or not in_quotes
        if following == "[":
            raise NotUnderstoodError("'$[' is not understood")
        if not in_quotes and following in ("'", '"'):
            if self._posix:
                raise NotUnderstoodError("'$' before a quote means other things in other shells")
            self._at += 2
            if following == '"':
                return self._quotes(pieces, holes)
            pieces.append(self._ansi())
            if pieces[-1] is None:
                holes.append(ANYTHING)
            return False
        found = _VARIABLE.match(text, at + 1)
        if found is None:
            pieces.append("$")
            self._at += 1
            return False
        self._at = found.end()
        pieces.append(None)
        holes.append(_hole_of(found[0]))
        return not in_quotes or found[0] == "@"

    def _ansi(self) -> Piece:
        found = _IN_ANSI.match(self._text, self._at)
        assert found is not None
        self._at = found.end() + 1
        if self._at > len(self._text):
            raise NotUnderstoodError("the script does not parse")

        def decode(match: re.Match[str]) -> str:
            two, four, eight, octal, control, letter = match.groups()
            for digits, base in ((two, 16), (four, 16), (eight, 16), (octal, 8)):
                if digits is not None:
                    return chr(int(digits, base) & (0xFF if digits in (two, octal) else 0x10FFFF))
            if control is not None:
                return "\0"
            return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else f"\\{letter}")

        decoded = _ANSI.sub(decode, found[0])
        # The shell ends such a string at a zero byte, and the meaning of other bytes depends on its locale.
        return decoded if "\0" not in decoded and (decoded.isascii() or "\\" not in found[0]) else None

    def _substitution(self) -> bool:
        """Read the commands up to a parenthesis, and return whether they can only give a number."""
        before, start = len(self.items), self._at
        self._inner += 1
        self._list(frozenset({")"}))
        self._inner -= 1
        last = self.items[-1] if len(self.items) > before else None
        if not isinstance(last, Simple) or not is_numeric(last.words):
            return False
        # Only a pipe may stand before the last command, or others would print, too.
        return not _MORE_COMMANDS.search(self._text, start, min(self._at - 1, start + 200)) and self._at - start < 200

    def _backquotes(self) -> None:
        found = _BACKQUOTES.match(self._text, self._at)
        if found is None:
            raise NotUnderstoodError("the script does not parse")
        self._steps.take(8)
        self._at = found.end()
        # In double quotes a quote may be escaped once more; the two ways to read it differ.
        if '\\"' in found[1]:
            raise NotUnderstoodError("quotes in backquotes are not understood")
        self.items.append(Text(re.sub(r"\\([$`\\])", r"\1", found[1])))

    def _parameter(self, holes: list[Hole], *, in_quotes: bool) -> bool:
        """Read the text after `${`, and return whether it may become several words even in quotes."""
        self._enter()
        text = self._text
        indirect = length = False
        at = self._at
        if text.startswith("#", at) and _LENGTH.match(text, at):
            rest = text[at + 1 : at + 3]
            if rest[:1] not in "-#?" or rest[1:] == "}":
                length = True
                self._at += 1
        elif text.startswith("!", at) and _INDIRECT.match(text, at):
            indirect = True
            self._at += 1
        found = _PARAMETER.match(text, self._at)
        if found is None:
            raise NotUnderstoodError("an expansion is not understood")
        name = found[0]
        self._at = found.end()
        element = many = False
        if text.startswith("[", self._at):
            element = True
            if text.startswith(("[@]", "[*]"), self._at):
                many = text.startswith("[@]", self._at)
                self._at += 3
            else:
                self._at += 1
                self._arithmetic("]", array=name)
        many |= name == "@"
        if indirect and not (many or text.startswith(("[*]", "*}", "@}"), self._at - (3 if element else 0))):
            raise NotUnderstoodError("an expansion evaluates the value of a variable")
        self._operator(name, holes, in_quotes=in_quotes, length=length, element=element)
        self._depth -= 1
        return many

    def _operator(self, name: str, holes: list[Hole], *, in_quotes: bool, length: bool, element: bool) -> None:
        text, at = self._text, self._at
        hole = ANYTHING if element else _hole_of(name)
        if text.startswith("}", at):
            self._at += 1
            holes.append(NUMBER if length else hole)
            return
        if length:
            raise NotUnderstoodError("an expansion is not understood")
        if text.startswith(("*}", "@}"), at):
            self._at += 2
            holes.append(ANYTHING)
            return
        found = _DEFAULT.match(text, at)
        if found is not None:
            self._at = found.end()
            start = self._at
            pieces, inner = self._operand(in_quotes=in_quotes)
            value = Word(tuple(pieces) or ("",), text[start : self._at - 1], True, tuple(inner))
            known = value.text
            holes.extend((hole, Hole("text", known)) if known is not None else (hole, *inner))
            if "=" in found[0]:
                self.items.append(Assign(name, value, element))
            return
        if text.startswith("@", at):
            if not _TRANSFORM.match(text, at):
                raise NotUnderstoodError("an expansion evaluates the value of a variable")
            self._at += 3
        elif text.startswith(":", at):
            self._at += 1
            self._arithmetic("}")
        elif found := _PATTERN_OPERATOR.match(text, at):
            self._at = found.end()
            self._operand(in_quotes=in_quotes)
        else:
            raise NotUnderstoodError("an expansion is not understood")
        holes.append(ANYTHING)

    def _operand(self, *, in_quotes: bool) -> tuple[list[Piece], list[Hole]]:
        """Read the word in `${name:-word}` or a pattern, up to the brace."""
        text = self._text
        pieces: list[Piece] = []
        holes: list[Hole] = []
        while True:
            self._steps.take()
            if found := _IN_OPERAND.match(text, self._at):
                pieces.append(found[0])
                self._at = found.end()
            at = self._at
            char = text[at : at + 1]
            if char == "}":
                self._at += 1
                return pieces, holes
            if char == "":
                raise NotUnderstoodError("the script does not parse")
            if char in "<>":
                if text.startswith("(", at + 1):
                    raise NotUnderstoodError("a process substitution in an expansion is not understood")
                pieces.append(char)
                self._at += 1
            elif char == "'":
                end = text.find("'", at + 1)
                inner = text[at + 1 : end]
                # Within double quotes, whether this is a quote depends on the operator.
                if end < 0 or (in_quotes and re.search(r"[}$`\"\\]", inner)):
                    raise NotUnderstoodError("quotes in an expansion are not understood")
                pieces.append(inner)
                self._at = end + 1
            elif char == '"':
                self._at += 1
                inside: list[Piece] = []
                self._quotes(inside, holes)
                if in_quotes and any(piece and re.search("[}']", piece) for piece in inside):
                    raise NotUnderstoodError("quotes in an expansion are not understood")
                pieces += inside
            elif char == "\\":
                pieces.append(None if text[at + 1 : at + 2] != "\n" else "")
                self._at += 2
            elif char == "$":
                self._dollar(pieces, holes, in_quotes=in_quotes)
            else:
                self._backquotes()
                pieces.append(None)
                holes.append(ANYTHING)

    # Arithmetic

    def _closes_twice(self, at: int) -> bool:
        """True when the parentheses that were opened together are closed together: then it is arithmetic.

        Raises:
            NotUnderstoodError: that depends on quotes or on nested text.
        """
        depth = 2
        text = self._text
        for found in _IN_PARENTHESES.finditer(text, at, at + 4_000):
            self._steps.take()
            mark = found[0]
            if mark in ("(", "$("):
                depth += 1
            elif mark == ")":
                depth -= 1
                if depth == 1:
                    return text.startswith("))", found.start())
            elif len(mark) == 1 or (mark[0] == "'" and depth == 2):
                raise NotUnderstoodError("quotes within parentheses are not understood")
        raise NotUnderstoodError("parentheses are not understood")

    def _arithmetic(self, end: str, array: str = "") -> None:
        """Read an arithmetic expression up to its end, and note the variables that are evaluated in it."""
        self._enter()
        text, start = self._text, self._at
        known: list[str] = []
        holes: list[Hole] = []
        pieces: list[Piece] = []
        depth, unknown = 0, False
        closing = end[0]
        opening = {")": "(", "]": "[", "}": "{"}[closing]
        while True:
            self._steps.take()
            if found := _ARITHMETIC.match(text, self._at):
                known.append(found[0])
                self._at = found.end()
            at = self._at
            char = text[at : at + 1]
            if char == "" or (char == ";" and end != "))"):
                raise NotUnderstoodError("the script does not parse")
            if char == closing and depth == 0:
                if not text.startswith(end, at):
                    raise NotUnderstoodError("arithmetic is not understood")
                self._at += len(end)
                break
            if char == "$":
                self._dollar(pieces, holes, in_quotes=True)
                known.append(" ")
            elif char == "`":
                self._backquotes()
                unknown = True
            elif char == '"':
                self._at += 1
                inside: list[Piece] = []
                self._quotes(inside, holes)
                known.append(" ".join(piece or " " for piece in inside))
            elif char in "'\\":
                if not array:
                    raise NotUnderstoodError("quotes in arithmetic are not understood")
                finish = at + 2 if char == "\\" else text.find("'", at + 1) + 1
                if finish <= at or re.search(r"[$`]", text[at:finish]):
                    raise NotUnderstoodError("a subscript has something to evaluate")
                known.append(text[at + 1 : finish].strip("'"))
                self._at = finish
            else:
                depth += (char == opening) - (char == closing)
                known.append(char)
                self._at += 1
        variables = {name for chunk in known for name in _IDENTIFIER.findall(chunk)}
        for hole in holes:
            if hole.kind == "variable":
                variables.add(hole.name)
            elif hole.kind == "text":
                variables.update(_IDENTIFIER.findall(hole.name))
                unknown |= bool(re.search(r"[\[$`]", hole.name))
            else:
                unknown |= hole.kind == "anything"
        self.items.append(Evaluate(frozenset(variables), text[start : self._at - len(end)][:60], unknown, array))
        self._depth -= 1

    # Blanks

    def _blanks(self) -> None:
        found = _BLANK.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _comment(self) -> None:
        found = _COMMENT.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _separators(self, *, comments: bool = True) -> None:
        """Go over blanks, ends of lines, comments and semicolons."""
        while True:
            self._blanks()
            char = self._text[self._at : self._at + 1]
            if char == "\n":
                self._steps.take()
                self._newline()
            elif char == ";" and comments and not self._text.startswith((";;", ";&"), self._at):
                self._at += 1
            elif char == "#" and comments:
                self._comment()
            else:
                return


_KEYWORDS: dict[str, str] = {
    "if": "_if",
    "while": "_while",
    "until": "_while",
    "for": "_for",
    "select": "_for",
    "case": "_case",
    "{": "_group",
    "[[": "_test",
    "!": "_not",
    "function": "_function_keyword",
    "coproc": "_coproc",
    "time": "_time",
}


def _hole_of(name: str) -> Hole:
    if name in ("#", "?", "$", "!"):
        return NUMBER
    if _NAME.fullmatch(name) and name != "_":
        return Hole("variable", name)
    return ANYTHING


def is_numeric(words: list[Word]) -> bool:
    """True for a command that prints nothing but a number."""
    texts = [word.text for word in words]
    name, rest = (texts[0] if texts else None), texts[1:]
    if name == "nproc":
        return True
    if name == "wc":
        return all(text in ("-l", "-c", "-w", "-m") for text in rest) and len(rest) == 1
    if name == "date":
        return len(rest) == 1 and bool(re.fullmatch(r"\+(?:%[sYmdHMSjuwN])+", rest[0] or ""))
    if name == "id":
        return rest in (["-u"], ["-g"])
    if name == "grep":
        return len(rest) > 1 and rest[0] == "-c" and len(rest) <= 3 and not any(word.splits for word in words)
    return False
