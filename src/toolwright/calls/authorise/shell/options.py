"""The options of commands. Owns reading them the way getopt does, and the tables of the commands that run commands.

An option that is not in the table of its command is not understood, and the caller makes it a doubt.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from msgspec import Struct

from toolwright.calls.authorise.shell.words import Word, after

_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


class Given(Struct):
    """The options and operands that a command was given. `at` is where its operands begin, if options end there."""

    options: list[tuple[str, Word | None]]
    operands: list[Word]
    at: int

    def has(self, *wanted: str) -> bool:
        """True when one of these options was given."""
        return any(name in wanted for name, _ in self.options)

    def values(self, *wanted: str) -> list[Word]:
        """The values of these options."""
        return [value for name, value in self.options if name in wanted and value is not None]


class Options(Struct, frozen=True):
    """The options of a command.

    `flags` and `valued` are the letters without and with a value, and `attached` those whose value, if any, is in the
    same word; `long`, `long_valued` and `long_attached` likewise. `operands` are words before the command that it runs;
    `assigns` allows `NAME=value` there. `permuted` means that options may follow operands.
    """

    flags: str = ""
    valued: str = ""
    attached: str = ""
    long: str = ""
    long_valued: str = ""
    long_attached: str = ""
    operands: int = 0
    assigns: bool = False
    permuted: bool = False

    def read(self, words: Sequence[Word]) -> Given | None:
        """The options of a command, whose name is the first word; None when they are not understood."""
        given = Given([], [], len(words))
        at = 1
        while at < len(words):
            word = words[at]
            start = word.start
            if word.text == "--":
                given.operands += words[at + 1 :]
                given.at = min(given.at, at + 1)
                break
            if start.startswith("--"):
                taken = self._name(words, at, given)
            elif start.startswith("-") and word.text != "-":
                taken = self._letters(words, at, given)
            else:
                if not self.permuted:
                    given.at = at
                    given.operands += words[at:]
                    break
                given.operands.append(word)
                taken = 1
            if taken is None:
                return None
            at += taken
        return given

    def _name(self, words: Sequence[Word], at: int, given: Given) -> int | None:
        word = words[at]
        head, equals, _ = word.start[2:].partition("=")
        if word.text is None and not equals:
            return None
        name = _whole(head, self.long, self.long_valued, self.long_attached)
        if name is None:
            return None
        if equals:
            if name in self.long.split():
                return None
            given.options.append((name, after(word, len(head) + 3)))
            return 1
        if name not in self.long_valued.split():
            given.options.append((name, None))
            return 1
        if at + 1 >= len(words):
            return None
        given.options.append((name, words[at + 1]))
        return 2

    def _letters(self, words: Sequence[Word], at: int, given: Given) -> int | None:
        word = words[at]
        for index, letter in enumerate(word.start[1:], 1):
            rest = after(word, index + 1)
            empty = rest.text == ""
            if letter in self.attached:
                given.options.append((letter, None if empty else rest))
                return 1
            if letter in self.valued:
                if not empty:
                    given.options.append((letter, rest))
                    return 1
                if at + 1 >= len(words):
                    return None
                given.options.append((letter, words[at + 1]))
                return 2
            if letter not in self.flags:
                return None
            given.options.append((letter, None))
        return 1 if word.text is not None else None

    def skip(self, words: Sequence[Word]) -> tuple[int, list[tuple[str, Word]], Given] | None:
        """Where the command starts that this one runs, and the variables it sets; None when that cannot be told."""
        given = self.read(words)
        if given is None:
            return None
        at, assigned = given.at, []
        while self.assigns and at < len(words) and (found := _ASSIGNED.match(words[at].start)):
            name = found[0].rstrip("+=")
            assigned.append((name, after(words[at], len(found[0]))))
            at += 1
        if self.assigns and at < len(words) and "=" in words[at].start:
            name, _, _ = words[at].start.partition("=")
            assigned.append((name, after(words[at], len(name) + 1)))
            at += 1
        for word in words[at : at + self.operands]:
            if word.splits:
                return None
        return at + self.operands, assigned, given


@functools.lru_cache(maxsize=4096)
def _whole(name: str, *tables: str) -> str | None:
    """The option that a name, or the beginning of one, stands for."""
    known = [each for table in tables for each in table.split()]
    if name in known:
        return name
    found = [each for each in known if each.startswith(name)]
    return found[0] if len(found) == 1 and name else None


WRAPPERS: dict[str, Options] = {
    "env": Options(
        "i0v",
        "uC",
        long="ignore-environment null debug help version list-signal-handling",
        long_valued="unset chdir",
        long_attached="default-signal ignore-signal block-signal",
        assigns=True,
    ),
    "sudo": Options(
        "AbBEHiKklnPSsVv",
        "CDghpRrTtUu",
        long="askpass background bell set-home login non-interactive preserve-groups stdin shell validate list",
        long_valued="close-from chdir group host prompt chroot role command-timeout type other-user user",
        long_attached="preserve-env",
        assigns=True,
    ),
    "doas": Options("nsL", "aCu"),
    "nohup": Options(long="help version"),
    "setsid": Options("cfw", long="ctty fork wait"),
    "time": Options("pavq", "fo", long="portability append verbose quiet", long_valued="format output", assigns=True),
    "timeout": Options(
        "fpv", "sk", long="foreground preserve-status verbose", long_valued="signal kill-after", operands=1
    ),
    "nice": Options("0123456789", "n", long_valued="adjustment"),
    "ionice": Options("t", "cn", long="ignore", long_valued="class classdata"),
    "chrt": Options("bfimorR", "TPD", operands=1),
    "taskset": Options("ac", operands=1),
    "stdbuf": Options("", "ioe", long_valued="input output error"),
    "command": Options("pvV"),
    "builtin": Options(),
    "jobs": Options("lnprsx"),
    "exec": Options("cl", "a"),
    "chroot": Options(long="skip-chdir", long_valued="userspec groups", operands=1),
    "flock": Options(
        "sxnueoFv", "wE", long="shared exclusive nonblock unlock close verbose", long_valued="timeout", operands=1
    ),
    "busybox": Options(),
    "toybox": Options(),
    "xargs": Options(
        "0rtxpo",
        "aEIJLRdnPs",
        "iel",
        long="null no-run-if-empty verbose exit interactive open-tty",
        long_valued="arg-file delimiter max-args max-procs max-chars process-slot-var",
        long_attached="replace eof max-lines",
    ),
    **dict.fromkeys(
        ("fakeroot", "eatmydata", "chronic", "torsocks", "torify", "tsocks", "dbus-run-session"), Options()
    ),
    **dict.fromkeys(("setpriv", "prlimit", "numactl", "systemd-inhibit", "caffeinate", "catchsegv"), Options()),
    **dict.fromkeys(("linux32", "linux64", "i386"), Options("vR")),
    **dict.fromkeys(("gosu", "su-exec", "setuidgid", "envdir", "setarch"), Options("R", operands=1)),
    **dict.fromkeys(("proxychains", "proxychains4"), Options("q", "f")),
    "pkexec": Options(long="disable-internal-agent keep-cwd", long_valued="user"),
    "unbuffer": Options("p"),
    "xvfb-run": Options("al", "nefsp", long="auto-servernum listen-tcp", long_valued="server-num server-args"),
    "ifne": Options("n"),
    "entr": Options("acdnprxz"),
    "watch": Options(
        "bcdegpqtwx", "n", long="beep color differences errexit no-title precise exec", long_valued="interval"
    ),
}
"""Commands that run the command in their arguments."""

SORT = Options(
    "bdfgiMhnRrVcCmsuz",
    "kStTo",
    long="ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort"
    " human-numeric-sort numeric-sort random-sort reverse version-sort merge stable unique zero-terminated debug"
    " help version",
    long_valued="sort random-source batch-size key output buffer-size field-separator temporary-directory parallel"
    " files0-from compress-program",
    long_attached="check",
    permuted=True,
)
SPLIT = Options(
    "ex",
    "abClnt",
    "d",
    long="elide-empty-files unbuffered verbose help version",
    long_valued="suffix-length additional-suffix bytes line-bytes filter lines number separator",
    long_attached="numeric-suffixes hex-suffixes",
    permuted=True,
)
TAR = Options(
    "AcdrtuxjJzZkmoOpPsSUvwBGWlRiah?n",
    "fCTXbgFIKNLVH",
    long="catenate concatenate create delete diff compare append test-label list update extract get sparse"
    " incremental ignore-failed-read keep-newer-files keep-directory-symlink keep-old-files no-overwrite-dir overwrite"
    " overwrite-dir recursive-unlink remove-files skip-old-files unlink-first verify ignore-command-error"
    " no-ignore-command-error to-stdout no-same-owner no-same-permissions numeric-owner preserve-permissions"
    " same-permissions same-owner preserve-order same-order touch acls no-acls xattrs no-xattrs selinux no-selinux"
    " force-local multi-volume read-full-records auto-compress no-auto-compress bzip2 xz lzip lzma lzop"
    " gzip ungzip gunzip zstd compress uncompress anchored no-anchored ignore-case no-ignore-case wildcards"
    " no-wildcards wildcards-match-slash no-wildcards-match-slash null no-null no-recursion recursion no-unquote"
    " unquote verbatim-files-from no-verbatim-files-from exclude-backups exclude-caches exclude-caches-all"
    " exclude-caches-under exclude-vcs exclude-vcs-ignores dereference hard-dereference absolute-names one-file-system"
    " check-links full-time show-defaults show-omitted-dirs show-transformed-names show-stored-names utc verbose"
    " interactive confirmation help version usage no-seek seek no-check-device check-device clamp-mtime old-archive"
    " portability posix no-quote-chars block-number delay-directory-restore no-delay-directory-restore",
    long_valued="file directory files-from exclude-from exclude exclude-tag exclude-tag-all exclude-tag-under"
    " exclude-ignore exclude-ignore-recursive add-file group owner owner-map group-map mode mtime sort format label"
    " listed-incremental level strip-components transform xform suffix starting-file newer after-date newer-mtime"
    " blocking-factor record-size tape-length volno-file index-file pax-option quoting-style quote-chars hole-detection"
    " sparse-version warning use-compress-program to-command rsh-command rmt-command info-script new-volume-script"
    " checkpoint-action no-quote-chars-of xattrs-include xattrs-exclude",
    long_attached="backup occurrence atime-preserve one-top-level checkpoint totals",
    permuted=True,
)
SED = Options(
    "nErsuz",
    "efl",
    "i",
    long="quiet silent regexp-extended separate unbuffered null-data zero-terminated posix debug sandbox"
    " follow-symlinks help version",
    long_valued="expression file line-length",
    long_attached="in-place",
    permuted=True,
)
AWK = Options(
    "bcgCMnNOPrsStVh",
    "Fvf",
    "doLp",
    long="characters-as-bytes traditional copyright gen-pot help bignum use-lc-numeric non-decimal-data optimize"
    " posix re-interval no-optimize sandbox lint-old version csv",
    long_valued="field-separator assign file",
    long_attached="dump-variables lint pretty-print profile",
)
SHELL = Options("abefhmnptuvxBCEPTilrsc", "oO", long="norc noprofile posix login verbose version help noediting")
