"""Turns of a runtime without a file. Owns their queue and their state in this process.

The message of a turn goes to the messages of its session when the turn begins, the rest of its history in one write
when it ends or waits: nothing here outlives the process, so that writing it earlier would only cost time.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Sequence
from itertools import chain

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import ServiceError, TurnError
from toolwright.stores.contracts.sessions import MessageStore, NewMessage, Quota
from toolwright.stores.contracts.turns import (
    ENDED,
    Advance,
    EventChunk,
    NewTurn,
    Steering,
    StoredMessage,
    TurnRecord,
    TurnSignals,
    TurnSteered,
    is_cancelled_so,
)

MOST_ENDED = 10_000
"""How many turns that have ended are remembered."""


class MemoryTurnStore:
    """`TurnStore` in this process."""

    def __init__(self, messages: Callable[[], MessageStore]) -> None:
        self._messages = messages
        self._turns: dict[str, TurnRecord] = {}
        self._queues: dict[str, builtins.list[str]] = {}
        self._numbers: dict[str, int] = {}
        self._unwritten: dict[str, builtins.list[Sequence[NewMessage]]] = {}
        """For each session the units that its messages do not have yet, in order."""
        self._steering: dict[str, dict[tuple[float, str], Steering]] = {}
        self._beginning: dict[str, asyncio.Future[None]] = {}
        """The turns whose first message is being appended: they are not claimed before it is."""
        self._ending: set[str] = set()
        """The turns whose last messages are being appended: they are no longer steered."""
        self._ended: builtins.list[str] = []

    async def add(self, new: NewTurn, quota: Quota) -> TurnRecord:
        known = self._turns.get(new.id)
        if known is not None:
            if (known.session, known.message) != (new.session, new.message):
                raise TurnError(
                    f"The id {new.id!r:.200} is that of another turn; give each turn its own id, or the same message",
                    "conflict",
                )
            return known
        number = self._numbers[new.session] = self._numbers.get(new.session, 0) + 1
        turn = self._turns[new.id] = TurnRecord(
            id=new.id,
            session=new.session,
            number=number,
            state="queued",
            message=new.message,
            options=new.options,
            created_at=new.at,
            owner=None if new.anywhere else "memory",
            caller=new.caller,
            above=new.above,
        )
        queue = self._queues.setdefault(new.session, [])
        queue.append(new.id)
        if len(queue) > 1 or new.anywhere:
            return turn
        try:
            return await self._take(turn, new.at, quota)
        except Exception:
            self._leave_queue(new.id, new.session)
            del self._turns[new.id]
            raise

    async def claim(self, session: str, at: float, quota: Quota) -> TurnRecord | None:
        while queue := self._queues.get(session):
            begun = self._beginning.get(queue[0])
            if begun is None:
                return await self._take(self._turns[queue[0]], at, quota)
            await asyncio.wait({begun})
        return None

    async def release(self, id: str, token: int) -> bool:
        turn = self._turns.get(id)
        if turn is None or turn.token != token or turn.ended_at is not None:
            return False
        self._turns[id] = replace(turn, owner=None)
        return True

    async def ready(self, *, anywhere: bool, limit: int = 100) -> builtins.list[str]:
        if not anywhere:
            return []
        heads = [self._turns[queue[0]] for queue in self._queues.values() if queue]
        return [head.session for head in heads if head.owner is None][:limit]

    async def below(self, above: str) -> builtins.list[TurnRecord]:
        return [turn for turn in self._turns.values() if turn.above == above]

    async def of_call(self, caller: str) -> builtins.list[TurnRecord]:
        unfinished = [self._turns[id] for queue in self._queues.values() for id in queue]
        return [turn for turn in unfinished if turn.caller == caller]

    async def _take(self, turn: TurnRecord, at: float, quota: Quota) -> TurnRecord:
        self._turns[turn.id] = replace(
            turn,
            state="running",
            owner="memory",
            token=turn.token + 1,
            advances=0,
            started_at=at if turn.started_at is None else turn.started_at,
        )
        if turn.started_at is None:
            message = NewMessage("user", turn.message, jsonx.encode({"turn": turn.id}))
            begun = self._beginning[turn.id] = asyncio.get_running_loop().create_future()
            try:
                # At once: a turn without room for its message does not begin.
                await self._messages().append_messages(turn.session, [message], at, quota, None)
            except Exception:  # not where the caller is cancelled: the message is appended all the same
                self._turns[turn.id] = turn
                raise
            finally:
                del self._beginning[turn.id]
                begun.set_result(None)
        return self._turns[turn.id]

    async def history(self, session: str, after: int, limit: int) -> builtins.list[StoredMessage]:
        messages = self._messages()
        rows = await messages.list_messages(session, after, limit)
        unwritten = builtins.list(chain.from_iterable(self._unwritten.get(session, ())))
        if len(rows) < limit and unwritten:
            last = rows[-1][0] if rows else 0
            if not rows and after > 0:
                # The number of the last written message, or one from which on no unwritten message is beyond `after`.
                last = max(0, after - len(unwritten))
                earlier = await messages.list_messages(session, last, len(unwritten))
                last = earlier[-1][0] if earlier else last
            rows += [(number, *message, 0.0) for number, message in enumerate(unwritten, last + 1) if number > after]
        return rows[:limit]

    async def advance(self, advance: Advance, quota: Quota) -> bool:
        turn = self._turns.get(advance.id)
        if turn is None or turn.token != advance.token:
            return False
        if turn.ended_at is not None or advance.number <= turn.advances:
            return advance.number == turn.advances
        if advance.steered is not None and (await self.signals(advance.id, advance.steered)).steering:
            raise TurnSteered(advance.id)
        session = turn.session
        if advance.messages:
            self._unwritten.setdefault(session, []).append(advance.messages)
        ended = advance.state in ENDED
        if (ended or advance.state == "waiting") and session in self._unwritten:
            if ended:
                self._ending.add(advance.id)
            try:
                await self._write(session, self._unwritten.pop(session), advance.at, quota)
            finally:
                self._ending.discard(advance.id)
        self._turns[advance.id] = replace(
            self._turns[advance.id],
            advances=advance.number,
            state=advance.state,
            progress=advance.progress,
            answer=advance.answer,
            outcome=advance.outcome,
            ended_at=advance.at if ended else None,
        )
        if ended:
            self._end(advance.id, session)
        return True

    async def _write(self, session: str, units: builtins.list[Sequence[NewMessage]], at: float, quota: Quota) -> None:
        """Append units to the messages of a session; where there is no room for all of them, the first ones."""
        messages = self._messages()
        try:
            await messages.append_messages(session, builtins.list(chain.from_iterable(units)), at, quota, None)
        except ServiceError:
            for unit in units:
                await messages.append_messages(session, unit, at, quota, None)
            raise

    def _leave_queue(self, id: str, session: str) -> None:
        queue = self._queues[session]
        queue.remove(id)
        if not queue:
            del self._queues[session]

    def _end(self, id: str, session: str) -> None:
        self._leave_queue(id, session)
        self._steering.pop(id, None)
        self._ended.append(id)
        if len(self._ended) > MOST_ENDED:
            del self._turns[self._ended.pop(0)]

    async def log(self, id: str, token: int, events: EventChunk) -> bool:
        return True  # the log of a turn in this process remembers its events

    async def events(self, id: str, after: int, limit: int = 100) -> builtins.list[EventChunk]:
        return []

    async def signals(self, id: str, after: int) -> TurnSignals:
        turn = self._turns.get(id)
        steering = [each for each in self._steering.get(id, {}).values() if each.number > after]
        return TurnSignals(None if turn is None else turn.cancel_reason, steering)

    async def cancel(self, id: str, reason: str, at: float, outcome: bytes) -> TurnRecord | None:
        turn = self._turns.get(id)
        if turn is None or turn.ended_at is not None:
            return turn if turn is not None and is_cancelled_so(turn, at, outcome) else None
        turn = self._turns[id] = replace(turn, cancel_reason=turn.cancel_reason or reason)
        if turn.started_at is None:
            turn = self._turns[id] = replace(turn, state="cancelled", ended_at=at, outcome=outcome)
            self._end(id, turn.session)
        return turn

    async def signalled(self) -> dict[str, str | None]:
        return {
            id: turn.cancel_reason
            for id, turn in self._turns.items()
            if turn.ended_at is None and (turn.cancel_reason is not None or id in self._steering)
        }

    async def steer(self, id: str, text: str, at: float) -> bool:
        turn = self._turns.get(id)
        if turn is None or turn.ended_at is not None or id in self._ending:
            return False
        sent = self._steering.setdefault(id, {})
        sent.setdefault((at, text), Steering(len(sent) + 1, text))
        return True

    async def find(self, id: str) -> TurnRecord | None:
        return self._turns.get(id)

    async def list(
        self,
        session: str | None,
        *,
        active: bool = False,
        limit: int = 100,
        prefix: str = "",
        before: int | None = None,
    ) -> builtins.list[TurnRecord]:
        found = [
            turn
            for turn in reversed(self._turns.values())
            if (session is None or (turn.session == session and (before is None or turn.number < before)))
            and not (active and turn.ended_at is not None)
            and turn.id.startswith(prefix)
        ]
        return found[:limit]

    # --- whole sessions, whose other records a store in memory has elsewhere

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many turns each session has, and how many of them are unfinished."""
        found: dict[str, tuple[int, int]] = {}
        for turn in self._turns.values():
            count, unfinished = found.get(turn.session, (0, 0))
            found[turn.session] = count + 1, unfinished + (turn.ended_at is None)
        return found

    def forget(self, session: str) -> bool:
        """Forget the turns of a session that is deleted, which have all ended; True when there were some."""
        gone = [id for id, turn in self._turns.items() if turn.session == session and turn.ended_at is not None]
        for id in gone:
            del self._turns[id]
        self._ended = [id for id in self._ended if id in self._turns]
        if session not in self._queues:
            self._numbers.pop(session, None)
        return bool(gone)
