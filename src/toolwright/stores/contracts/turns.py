"""The contract of turns in a database: their queue, their state, their events."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from toolwright import jsonx
from toolwright.errors import TurnError
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.sessions import NewMessage, Quota
from toolwright.tools.service_protocols import Sender
from toolwright.tools.turn_protocols import TurnState

ENDED: frozenset[str] = frozenset(("answered", "out_of_budget", "cancelled", "failed"))
"""The states of a turn that has ended."""
PREFIX = "turn_"
"""How the ids of turns begin, unless the caller gave another."""
TURN_SCOPE = "turn/"
"""Prefix of the scopes of the batches of turns. Their calls are recovered with their turn."""
EVENT_GAP = 1_000_000
"""How far the numbers of events jump when a turn continues after a crash: events that were shown before the crash, and
not yet stored, had numbers below."""


def written_caller(call: CallKey) -> str:
    """A call as the turns of its sub-agents name it."""
    return jsonx.encode(list(call)).decode()


class TurnRecord(Struct, frozen=True, kw_only=True, gc=False):
    """A turn in a store. Its values of type bytes are JSON, which the store does not read.

    `owner` is the process that works on it, or that queued it; None where any worker may take it. Each claim raises
    `token`: only the holder of the newest one may write. `answer` is the recorded answer of the model whose calls are
    not all in the history yet. `events` is the number of the last stored event, and `advances` that of the last
    `Advance` of this claim.

    `caller` is the call whose sub-agent the turn is, as `written_caller` writes it, and `above` the scope of the calls
    of the turn that its usage counts for. Only its caller continues such a turn.
    """

    id: str
    session: str
    number: int
    state: TurnState
    message: bytes
    options: bytes
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    owner: str | None = None
    token: int = 0
    progress: bytes = b"{}"
    answer: bytes | None = None
    outcome: bytes | None = None
    cancel_reason: str | None = None
    events: int = 0
    advances: int = 0
    caller: str | None = None
    above: str | None = None


class TurnSteered(TurnError):
    """A turn was sent a message that its model has not seen: it does not answer yet."""

    def __init__(self, id: str) -> None:
        super().__init__(f"The turn {id!r:.200} was sent a message that its model has not seen", "steered")


def is_cancelled_so(turn: TurnRecord, at: float, outcome: bytes) -> bool:
    """True for a turn that this very request ended before it began: it is repeated, because it got no answer."""
    return turn.started_at is None and turn.ended_at == at and turn.outcome == outcome


class NewTurn(Struct, frozen=True, kw_only=True):
    """A turn to be queued. `message` is the content of a user's message, which is appended to the history when the turn
    begins, with the id of the turn in its metadata."""

    id: str
    session: str
    message: bytes
    options: bytes
    at: float
    anywhere: bool = False
    """True when any worker may take it."""
    caller: str | None = None
    above: str | None = None


class EventChunk(NamedTuple):
    """Events that are written together: the number of the last, and their JSON."""

    last: int
    data: bytes


class Advance(Struct, frozen=True, kw_only=True):
    """The next state of a turn. All of it is written, or nothing."""

    id: str
    token: int
    number: int
    """Grows with each of a claim, from 1. One of the number that was written last is the same one, repeated."""
    at: float
    state: TurnState
    progress: bytes
    answer: bytes | None = None
    messages: Sequence[NewMessage] = ()
    """Messages to append to the history of the session: whole units, such as an answer with all its results."""
    events: EventChunk | None = None
    outcome: bytes | None = None
    steered: int | None = None
    """For the end of a turn that answers: the number of the last message to it that its model was given."""


class Steering(NamedTuple):
    """A message to a running turn; its number grows."""

    number: int
    text: str


class TurnSignals(NamedTuple):
    """What others want of a running turn."""

    cancel_reason: str | None
    steering: list[Steering]


StoredMessage: TypeAlias = tuple[int, Sender, bytes, bytes, float]
"""A message of a history: its number, sender, content, metadata and instant."""


class TurnStore(Protocol):
    """The contract of turns in a database. A write is durable once its method has returned.

    Implemented by `stores/sql/sessions/turns.py` and `turns/memory_store.py`.

    The turns of a session are a queue: one at a time runs, in the order in which they were added. A turn of a dead
    owner is the next to be claimed. A verb that its owner repeats after `StoreUnavailable` gives the same result.
    """

    async def add(self, new: NewTurn, quota: Quota) -> TurnRecord:
        """Queue a turn, and begin it at once if it is the first unfinished one of its session and this owner may.

        A turn of the same id and content is returned as it is.

        Raises:
            TurnError: the id is another turn's ("conflict").
            ServiceError: there is no room for its message; then it is not queued.
        """
        ...

    async def claim(self, session: str, at: float, quota: Quota) -> TurnRecord | None:
        """Take the first unfinished turn of a session, if no living owner has it; None otherwise.

        A turn that had not begun is begun: its message is appended to the history. A turn of this owner is given again,
        with a new token.
        """
        ...

    async def release(self, id: str, token: int) -> bool:
        """Give up a claim: from now on no living owner has the turn, as after the death of its owner.

        False when another owner has claimed it since, or when it has ended.
        """
        ...

    async def ready(self, *, anywhere: bool, limit: int = 100) -> builtins.list[str]:
        """Sessions whose first unfinished turn no living owner has. With `anywhere`, also those that any worker may
        take. Turns of sub-agents are not among them."""
        ...

    async def below(self, above: str) -> builtins.list[TurnRecord]:
        """The turns of sub-agents that calls of this scope started, directly or not."""
        ...

    async def of_call(self, caller: str) -> builtins.list[TurnRecord]:
        """The unfinished turns of the sub-agents of a call, the first one first."""
        ...

    async def history(self, session: str, after: int, limit: int) -> builtins.list[StoredMessage]:
        """The messages of a session beyond a number, in order, with all that its turns appended."""
        ...

    def advance(self, advance: Advance, quota: Quota) -> Awaitable[bool]:
        """Write the next state of a turn. False when another owner has claimed it since.

        It is asked for when this returns: a batch that is begun after that is not in the journal before the state is.

        Raises:
            TurnSteered: it has a message beyond `advance.steered`. Nothing is written. So a message that `steer` took
                is given to the model, or the turn ends without an answer.
            ServiceError: there is no room for its messages. Nothing is written.
        """
        ...

    async def log(self, id: str, token: int, events: EventChunk) -> bool:
        """Write events of a running turn. False when another owner has claimed it since.

        They need not survive a power cut."""
        ...

    async def events(self, id: str, after: int, limit: int = 100) -> builtins.list[EventChunk]:
        """The chunks of events whose last number is beyond `after`, in order."""
        ...

    async def signals(self, id: str, after: int) -> TurnSignals:
        """What others want of a turn: whether it is to stop, and the steering messages beyond a number."""
        ...

    async def cancel(self, id: str, reason: str, at: float, outcome: bytes) -> TurnRecord | None:
        """Ask a turn to stop; the first reason stays. A turn that had not begun ends at once, with this outcome.

        None when it has ended already in another way, or when there is no such turn.
        """
        ...

    async def signalled(self) -> dict[str, str | None]:
        """The unfinished turns of this owner that have a signal: why they are to stop, or None for steering only."""
        ...

    async def steer(self, id: str, text: str, at: float) -> bool:
        """Send a message to an unfinished turn. False when it has ended.

        A message of the same text and instant is the same message, repeated.
        """
        ...

    async def find(self, id: str) -> TurnRecord | None:
        """The turn of an id."""
        ...

    async def list(
        self,
        session: str | None,
        *,
        active: bool = False,
        limit: int = 100,
        prefix: str = "",
        before: int | None = None,
    ) -> builtins.list[TurnRecord]:
        """Turns, the newest first; with a prefix, those whose id begins with it. Those of a session are in the order of
        their numbers, and with `before` have smaller ones."""
        ...
