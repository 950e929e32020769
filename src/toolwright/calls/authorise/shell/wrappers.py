"""Commands that run commands or scripts. Owns the rules for each by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from toolwright.calls.authorise.shell.options import AWK, SED, SHELL, TAR, WRAPPERS, Options
from toolwright.calls.authorise.shell.programs import BUILTINS, INTERPRETERS, LOADERS, OPAQUE, READERS, SHELLS, TALKERS
from toolwright.calls.authorise.shell.reader import Redirect
from toolwright.calls.authorise.shell.script import Script
from toolwright.calls.authorise.shell.sed_and_awk import read_awk, read_sed
from toolwright.calls.authorise.shell.subcommands import RUNNERS, look_into_runner
from toolwright.calls.authorise.shell.variables import read_text
from toolwright.calls.authorise.shell.words import ANYTHING, NUMBER, UNKNOWN, Hole, Word, after, literal, names
from toolwright.calls.authorise.shell.written_paths import WRITERS, note_writes

_EXEC = names("-exec -execdir -ok -okdir")
_FIND_ALONE = names(
    "-a -and -o -or -not ! ( ) , -P -L -H -O0 -O1 -O2 -O3 -empty -print -print0 -ls -prune -quit -delete -depth -d"
    " -mount -xdev -daystart -noleaf -follow -true -false -readable -writable -executable -nouser -nogroup -warn"
    " -nowarn -ignore_readdir_race -noignore_readdir_race -help --help -version --version"
)
_FIND_VALUED = names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -lname -ilname -type -xtype -size"
    " -mtime -atime -ctime -mmin -amin -cmin -newer -anewer -cnewer -perm -user -group -uid -gid -links -inum -samefile"
    " -maxdepth -mindepth -fstype -context -used -printf -fprint -fprint0 -fls -D -files0-from"
)
_SET_NAMES = names(
    "allexport braceexpand errexit errtrace functrace hashall ignoreeof monitor noclobber noexec noglob nolog notify"
    " nounset onecmd physical pipefail posix privileged verbose xtrace vi emacs"
)
_SHOPT = names(
    "checkhash checkjobs checkwinsize cmdhist direxpand dirspell dotglob execfail failglob globasciiranges globskipdots"
    " globstar gnu_errfmt histappend hostcomplete huponexit inherit_errexit lastpipe lithist localvar_inherit"
    " nocaseglob nocasematch nullglob progcomp shift_verbose xpg_echo extglob"
)
_MODULES = names(
    "code timeit pdb idlelib asyncio IPython ipython cProfile profile trace runpy doctest ptpython bpython"
)
_PYTHON = Options("bBdEIOPqsSuvVx", "WX", long="help version", long_valued="check-hash-based-pycs")
_SUBCOMMANDS = names("eval exec x dlx repl task inspect")
_VERSIONS = names("-V --version -v --help -h -version")


def is_known(name: str) -> bool:
    """True when something is known of the program of this name."""
    return (
        name in READERS
        or name in BUILTINS
        or name in WRAPPERS
        or name in RUNNERS
        or name in OPAQUE
        or name in TALKERS
        or name in WRITERS
        or name in _SPECIAL
        or bool(SHELLS.fullmatch(name) or INTERPRETERS.fullmatch(name))
    )


def look_into(
    script: Script, name: str, words: Sequence[Word], fed: Sequence[Redirect], outermost: bool = False
) -> None:
    """Add the commands and writes of a command."""
    if SHELLS.fullmatch(name):
        _shell(script, name, words, fed)
    elif name in _SPECIAL:
        _SPECIAL[name](script, words)
    elif name in WRAPPERS:
        _wrapper(script, name, words, fed)
    elif name in RUNNERS:
        look_into_runner(script, name, words)
    elif name in OPAQUE:
        script.doubt(f"the commands that {name!r} runs cannot be known")
    elif LOADERS.fullmatch(name):
        script.doubt(f"{name!r} runs the program that it is given")
        script.run(words[1:])
    elif INTERPRETERS.fullmatch(name) and _has_code(name, words):
        script.doubt(f"code for {name!r} cannot be read here")
    if name in ("declare", "typeset", "local") and outermost and _letters(words) & {"A"}:
        for word in words[1:]:
            if not word.start.startswith("-"):
                script.is_map(word.start.partition("=")[0])
    note_writes(script, name, words)


def _letters(words: Sequence[Word]) -> set[str]:
    return {letter for word in words[1:] if re.match("[-+][a-zA-Z]", word.start) for letter in word.start[1:]}


def _has_code(name: str, words: Sequence[Word]) -> bool:
    """True when an interpreter of another language is given its program on the command line or on its input."""
    if len(words) == 2 and words[1].text in _VERSIONS:
        return False
    if re.match("sqlite|psql|mysql|mariadb|duckdb|mongo", name):
        return True
    if name.startswith(("python", "pypy")):
        if len(words) > 2 and words[1].text == "-m":
            return words[2].text is None or words[2].text.partition(".")[0] in _MODULES
        given = _PYTHON.read(words)
        if given is None:
            return not _runs_module(words)
        first = given.operands[:1]
    else:
        # The options of these differ too much: nothing may stand before the file.
        first = list(words[1:2])
    return not first or _is_input(first[0]) or first[0].start.startswith("-") or first[0].text in _SUBCOMMANDS


def _runs_module(words: Sequence[Word]) -> bool:
    """True for `python -u -m module`."""
    at = next((at for at, word in enumerate(words) if word.text == "-m"), None)
    if at is None or at + 1 >= len(words) or _PYTHON.read(words[:at]) is None:
        return False
    return words[at + 1].text is not None and (words[at + 1].text or "").partition(".")[0] not in _MODULES


def _is_input(word: Word) -> bool:
    """True for a file that may be the input of the command, or the output of another."""
    if word.process or word.splits:
        return True
    text = word.text
    if text is None:
        return not word.start or word.start.startswith(("/dev", "/proc"))
    return text == "-" or text.lstrip("/").startswith(("dev/", "proc/")) or "/dev/" in text or "/proc/" in text


def _wrapper(script: Script, name: str, words: Sequence[Word], fed: Sequence[Redirect]) -> None:
    found = WRAPPERS[name].skip(words)
    if found is None:
        return script.doubt(f"the options of {name!r} are not understood")
    at, assigned, given = found
    inner = list(words[at:])
    if (name == "command" and given.has("v", "V")) or (name == "jobs" and not given.has("x")):
        return None
    for variable, value in assigned:
        script.assign(variable, value)
    for directory in given.values("C", "D", "chdir"):
        if name in ("env", "sudo"):
            script.directories.append(directory)
    if name == "time":
        for value in given.values("o", "output"):
            script.write(value)
    if name == "chroot":
        script.doubt_writes("the paths that 'chroot' makes cannot be known")
    if name == "flock" and len(words) > 1:
        script.write(words[at - 1])
    if name in ("sudo", "doas") and given.has("s", "i", "shell", "login"):
        # Its shell reads the words as one script, or else its input.
        return read_text(script, inner, name, posix=True) if inner else _fed(script, name, fed, posix=True)
    if name == "chroot" and not inner:
        return script.doubt("the shell that 'chroot' starts reads its input")
    if name == "xargs":
        return _xargs(
            script, given.values("I", "J", "R", "i", "replace"), given.has("I", "J", "R", "i", "replace"), inner
        )
    if name == "watch":
        return read_text(script, inner, "watch", posix=True) if not given.has("x", "exec") else script.run(inner)
    if name == "flock" and inner and inner[0].start.startswith(("-c", "--command", "--co")):
        if inner[0].text not in ("-c", "--command"):
            return script.doubt("the options of 'flock' are not understood")
        return read_text(script, inner[1:2], "flock -c", posix=True)
    if inner and inner[0].start.startswith("-") and name not in ("command", "exec", "builtin"):
        return script.doubt(f"the options of {name!r} are not understood")
    return script.run(inner, fed) if inner else None


def _xargs(script: Script, given: Sequence[Word], replaces: bool, inner: list[Word]) -> None:
    if not inner:
        return
    if replaces:
        marks = {"{}", *(mark.text or "{}" for mark in given)}
        inner = [UNKNOWN if any(_has(word, mark) for mark in marks if mark) else word for word in inner]
    else:
        inner.append(UNKNOWN)
    script.run(inner)


def _has(word: Word, mark: str) -> bool:
    return mark in word.spelled or mark in (word.text or "")


def _find(script: Script, words: Sequence[Word]) -> None:
    at, starts = 1, True
    while at < len(words):
        word, text = words[at], words[at].text
        starts = starts and not word.start.startswith(("-", "(", "!", ","))
        if text in _EXEC:
            end = next((i for i in range(at + 1, len(words)) if words[i].text in (";", "+")), len(words))
            script.run([UNKNOWN if _has(inner, "{}") else inner for inner in words[at + 1 : end]])
            at = end
        elif text in _FIND_VALUED or re.fullmatch("-newer[aBcmt][aBcmt]", text or ""):
            if at + 1 < len(words) and words[at + 1].splits and not _is_pattern(words[at + 1]):
                script.doubt(f"{words[at + 1].shown} may be an option of find that runs commands")
            at += 1
        elif text == "-fprintf":
            at += 2
        elif starts:
            script.operand(word, "find")
        elif text not in _FIND_ALONE:
            script.doubt(f"{word.shown} may be an option of find that runs commands")
        at += 1


def _is_pattern(word: Word) -> bool:
    """True for a word with a pattern that cannot find an option, as `src/*` cannot."""
    return bool(word.start) and not word.start.startswith("-") and "$" not in word.spelled and "`" not in word.spelled


def _fd(script: Script, words: Sequence[Word]) -> None:
    for at, word in enumerate(words):
        if word.text in ("-x", "-X", "--exec", "--exec-batch"):
            return script.run([UNKNOWN if _has(inner, "{") else inner for inner in words[at + 1 :]])
        if at and (word.text is None or re.match("-[a-zA-Z]*[xX]|--ex", word.text)):
            script.doubt(f"{word.shown} may be an option of fd that runs commands")
    return None


def _eval(script: Script, words: Sequence[Word]) -> None:
    rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
    read_text(script, rest, "eval")


def _trap(script: Script, words: Sequence[Word]) -> None:
    rest = [word for word in words[1:] if word.text != "--"]
    if rest and rest[0].text not in ("-", "", "-l", "-p"):
        before = len(script.directories)
        read_text(script, rest[:1], "trap")
        script.wanders |= len(script.directories) > before


def _alias(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        _, equals, value = (word.text or "").partition("=")
        if word.text is None:
            script.doubt(f"the alias {word.shown} is known only when it runs")
        elif equals:
            script.read(value)
            # It is put into the text of the script, wherever its name begins a command.
            if not re.fullmatch(r"[\w./-]+(?: [\w./=:@%+,-]+)*", value) or value.split(" ")[0] not in READERS:
                script.doubt(f"the alias {word.shown} may change how the script is read")


def _shell(script: Script, name: str, words: Sequence[Word], fed: Sequence[Redirect]) -> None:
    """Read the script of a shell: by the option -c, on its input, or in a file."""
    posix = not name.lstrip("-").startswith(("bash", "rbash", "exe"))
    at, command, reads_input = 1, False, False
    while at < len(words):
        text = words[at].text
        if text is None:
            return script.doubt(f"the script that {name!r} runs is known only when it runs")
        if text in ("--version", "--help"):
            return None
        if text in ("-", "--"):
            at += 1
            break
        if text.startswith("--"):
            if text[2:] not in SHELL.long.split():
                return script.doubt(f"the options of {name!r} are not understood")
            at += 1
            continue
        if not text.startswith(("-", "+")):
            break
        at += 1
        for letter in text[1:]:
            if letter in "oO":
                value = words[at].text if at < len(words) else None
                if value not in (_SET_NAMES if letter == "o" else _SHOPT):
                    return script.doubt(f"the options of {name!r} are not understood")
                at += 1
            elif letter not in SHELL.flags:
                return script.doubt(f"the options of {name!r} are not understood")
            command |= letter == "c" and text.startswith("-")
            reads_input |= letter == "s"
    if command:
        if at >= len(words):
            return None
        return read_text(script, words[at : at + 1], f"{name} -c", posix=posix)
    if at < len(words) and not reads_input:
        return script.doubt(f"the file that {name!r} runs cannot be read here")
    return _fed(script, name, fed, posix=posix)


def _fed(script: Script, name: str, fed: Sequence[Redirect], *, posix: bool) -> None:
    """Read the script that a shell is given on its input."""
    inputs = [redirect for redirect in fed if redirect.sign.startswith("<")]
    if len(inputs) == 1:
        redirect = inputs[0]
        if redirect.sign == "<<<":
            return read_text(script, [redirect.target], name, posix=posix)
        if redirect.body is not None:
            if not redirect.quoted and re.search(r"[$`\\]", redirect.body):
                return script.doubt(f"the script that {name!r} is given is known only when it runs")
            return script.read(redirect.body, posix=posix)
    return script.doubt(f"the script that {name!r} reads cannot be known")


def _awk(script: Script, words: Sequence[Word]) -> None:
    given = AWK.read(words)
    if given is None or given.has("f", "file"):
        return script.doubt("the program that 'awk' runs cannot be known")
    for value in given.values("d", "o", "p", "dump-variables", "pretty-print", "profile"):
        script.write(value)
    if given.has("o", "p", "d", "pretty-print", "profile", "dump-variables"):
        script.doubt_writes("the file that an option of 'awk' writes is not known")
    if not given.operands:
        return None
    text = given.operands[0].text
    if text is None or given.operands[0].splits:
        return script.doubt("the program that 'awk' runs is known only when it runs")
    program = read_awk(text, script.steps)
    if program.runs:
        return script.doubt("the commands that 'awk' runs are known only when it runs")
    for path in program.writes:
        script.write(literal(path) if path is not None else Word((None,), "awk >", False, (ANYTHING,)))
    return None


def _sed(script: Script, words: Sequence[Word]) -> None:
    given = SED.read(words)
    if given is None or given.has("f", "file"):
        return script.doubt("the script that 'sed' runs cannot be known")
    scripts, files = given.values("e", "expression"), given.operands
    if not scripts:
        scripts, files = files[:1], files[1:]
        if scripts and scripts[0].text == "":  # the empty suffix of -i, for another sed
            scripts, files = files[:1], files
    for word in files:
        script.operand(word, "sed")
    texts = [word.text for word in scripts]
    if any(text is None for text in texts) or any(word.splits for word in scripts):
        return script.doubt(f"the sed script {scripts[0].shown} is known only when it runs")
    program = read_sed("\n".join(text or "" for text in texts), script.steps)
    if program.runs:
        return script.doubt(f"the sed script {scripts[0].shown} may run commands")
    for path in program.writes:
        script.write(literal(path or ""))
    if given.has("i", "in-place"):
        suffixes = [value.text for value in given.values("i", "in-place")]
        if any(suffix is None or re.search(r"[/*]", suffix) for suffix in suffixes):
            script.doubt_writes("the copies that 'sed -i' makes are not known")
        for word in files:
            script.write(word)
            for suffix in suffixes:
                script.write(Word((*word.pieces, suffix), word.spelled))
    return None


def _tar(script: Script, words: Sequence[Word]) -> None:
    words = _old_style(words)
    given = TAR.read(words)
    running = ("use-compress-program", "I", "to-command", "checkpoint-action", "rsh-command", "rmt-command", "F")
    if given is None or given.has(*running, "info-script", "new-volume-script", "K"):
        return script.doubt("an option of 'tar' may run commands")
    files = given.values("f", "file")
    if any((":" in (word.text or ":")) for word in files) and not given.has("force-local"):
        if any(":" in (word.text or "") for word in files):
            return script.doubt("'tar' may run commands to reach an archive on another machine")
        for word in files:
            script.operand(word, "tar")
    for word in given.operands:
        script.operand(word, "tar")
    if given.has("T", "files-from") and not given.has("verbatim-files-from"):
        return script.doubt("a list of files for 'tar' may hold options")
    if given.has("c", "create", "r", "append", "u", "update", "A", "catenate", "concatenate", "delete"):
        for word in files:
            script.write(word)
    for word in given.values("g", "listed-incremental", "index-file", "volno-file"):
        script.write(word)
    if given.has("remove-files"):
        # Operands are below the directory before them, which may be below another.
        for word in (*given.operands, *given.values("C", "directory")):
            script.write(word, below=True)
        if len(given.values("C", "directory")) > 1:
            script.doubt_writes("the files that 'tar' removes are not known")
    if given.has("x", "extract", "get"):
        if given.has("P", "absolute-names", "transform", "xform"):
            script.doubt_writes("the files that 'tar' extracts are not known")
        if not given.has("O", "to-stdout"):
            # One directory may be given after another, each below the one before.
            directories = given.values("C", "directory")
            for word in (*directories, *given.values("one-top-level")) or (literal("."),):
                script.write(word, below=True)
            if len(directories) > 1:
                script.doubt_writes("the directory that 'tar' extracts to is not known")
    return None


def _old_style(words: Sequence[Word]) -> Sequence[Word]:
    """The words of `tar cfC a.tar dir`, with their options as they are written today."""
    first = words[1].text if len(words) > 1 else None
    if not first or first.startswith("-") or not first.isalpha():
        return words
    rest = list(words[2:])
    options: list[Word] = []
    for letter in first:
        options.append(literal(f"-{letter}"))
        if letter in TAR.valued:
            if not rest:
                return [words[0], literal("--not-understood")]
            options.append(rest.pop(0))
    return [words[0], *options, *rest]


def _hash(script: Script, words: Sequence[Word]) -> None:
    if any(word.text is None or (word.text.startswith("-") and "p" in word.text) for word in words[1:]):
        script.doubt("'hash' may give a name to another program")


def _mapfile(script: Script, words: Sequence[Word]) -> None:
    given = Options("t", "dnOsuCc").read(words)
    if given is None or given.has("C"):
        return script.doubt("'mapfile' may run commands")
    for word in given.values("O", "n", "s"):
        script.evaluate(word)
    for word in given.operands[:1] or [literal("MAPFILE")]:
        _set(script, word)
    return None


def _set(script: Script, word: Word, value: Word = UNKNOWN) -> None:
    """Note that a variable is set, by a word that names it."""
    if word.text is None:
        return script.doubt(f"the variable that {word.shown} sets is known only when it runs")
    name, bracket, _ = word.text.partition("[")
    if bracket:
        script.evaluate(after(word, len(name) + 1))
    return script.assign(name, value)


def _declare(script: Script, words: Sequence[Word]) -> None:
    """`export NAME=value` and its like, whose words may be quoted, or known only when they run."""
    letters = _letters(words)
    renames = "n" in letters and words[0].text not in ("export", "readonly")
    if words[0].text == "export" and letters & {"f"}:
        return
    for word in words[1:]:
        if re.fullmatch(r"[-+][a-zA-Z]+|--", word.text or ""):
            continue
        name, equals, _ = word.start.partition("=")
        if word.text is None and (not equals or word.start.startswith("-")):
            script.doubt(f"the variable that {word.shown} sets is known only when it runs")
            continue
        value = after(word, len(name) + 1) if equals else Word(("",), "")
        base, bracket, _ = name.rstrip("+").partition("[")
        if bracket and base not in script._maps:
            script.evaluate(literal(name.partition("[")[2].rpartition("]")[0]))
        if renames:
            if value.text is None or not equals:
                script.doubt(f"the variable that {word.shown} is another name of is known only when it runs")
            else:
                _set(script, literal(value.text))
        elif equals:
            written = word.pieces == (f"{name}=", None) and word.spelled.endswith(")")
            if not written and (value.start.startswith("(") or (letters & {"a", "A"} and not value.start)):
                script.doubt(f"the array {word.shown} may have subscripts that are evaluated")
            script.assign(base, value)
        if "i" in letters:
            script.evaluate(Word((None,), f"${base}", True, (Hole("variable", base),)))


def _read(script: Script, words: Sequence[Word]) -> None:
    given = Options("ers", "adinNptu").read(words)
    if given is None:
        return script.doubt("the variables that 'read' sets are known only when it runs")
    for word in (*given.values("a"), *given.operands) or (literal("REPLY"),):
        _set(script, word)
    return None


def _printf(script: Script, words: Sequence[Word]) -> None:
    if len(words) > 1 and words[1].start.startswith("-v"):
        name = after(words[1], 2) if words[1].text != "-v" else (words[2] if len(words) > 2 else UNKNOWN)
        return _set(script, name)
    if len(words) > 1 and words[1].text is None and not words[1].start:
        script.operand(words[1], "printf")
    return None


def _getopts(script: Script, words: Sequence[Word]) -> None:
    for word in words[2:3]:
        _set(script, word)
    script.assign("OPTARG", UNKNOWN)


def _wait(script: Script, words: Sequence[Word]) -> None:
    for at, word in enumerate(words[1:], 1):
        if word.text is None or re.match("-[a-z]*p", word.text):
            _set(script, words[at + 1] if at + 1 < len(words) else UNKNOWN, Word((None,), "$!", False, (NUMBER,)))


def _unset(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        name, bracket, _ = word.start.partition("[")
        script._maps.discard(name)
        if bracket or word.text is None:
            script.evaluate(after(word, len(name) + 1) if bracket else word)


def _let(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        script.evaluate(word)


def _test(script: Script, words: Sequence[Word]) -> None:
    for word, following in pairwise(words[1:]):
        if word.text in ("-v", "-R"):
            script.evaluate(following)


def _set_options(script: Script, words: Sequence[Word]) -> None:
    named = False
    for word in words[1:]:
        text = word.text
        if text in ("--", "-"):
            return
        if named:
            named = False
            if text not in _SET_NAMES:
                return script.doubt("the options that 'set' sets are not understood")
            continue
        if text is None and not word.start:
            return script.operand(word, "set")
        if text is not None and not text.startswith(("-", "+")):
            return
        if text is None or not re.fullmatch(r"[-+][abefmnptuvxBCETPo]+", text):
            return script.doubt("the options that 'set' sets are not understood")
        named = "o" in text


def _shopt(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        if word.text not in _SHOPT and not re.fullmatch("-[supq]+", word.text or "?"):
            return script.doubt("the options that 'shopt' sets are not understood")
    return None


def _cd(script: Script, words: Sequence[Word]) -> None:
    targets = [word for word in words[1:] if word.text not in ("-L", "-P", "-e", "-@", "--")]
    if words[0].text == "popd":
        return  # one of those before
    if words[0].text == "pushd" and (not targets or re.fullmatch(r"[+-]\d*|-n", targets[0].text or "")):
        return
    script.directories.append(targets[0] if targets and targets[0].text not in ("-", "") else UNKNOWN)


def _ip(script: Script, words: Sequence[Word]) -> None:
    if any(word.text is None or "exec".startswith(word.text) or word.text in ("vrf", "-b", "-batch") for word in words):
        script.doubt("'ip' may run commands")


def _less(script: Script, words: Sequence[Word]) -> None:
    for word in words[1:]:
        if word.start.startswith("+") or re.match("-[a-zA-Z]*[kK]|--lesskey", word.start):
            script.doubt(f"an option of {words[0].spelled!r} may run commands")
        script.operand(word, words[0].spelled) if word.text is None else None


_SPECIAL: dict[str, Callable[[Script, Sequence[Word]], None]] = {
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), _tar),
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _declare),
    "read": _read,
    "printf": _printf,
    "getopts": _getopts,
    "wait": _wait,
    "unset": _unset,
    "let": _let,
    "set": _set_options,
    "shopt": _shopt,
    **dict.fromkeys(("test", "["), _test),
    "hash": _hash,
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    **dict.fromkeys(("cd", "pushd", "popd"), _cd),
    "ip": _ip,
    **dict.fromkeys(("less", "more", "zless"), _less),
}
