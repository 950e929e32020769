"""Web pages as a model reads them. Owns the bounds of the child that decodes and converts; does not own either.

A short text is decoded here. All else is done in a limited child, where it can neither hold up the program nor end it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from toolwright.builtin.timeouts import within
from toolwright.builtin.web.page_child import decode
from toolwright.clock import Clock
from toolwright.errors import MachineError
from toolwright.limited_children import ChildFailed, ChildJob, ChildPool
from toolwright.tools.outcome import ToolError

_CHILD = Path(__file__).with_name("page_child.py")
_MEMORY = 1024 * 1024 * 1024
_SHORT = 32 * 1024
_GROWTH = 12
"""How many bytes of an answer a byte of a page may become: three where it is replaced, four times that by its links."""


class Page(Struct, frozen=True):
    """A page as a model reads it."""

    title: str
    content: str
    truncated: bool


class Raw(Struct, frozen=True, kw_only=True):
    """A page as it came. `content_type` is the server's claim; `base` is the URL that its links are relative to."""

    content: bytes
    content_type: str
    html: bool
    truncated: bool
    base: str


async def read_page(raw: Raw, form: str, *, children: ChildPool, seconds: float, clock: Clock) -> Page:
    """Decode a page and, where it is HTML, convert it, in a process that is killed when it takes too long.

    Raises:
        ToolError: it takes too long or too much memory.
    """
    if len(raw.content) <= _SHORT and (not raw.html or form == "html"):
        return Page("", decode(raw.content, raw.content_type, raw.html, raw.truncated), False)
    most = _GROWTH * len(raw.content) + 1024 * 1024
    # Rounded up, so that one child can serve pages of many sizes.
    job = ChildJob(f"{_CHILD}:work", memory=_MEMORY, seconds=seconds, most_bytes=1 << most.bit_length())
    request = {"format": form, **msgspec.structs.asdict(raw)}
    try:
        async with within(clock, seconds, f"The page could not be converted in {seconds:g} s"):
            return msgspec.convert(await children.run(job, request, seconds=seconds), Page)
    except MachineError as fault:
        raise ToolError(
            "No process could be started to read the page; try again later.",
            category="unavailable",
            code="no_child",
            retry=True,
            detail=str(fault),
        ) from fault
    except (ToolError, ChildFailed, msgspec.ValidationError) as error:
        raise ToolError(
            "The page is too large or too deeply nested to be converted; ask for it with format 'html'.",
            category="resource_limit",
            code="conversion_failed",
            detail=f"{type(error).__name__}: {error}",
        ) from None
