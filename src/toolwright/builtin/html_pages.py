"""HTML to markdown or text. Owns the child process that does it and the bounds on it; does not own the conversion."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwright.builtin.patience import within
from toolwright.clock import Clock
from toolwright.tools.outcome import ToolError

_SCRIPT = Path(__file__).with_name("html_child.py")
_MEMORY = 1024 * 1024 * 1024
# What an interpreter may need to start. Nothing else of our environment is the page's business.
_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class Page(Struct, frozen=True):
    """A page as a model reads it."""

    title: str
    content: str
    truncated: bool


async def read_page(html: str, form: str, *, base: str, seconds: float, clock: Clock) -> Page:
    """Convert a page, in a process that is killed when it takes too long.

    Raises:
        ToolError: it takes too long or too much memory.
    """
    request = {
        "path": [path or os.getcwd() for path in sys.path],
        "format": form,
        "base": base,
        "memory": _MEMORY,
        "seconds": seconds,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(_SCRIPT),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in _KEPT if name in os.environ},
    )
    try:
        async with within(clock, seconds, f"The page could not be converted in {seconds:g} s"):
            said, _ = await child.communicate(json.dumps(request).encode() + b"\n" + html.encode("utf-8", "replace"))
    except ToolError:
        raise _too_hard("took too long") from None
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    answer = _read(said)
    if "content" not in answer:
        raise _too_hard(f"ended with {answer.get('error')!r}")
    return Page(answer["title"], answer["content"], answer["truncated"])


def _read(said: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        return {"error": "no answer"}
    return answer


def _too_hard(detail: str) -> ToolError:
    return ToolError(
        "The page is too large or too deeply nested to be converted; ask for it with format 'html'.",
        category="resource_limit",
        code="conversion_failed",
        detail=detail,
    )
