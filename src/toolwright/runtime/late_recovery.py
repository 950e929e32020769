"""Calls that a recovery left because their tools were not known, such as those of a server that was not reached yet.
Owns recovering them when their tools come; how a call is recovered is its crash policy's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from toolwright.errors import ToolwrightError
from toolwright.log_fields import log_fields
from toolwright.session.recovery import Recovered
from toolwright.tools.change_notices import follow
from toolwright.tools.registry import ToolSource

log = logging.getLogger("toolwright.runtime")

Recover = Callable[[str, str], Awaitable[list[Recovered]]]
"""Recovers the calls of a session and a scope."""


class LateRecovery:
    """Recovers the calls that were left, once, when a tool of their name is registered."""

    def __init__(self, tools: ToolSource) -> None:
        self._tools = tools
        self._places: dict[str, set[tuple[str, str]]] = {}  # by tool: sessions and scopes
        self._unfollow: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self, recovered: Iterable[Recovered], recover: Recover) -> None:
        """Recover those calls later whose tools are not known now."""
        if not self._note(recovered):
            return
        loop = asyncio.get_running_loop()
        self._unfollow = follow(self._tools, lambda: loop.call_soon_threadsafe(self._look, recover))
        self._look(recover)  # one may have come meanwhile

    def close(self) -> None:
        """Recover nothing more."""
        if self._unfollow is not None:
            self._unfollow()
        if self._task is not None:
            self._task.cancel()

    def _note(self, recovered: Iterable[Recovered]) -> bool:
        for each in recovered:
            failure = each.outcome.failure
            if each.action == "left" and failure is not None and failure.code == "unknown_tool":
                self._places.setdefault(each.tool, set()).add((each.session, each.scope))
        return bool(self._places)

    def _come(self) -> list[str]:
        known = self._tools.snapshot()
        return [tool for tool in self._places if tool in known]

    def _look(self, recover: Recover) -> None:
        if (self._task is None or self._task.done()) and self._come():
            self._task = asyncio.create_task(self._recover(recover), name="late-recovery")

    async def _recover(self, recover: Recover) -> None:
        while tools := self._come():
            for session, scope in sorted(set().union(*map(self._places.pop, tools))):
                try:
                    done = await recover(session, scope)
                except ToolwrightError:  # such as of the store; the next opening recovers them
                    log.exception(
                        "Calls whose tools came late could not be recovered",
                        extra=log_fields("recovery.late_failed", session=session),
                    )
                else:
                    self._note(done)
