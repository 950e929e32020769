"""The work every contestant does: two small async functions, called alternately with arguments of their own.

Owns the functions, the arguments, and the bare `asyncio.gather` that everything is compared with. Imports
neither toolwright nor a peer, so that it means the same in every environment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from bench.pairing import Subject

BATCH_SIZES = (1, 10, 100, 1_000)
DURABLE_SIZE = 100
"""The size at which durable batches are compared."""


class Request(NamedTuple):
    """One call as a model would ask for it."""

    id: str
    name: str
    arguments: dict[str, Any]


async def echo(message: str) -> dict[str, Any]:
    """Give the message back."""
    return {"echo": message}


async def add(a: int, b: int) -> dict[str, Any]:
    """Add two numbers."""
    return {"sum": a + b}


FUNCTIONS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {"echo": echo, "add": add}


def requests(count: int, start: int = 0) -> list[Request]:
    """`count` requests from number `start` on: echo and add in turn, no two with the same id or arguments."""
    return [_request(index) for index in range(start, start + count)]


def _request(index: int) -> Request:
    if index % 2 == 0:
        return Request(f"c{index}", "echo", {"message": f"hello {index}"})
    return Request(f"c{index}", "add", {"a": index, "b": 2})


def bare_gather(count: int) -> Subject[Sequence[Request], list[dict[str, Any]]]:
    """The baseline: call the functions, gather them, and nothing else."""
    batch = requests(count)

    async def run(batch: Sequence[Request]) -> list[dict[str, Any]]:
        return await asyncio.gather(*[FUNCTIONS[name](**arguments) for _, name, arguments in batch])

    return Subject(calls=count, prepare=lambda: batch, run=run, count=len)
