"""Programs that run others by a subcommand, an option or a variable. Owns what is known of these.

A program that is not here, and not among the wrappers, is taken for one that runs no other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolwright.calls.shell.words import UNKNOWN, Word, names

if TYPE_CHECKING:
    from toolwright.calls.shell.script import Script

DECIDING = names("BASH_ENV ENV PROMPT_COMMAND PS0 PS1 PS2 PS4 LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT SHELLOPTS BASHOPTS")
"""Variables that decide what else a shell runs."""
DECIDING_STARTS = ("BASH_FUNC_", "GIT_CONFIG", "DYLD_")
RUNNING = names(
    "PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR SUDO_EDITOR FCEDIT BROWSER"
    " GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS RSYNC_RSH LESSOPEN LESSCLOSE"
)
"""Variables that hold a command, which a program runs when it needs one."""

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
    "split": ("--filter",),
    "sort": ("--compress-program",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "scp": ("-S",),
    "rg": ("--pre", "--hostname-bin"),
    "man": ("-P", "--pager", "-H"),
    "zip": ("-TT", "--unzip-command"),
    **dict.fromkeys(("vi", "vim", "nvim", "view", "vimdiff"), ("-c", "--cmd", "-S", "-s", "+")),
    "emacs": ("--eval", "-e", "--execute", "-f", "--funcall", "-l", "--load", "--script"),
    **dict.fromkeys(("make", "gmake"), ("SHELL=", "--eval", "-E")),
    **dict.fromkeys(("npm", "npx", "pnpm"), ("-c", "--call")),
}
"""Options whose value is run."""
_COMMANDS = names("split sort rsync scp man zip rg")
"""Those of which the value is a command, and not code of another kind."""
_GIT_SETTINGS = re.compile(
    r"(?:user|author|committer|color|advice|init|commit\.gpg[sS]ign|safe|core\.quote[pP]ath)\b.*"
)
_MAKEFILE = re.compile(r"(?:-[a-zA-Z]*f|--(?:make)?file=)?(?:-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+)")
_GIT_RUNS = names("bisect submodule rebase filter-branch difftool mergetool")
RUNNERS = frozenset(_SUBCOMMANDS) | _DIRECT | frozenset(_OPTIONS) | {"git"}
"""The programs of this page."""


def look_into_runner(script: Script, name: str, words: Sequence[Word]) -> None:
    """Add what a program runs in turn."""
    for option in _OPTIONS.get(name, ()):
        _by_option(script, name, option, words)
    if name in ("make", "gmake") and any(_is_fed(word) for word in words[1:]):
        script.doubt(f"what {name!r} reads can not be known")
    if name == "git":
        return _git(script, words)
    if name in _DIRECT:
        return _following(script, words[1:], 0)
    subcommands, between = _SUBCOMMANDS.get(name, ("", 0))
    at = next((at for at, word in enumerate(words) if at and word.text in subcommands.split()), None)
    return None if at is None else _following(script, words[at + 1 :], between)


def _is_fed(word: Word) -> bool:
    """True for a makefile that is written nowhere but in the script."""
    return bool(_MAKEFILE.fullmatch(word.text or "")) or "<(" in word.spelled


def _following(script: Script, words: Sequence[Word], between: int) -> None:
    """Run what follows options of which nobody knows whether they take a value: each word that may be the command."""
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
        if word.text == option:
            value = following.text
        elif word.start.startswith(f"{option}=" if option.startswith("--") else option):
            value = None if word.text is None else word.text.removeprefix(option).removeprefix("=")
        else:
            continue
        if name not in _COMMANDS or value is None:
            script.doubt(f"an option of {name!r} may run commands")
        elif value != "ssh":  # What the other side is asked to do is its own.
            script.read(value)


def _git(script: Script, words: Sequence[Word]) -> None:
    for word, following in zip(words[1:], [*words[2:], UNKNOWN], strict=False):
        if word.text in ("-c", "--config-env") and not _GIT_SETTINGS.match(following.start):
            return script.doubt(f"a setting of git, {following.spelled[:40]!r}, may run commands")
        if word.start.startswith(("--exec", "--upload-pack", "--receive-pack", "--extcmd", "--open-files-in-pager")):
            return script.doubt("an option of 'git' may run commands")
        if word.text is not None and not word.text.startswith("-") and word.text not in _GIT_RUNS:
            break
    verbs = [word.text for word in words[1:]]
    for verb, runs in (("bisect", "run"), ("submodule", "foreach"), ("rebase", "-x"), ("difftool", "-x")):
        if verb in verbs and runs in verbs:
            return script.doubt(f"what 'git {verb}' runs can not be known")
    if "grep" in verbs and any(re.match("-[a-zA-Z]*O|--op", word.start) for word in words[1:]):
        return script.doubt("what 'git grep' opens files with can not be known")
    if "filter-branch" in verbs:
        return script.doubt("what 'git filter-branch' runs can not be known")
    return None


def assign(script: Script, name: str, value: Word) -> None:
    """Note that a variable is set."""
    if name in DECIDING or name.startswith(DECIDING_STARTS):
        script.doubt(f"{name} decides what else runs")
    elif name in RUNNING:
        read_text(script, [value], name)
    elif name == "PATH":
        script.renamed = True


def read_text(script: Script, words: Sequence[Word], name: str) -> None:
    """Read words as one script, as far as they are known."""
    texts = [word.text for word in words]
    if any(text is None for text in texts):
        return script.doubt(f"what {name!r} evaluates is known only when it runs")
    return script.read(" ".join(text for text in texts if text is not None))
