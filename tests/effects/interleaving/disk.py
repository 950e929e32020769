"""A store that takes its time, and whose owner may die at any verb. Owns when a verb is done and when it is answered.

What is asked first is done first and answered first, in groups as they come, like the writer of a file does it. Between
being done and being answered lies the instant that makes crashes interesting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.effects.interleaving.ledger import Ledger
from tests.effects.interleaving.loop import Process, SeededLoop
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import Cursor


class Disk:
    """`Store` of one process, for calls only: a `MemoryStore` behind a queue."""

    services = None

    def __init__(self, rows: MemoryDatabase, process: Process, loop: SeededLoop, chance: random.Random) -> None:
        self.rows = rows
        self.memory = MemoryStore(rows)
        self.process = process
        self.owner = self.memory.owner
        self.longest_key = self.memory.longest_key
        self.secret = self.memory.secret
        self.ledger: Ledger
        self.struck: Callable[[Any], bool]
        self.slow = chance.choice((0.0, 0.0, 0.004, 0.02))
        self.faulty = 0.0
        self.closed = False
        self._loop = loop
        self._chance = chance
        self._jobs: list[tuple[str, tuple[Any, ...], dict[str, Any], asyncio.Future[Any]]] = []
        self._busy = False

    @property
    def journal(self) -> Any:
        return self

    @property
    def waits(self) -> Any:
        return self

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if verb.startswith("_") or verb == "path":
            raise AttributeError(verb)

        async def ask(*args: Any, **options: Any) -> Any:
            return await self._ask(verb, args, options)

        return ask

    async def news(self, after: Cursor | None, patience: float, *, own: bool = False) -> Cursor:
        if self.closed:
            raise StoreError("the store is closed")
        return await self.memory.news(after, patience, own=own)

    async def close(self) -> None:
        if not self.closed:
            while self._jobs or self._busy:  # noqa: ASYNC110 (of virtual time)
                await asyncio.sleep(0.001)
            self.closed = True
            await self.memory.close()

    def _ask(self, verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.closed:
            answer.set_exception(StoreError("the store is closed"))
            return answer
        self._jobs.append((verb, args, options, answer))
        if not self._busy:
            self._busy = True
            self._soon(self._do)
        return answer

    def _soon(self, callback: Callable[..., None], *args: Any) -> None:
        if self.slow and self._chance.random() < 0.7:
            self._loop.call_later(self._chance.random() * self.slow, callback, *args, context=self.process.context)
        else:
            self._loop.call_soon(callback, *args, context=self.process.context)

    def _do(self) -> None:
        group, self._jobs = self._jobs, []
        if self.faulty and self._chance.random() < self.faulty:
            self.ledger.faults += 1
            self._soon(self._answer, [(answer, StoreError("the disk is full")) for *_, answer in group])
            return
        answers = []
        for verb, args, options, answer in group:
            result = self.ledger.watched(self, verb, args, _now(getattr(self.memory, verb)(*args, **options)))
            answers.append((answer, result))
            if self.struck(self.process):
                return
        self._soon(self._answer, answers)

    def _answer(self, answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
        for answer, result in answers:
            if answer.done():
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
        if self._jobs:
            self._soon(self._do)
        else:
            self._busy = False


def _now(verb: Coroutine[Any, Any, Any]) -> Any:
    """The result of a verb of the store in memory, which never waits."""
    try:
        verb.send(None)
    except StopIteration as done:
        return done.value
    except StoreError as refused:
        return refused
    raise AssertionError("the store in memory waited")
