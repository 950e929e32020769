"""Commands that write files. Owns which of their words are paths that are written.

The commands of this page are known with their options. Of a command that is on no page, any word may be a path that
it writes; of one with an option that is not in its table, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from toolwright.calls.authorise.shell.options import WRAPPERS, Given, Options
from toolwright.calls.authorise.shell.programs import BUILTINS, INTERPRETERS, READERS, SHELLS
from toolwright.calls.authorise.shell.script import Script
from toolwright.calls.authorise.shell.subcommands import GIT_CHANGES
from toolwright.calls.authorise.shell.words import Word, after, literal, names

_COPY = Options(
    "abdfiHlLnPpRrsTuvxZ",
    "St",
    long="archive attributes-only copy-contents force interactive link dereference no-dereference no-clobber"
    " recursive remove-destination strip-trailing-slashes symbolic-link no-target-directory verbose one-file-system"
    " debug help version",
    long_valued="target-directory suffix no-preserve",
    long_attached="backup preserve reflink sparse context update parents",
    permuted=True,
)
_MOVE = Options(
    "bfinTuvZ",
    "St",
    long="force interactive no-clobber no-copy strip-trailing-slashes no-target-directory verbose context exchange"
    " debug",
    long_valued="target-directory suffix",
    long_attached="backup update",
    permuted=True,
)
_LINK = Options(
    "bdfFihLnPrsTv",
    "St",
    long="directory force interactive logical no-dereference physical relative symbolic no-target-directory verbose",
    long_valued="target-directory suffix",
    long_attached="backup",
    permuted=True,
)
_INSTALL = Options(
    "bcCdDpsTvZ",
    "gmoSt",
    long="compare directory preserve-timestamps strip no-target-directory verbose",
    long_valued="group mode owner suffix target-directory",
    long_attached="backup context",
    permuted=True,
)
_RSYNC = Options(
    "vqcarRbudlLkKHpEAXogDtOJUSnWxyzPhiF0468",
    "BefMT@",
    long="verbose quiet checksum archive no-motd recursive relative no-implied-dirs update inplace append"
    " append-verify dirs mkpath links copy-links copy-unsafe-links safe-links munge-links copy-dirlinks"
    " keep-dirlinks hard-links perms executability acls xattrs owner group devices specials times"
    " omit-dir-times omit-link-times super fake-super sparse preallocate dry-run whole-file"
    " one-file-system existing ignore-existing delete del delete-before delete-during delete-delay"
    " delete-after delete-excluded ignore-errors force prune-empty-dirs numeric-ids ignore-times"
    " size-only fuzzy compress cvs-exclude from0 stats progress itemize-changes human-readable partial"
    " ipv4 ipv6 version help remove-source-files backup no-perms no-owner no-group delay-updates"
    " secluded-args",
    long_valued="block-size rsh chmod chown max-delete max-size min-size partial-dir usermap groupmap timeout"
    " contimeout modify-window temp-dir compare-dest copy-dest link-dest compress-level filter exclude exclude-from"
    " include include-from files-from suffix backup-dir log-file out-format bwlimit info debug address port sockopts"
    " checksum-choice compress-choice write-batch only-write-batch rsync-path",
    permuted=True,
)
_TEE = Options("aip", long="append ignore-interrupts", long_attached="output-error", permuted=True)
_REMOVE = Options(
    "dfiIrRv",
    long="force recursive dir verbose one-file-system no-preserve-root help version",
    long_attached="interactive preserve-root",
    permuted=True,
)
_TOUCH = Options(
    "acfhm",
    "drt",
    long="no-create no-dereference",
    long_valued="date reference time",
    permuted=True,
)
_MAKE_DIRECTORY = Options(
    "pvZ", "m", long="parents verbose", long_valued="mode", long_attached="context", permuted=True
)
_TRUNCATE = Options("co", "rs", long="no-create io-blocks", long_valued="reference size", permuted=True)
_SHRED = Options(
    "fuvxz",
    "ns",
    long="force verbose exact zero",
    long_valued="iterations random-source size",
    long_attached="remove",
    permuted=True,
)
_MODE = Options(
    "cfvRhHLP",
    long="changes silent quiet verbose recursive no-dereference dereference preserve-root no-preserve-root",
    long_valued="reference from",
    permuted=True,
)
_PACK = Options(
    "cdfhklLnNqrtvV123456789ez",
    "SbTMF",
    long="stdout to-stdout decompress uncompress force keep list no-name name quiet recursive test verbose fast best"
    " extreme small compress rsyncable synchronous",
    long_valued="suffix threads memlimit format check blocksize",
    permuted=True,
)
_UNIQ = Options(
    "cdDiuz",
    "fsw",
    long="count repeated ignore-case unique zero-terminated",
    long_valued="skip-fields skip-chars check-chars",
    long_attached="all-repeated group",
    permuted=True,
)
_UNZIP = Options("abcCfjlLnopqtTuUvVXKMzZ:^", "dxPIO", permuted=True)
_MKTEMP = Options(
    "duqt", "p", long="directory dry-run quiet", long_valued="suffix", long_attached="tmpdir", permuted=True
)
_CURL = Options(
    "afgGikIJlLMnNqRsSvZ012346#O",
    "AbcCdDeEFhHKmoPQrtTuUwxXyYz",
    long="append compressed fail fail-with-body fail-early get globoff include insecure head junk-session-cookies"
    " location location-trusted list-only netrc netrc-optional no-buffer no-progress-meter progress-bar remote-time"
    " silent show-error verbose ipv4 ipv6 http1.0 http1.1 http2 http3 tlsv1 tlsv1.2 tlsv1.3 ssl ssl-reqd path-as-is"
    " parallel post301 post302 post303 raw retry-all-errors retry-connrefused tcp-nodelay tr-encoding version anyauth"
    " basic digest ntlm negotiate http2-prior-knowledge remote-name remote-name-all remote-header-name create-dirs",
    long_valued="user-agent cookie cookie-jar continue-at data data-ascii data-binary data-raw data-urlencode json"
    " dump-header referer cert form form-string header max-time output output-dir quote range upload-file user proxy"
    " request url write-out cacert capath cert-type key key-type pass connect-timeout connect-to resolve retry"
    " retry-delay retry-max-time limit-rate max-filesize max-redirs interface noproxy proxy-user oauth2-bearer"
    " trace trace-ascii stderr etag-save etag-compare libcurl hsts alt-svc aws-sigv4 ciphers config keepalive-time",
    permuted=True,
)
_CURL_WRITES = ("o", "output", "output-dir", "c", "cookie-jar", "D", "dump-header", "trace", "trace-ascii", "stderr")
_CURL_WRITES_TOO = ("etag-save", "libcurl", "hsts", "alt-svc")
_COMPILERS = names("gcc g++ cc c++ clang clang++ ld rustc")
_MODES = names("chmod chown chgrp chattr setfacl")
_PACKERS = names("gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma compress uncompress zstd unzstd")
_WITHIN = re.compile(r"(?<![\w.~+-])/.*", re.S)


def note_writes(script: Script, name: str, words: Sequence[Word]) -> None:
    """Note the paths that a command writes, by the rules for its name."""
    if name in WRITERS:
        WRITERS[name](script, name, words)
    elif name == "file" and any(re.match("-[a-zA-Z]*C|--comp", word.start) for word in words[1:]):
        script.doubt_writes("the file that 'file -C' writes is not known")
    elif name in _LOOKED_INTO or name in READERS or name in BUILTINS or name in WRAPPERS:
        return
    elif not SHELLS.fullmatch(name):
        _stranger(script, words, code=bool(INTERPRETERS.fullmatch(name)))


def _stranger(script: Script, words: Sequence[Word], *, code: bool = False) -> None:
    """Note the words that may be paths which a program writes, of which nothing is known."""
    for word in words[1:]:
        text = word.text
        if text is None:
            if "/" in word.start:
                script.write(word, sure=False)
            continue
        if code and "\n" in text:
            continue
        candidates = {text, text.partition("=")[2], text.partition(":")[2]}
        if text.startswith("-"):
            candidates = {text[2:], text.partition("=")[2], text[text.find("/") :] if "/" in text else ""}
        elif found := _WITHIN.search(text):
            candidates.add(found[0])
        for candidate in sorted(candidates - {""}):
            script.write(literal(candidate), below=True, sure=False)


def _given(script: Script, name: str, options: Options, words: Sequence[Word]) -> Given | None:
    given = options.read(words)
    if given is None:
        script.doubt_writes(f"the options of {name!r} are not understood")
        return None
    for word in given.operands:
        script.operand(word, name, writes=True)
    return given


def _all(options: Options, *, below: bool = False) -> Callable[[Script, str, Sequence[Word]], None]:
    """Commands that write all of their operands."""

    def note(script: Script, name: str, words: Sequence[Word]) -> None:
        given = _given(script, name, options, words)
        for word in given.operands if given is not None else ():
            script.write(word, below=below)

    return note


def _copy(options: Options) -> Callable[[Script, str, Sequence[Word]], None]:
    """Commands that write their last operand, or the directory that an option names."""

    def note(script: Script, name: str, words: Sequence[Word]) -> None:
        given = _given(script, name, options, words)
        if given is None:
            return
        targets = given.values("t", "target-directory")
        operands = given.operands
        if name == "mv":
            for word in operands:
                script.write(word, below=True)
        if name == "install" and given.has("d", "directory"):
            for word in operands:
                script.write(word)
            return
        # To make a link to a place is to write there: later words, and later scripts, go through it.
        if name == "ln" or (name == "cp" and given.has("l", "s", "link", "symbolic-link")):
            for word in operands if targets or len(operands) == 1 else operands[:-1]:
                symbolic = given.has("s", "symbolic", "symbolic-link")
                elsewhere = bool(targets) or (len(operands) > 1 and "/" in (operands[-1].text or "/"))
                _linked(script, word, symbolic=symbolic, elsewhere=elsewhere)
            if len(operands) == 1 and not targets:
                targets = [literal(".")]
        recursive = name == "rsync" or given.has("r", "R", "a", "recursive", "archive")
        if not targets and operands:
            # Braces may have made several words of the last: any of them is taken for it.
            targets = [word for word in operands if word.spelled == operands[-1].spelled]
            operands = operands[:-1]
        for target in targets:
            script.write(target, below=recursive)
            for word in operands:
                _into(script, target, word)
        for word in given.values(
            "backup-dir", "log-file", "write-batch", "only-write-batch", "temp-dir", "partial-dir"
        ):
            script.write(word, below=True)
        if given.values("S", "suffix"):
            script.doubt_writes(f"the copies that {name!r} makes are not known")
        if given.has("remove-source-files"):
            for word in operands:
                script.write(word, below=True)

    return note


def _into(script: Script, target: Word, source: Word) -> None:
    """Note the file that is written when the target is a directory."""
    text = source.text
    last = None if text is None else text.rstrip("/").rpartition("/")[2]
    if last in (".", "..", ""):
        last = None
    script.write(Word((*target.pieces, "/", last), target.spelled))


def _linked(script: Script, word: Word, *, symbolic: bool, elsewhere: bool) -> None:
    text = word.text
    # A symbolic link is relative to where it will be.
    relative = text is None or not text.startswith("/")
    if symbolic and relative and (elsewhere or text is None or ".." in text.split("/")):
        script.doubt_writes(f"the place that the link {word.shown} leads to is not known")
    script.write(word, below=True)


def _mode(script: Script, name: str, words: Sequence[Word]) -> None:
    if name in ("chattr", "setfacl"):
        return _stranger(script, words)
    # A mode such as -w, or -rwx, is no option.
    given = _given(script, name, _MODE, [word for word in words if not re.fullmatch("-[rwxXst,]+", word.text or "")])
    for word in given.operands if given is not None else ():
        script.write(word, below=given is not None and given.has("R", "recursive"))
    return None


def _pack(script: Script, name: str, words: Sequence[Word]) -> None:
    given = _given(script, name, _PACK, words)
    if given is None or given.has("c", "t", "l", "stdout", "to-stdout", "test", "list"):
        return
    below = given.has("r", "recursive")
    for word in given.operands:
        script.write(word, below=below)
        text = word.text or ""
        for suffix in (".gz", ".bz2", ".xz", ".lzma", ".Z", ".zst"):
            script.write(Word((*word.pieces, suffix), word.spelled))
            if text.endswith(suffix):
                script.write(literal(text.removesuffix(suffix)))
    if given.has("S", "suffix", "N", "name"):
        script.doubt_writes(f"the names that {name!r} gives are not known")


def _dd(script: Script, name: str, words: Sequence[Word]) -> None:
    for word in words[1:]:
        if word.start.startswith("of="):
            script.write(after(word, 3))
        elif word.text is None and "=" not in word.start:
            script.write(word)


def _find(script: Script, name: str, words: Sequence[Word]) -> None:
    for word, following in pairwise(words):
        if word.text in ("-fprint", "-fprint0", "-fls", "-fprintf"):
            script.write(following)
    if any(word.text == "-delete" for word in words):
        begins: list[Word] = []
        for word in words[1:]:
            if re.fullmatch(r"-[PLH]|-O\d", word.text or ""):
                continue
            if word.start.startswith(("-", "(", "!")):
                break
            begins.append(word)
        for word in begins or [literal(".")]:
            script.write(word, below=True)
        if any(word.text == "-files0-from" for word in words):
            script.doubt_writes("the places where 'find' begins are not known")


def _git(script: Script, name: str, words: Sequence[Word]) -> None:
    texts = [word.text for word in words]
    rest = [word for word in words[1:] if not word.start.startswith("-")]
    for at, word in enumerate(words[1:], 1):
        if word.text == "-C" and at + 1 < len(words):
            script.directories.append(words[at + 1])
        if re.match("--(?:work-tree|git-dir|separate-git-dir|output|output-directory)", word.start):
            value = after(word, word.start.index("=") + 1) if "=" in word.start else words[at + 1 : at + 2]
            for each in [value] if isinstance(value, Word) else value:
                script.write(each, below=True)
        if word.start.startswith(("--out", "--work", "--git-d", "--separ")) and "=" not in word.start:
            script.doubt_writes("an option of 'git' may write a file")
    plain = [word.text for word in rest]
    for verb, operands in (("clone", 1), ("init", 0)):
        if verb in plain:
            found = rest[plain.index(verb) + 1 :]
            for word in found[operands:] or ([literal(".")] if verb == "init" else []):
                script.write(word, below=True)
            if verb == "clone" and len(found) == 1:
                last = (found[0].text or "").rstrip("/").removesuffix(".git").rpartition("/")[2]
                script.write(literal(last) if last else Word((None,), "git clone"), below=True)
    if any(verb in texts for verb in ("archive", "bundle", "format-patch", "worktree", "config", "submodule")):
        for word in words:
            if word.text is None or "/" in word.text or word.start.startswith("-o"):
                _stranger(script, [word, word])
        if any(word.text is None for word in words) and "archive" in texts:
            script.doubt_writes("the file that 'git archive' writes is not known")
    if any(text in GIT_CHANGES for text in texts):
        # The working tree may begin in a directory above.
        script.write(Word((".",), "git"), below=True)
        script.changes_tree = True


def _curl(script: Script, name: str, words: Sequence[Word]) -> None:
    given = _given(script, name, _CURL, words)
    if given is None:
        return
    directories = given.values("output-dir")
    for word in given.values(*_CURL_WRITES, *_CURL_WRITES_TOO):
        script.write(word)
        for directory in directories:
            script.write(Word((*directory.pieces, "/", *word.pieces), word.spelled))
    if given.has("O", "remote-name", "remote-name-all", "J", "remote-header-name"):
        for directory in directories or [literal(".")]:
            script.write(directory, below=True)


def _wget(script: Script, name: str, words: Sequence[Word]) -> None:
    wrote = False
    for at, word in enumerate(words[1:], 1):
        found = re.match(
            r"(?:-[a-zA-Z]*?[OPoa]|--(?:output-d\w*|output-f\w*|directory-p\w*|append\S*?|rejected-log"
            r"|save-cookies|hsts-file|warc-file|warc-tempdir)(?:=|$))",
            word.start,
        )
        if found is None:
            continue
        wrote = True
        value = after(word, len(found[0]))
        if value.text == "" and at + 1 < len(words):
            value = words[at + 1]
        script.write(value, below=True)
    if not wrote:
        script.write(literal("."), below=True)


def _patch(script: Script, name: str, words: Sequence[Word]) -> None:
    _stranger(script, words)
    for at, word in enumerate(words[1:], 1):
        if word.text in ("-d", "--directory", "-o", "--output", "-r", "-i") and at + 1 < len(words):
            script.write(words[at + 1], below=True)
    script.write(literal("."), below=True)
    if any(word.text is None for word in words[1:]):
        script.doubt_writes("the files that 'patch' writes are not known")


def _unzip(script: Script, name: str, words: Sequence[Word]) -> None:
    given = _given(script, name, _UNZIP, words)
    if given is None or given.has("l", "v", "t", "p", "c", "z", "Z"):
        return
    for word in given.values("d") or [literal(".")]:
        script.write(word, below=True)


def _cpio(script: Script, name: str, words: Sequence[Word]) -> None:
    for word in words[1:]:
        script.write(word if word.text is None or not word.text.startswith("-") else literal("."), below=True)
    for word in words[1:]:
        if word.text and word.text.startswith("-") and "/" in word.text:
            script.write(literal(word.text[word.text.index("/") :]), below=True)


def _last(count: int) -> Callable[[Script, str, Sequence[Word]], None]:
    """Commands that write their last operand, when there are so many."""

    def note(script: Script, name: str, words: Sequence[Word]) -> None:
        operands = [word for word in words[1:] if not word.start.startswith("-")]
        if name == "uniq":
            given = _given(script, name, _UNIQ, words)
            if given is None:
                return
            operands = given.operands
        # A word that is not known may be several.
        if len(operands) >= count or any(word.splits for word in operands):
            for word in operands[1:] or operands:
                script.write(word)
        if name == "xxd" and any(word.text is None for word in words[1:]) and len(words) > 2:
            script.doubt_writes("the file that 'xxd' writes is not known")

    return note


def _option(*options: str) -> Callable[[Script, str, Sequence[Word]], None]:
    """Commands that write the value of some options."""

    def note(script: Script, name: str, words: Sequence[Word]) -> None:
        for at, word in enumerate(words[1:], 1):
            for option in options:
                if word.text == option:
                    for value in words[at + 1 : at + 2]:
                        script.write(value)
                elif option.startswith("--"):
                    head, equals, _ = word.start.partition("=")
                    if len(head) > 3 and option.startswith(head):
                        if equals:
                            script.write(after(word, len(head) + 1))
                        for value in words[at + 1 : at + 2] if not equals else ():
                            script.write(value)
                elif word.start.startswith(option):
                    script.write(after(word, len(option)))
                elif len(option) == 2 and re.match(f"-[a-zA-Z]+{option[1]}", word.start) and name not in _COMPILERS:
                    for value in words[at + 1 : at + 2]:
                        script.write(value)
                    script.write(after(word, word.start.index(option[1], 1) + 1))
            if word.text is None and not word.start:
                script.operand(word, name, writes=True)

    return note


def _mktemp(script: Script, name: str, words: Sequence[Word]) -> None:
    given = _given(script, name, _MKTEMP, words)
    if given is None:
        return
    for word in given.values("p", "tmpdir"):
        script.write(word, below=True)
    for word in given.operands:
        # The last letters of the name are chosen when it runs.
        script.write(Word((word.text.rstrip("X"), None) if word.text else word.pieces, word.spelled))


def _compiler(script: Script, name: str, words: Sequence[Word]) -> None:
    _option("-o")(script, name, words)
    if not any(word.start.startswith("-o") for word in words[1:]):
        script.write(literal("."), below=True)


WRITERS: dict[str, Callable[[Script, str, Sequence[Word]], None]] = {
    "tee": _all(_TEE),
    "touch": _all(_TOUCH),
    "mkdir": _all(_MAKE_DIRECTORY),
    "rmdir": _all(Options("pv", long="parents verbose ignore-fail-on-non-empty", permuted=True)),
    "unlink": _all(Options(permuted=True)),
    "truncate": _all(_TRUNCATE),
    "shred": _all(_SHRED),
    "mkfifo": _all(_MAKE_DIRECTORY),
    "mknod": _all(_MAKE_DIRECTORY),
    "sponge": _all(Options("a", permuted=True)),
    "fallocate": _all(Options("cdinpvxz", "lo", permuted=True)),
    "rm": _all(_REMOVE, below=True),
    "cp": _copy(_COPY),
    "mv": _copy(_MOVE),
    "ln": _copy(_LINK),
    "install": _copy(_INSTALL),
    "rsync": _copy(_RSYNC),
    **dict.fromkeys(_MODES, _mode),
    **dict.fromkeys(_PACKERS, _pack),
    "dd": _dd,
    "find": _find,
    "git": _git,
    "curl": _curl,
    "wget": _wget,
    "patch": _patch,
    "unzip": _unzip,
    "cpio": _cpio,
    "mktemp": _mktemp,
    "uniq": _last(2),
    "xxd": _last(2),
    "shuf": _option("-o", "--output"),
    "sdiff": _option("-o", "--output"),
    "csplit": _option("-f", "--prefix"),
    "iconv": _option("-o", "--output"),
    "openssl": _option("-out", "-keyout"),
    "ssh-keygen": _option("-f"),
    "tree": _option("-o"),
    "history": _option("-w", "-a"),
    **dict.fromkeys(("less", "zless"), _option("-o", "-O", "--log-file", "--LOG-FILE")),
    **dict.fromkeys(_COMPILERS, _compiler),
}
"""Commands that write files, and how."""
_LOOKED_INTO = names("sed gsed awk gawk mawk nawk original-awk tar bsdtar gtar sort split")
"""Commands whose writes are noted where their programs and options are read."""
