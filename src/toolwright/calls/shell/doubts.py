"""Where bash may read a script otherwise than the parser did. Owns the doubts about single nodes of its tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from toolwright.calls.shell.words import bare_text

REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))

_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[])")
# Where a subscript is evaluated, so is what stands in it, even if it was quoted when it was written.
_SUBSCRIPT = re.compile(r"\[[^\]]*(?:\$[({]|`)")
_SUBSCRIPT_OF_NAME = re.compile(rb"\[[^\]]*\\[$`]")
_COMMENTED = re.compile(r"[\s;&|()`{}]")


def unread(node: Any) -> Iterator[str]:
    """Doubt what looks like a substitution and was read as text."""
    seen = bytearray(node.text)
    if node.type == "expansion":
        seen[:2] = b"  "
    for child in node.named_children:
        if child.type not in ("string_content", "heredoc_content"):
            seen[child.start_byte - node.start_byte : child.end_byte - node.start_byte] = b" " * (
                child.end_byte - child.start_byte
            )
    if _HIDDEN.search(seen.decode(errors="replace")):
        yield f"{_shown(node)} has something to evaluate that was not understood"


def run_together(node: Any) -> Iterator[str]:
    """Doubt words with nothing between them: the shell takes them for one."""
    for one, other in pairwise(node.named_children):
        if one.end_byte == other.start_byte and not {one.type, other.type} & REDIRECTS:
            yield f"{_shown(node)} has words that may be one"


def subscript(node: Any) -> Iterator[str]:
    """Doubt what looks like a subscript with something in it to evaluate, once its quotes are gone."""
    if _SUBSCRIPT.search(bare_text(node)):
        yield f"{_shown(node)} may be evaluated"


def evaluated_name(node: Any) -> Iterator[str]:
    """Doubt an assignment with a subscript that was escaped, and has something to evaluate."""
    if _SUBSCRIPT_OF_NAME.search(node.text):
        yield f"{_shown(node)} may be evaluated"


def comment(node: Any) -> Iterator[str]:
    """Doubt a comment that begins in the middle of a word."""
    before = node.parent.text[: node.start_byte - node.parent.start_byte][-1:].decode(errors="replace")
    if before and not _COMMENTED.match(before):
        yield f"{_shown(node)} may be no comment"


def _shown(node: Any) -> str:
    return repr(node.text.decode()[:40])
