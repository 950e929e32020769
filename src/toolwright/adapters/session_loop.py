"""The loop of a session, from elsewhere. Owns running a coroutine there for code on another loop or on no loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from toolwright.blocking import BlockingPortal
from toolwright.errors import RuntimeClosed, ToolwrightError
from toolwright.session.parts import SharedParts
from toolwright.session.session import Session

if TYPE_CHECKING:
    from toolwright.blocking_types import BlockingSession

T = TypeVar("T")

HEARD_WITHIN = 30.0
"""Seconds within which a loop takes up work from a thread. One that does not is blocked, as a rule by the caller."""
_NOT_RUNNING = (
    "The event loop of the session does not run, so that it cannot run the tools; "
    "run the agent on that loop, or give it a session of Runtime.open_blocking(...)"
)
_CLOSED = "The runtime of the session is closed; open another, and run the agent while it is open"


def session_of(given: Session | BlockingSession) -> Session:
    """The session itself, of the session or of its face for code that is not async.

    Raises:
        ToolwrightError: it is something else.
    """
    session = given._target if isinstance(given, BlockingPortal) else given
    if not isinstance(session, Session):
        raise ToolwrightError(f"{given!r:.200} is not a session; give runtime.session(...)")
    return session


class SessionLoop:
    """Runs coroutines on the loop that the sessions of a runtime live on."""

    __slots__ = ("_loop",)

    def __init__(self, shared: SharedParts) -> None:
        self._loop = shared.lifetime.loop

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await a coroutine on the session's loop; cancelling this cancels it there.

        Raises:
            RuntimeClosed: the loop has ended, or nothing runs it.
        """
        if asyncio.get_running_loop() is self._loop:
            return await make()
        if not self._loop.is_running():
            raise RuntimeClosed(_NOT_RUNNING)
        return await asyncio.wrap_future(self._submit(make))

    def run_blocking(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the session's loop, and block this thread until it is done.

        Raises:
            ToolwrightError: the loop does not take it up, because this thread, or the one that waits for it, runs it.
            RuntimeClosed: the loop has ended, or ends meanwhile.
        """
        if asyncio._get_running_loop() is self._loop:
            raise _blocked()
        heard = concurrent.futures.Future[None]()

        async def run() -> T:
            heard.set_result(None)
            return await make()

        future = self._submit(run)
        try:
            waited: tuple[concurrent.futures.Future[Any], ...] = (heard, future)
            concurrent.futures.wait(waited, HEARD_WITHIN, concurrent.futures.FIRST_COMPLETED)
            if not heard.done() and not future.done():
                raise _blocked()
            return future.result()
        except concurrent.futures.CancelledError:
            raise RuntimeClosed(_CLOSED) from None
        except BaseException:  # an interrupt of the caller also stops what it waited for
            future.cancel()
            raise

    def _submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        work = make()
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise RuntimeClosed(_CLOSED) from None


def _blocked() -> ToolwrightError:
    return ToolwrightError(
        "A blocking call of the agent runs on the event loop of its session, which could not run the tools meanwhile; "
        "use `await agent.ainvoke(...)`, or give it a session of Runtime.open_blocking(...)"
    )
