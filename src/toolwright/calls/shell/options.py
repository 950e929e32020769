"""The options of commands that run commands. Owns the tables; an option that is not here is a doubt."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolwright.calls.shell.words import Word


class Options(Struct, frozen=True):
    """What may stand between the name of a command and the command it runs.

    `flags` and `valued` are the letters without and with a value, `attached` those whose value is in the same word;
    `long` and `long_valued` likewise. `operands` are words before the command; `assigns` allows `NAME=value` there.
    """

    flags: str = ""
    valued: str = ""
    attached: str = ""
    long: str = ""
    long_valued: str = ""
    operands: int = 0
    assigns: bool = False

    def skip(self, words: Sequence[Word]) -> tuple[int, set[str]] | None:
        """Where the command starts, and the options that were given; None when that can not be told."""
        given: set[str] = set()
        at, operands = 1, self.operands
        while at < len(words):
            text = words[at].text
            if text is None:
                return None
            if text == "--":
                at += 1
                break
            if text.startswith("--"):
                name, equals, _ = text[2:].partition("=")
                if name not in self.long.split() and name not in self.long_valued.split():
                    return None
                given.add(name)
                at += 2 if name in self.long_valued.split() and not equals else 1
            elif text.startswith("-") and len(text) > 1:
                taken = self._letters(text[1:], given)
                if taken is None:
                    return None
                at += taken
            elif self.assigns and "=" in text:
                given.add(text)
                at += 1
            else:
                break
        while self.assigns and at < len(words) and "=" in (words[at].text or ""):
            given.add(words[at].text or "")
            at += 1
        for word in words[at : at + operands]:
            if word.splits:
                return None
        return at + operands, given

    def _letters(self, letters: str, given: set[str]) -> int | None:
        for index, letter in enumerate(letters):
            given.add(letter)
            if letter in self.attached:
                return 1
            if letter in self.valued:
                return 1 if index + 1 < len(letters) else 2
            if letter not in self.flags:
                return None
        return 1


WRAPPERS: dict[str, Options] = {
    "env": Options(
        "i0v", "uC", long="ignore-environment null debug help version", long_valued="unset chdir", assigns=True
    ),
    "sudo": Options(
        "AbBEHiKklnPSsVv",
        "CDghpRrTtUu",
        long="askpass background bell preserve-env set-home login non-interactive preserve-groups stdin shell",
        long_valued="close-from chdir group host prompt chroot role command-timeout type other-user user",
        assigns=True,
    ),
    "doas": Options("nsL", "aCu"),
    "nohup": Options(),
    "setsid": Options("cfw", long="ctty fork wait"),
    "time": Options("pavq", "fo", long="portability append verbose quiet", long_valued="format output"),
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
    "flock": Options("sxnueoFv", "wE", long="shared exclusive nonblock unlock close verbose", operands=1),
    "busybox": Options(),
    "toybox": Options(),
    "xargs": Options(
        "0rtxpo",
        "aEIJLRdnPs",
        "iel",
        long="null no-run-if-empty verbose exit interactive open-tty replace eof max-lines",
        long_valued="arg-file delimiter max-args max-procs max-chars process-slot-var",
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
    "watch": Options("bcdegpqtw", "n", long="beep color differences errexit no-title precise", long_valued="interval"),
}
"""Commands that run the command in their arguments."""
