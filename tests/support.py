"""What many tests lean on. Owns bounded waiting, and exceptions that are hard to report; does not own fixtures."""

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolwright import ToolError

SLOW = 6
"""How many times slower than usual a machine may be that runs much else."""
LONGEST = 60.0
"""The longest bound that is stretched for such a machine, in seconds."""


@asynccontextmanager
async def fail_after(seconds: float) -> AsyncIterator[None]:
    """Fail the test if the block takes longer than this in real time, whatever the clock of the code.

    On a machine that is busy with other work it may take longer.
    """
    limit = asyncio.timeout(max(seconds, min(seconds * SLOW, LONGEST)))
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            pytest.fail(f"Still waiting after {seconds} s.")
        raise


async def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait until something holds that another task, thread or process does and no event tells; return what was found.

    The condition may be a function of either kind. It is looked at again and again, for at most so many seconds.
    """
    async with fail_after(seconds):
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.005)


def in_memory(kind: type) -> int:
    """How many objects of a type there are. Proxies that the sandbox of Temporal leaves behind refuse `isinstance`."""
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


class Unspeakable(Exception):
    """Has no text: asking for it raises."""

    def __str__(self) -> str:
        raise RuntimeError("nothing to say")

    __repr__ = __str__


class HalfMade(ToolError):
    """Has no failure: its base was never initialised."""

    def __init__(self) -> None:
        pass
