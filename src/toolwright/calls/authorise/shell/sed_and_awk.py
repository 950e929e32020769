"""Programs of sed and awk. Owns the commands and writes of such a program, as far as they can be read here.

Both are read whole, token by token, within the step limit of their script. A program that is not understood may run
commands.
"""

from __future__ import annotations

import re

from msgspec import Struct

from toolwright.calls.authorise.shell.reader import Steps


class Program(Struct):
    """The effects of a program. `runs` means that it may run commands, or is not understood; None among writes is
    unknown."""

    runs: bool = False
    writes: list[str | None] = []


_SPACES = re.compile(r"\s*")
_SED_OFFSET = re.compile(r"[+~]\d+")
_SED_NOT = re.compile(r"[\s!]*")
_SED_FLAGS = re.compile("[IM]*")
_SED_CODE = re.compile(r"[ \t]*\d*")
_SED_SUBSTITUTE_FLAGS = re.compile(r"[gpiIMm0-9]*")
_SED_END = re.compile(r"[ \t]*(?:[;}#\n]|$)")
_AWK_TARGET = re.compile(r"[ \t]*\"([^\"\\\n]*)\"[ \t]*(?=[;}\n]|$)")
_SED_BLANKS = re.compile(r"[\s;]*")
_SED_NUMBER = re.compile(r"\d+(?:~\d+)?|\$")
_SED_LABEL = re.compile(r"[ \t]*[^\n;}]*")
_SED_LINE = re.compile(r"[^\n]*")
_SED_TEXT = re.compile(r"(?:[^\\\n]|\\.)*", re.S)


class _NotUnderstoodError(Exception):
    """Something in a program is not understood."""


def read_sed(text: str, steps: Steps) -> Program:
    """The effects of a sed script."""
    program = Program(writes=[])
    try:
        at = 0
        while (at := _skip(_SED_BLANKS, text, at)) < len(text):
            steps.take(3)
            at = _sed_command(text, _sed_addresses(text, at), program)
    except (_NotUnderstoodError, IndexError):
        program.runs = True
    return program


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _sed_addresses(text: str, at: int) -> int:
    at = _sed_address(text, at)
    at = _skip(_SPACES, text, at)
    if text.startswith(",", at):
        at = _skip(_SPACES, text, at + 1)
        found = _SED_OFFSET.match(text, at)
        at = found.end() if found is not None else _sed_address(text, at)
    return _skip(_SED_NOT, text, at)


def _sed_address(text: str, at: int) -> int:
    if found := _SED_NUMBER.match(text, at):
        return found.end()
    if text[at] == "/" or (text[at] == "\\" and at + 1 < len(text)):
        start = at + 1 if text[at] == "/" else at + 2
        return _skip(_SED_FLAGS, text, _sed_pattern(text, start, text[start - 1]))
    return at


def _sed_pattern(text: str, at: int, end: str) -> int:
    """Where a pattern ends. Within brackets its end may stand for itself: such a pattern is not understood."""
    if end in "\n\\":
        raise _NotUnderstoodError
    found = re.compile(rf"(?:[^\\\n{re.escape(end)}]|\\.)*", re.S).match(text, at)
    if found is None or not text.startswith(end, found.end()):
        raise _NotUnderstoodError
    inside = re.sub(r"\\.", "", found[0], flags=re.S)
    if inside.count("[") > inside.count("]"):
        raise _NotUnderstoodError
    return found.end() + 1


def _sed_command(text: str, at: int, program: Program) -> int:
    command = text[at]
    at += 1
    if command in "{}=dDgGhHnNpPxzF":
        return at
    if command == "#":
        return _skip(_SED_LINE, text, at)
    if command in "qQlL":
        return _skip(_SED_CODE, text, at)
    if command in ":btT":
        return _skip(_SED_LABEL, text, at)
    if command in "aic":
        return _skip(_SED_TEXT, text, at)
    if command in "rR":
        return _skip(_SED_LINE, text, at)
    if command in "wW":
        return _sed_file(text, at, program)
    if command in "sy":
        end = text[at]
        at = _sed_pattern(text, at + 1, end)
        at = _sed_replacement(text, at, end)
        if command == "y":
            return at
        found = _SED_SUBSTITUTE_FLAGS.match(text, at)
        assert found is not None
        at = found.end()
        if text.startswith("w", at):
            return _sed_file(text, at + 1, program)
        if not _SED_END.match(text, at):
            raise _NotUnderstoodError  # the flag e, among others
        return at
    raise _NotUnderstoodError  # the command e, among others


def _sed_replacement(text: str, at: int, end: str) -> int:
    found = re.compile(rf"(?:[^\\{re.escape(end)}]|\\.)*", re.S).match(text, at)
    if found is None or not text.startswith(end, found.end()):
        raise _NotUnderstoodError
    return found.end() + 1


def _sed_file(text: str, at: int, program: Program) -> int:
    end = _skip(_SED_LINE, text, at)
    program.writes.append(text[at:end].strip())
    return end


_AWK_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\\\r?\n|#[^\n]*)|(?P<newline>\n)|(?P<string>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>>>|\|\||&&|\|&|[<>=!]=|\+\+|--|\*\*=?|[-+*%^]=|[-{}()\[\];,+*%^!<>|?:~$=])|(?P<slash>/)",
    re.S,
)
_AWK_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]\\\n]|\\.)*\])*/")
_AWK_SLASH = re.compile(r"[^/\n]{0,200}/|[^/\n]{201}")
_AWK_OPERATORS = frozenset(["return", "case", "print", "printf", "getline", "in"])


def read_awk(text: str, steps: Steps) -> Program:
    """The effects of an awk program."""
    program = Program(writes=[])
    at, before, kind_before = 0, "", ""
    depth, printing, print_depth = 0, False, 0
    while at < len(text):
        steps.take()
        found = _AWK_TOKEN.match(text, at)
        if found is None:
            program.runs = True
            return program
        kind, token = found.lastgroup, found[0]
        if kind == "blank":
            at = found.end()
            continue
        if kind == "slash":
            divides = kind_before in ("number", "string") or (kind_before == "name" and before not in _AWK_OPERATORS)
            divides |= before in (")", "]", "$")
            if before == ")" and _AWK_SLASH.match(text, at + 1):
                program.runs = True  # it may begin a pattern
                return program
            if not divides:
                pattern = _AWK_REGEX.match(text, at)
                if pattern is None:
                    program.runs = True
                    return program
                at, before, kind_before = pattern.end(), "/", "string"
                continue
        if token in ("system", "|", "|&") or (kind == "name" and token in ("extension", "eval")):
            program.runs = True
            return program
        at = found.end()
        if token in ("print", "printf"):
            printing, print_depth = True, depth
        elif token in ("(", "["):
            depth += 1
        elif token in (")", "]"):
            depth -= 1
        elif token in (";", "{", "}") or kind == "newline":
            printing = False
        elif token in (">", ">>") and printing and depth <= print_depth:
            target = _AWK_TARGET.match(text, at)
            program.writes.append(None if target is None else target[1])
        before, kind_before = token, kind or ""
    return program
