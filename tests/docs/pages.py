"""The pages of the documentation and their blocks of code. Owns reading them; the tests own what must hold."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
_OUTPUT = re.compile(r"\n+```text\n(.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A block of code: `title` is the file that a reader saves it as, `output` the block of text right after it."""

    page: Path
    line: int
    language: str
    title: str | None
    code: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        output = _OUTPUT.match(text, fence.end())
        line = text.count("\n", 0, fence.start()) + 1
        language, title, code = fence.groups()
        found.append(Block(page, line, language, title, code, output.group(1) if output else None))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
STORIES = {page: blocks_of(page) for page in PAGES if any(block.title for block in blocks_of(page))}
"""Pages that a reader follows from the top, saving files on the way: their blocks run in order, in one directory."""


def as_shown(printed: str, shown: str) -> bool:
    """True when a program printed what a page shows; "…" stands for any text, over lines too."""
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.S) is not None
