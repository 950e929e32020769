"""Names of tools as providers take them. Owns the mapping both ways; does not own which names a tool may have.

Our names have up to 128 characters, dots, colons and slashes among them. Providers take 64 letters, digits, `_` and
`-`. A name that a provider would refuse is written as its beginning, two underscores, and 16 digits of its hash. No
tool may have a name of that form itself, so that a mapped name always means the one tool that it was made of.
"""

from __future__ import annotations

import functools
import re

from toolwright import jsonx

LONGEST = 64
_ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAPPED = re.compile(r"[A-Za-z0-9_-]{1,46}__[0-9a-f]{16}")


def is_mapped(name: str) -> bool:
    """True for a name of the form that is made for providers."""
    return _MAPPED.fullmatch(name) is not None


@functools.lru_cache(maxsize=4096)
def wire_name(name: str) -> str:
    """The name that providers know a tool by: its own where they take that. The same name gives the same, always."""
    if _ACCEPTED.fullmatch(name):
        return name
    start = re.sub(r"[^A-Za-z0-9_-]", "_", name[: LONGEST - 18])
    return f"{start}__{jsonx.digest(name.encode('utf-8', 'backslashreplace'))[:16]}"
