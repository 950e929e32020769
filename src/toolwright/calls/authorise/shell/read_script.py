"""From the text of a script to what it would do. Owns that each script is read once for all rules that look at it."""

from __future__ import annotations

import functools

from toolwright.calls.authorise.shell.script import Meaning, Script
from toolwright.calls.authorise.shell.variables import assign
from toolwright.calls.authorise.shell.wrappers import is_known, look_into

_MEANING = Meaning(is_known, look_into, assign)


@functools.lru_cache(maxsize=64)
def read_script(text: str) -> Script:
    """What the script of this text would do. Rules that look at the same call share it."""
    script = Script(_MEANING)
    script.read(text)
    script.finish()
    return script


def no_script() -> Script:
    """A script of which nothing is known yet."""
    return Script(_MEANING)
