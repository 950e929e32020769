"""Programs that run others by a subcommand, an option or a setting. Owns their table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolwright.calls.authorise.shell.options import SORT, SPLIT, Options
from toolwright.calls.authorise.shell.script import Script
from toolwright.calls.authorise.shell.variables import read_text
from toolwright.calls.authorise.shell.words import UNKNOWN, Word, literal, names

_SUBCOMMANDS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("uv", "poetry", "pipenv", "pdm", "rye", "hatch", "pixi", "conda", "mamba", "pipx"), ("run", 0)),
    **dict.fromkeys(("npm", "pnpm", "yarn", "mise"), ("exec x dlx", 0)),
    **dict.fromkeys(("bundle", "rbenv", "pyenv", "asdf"), ("exec", 0)),
    **dict.fromkeys(("direnv", "aws-vault", "chamber"), ("exec", 1)),
    **dict.fromkeys(("doppler", "op", "dotenvx"), ("run", 0)),
    "nix": ("run shell develop", 0),
    "perf": ("stat record trace", 0),
}
"""By which words a program runs the command that follows, and how many other words come between."""
_DIRECT = names("npx bunx pnpx uvx valgrind")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "scp": ("-S", "-o", "-D", "-F"),
    "rg": ("--pre", "--hostname-bin"),
    **dict.fromkeys(("bat", "ag", "ack", "delta"), ("--pager", "--config-file", "--diff-so-fancy")),
    "man": ("-P", "--pager", "-H", "--html", "-C", "--config-file", "-p", "--preprocessor"),
    "zip": ("-TT", "--unzip-command"),
    **dict.fromkeys(("vi", "vim", "nvim", "view", "vimdiff", "ex"), ("-c", "--cmd", "-S", "-s", "+", "-u", "-E", "-e")),
    "emacs": ("--eval", "-e", "--execute", "-f", "--funcall", "-l", "--load", "--script", "-Q", "--batch"),
    **dict.fromkeys(("make", "gmake"), ("SHELL=", ".SHELLFLAGS=", "--eval", "-E", "MAKEFLAGS=", "MAKEFILES=")),
    **dict.fromkeys(("npm", "npx", "pnpm"), ("-c", "--call", "--script-shell", "--node-options")),
    "nano": ("-s", "--speller"),
    "cargo": ("--config",),
    "apt": ("-o", "--option", "-c"),
    "apt-get": ("-o", "--option", "-c"),
    "wget": ("--use-askpass", "-e", "--execute"),
    "curl": ("-K", "--config"),
    "sort": (),
    "split": (),
    "csplit": (),
    "go": ("-exec", "-toolexec", "--exec", "--toolexec"),
    "hg": ("--config", "--editor"),
    "svn": ("--diff-cmd", "--diff3-cmd", "--editor-cmd", "--config-option"),
    "cmake": ("-E", "-P", "--build-cmd"),
    "mvn": ("exec:", "-Dexec"),
}
"""Options whose value is run, or read as settings that may run something."""
_COMMANDS = names("rsync man zip rg bat ag ack delta")
"""Programs of which such a value is a command, and not code of another kind."""
_MAKEFILE = re.compile(r"(?:-[a-zA-Z]*f|--(?:make)?file=)?(?:-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+)")

_GIT = Options(
    "pPh",
    "Cc",
    long="version help paginate no-pager no-replace-objects bare literal-pathspecs glob-pathspecs noglob-pathspecs"
    " icase-pathspecs no-optional-locks html-path man-path info-path no-lazy-fetch no-advice",
    long_valued="git-dir work-tree namespace",
)
_GIT_SETTINGS = re.compile(
    r"(?:user|author|committer|color|advice|init|safe|push|pull|fetch|merge|rebase|branch|log|status|column|rerere"
    r"|commit\.gpg[sS]ign|tag\.gpg[sS]ign|core\.(?:quote[pP]ath|autocrlf|eol|ignore[cC]ase|file[mM]ode|abbrev"
    r"|preload[iI]ndex|compression|long[pP]aths|sym[lL]inks|bare|big[fF]ile[tT]hreshold))(?:\..*|=.*)",
    re.S,
)
GIT_CHANGES = names(
    "checkout switch restore reset clean merge pull stash rebase cherry-pick revert rm mv apply am submodule"
    " sparse-checkout worktree bisect read-tree checkout-index"
)
"""Verbs of git that change files of the working tree."""
_GIT_VERBS = GIT_CHANGES | names(
    "add status diff log show commit branch tag fetch push remote clone init blame annotate grep describe shortlog"
    " reflog rev-parse rev-list ls-files ls-tree ls-remote cat-file show-ref for-each-ref symbolic-ref merge-base"
    " diff-tree diff-index diff-files name-rev config notes gc fsck prune pack-refs count-objects check-ignore"
    " check-attr check-ref-format hash-object write-tree commit-tree update-ref update-index verify-commit verify-tag"
    " verify-pack whatchanged range-diff cherry archive bundle format-patch show-branch version help var stripspace"
    " mktree mktag column maintenance repack unpack-objects index-pack pack-objects patch-id interpret-trailers"
    " get-tar-commit-id merge-file merge-tree rerere replace mailinfo fmt-merge-msg diagnose"
)
"""The verbs of git that are known. Others may be an alias, of which only the settings of git know the meaning."""
_GIT_RUNS = re.compile(
    r"--(?:ex|upl|rece|extc|open|templ|conf|editor|sequ|sign|gpg|local-user|pager|textconv-|smtp|sendm|to-cmd|cc-cmd)"
)
_GIT_RUNNING_LETTERS = {
    "rebase": "x",
    "difftool": "x",
    "grep": "O",
    "clone": "uc",
    "fetch": "",
    "ls-remote": "",
    "fetch-pack": "",
}
RUNNERS = frozenset(_SUBCOMMANDS) | _DIRECT | frozenset(_OPTIONS) | {"git"}
"""The programs of this page."""


def look_into_runner(script: Script, name: str, words: Sequence[Word]) -> None:
    """Add the commands that a program runs."""
    for option in _OPTIONS.get(name, ()):
        _by_option(script, name, option, words)
    if name in ("make", "gmake"):
        _make(script, name, words)
    if name == "git":
        return _git(script, words)
    if name in ("sort", "split"):
        return _by_table(script, name, SORT if name == "sort" else SPLIT, words)
    if name in _DIRECT:
        return _following(script, words[1:], 0)
    subcommands, between = _SUBCOMMANDS.get(name, ("", 0))
    at = next((at for at, word in enumerate(words) if at and word.text in subcommands.split()), None)
    if name == "go" and any(word.text == "generate" for word in words[1:]):
        return None
    return None if at is None else _following(script, words[at + 1 :], between)


def _by_table(script: Script, name: str, options: Options, words: Sequence[Word]) -> None:
    given = options.read(words)
    if given is None:
        return script.doubt(f"an option of {name!r} may run commands")
    for value in given.values("filter", "compress-program"):
        read_text(script, [value], name, posix=True)
    for value in given.values("o", "output"):
        script.write(value)
    for word in given.operands:
        script.operand(word, name)
    for value in given.values("T", "temporary-directory"):
        script.write(value, below=True)
    if name == "split":
        # The names of the parts begin with the second operand.
        prefix = given.operands[1] if len(given.operands) > 1 else literal("x")
        script.write(Word((*prefix.pieces, None), prefix.spelled))
    return None


def _make(script: Script, name: str, words: Sequence[Word]) -> None:
    for word in words[1:]:
        # Makefiles that are written nowhere but in the script, or options that are not known.
        if _MAKEFILE.fullmatch(word.text or "") or "<(" in word.spelled:
            script.doubt(f"the rules that {name!r} reads cannot be known")
        elif re.match("--ev|--e$", word.start) or (word.text is None and "=" not in word.start):
            script.operand(word, name) if not word.start.startswith("-") else script.doubt(
                f"an option of {name!r} may run commands"
            )
        elif re.match(r"[A-Za-z_.]+[:?+!]*=", word.start) and re.search(r"[$`]|\$\(shell", word.text or "$"):
            script.doubt(f"a variable of {name!r} may run commands")


def _following(script: Script, words: Sequence[Word], between: int) -> None:
    """Run the words after options that may or may not take a value: each word that may be the command."""
    before = ""
    for at, word in enumerate(words):
        if word.start.startswith("-") and before != "--":
            before = word.start
            continue
        if between:
            between -= 1
        else:
            script.run(words[at:])
            if not before.startswith("-") or before == "--" or "=" in before:
                return
        before = word.start


def _by_option(script: Script, name: str, option: str, words: Sequence[Word]) -> None:
    for word, following in zip(words[1:], [*words[2:], UNKNOWN], strict=False):
        start = word.start
        head = start.partition("=")[0]
        if word.text == option:
            value = following.text
        elif start.startswith(f"{option}=" if option.startswith("--") else option):
            value = None if word.text is None else word.text.removeprefix(option).removeprefix("=")
        elif option.startswith("--") and len(head) > 3 and option.startswith(head) and head != option:
            value = None  # the option is abbreviated
        elif re.fullmatch(r"-[a-zA-Z]", option) and re.match(f"-[a-zA-Z]+{option[1]}", start) and len(start) < 8:
            value = None  # it may be bundled with others
            if name in ("make", "gmake", "npm", "npx", "pnpm", "cargo", "go", "man", "wget"):
                continue
        else:
            continue
        if name not in _COMMANDS or value is None:
            script.doubt(f"an option of {name!r} may run commands")
        elif value != "ssh":  # The commands that the other side is given are its own.
            script.read(value)


def _git(script: Script, words: Sequence[Word]) -> None:
    given = _GIT.read(words)
    if given is None:
        return script.doubt("the options of 'git' are not understood")
    for setting in given.values("c"):
        if not _GIT_SETTINGS.match(setting.start):
            return script.doubt(f"a setting of git, {setting.shown}, may run commands")
    if given.at >= len(words):
        return None
    verb, rest = words[given.at].text, words[given.at + 1 :]
    if verb is None:
        return (
            script.operand(words[given.at], "git")
            if not words[given.at].splits
            else script.doubt(f"{words[given.at].shown} may be an option of 'git' that runs commands")
        )
    if given.at > 1:
        script.add_spelling([words[0], *words[given.at :]])
    if verb not in _GIT_VERBS:
        return script.doubt(f"the commands of 'git {verb}' are known only to its settings")
    texts = [word.text for word in rest]
    before = texts[: texts.index("--")] if "--" in texts else texts
    letters = _GIT_RUNNING_LETTERS.get(verb, "")
    for text, word in zip(before, rest, strict=False):
        if _GIT_RUNS.match(word.start) and not (
            verb in ("commit", "tag", "merge") and re.match("--(sign|gpg)", word.start)
        ):
            return script.doubt(f"an option of 'git {verb}' may run commands")
        if letters and re.match(f"-[a-zA-Z]*[{letters}]", word.start):
            return script.doubt(f"an option of 'git {verb}' may run commands")
        if (
            text is not None
            and re.match(r"ext::|\w+::", text)
            and verb in ("clone", "fetch", "pull", "push", "remote", "ls-remote", "submodule")
        ):
            return script.doubt("git may run commands to reach this address")
        if (
            text is None
            and not word.start
            and verb in ("rebase", "grep", "clone", "fetch", "pull", "push", "ls-remote", "archive")
        ):
            script.operand(word, f"git {verb}")
    if (verb == "bisect" and "run" in texts) or (verb == "submodule" and "foreach" in texts):
        return script.doubt(f"the commands of 'git {verb}' cannot be known")
    if verb in ("bisect", "submodule") and any(text is None for text in texts[:1]):
        return script.doubt(f"the commands of 'git {verb}' cannot be known")
    if verb == "config":
        return _git_config(script, rest)
    return None


def _git_config(script: Script, rest: Sequence[Word]) -> None:
    """Doubt a setting that is stored, as a later command may run it."""
    reading = re.compile(r"--(?:get|list|name-only|show|unset|remove-section|get-all|get-regexp)|-l$|get$|list$")
    if any(reading.match(word.text or "") for word in rest):
        return
    words = [word for word in rest if not word.start.startswith("-") and word.text not in ("set",)]
    if len(words) > 1 and not _GIT_SETTINGS.match(f"{words[0].start}="):
        script.doubt(f"a setting of git, {words[0].shown}, may run commands")
    if any(re.match("-e|--edit", word.start) for word in rest):
        script.doubt("an editor may be run by 'git config'")
