"""Commands that run commands or scripts. Owns what is known of each by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolwright.calls.shell.options import WRAPPERS
from toolwright.calls.shell.runners import RUNNERS, look_into_runner, read_text
from toolwright.calls.shell.words import UNKNOWN, Word, literal, names, word_of
from toolwright.calls.shell.writing import note_writes

if TYPE_CHECKING:
    from toolwright.calls.shell.script import Script

SHELLS = names("bash sh dash zsh ksh mksh ash rbash csh tcsh fish exe")
"""Shells; `/proc/self/exe` is the one that calls it."""
_SHELL_VALUED = names("-o +o -O +O --rcfile --init-file")
# They run what can not be read here: elsewhere, later, from a file, or in a way of their own.
_OPAQUE = names(
    "source . parallel rush su runuser ssh at batch crontab script expect screen tmux unshare nsenter systemd-run"
    " bwrap firejail proot strace ltrace gdb complete compgen bind enable fc ed ex nix-shell"
    " dtach abduco pwsh powershell"
)
_INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|osascript|Rscript)[\d.]*"
)
_CODE = re.compile(r"-[a-zA-Z]*[ceErpn].*|--eval\b.*|--execute\b.*|--print\b.*|-|eval", re.S)
_AWK = re.compile(r"system|\|.*\"|\".*\||@load|\|&", re.S)
_SED = re.compile(r"(?:^|[;{}\n\d$/])\s*e(?:\s|$)|[/|,#!@:_][gpIiMm\d]*e[gpIiMm\d]*\s*(?:;|\}|\n|$)")
_TAR = re.compile(r"--(?:to-command|checkpoint-action|use-compress-program|rsh-command|info-script|new-volume-script)")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_EXEC = names("-exec -execdir -ok -okdir")


def look_into(script: Script, name: str, words: Sequence[Word], fed: Sequence[Any]) -> None:
    """Add what a command runs and writes in turn."""
    if name in SHELLS:
        _shell(script, name, words, fed)
    elif name in _SPECIAL:
        _SPECIAL[name](script, words)
    elif name in WRAPPERS:
        _wrapper(script, name, words)
    elif name in RUNNERS:
        look_into_runner(script, name, words)
    elif name in _OPAQUE:
        script.doubt(f"what {name!r} runs can not be known")
    elif _INTERPRETERS.fullmatch(name) and _has_code(words):
        script.doubt(f"code for {name!r} can not be read here")
    note_writes(script, name, words)


def _has_code(words: Sequence[Word]) -> bool:
    """True when an interpreter of another language is given its program on the command line or on its input."""
    return len(words) == 1 or any(_CODE.fullmatch(word.text or "-") for word in words[1:])


def _wrapper(script: Script, name: str, words: Sequence[Word]) -> None:
    found = WRAPPERS[name].skip(words)
    if found is None:
        return script.doubt(f"the options of {name!r} are not understood")
    at, given = found
    inner = list(words[at:])
    if (name == "command" and given & {"v", "V"}) or (name == "jobs" and "x" not in given):
        return None
    for option in given:
        variable, equals, value = option.partition("=")
        if equals:
            script.assign(variable, literal(value))
    if name == "xargs":
        return _xargs(script, words, given, inner)
    if name == "watch":
        return read_text(script, inner, "watch")
    if name == "flock" and inner and inner[0].text in ("-c", "--command"):
        return read_text(script, inner[1:2], "flock -c")
    return script.run(inner) if inner else None


def _xargs(script: Script, words: Sequence[Word], given: set[str], inner: list[Word]) -> None:
    if not inner:
        return
    if given & {"I", "J", "R", "i", "replace"}:
        # What it replaces is taken from its options by looking for it: "{}" unless it says otherwise.
        marks = {"{}", *(word.text or "{}" for word in words[1:-1] if word not in inner)}
        inner = [UNKNOWN if any(_has(word, mark) for mark in marks if len(mark) > 0) else word for word in inner]
    else:
        inner.append(UNKNOWN)
    script.run(inner)


def _has(word: Word, mark: str) -> bool:
    return mark in word.spelled or mark in (word.text or "")


def _coproc(script: Script, words: Sequence[Word]) -> None:
    script.run(words[1:])
    script.run(words[2:])  # the first may have been a name


def _find(script: Script, words: Sequence[Word]) -> None:
    at = 1
    while at < len(words):
        word, text = words[at], words[at].text
        before = words[at - 1].text or ""
        if text in _EXEC:
            end = next((i for i in range(at + 1, len(words)) if words[i].text in (";", "+")), len(words))
            script.run([UNKNOWN if _has(inner, "{}") else inner for inner in words[at + 1 : end]])
            at = end
        elif text is None and ((word.splits and not _is_pattern(word)) or (at > 1 and not before.startswith("-"))):
            script.doubt(f"{word.spelled[:40]!r} may be an option of find that runs commands")
        at += 1


def _is_pattern(word: Word) -> bool:
    """True for a word with a pattern that can not find an option, as `src/*` can not."""
    return bool(word.start) and not word.start.startswith("-") and "$" not in word.spelled and "`" not in word.spelled


def _fd(script: Script, words: Sequence[Word]) -> None:
    for at, word in enumerate(words):
        if word.text in ("-x", "-X", "--exec", "--exec-batch"):
            return script.run([UNKNOWN if _has(inner, "{") else inner for inner in words[at + 1 :]])
        if at and (word.text is None or word.text.startswith(("-x", "-X", "--exec"))):
            script.doubt(f"{word.spelled[:40]!r} may be an option of fd that runs commands")
    return None


def _eval(script: Script, words: Sequence[Word]) -> None:
    rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
    read_text(script, rest, "eval")


def _trap(script: Script, words: Sequence[Word]) -> None:
    rest = [word for word in words[1:] if word.text != "--"]
    if rest and rest[0].text not in ("-", "", "-l", "-p"):
        read_text(script, rest[:1], "trap")


def _alias(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        _, equals, value = (word.text or "").partition("=")
        if word.text is None:
            script.doubt(f"the alias {word.spelled[:40]!r} is known only when it runs")
        elif equals:
            script.read(value)


def _shell(script: Script, name: str, words: Sequence[Word], fed: Sequence[Any]) -> None:
    at = 1
    while at < len(words):
        text = words[at].text
        if text is None:
            return script.doubt(f"what {name!r} runs is known only when it runs")
        if text in ("--version", "--help"):
            return None
        if text.startswith("-") and not text.startswith("--") and "c" in text[1:]:
            at += 1
            # More options may follow before the script.
            while at < len(words) and (words[at].text or "")[:1] in ("-", "+") and len(words[at].text or "") > 1:
                at += 2 if words[at].text in _SHELL_VALUED else 1
            return read_text(script, words[at : at + 1], f"{name} -c")
        if text in ("-s", "-", "--") or not text.startswith(("-", "+")):
            break
        at += 2 if text in _SHELL_VALUED or re.fullmatch(r"-[a-zA-Z]*o", text) else 1
    if at < len(words) and words[at].text not in ("-s", "-"):
        return script.doubt(f"the file that {name!r} runs can not be read here")
    return _fed(script, name, fed)


def _fed(script: Script, name: str, fed: Sequence[Any]) -> None:
    """Read the script that a shell is given on its input."""
    for redirect in reversed(fed):
        if redirect.type == "herestring_redirect":
            return read_text(script, [word_of(redirect.named_children[-1])], name)
        if redirect.type == "heredoc_redirect":
            body = next((child for child in redirect.named_children if child.type == "heredoc_body"), None)
            start = next((child for child in redirect.named_children if child.type == "heredoc_start"), None)
            quoted = start is not None and re.search(rb"['\"\\]", start.text)
            if body is None or (not quoted and re.search(rb"[$`\\]", body.text)):
                return script.doubt(f"what {name!r} is given is known only when it runs")
            return script.read(body.text.decode())
        if redirect.type == "file_redirect" and b"<" in redirect.text:
            break
    return script.doubt(f"what {name!r} reads can not be known")


def _awk(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        if (
            word.text is None
            or word.text.startswith(("-f", "--file", "-i", "-l", "-E", "--exec"))
            or _AWK.search(word.text)
        ):
            # A value of `-v`, or a file, may well be unknown; a program may not.
            if word.text is None and not _could_be_program(word, words):
                continue
            return script.doubt("what 'awk' runs is known only when it runs")
    return None


def _could_be_program(word: Word, words: Sequence[Word]) -> bool:
    plain = [item for item in words[1:] if not item.start.startswith("-")]
    return word.splits or not plain or plain[0] is word


def _sed(script: Script, words: Sequence[Word]) -> None:
    named = any(re.match(r"-[a-zA-Z]*e|--expression", word.start) for word in words[1:])
    scripts = 0 if named else 1  # how many of the words to come are scripts
    for word in words[1:]:
        if re.match(r"-[a-zA-Z]*f|--file", word.start):
            return script.doubt("what 'sed' runs is in a file")
        known = word.start if word.text is None else word.text
        if (found := re.match(r"(?:-[a-zA-Z]*?e|--expression=?)(.*)", known, re.S)) is not None:
            if found[1] or word.text is None:
                _sed_script(script, word, found[1])
            else:
                scripts = 1
        elif not word.start.startswith("-") and (scripts or word.splits):
            _sed_script(script, word, known)
            scripts = 0
    return None


def _sed_script(script: Script, word: Word, known: str) -> None:
    if word.text is None:
        script.doubt(f"the sed script {word.spelled[:40]!r} is known only when it runs")
    elif _SED.search(known):
        script.doubt(f"the sed script {word.text[:40]!r} may run commands")


def _tar(script: Script, words: Sequence[Word]) -> None:
    if any(_TAR.match(word.text or "--to-command") or (word.text or "").startswith("-I") for word in words[1:]):
        script.doubt("an option of 'tar' may run commands")


def _hash(script: Script, words: Sequence[Word]) -> None:
    if any(word.text is None or (word.text.startswith("-") and "p" in word.text) for word in words[1:]):
        script.doubt("'hash' may give a name to another program")


def _mapfile(script: Script, words: Sequence[Word]) -> None:
    if any(word.text is None or re.match("-[a-zA-Z]*C", word.text) for word in words[1:]):
        script.doubt("'mapfile' may run commands")


def _declare(script: Script, words: Sequence[Word]) -> None:
    """`export NAME=value` and its like, whose words may be quoted, or known only when they run."""
    if any(re.match("-[a-zA-Z]*n", word.start) for word in words[1:]) and words[0].text not in ("export", "readonly"):
        for word in words[1:]:
            name = word.spelled.partition("=")[2].strip("'\"")
            script.assign(name, UNKNOWN)  # another name for that one
    for word in words[1:]:
        # An assignment that is written as one was seen already.
        if not _ASSIGNED.match(word.spelled) and not word.start.startswith("-"):
            name, equals, value = word.start.partition("=")
            if word.text is None and not equals:
                script.doubt(f"which variable {word.spelled[:40]!r} sets is known only when it runs")
            elif equals:
                script.assign(re.split(r"[\[+]", name)[0], literal(value) if word.text is not None else UNKNOWN)


def _read(script: Script, words: Sequence[Word]) -> None:
    """Commands that set the variables they name."""
    for word in words[1:]:
        script.assign(word.start, UNKNOWN)


def _cd(script: Script, words: Sequence[Word]) -> None:
    targets = [word for word in words[1:] if word.text not in ("-L", "-P", "-e", "-@", "--")]
    script.directories.append(targets[0] if targets and targets[0].text != "-" else UNKNOWN)


_SPECIAL: dict[str, Callable[[Script, Sequence[Word]], None]] = {
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    "coproc": _coproc,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("tar", "bsdtar"), _tar),
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _declare),
    **dict.fromkeys(("read", "printf", "getopts"), _read),
    "hash": _hash,
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    **dict.fromkeys(("cd", "pushd", "popd"), _cd),
}
