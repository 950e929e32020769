"""The work every contestant does: two small async functions, called alternately with arguments of their own.

Owns the functions, the arguments, the bare `asyncio.gather` that batches are compared with, and the plain loop that
turns are compared with. Imports neither toolwright nor a peer, so that it means the same in every environment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from bench.pairing import Subject

BATCH_SIZES = (1, 10, 100, 1_000)
DURABLE_SIZE = 100
"""The size at which durable batches are compared."""
PARALLEL_CALLS = 100
"""The calls of the one answer by which adapters are compared."""
TURN_STEPS, TURN_CALLS = 10, 10
"""A turn: the model calls tools so many times, so many at once, and then answers."""
TURN_QUESTION, TURN_ANSWER = "How much is it?", "This is all."


Message = tuple[str, Any]
"""One message of the plain loop: who sent it, and what it says."""


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


def turn_requests(steps: int = TURN_STEPS, calls: int = TURN_CALLS) -> list[list[Request]]:
    """The requests of each step of a turn."""
    return [requests(calls, step * calls) for step in range(steps)]


class PlainModel:
    """The model of the plain loop: it asks for the requests of one step after the other, and then answers with text."""

    def __init__(self, steps: Sequence[list[Request]]) -> None:
        self._answers: list[list[Request] | str] = [*steps, TURN_ANSWER]

    async def complete(self, messages: Sequence[Message], number: int) -> list[Request] | str:
        """The answer of this number to a conversation."""
        return self._answers[number]


def plain_loop() -> Subject[PlainModel, list[Message]]:
    """The baseline of a turn: ask the model, gather the functions, append both to the conversation; nothing else."""
    model = PlainModel(turn_requests())

    async def run(model: PlainModel) -> list[Message]:
        messages: list[Message] = [("user", TURN_QUESTION)]
        number = 0
        while True:
            answer = await model.complete(messages, number)
            number += 1
            messages.append(("assistant", answer))
            if isinstance(answer, str):
                return messages
            results = await asyncio.gather(*[FUNCTIONS[name](**arguments) for _, name, arguments in answer])
            messages.append(("tool", results))

    def results(messages: list[Message]) -> int:
        return sum(len(content) for sender, content in messages if sender == "tool")

    return Subject(calls=TURN_STEPS * TURN_CALLS, prepare=lambda: model, run=run, count=results)
