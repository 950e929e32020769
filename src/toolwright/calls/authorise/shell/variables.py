"""Variables that decide which commands a shell or a program runs. Owns their names, and the meaning of setting one.

A path on which a program looks for its libraries is not among them: such a program runs files, as it does by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolwright.calls.authorise.shell.script import Script
from toolwright.calls.authorise.shell.words import UNKNOWN, Word, names

DECIDING = names(
    "BASH_ENV ENV PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 SHELLOPTS BASHOPTS BASH_ALIASES BASH_CMDS"
    " BASH_LOADABLES_PATH BASH_COMPAT EXECIGNORE POSIXLY_CORRECT HISTFILE GLOBIGNORE INPUTRC ZDOTDIR SHELL"
    " GCONV_PATH LOCPATH NLSPATH HOSTALIASES TERMINFO PYTHONSTARTUP PYTHONINSPECT PYTHONBREAKPOINT"
    " PERL5OPT PERL5DB RUBYOPT LUA_INIT PHPRC JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS R_PROFILE_USER"
    " TAR_OPTIONS RSH RMT ZIPOPT ZIP GZIP XZ_OPT MAKEFLAGS GNUMAKEFLAGS MAKEFILES MFLAGS AWKPATH AWKLIBPATH"
    " RIPGREP_CONFIG_PATH GREP_OPTIONS LESS LESSKEY LESSKEYIN MANOPT LV MORE VIMINIT EXINIT SCREENRC WGETRC"
    " CURL_HOME NPM_CONFIG_SCRIPT_SHELL TEXMFCNF SSH_ASKPASS_REQUIRE RUSTC_WRAPPER CARGO_BUILD_RUSTC_WRAPPER"
    " COMPRESS_PROGRAM FPATH"
)
"""Variables that decide which other commands a shell or a program runs, or how it reads its options."""
_DECIDING_STARTS = ("BASH_FUNC_", "GIT_CONFIG", "DYLD_", "LD_", "NPM_CONFIG_", "npm_config_")
RUNNING = names(
    "PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR SUDO_EDITOR FCEDIT BROWSER"
    " GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS RSYNC_RSH LESSOPEN LESSCLOSE"
    " GIT_PROXY_COMMAND GIT_EXEC_PATH GIT_TEMPLATE_DIR RSYNC_CONNECT_PROG CVS_RSH CC_WRAPPER DIFFPROG"
)
"""Variables that hold a command, which a program runs when it needs one."""


def assign(script: Script, name: str, value: Word) -> None:
    """Note the effect of setting a variable on the commands of a script."""
    if name in DECIDING or name.startswith(_DECIDING_STARTS):
        script.doubt(f"{name} decides which other commands run")
    elif name in RUNNING:
        read_text(script, [value], name)
    elif name == "PATH":
        script.renamed = True
    elif name in ("CDPATH", "HOME", "OLDPWD", "PWD", "DIRSTACK"):
        script.directories.append(UNKNOWN)
    elif name == "TMPDIR":
        script.write(value, below=True)


def read_text(script: Script, words: Sequence[Word], name: str, *, posix: bool = False) -> None:
    """Read words as one script, as far as they are known."""
    texts = [word.text for word in words]
    if any(text is None for text in texts):
        return script.doubt(f"the script that {name!r} evaluates is known only when it runs")
    return script.read(" ".join(text for text in texts if text is not None), posix=posix)
