"""Paths in a session. Owns their one spelling, and which texts are not paths; knows nothing of files.

A path is a list of names from the root of the session: no name leads up, out or elsewhere, for there are no links and
`..` is refused. Names are compared as they are written, case and all, after they were brought to one form of Unicode
(NFC), so that two ways to type the same accent are one name.
"""

from __future__ import annotations

import functools
import unicodedata

from toolwright.errors import ServiceError

ROOT = "/"
ALIAS = "workspace"
"""Another name of the root, as many models know it; no entry of the root can have it."""
MAX_NAME = 255
MAX_PATH = 4096
"""Bytes of UTF-8, as most file systems have it."""
MAX_DEPTH = 64
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Characters that are not seen, or change how others are seen."""


SLASHES = frozenset(
    "/\\"
    # the names themselves, and spellings that a reader takes for one of them
    "\u1735\u2041\u2044\u2215\u2571\u27cb\u29f8\u2cc6\u2f03\u3033\u31d3\uff0f\U0001d23a"
    "\u2216\u2572\u27cd\u29f5\u29f9\u2f02\u31d4\ufe68\uff3c\U0001d20f\U0001d23b"
)
"""Separators of names, for some readers: only the first is allowed, and only there."""


def clean_path(path: object) -> str:
    """The one spelling of a path: it begins with a slash and has no empty name, no `.` and no `/workspace`.

    A path that does not begin with a slash is taken from the root.

    Raises:
        ServiceError: it is not a path of a session.
    """
    if not isinstance(path, str) or not path:
        raise _refused(path, "use some text such as '/notes/a.txt'")
    if len(path) > MAX_PATH:
        raise _refused(path, f"it is longer than {MAX_PATH} bytes; use a shorter one")
    return _clean(path)


@functools.lru_cache(1024)
def _clean(path: str) -> str:
    if not path.isascii():
        path = unicodedata.normalize("NFC", path)
    names = [name for name in path.split("/") if name not in ("", ".")]
    while names and names[0] == ALIAS:
        del names[0]
    for name in names:
        _require_name(path, name)
    clean = ROOT + "/".join(names)
    if len(names) > MAX_DEPTH:
        raise _refused(path, f"it is more than {MAX_DEPTH} directories deep; use a shorter one")
    if len(clean.encode()) > MAX_PATH:
        raise _refused(path, f"it is longer than {MAX_PATH} bytes; use a shorter one")
    return clean


def parent_of(path: str) -> str:
    """The directory that an entry stands in; the root stands in itself."""
    return path.rpartition("/")[0] or ROOT


def below(path: str) -> tuple[str, str]:
    """The bounds of all paths below a directory: from the first, up to but without the second."""
    stem = "" if path == ROOT else path
    return f"{stem}/", f"{stem}0"  # the character after the slash


def _require_name(path: str, name: str) -> None:
    if "\\" in name:
        raise _refused(path, "it has a backslash; use / between names")
    if any(unicodedata.category(character) in _HIDDEN for character in name):
        raise _refused(path, "it has characters that cannot be seen; use printable ones")
    # Characters that others may read as dots or slashes, such as the full-width ones, are judged by that reading.
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    if not plain.strip(" ."):
        raise _refused(path, "a name may not be made of dots and spaces; there is no way up, so use the whole path")
    if not SLASHES.isdisjoint(plain) or not SLASHES.isdisjoint(name):
        raise _refused(path, "it has a character that looks like a slash; use / between names")
    if len(name.encode()) > MAX_NAME:
        raise _refused(path, f"the name {name[:40]!r}… is longer than {MAX_NAME} bytes; use a shorter one")


def _refused(path: object, why: str) -> ServiceError:
    return ServiceError(f"The path {path!r:.200} is not usable: {why}")
