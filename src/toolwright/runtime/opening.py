"""An object that is about to open. Owns that it can be awaited and closed later, or used in an `async with` block."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar


class Closable(Protocol):
    """An object that can be opened by an `Opening`."""

    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Something about to open, a runtime for one: `async with` it, or await it."""

    def __init__(self, open: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open = open
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *exc: object) -> None:
        if self._opened is not None:
            await self._opened.close()

    if not TYPE_CHECKING:  # a type checker knows that there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            remedy = "use `async with Runtime.open(...) as runtime:`, or await it"
            raise AttributeError(f"The runtime is not open yet, so it has no {name!r}; {remedy}", name=name, obj=self)
