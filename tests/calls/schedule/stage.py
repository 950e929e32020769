"""Where the tools of a test stop and wait to be let go. Owns what is inside at any moment, and the log of it."""

import asyncio
from typing import Any

from toolwright import ToolCall

LOOP_TURNS = 50  # more than any chain of steps between one stop and the next


class Stage:
    """A call enters under its id, stays inside until the test lets it go, and leaves.

    `entered` and `left` hold the ids in order, `inside` what is inside now, `peak` the most that ever were.
    """

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.left: list[str] = []
        self.inside: dict[str, asyncio.Future[None]] = {}
        self.peak = 0
        self._open = False

    async def visit(self, name: str) -> str:
        """What a tool awaits; gives its own name back."""
        self.entered.append(name)
        let_go = asyncio.get_running_loop().create_future()
        self.inside[name] = let_go
        self.peak = max(self.peak, len(self.inside))
        try:
            if not self._open:
                await let_go
        finally:
            del self.inside[name]
            self.left.append(name)
        return name

    def let_go(self, *names: str) -> None:
        """Let these calls, which are inside, go on."""
        for name in names:
            self.inside[name].set_result(None)

    def open(self) -> None:
        """Let everyone go, and those that come later not wait at all."""
        self._open = True
        self.let_go(*(name for name, let_go in self.inside.items() if not let_go.done()))

    async def settled(self) -> list[str]:
        """Who is inside once nothing moves any more, sorted."""
        await settle()
        return sorted(self.inside)

    async def after(self, *names: str) -> list[str]:
        """Let these go, and say who is inside then."""
        self.let_go(*names)
        return await self.settled()


async def settle() -> None:
    """Let the loop run until whatever can move without a push from outside has moved."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
        if ready is not None and not ready:  # a loop that shows what it has left to do saves the other turns
            return


def call(id: str, name: str, /, **arguments: Any) -> ToolCall:
    """A call with an id to know it by."""
    return ToolCall(id=id, name=name, arguments=arguments)
