"""Commands that write files. Owns which of their words are paths that are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING

from toolwright.calls.shell.words import Word, literal, names

if TYPE_CHECKING:
    from toolwright.calls.shell.script import Script

_ALL = names(
    "tee touch mkdir rmdir unlink truncate shred mkfifo mknod sponge rename patch mktemp fallocate chattr setfacl"
)
_TREES = names("rm mv")
"""What they do to a directory, they do to all that is in it."""
_MODES = names("chmod chown chgrp")
_PACKERS = names("gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma compress uncompress")
_LAST = names("cp ln install rsync split xxd cpio")
_COMPILERS = names("gcc g++ cc c++ clang ld rustc")
"""Their letters can not be bundled: `-flto` is one option."""
_OPTIONS: dict[str, tuple[str, ...]] = {
    "sort": ("-o", "--output"),
    "curl": ("-o", "--output", "--output-dir"),
    "wget": ("-O", "--output-document", "-P", "--directory-prefix", "-o", "--output-file"),
    "unzip": ("-d",),
    "patch": ("-d", "--directory", "-o", "--output"),
    "csplit": ("-f", "--prefix"),
    "mktemp": ("-p", "--tmpdir"),
    **dict.fromkeys(("cp", "ln", "install", "mv"), ("-t", "--target-directory")),
    **dict.fromkeys(_COMPILERS, ("-o",)),
    "openssl": ("-out",),
    "iconv": ("-o", "--output"),
    "ssh-keygen": ("-f",),
    "cpio": ("-D", "--directory", "-O", "-F", "--file"),
}
"""Options whose value is written."""
_FIND = names("-fprint -fprint0 -fls -fprintf")
_SED = re.compile(r"(?:^|[;{}\n\d$/])\s*[wW]\s+([^\s;}]+)|[/|,#!@:_][gpIiMm\d]*w\s+([^\s;}]+)")
_AWK = re.compile(r"print[^;}]*?>>?\s*(?:\"([^\"]*)\"|([^\s\d\"=]))")
_EXTRACTS = re.compile(r"-?[a-zA-Z]*x[a-zA-Z]*|--extract|--get")


def note_writes(script: Script, name: str, words: Sequence[Word]) -> None:
    """Note what a command writes, by what is known of it."""
    rest = [word for word in words[1:] if not word.start.startswith("-")]
    letters = {letter for word in words[1:] if re.match("-[a-zA-Z]", word.start) for letter in word.start}
    below = name in _TREES or (name in _MODES and "R" in letters) or "--recursive" in {word.text for word in words}
    if name in _ALL or name in _TREES or name in _MODES or (name in _PACKERS and not letters & {"c", "t", "l"}):
        for word in rest:
            script.write(word, below=below)
    elif name in _LAST and rest and (name not in ("split", "xxd") or len(rest) > 1):
        # Braces may have made several words of the last: any of them is taken for it.
        for word in rest:
            if word.spelled == rest[-1].spelled:
                script.write(word)
    elif name == "dd":
        for word in words[1:]:
            if word.start.startswith("of=") or word.text is None:
                script.write(_after(word, "of="))
    elif name in ("sed", "gsed"):
        _sed(script, words)
    elif name in ("awk", "gawk", "mawk", "nawk"):
        _awk(script, words)
    elif name in ("tar", "bsdtar"):
        _tar(script, words)
    elif name == "find":
        _find(script, words)
    elif name == "git":
        _git(script, rest)
    options = _OPTIONS.get(name, ())
    _by_option(script, options, words)
    if name not in _COMPILERS:
        _bundled(script, {option[1] for option in options if len(option) == 2}, words)


def _by_option(script: Script, options: tuple[str, ...], words: Sequence[Word]) -> None:
    for at, word in enumerate(words[1:], 1):
        for option in options:
            if word.text == option:
                for value in words[at + 1 : at + 2]:
                    script.write(value)
            elif word.start.startswith(f"{option}="):
                script.write(_after(word, f"{option}="))
            elif not option.startswith("--") and word.start.startswith(option):
                script.write(_after(word, option))


def _bundled(script: Script, letters: set[str], words: Sequence[Word]) -> None:
    """Note what an option writes that follows others in one word, as in `curl -so file`."""
    for at, word in enumerate(words[1:], 1):
        for letter in letters:
            if (found := re.match(f"-[a-zA-Z]+?{letter}", word.start)) is None:
                continue
            if word.text == found[0]:
                for value in words[at + 1 : at + 2]:
                    script.write(value)
            elif word.text is None or "/" in word.text:
                script.write(_after(word, found[0]))


def _sed(script: Script, words: Sequence[Word]) -> None:
    in_place = any(re.match(r"-[a-zA-Z]*i|--in-place", word.start) for word in words[1:])
    for word in words[1:]:
        if in_place and not word.start.startswith("-"):
            script.write(word)
        for found in _SED.finditer(word.text or ""):
            script.write(literal(found[1] or found[2]))


def _awk(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        for found in _AWK.finditer(word.text or ""):
            script.write(literal(found[1]) if found[1] else Word((None,), found[0]))


def _tar(script: Script, words: Sequence[Word]) -> None:
    if any(_EXTRACTS.fullmatch(word.text or "") for word in words[1:]):
        _by_option(script, ("-C", "--directory"), words)
    elif len(words) > 2 and re.fullmatch("-?[a-zA-Z]*f", words[1].text or ""):
        script.write(words[2])


def _find(script: Script, words: Sequence[Word]) -> None:
    for word, following in pairwise(words):
        if word.text in _FIND:
            script.write(following)
    if any(word.text == "-delete" for word in words):
        begins = list(takewhile(lambda word: not word.start.startswith(("-", "(", "!")), words[1:]))
        for word in begins or [literal(".")]:
            script.write(word, below=True)


def _git(script: Script, rest: Sequence[Word]) -> None:
    texts = [word.text for word in rest]
    for verb, operands in (("clone", 1), ("init", 0)):
        if verb in texts:
            for word in rest[texts.index(verb) + 1 + operands :]:
                script.write(word)


def _after(word: Word, head: str) -> Word:
    """What follows the beginning of a word, such as the `=` of an option."""
    if word.text is not None:
        return literal(word.text.removeprefix(head))
    return Word((word.start.removeprefix(head), *dropwhile(lambda piece: piece is not None, word.pieces)), word.spelled)
