"""What is about to open. Owns that it can be awaited and closed later, or used in an `async with` block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Opening(Generic[T]):
    """Something about to open, a runtime for one: `async with` it, or await it."""

    def __init__(self, open: Callable[[], Coroutine[Any, Any, T]], close: Callable[[], Awaitable[None]]) -> None:
        self._open = open
        self._close = close

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        return await self._open()

    async def __aexit__(self, *exc: object) -> None:
        await self._close()
