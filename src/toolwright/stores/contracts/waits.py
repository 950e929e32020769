"""The contract of waits of calls. Owns the name of a wait, its resolution, the verbs of its store.

A wait belongs to a call and has a name within it: the call's own completion, an event it named, an approval. The first
answer resolves it; a resolution stays. The signed text form of its name is `effects/wait_keys.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from toolwright.stores.contracts.journal import CallKey, Cursor
from toolwright.tools.outcome import Failure

WaitKind = Literal["completion", "event", "approval", "crash", "signal", "connection", "question"]
"""The kind of a wait: the call's completion, an event it named, a person's approval to run, or to run again after a
crash, a connection of its session, a person's answer to a question of its tool.

Signals are waited for one after the other. The wait of their name stands for all of them, and only ends when it is
cancelled.
"""
APPROVALS: tuple[WaitKind, ...] = ("approval", "crash")
"""The decision of a person whether a call runs."""
INBOX: tuple[WaitKind, ...] = (*APPROVALS, "question")
"""Whatever a person decides or answers."""


class WaitKey(Struct, frozen=True, order=True, array_like=True, gc=False):
    """The identity of one wait."""

    call: CallKey
    kind: WaitKind
    name: str = ""


class Resolution(Struct, frozen=True, gc=False):
    """How a wait ended. `payload` is the JSON of its value. `by` names the person or program that decided, if known,
    and `via` the way on which the decision came, such as an address."""

    status: Literal["ok", "error", "cancelled", "expired"]
    at: float
    payload: bytes = b"null"
    failure: Failure | None = None
    reason: str | None = None
    by: str | None = None
    via: str | None = None


BY_CALL = "\0call"
"""The `by` of a wait that its call ended itself. No other can have this name."""


class Wait(Struct, frozen=True, gc=False):
    """A wait that began, or that was resolved before it did. Instants are absolute: a restart does not restart them.

    `detail` is JSON for the person who decides: for an approval, the request; for a question, its text and schema.
    """

    key: WaitKey
    opened_at: float | None = None
    deadline: float | None = None
    detail: bytes = b"null"
    resolution: Resolution | None = None


class Refused(Struct, frozen=True, gc=False):
    """Why a store refuses a resolution: the call is unknown, its session is revoked, or it is finished."""

    why: Literal["unknown", "revoked", "over"]


class Standing(Struct, frozen=True, gc=False):
    """The state of a wait after it was resolved. `first` is False if another answer came before."""

    first: bool
    resolution: Resolution


class Remembered(Struct, frozen=True, gc=False):
    """A decision that applies to later calls of a session too: calls of one tool whose arguments match.

    `pattern` is the JSON of an object: each of its fields must be among the arguments, equal, or for text matching as a
    shell-style pattern does.
    """

    session: str
    tool_id: str
    effect: Literal["allow", "deny"]
    pattern: bytes
    at: float
    reason: str | None = None
    by: str | None = None
    via: str | None = None


class Decided(Struct, frozen=True, gc=False):
    """A request to a person that was decided. `number` rises with each: the newest has the highest."""

    number: int
    wait: Wait


class Arrivals(Struct, frozen=True, gc=False):
    """Resolutions and signals since a reader last looked, from any process. `cursor` is the place to continue from."""

    cursor: Cursor
    resolved: list[Wait]
    signals: list[WaitKey]


class WaitStore(Protocol):
    """The contract of waits in a database. A write is durable once its method has returned.

    Implemented by `stores/sql/calls/waits.py` and `effects/memory.py`.

    A wait is only opened for an unfinished call of this process; anybody may resolve it. A fault of the store is raised
    as `StoreError` and resolves nothing.
    """

    secret: bytes
    """The secret that signs wait keys: made with the store, the same in every process that opens it."""

    async def open_wait(self, wait: Wait) -> Wait | None:
        """Begin a wait, and return its state: a wait that began before keeps its deadline and detail, and a resolved
        one its resolution. In a revoked session it is resolved as cancelled. None when the call is not, or no longer,
        this process's.
        """
        ...

    async def resolve(
        self, key: WaitKey, resolution: Resolution, remember: Remembered | None = None
    ) -> Standing | Refused:
        """Resolve a wait, whether it began or not, and remember the decision if it is the first."""
        ...

    async def end_wait(self, key: WaitKey, resolution: Resolution) -> Resolution | None:
        """Resolve a wait for the call itself, which ends without it; return the earlier resolution if there is one.

        It cannot be resolved from then on. Where the call is not, or no longer, this process's, nothing is written and
        None is returned.
        """
        ...

    async def cancel_waits(self, session: str, resolution: Resolution, *, revoke: bool = False) -> list[WaitKey]:
        """Resolve every wait of a session's unfinished calls that has no resolution; return their keys, oldest first.

        `revoke` also refuses whatever would be resolved or opened there later.
        """
        ...

    async def arrivals(self, since: Cursor | None) -> Arrivals:
        """The resolutions and signals after `since`; without it, only the current cursor."""
        ...

    async def waiting(self, session: str | None = None, kinds: Sequence[WaitKind] = ()) -> list[Wait]:
        """The waits of unfinished calls that began and have no resolution, oldest first."""
        ...

    async def signal(self, key: WaitKey, payload: bytes, at: float) -> int | Refused:
        """Append to the signals of a name, and return how many there are now."""
        ...

    async def signals(self, key: WaitKey, after: int = 0) -> list[bytes]:
        """The signals of a name in the order they came, without the first `after`."""
        ...

    async def waits_of(self, call: CallKey, kind: WaitKind) -> list[Wait]:
        """The waits of a call of one kind that began, finished or not, oldest first."""
        ...

    async def decided(
        self, session: str | None, before: int | None, limit: int, kinds: Sequence[WaitKind] = APPROVALS
    ) -> list[Decided]:
        """The requests to a person that began and have a resolution, the newest first, with numbers below `before`.

        `kinds` are among those of `INBOX`.
        """
        ...

    async def remembered(self, session: str) -> list[Remembered]:
        """The decisions that hold in a session, the newest first."""
        ...
