"""The contract of a journal for calls: which call has the outcome of a call id, recorded before any caller sees it.

`MemoryJournal` (`memory.py`) remembers for the life of the process, `StoreJournal` (`store.py`) in a store that stays.
Both pass the cases of `toolwright.testing.conformance.call_journals`. A journal that has nothing to wait for
says so by its return value, and the call continues at once. A journal neither runs calls nor makes outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.outcome import ToolOutcome

CallT = TypeVar("CallT")
"""A call on its way: `toolwright.calls.active_call.ActiveCall`."""
Started = Callable[[CallT, Exception | None], None]
"""Called once the start of a call is written: with None, or with the fault of the store."""
Entered = Callable[[CallT, Exception | None], None]
"""Called once other processes know the claims of a call: with None, or with the fault of the store."""
Concluded = Callable[[CallT, ToolOutcome, Exception | None], None]
"""Called once the outcome of a call is written: with None, or with the fault of the store."""


class CallJournal(Protocol[CallT]):
    """Remembers the calls of a session: admitted, started, concluded."""

    def admit(self, calls: Sequence[CallT]) -> Coroutine[Any, Any, None] | None:
        """Compare the calls of one batch with earlier ones, all or none; None when that is done already.

        A call that finished before gets its outcome, a running call is shared, a call that a crash cut off follows the
        crash policy of its tool. The caller awaits the result before any of the calls runs.

        Raises:
            ReplayMismatch: a call id was used before, for something else. Nothing runs.
            StoreError: the journal could not be written. Nothing runs.
        """
        ...

    def is_known(self, call: CallT) -> bool:
        """False for a call of which the journal has not said yet whether it came before."""
        ...

    def started(self, call: CallT, then: Started[CallT]) -> bool:
        """Write that a call starts. True when there is nothing to wait for, and `then` is not called."""
        ...

    def enter_order(self, calls: Sequence[CallT], then: Entered[CallT]) -> None:
        """Let other processes know the claims of calls of a session that stand in the order from now on. `then` is
        called for each, when its `elsewhere` has the calls of other processes that it must wait for. Only for a journal
        that is lasting."""
        ...

    def wait_elsewhere(self, call: CallT, free: Callable[[], None]) -> None:
        """Call `free` when a call must not wait for calls of other processes any more. Only for a journal that is
        lasting."""
        ...

    def will_record(self, call: CallT, outcome: ToolOutcome) -> bool:
        """True when a call ends with this outcome or can run again; False when it is left as a crash leaves it."""
        ...

    def concluded(self, call: CallT, outcome: ToolOutcome, then: Concluded[CallT]) -> bool:
        """Write the outcome of a call. True when it is remembered already, and `then` is not called."""
        ...

    @property
    def lasting(self) -> bool:
        """True when calls outlive the process."""
        ...

    def leave(self, call: CallT) -> None:
        """Leave an unfinished call that does nothing but wait, as the end of the process would; it may be admitted
        again. Only for a journal that is lasting."""
        ...

    def uses_effects(self, key: CallKey) -> None:
        """A call has steps or waits from now on, which are remembered until it has its outcome."""
        ...

    def forget_finished(self) -> None:
        """Let finished calls run again where only this process remembers them. No call of the session may run."""
        ...

    def close(self) -> None:
        """The runtime closes: calls that are stopped from now on are left as a crash leaves them."""
        ...
