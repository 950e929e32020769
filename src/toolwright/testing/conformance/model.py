"""Random verbs, played on a store and on its model. Owns the choice of verbs; the model is `MemoryStore`.

Cases show the duties of a store; this finds the cases that nobody thought of. Calls and names are few, so that verbs
meet.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import NO_CLAIMS, CallKey, Cursor, Ended, Entry, Holder, Kept
from toolwright.stores.contracts.store import Store
from toolwright.stores.contracts.waits import Arrivals, Remembered, Resolution, Wait, WaitKey
from toolwright.testing.conformance.cases import Database, intent, success
from toolwright.testing.conformance.memory import InMemory

_CALLS = [CallKey(session, scope, name) for session in ("s1", "s2") for scope in ("", "x") for name in ("a", "b", "c")]
_WAITS: list[tuple[Any, str]] = [
    ("completion", ""),
    ("event", "e1"),
    ("event", "e2"),
    ("approval", ""),
    ("crash", ""),
    ("question", "q"),
]
_OFTEN = {
    "begin": 8,
    "hold": 2,
    "holders": 2,
    "unfinished": 2,
    "arrivals": 4,
    "open_wait": 6,
    "resolve": 6,
    "keep": 4,
    "keep_all": 3,
    "effects": 2,
    "finish_all": 2,
}
_ONCE = (
    "start",
    "finish",
    "forget",
    "release",
    "reopen",
    "cancel_waits",
    "waiting",
    "signal",
    "signals",
    "remembered",
    "waits_of",
    "end",
)


class _Owner:
    """One owner of both: of the store that is tested, and of the model."""

    def __init__(self, tested: Store, model: Store) -> None:
        self.both = (tested, model)
        self.cursors: list[Cursor | None] = [None, None]


class _Play:
    def __init__(self, database: Database, seed: int, owners: int) -> None:
        self._database = database
        self._model = InMemory()
        self._random = random.Random(seed)
        self._owners: list[_Owner] = []
        self._ghosts: list[_Owner] = []
        self._count = owners
        self._names: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._said: list[str] = []
        self._now = 1000.0

    async def run(self, steps: int) -> None:
        verbs = [*_ONCE, *(verb for verb, times in _OFTEN.items() for _ in range(times))]
        for _ in range(self._count):
            await self._open()
        for _ in range(steps):
            self._now += self._random.choice((0.0, 0.5, 1.0))  # some at the same instant
            await getattr(self, f"_{self._random.choice(verbs)}")()

    async def _open(self) -> None:
        owner = _Owner(await self._database.open(), await self._model.open())
        for names, store in zip(self._names, owner.both, strict=True):
            names[store.journal.owner] = len(names)
        self._owners.append(owner)

    async def _same(self, said: str, ask: Callable[[Store], Awaitable[Any]], owner: _Owner | None = None) -> object:
        """Ask both, and require one answer."""
        asked = owner or self._random.choice(self._owners)
        number = self._names[0][asked.both[0].journal.owner]
        answers = [_plain(await ask(store), names) for store, names in zip(asked.both, self._names, strict=True)]
        self._said.append(f"owner {number}: {said} -> {answers[1]!r}")
        assert answers[0] == answers[1], "\n".join(
            ["The store and its model differ:", *self._said[-40:], f"but the store said {answers[0]!r}"]
        )
        return answers[1]

    def _key(self) -> CallKey:
        return self._random.choice(_CALLS)

    def _wait_key(self) -> WaitKey:
        return WaitKey(self._key(), *self._random.choice(_WAITS))

    def _writer(self, key: CallKey) -> _Owner | None:
        """The writer: an owner, or a killed one whose call was taken over by another."""
        call = self._model.rows.calls.get(key)
        ghosts = [ghost for ghost in self._ghosts if call is None or call.owner != ghost.both[1].journal.owner]
        return self._random.choice(ghosts) if ghosts and self._random.random() < 0.15 else None

    async def _begin(self) -> None:
        session, scope, _ = self._key()
        names = self._random.sample("abc", self._random.randint(1, 3))
        claims = [self._random.choice((None, None, NO_CLAIMS, "x")) for _ in names]
        intents = [
            replace(intent(CallKey(session, scope, name), position=place, queued_at=self._now), claims=held)
            for place, (name, held) in enumerate(zip(names, claims, strict=True))
        ]

        async def ask(store: Store) -> object:
            begun = await store.journal.begin(intents)
            # The parallel ones need not be told to those that are parallel.
            others = [holder for holder in begun.others if any(claims) or holder.claims is not None]
            return list(begun), sorted(others, key=lambda holder: holder.key)

        await self._same(f"begin {session} {scope!r} {names} with claims {claims}", ask)

    async def _hold(self) -> None:
        session, scope, _ = self._key()
        held = [(CallKey(session, scope, name), f"{name} at {self._now}") for name in self._random.sample("abc", 2)]

        async def ask(store: Store) -> object:
            return sorted(await store.journal.hold(held), key=lambda holder: holder.key)

        await self._same(f"hold {held}", ask, self._writer(held[0][0]))

    async def _holders(self) -> None:
        sessions = self._random.choice((["s1"], ["s2"], ["s1", "s2"]))

        async def ask(store: Store) -> object:
            return sorted(await store.journal.holders(sessions), key=lambda holder: holder.key)

        await self._same(f"holders {sessions}", ask)

    async def _start(self) -> None:
        key, now = self._key(), self._now
        await self._same(f"start {key}", lambda store: store.journal.start(key, now), self._writer(key))

    async def _finish(self) -> None:
        key, now = self._key(), self._now
        outcome = success(key, b"%d" % self._random.randrange(100))
        if self._random.random() < 0.2:
            outcome = replace(outcome, status="connection_required", provider="airline")
        await self._same(f"finish {key}", lambda store: store.journal.finish(key, outcome, now, now), self._writer(key))

    def _some_calls(self) -> tuple[_Owner | None, list[CallKey]]:
        """Up to three calls, and mostly an owner of all of them: else one is nearly always somebody else's."""
        calls = self._model.rows.calls
        fresh = list(_CALLS)
        owner = self._random.choice(self._owners) if self._random.random() < 0.7 else None
        if owner is not None:
            name = owner.both[1].journal.owner
            fresh = [key for key in fresh if key in calls and not calls[key].over and calls[key].owner == name]
        return owner, self._random.sample(fresh, min(len(fresh), self._random.randint(1, 3)))

    async def _finish_all(self) -> None:
        owner, keys = self._some_calls()
        ended = [
            Ended(key, success(key, b"%d" % self._random.randrange(100)), self._now, self._now, waited=True)
            for key in keys
        ]

        async def ask(store: Store) -> bool:
            try:
                await store.journal.finish_all(ended)
            except StoreError:
                return False
            return True

        await self._same(f"finish all of {keys}", ask, owner or (self._writer(keys[0]) if keys else None))

    async def _forget(self) -> None:
        key = self._key()
        await self._same(f"forget {key}", lambda store: store.journal.forget(key), self._writer(key))

    async def _release(self) -> None:
        key = self._key()
        await self._same(f"release {key}", lambda store: store.journal.release(key), self._writer(key))

    async def _reopen(self) -> None:
        key = self._key()
        await self._same(f"reopen {key}", lambda store: store.journal.reopen(key), self._writer(key))

    async def _unfinished(self) -> None:
        session = self._random.choice((None, "s1", "s2"))
        await self._same(f"unfinished {session}", lambda store: store.journal.unfinished(session))

    async def _keep(self) -> None:
        key, done = self._key(), self._random.random() < 0.5
        kept = Kept(f"step:{self._random.choice('xyz')}", b"1", self._now, done, b"2" if done else b"null")
        await self._same(f"keep {key} {kept}", lambda store: store.journal.keep(key, kept), self._writer(key))

    async def _keep_all(self) -> None:
        owner, keys = self._some_calls()
        kept = [(key, Kept(f"step:{self._random.choice('xyz')}", b"1", self._now, True, b"3")) for key in keys]

        async def ask(store: Store) -> bool:
            try:
                await store.journal.keep_all(kept)
            except StoreError:
                return False
            return True

        await self._same(f"keep all {kept}", ask, owner or (self._writer(keys[0]) if keys else None))

    async def _effects(self) -> None:
        key = self._key()
        await self._same(f"effects {key}", lambda store: store.journal.effects(key))

    async def _open_wait(self) -> None:
        wait = Wait(self._wait_key(), self._now, self._random.choice((None, self._now + 60)), b'"detail"')
        await self._same(f"open {wait}", lambda store: store.waits.open_wait(wait), self._writer(wait.key.call))

    async def _resolve(self) -> None:
        key = self._wait_key()
        resolution = Resolution(self._random.choice(("ok", "error", "expired")), self._now, b"3", by="somebody")
        remember = Remembered(key.call.session, "t", self._random.choice(("allow", "deny")), b"{}", self._now)
        given = self._random.choice((None, remember))
        await self._same(f"resolve {key} {given}", lambda store: store.waits.resolve(key, resolution, given))

    async def _cancel_waits(self) -> None:
        session = self._random.choice(("s1", "s2", "s3"))
        revoke = self._random.random() < 0.05
        resolution = Resolution("cancelled", self._now)
        await self._same(
            f"cancel {session} {revoke=}", lambda store: store.waits.cancel_waits(session, resolution, revoke=revoke)
        )

    async def _arrivals(self) -> None:
        owner = self._random.choice(self._owners)
        cursors = owner.cursors
        news = [await store.waits.arrivals(since) for store, since in zip(owner.both, cursors, strict=True)]
        owner.cursors = [found.cursor for found in news]
        answers = iter(news)

        async def next_answer(_: Store) -> Arrivals:
            return next(answers)

        await self._same("arrivals", next_answer, owner)

    async def _waiting(self) -> None:
        session = self._random.choice((None, "s1", "s2"))
        kinds: Any = self._random.choice(((), ("approval", "crash"), ("crash",), ("event", "approval"), ("question",)))
        await self._same(f"waiting {session} {kinds}", lambda store: store.waits.waiting(session, kinds))

    async def _signal(self) -> None:
        key, payload = WaitKey(self._key(), "signal", "go"), b"%d" % self._random.randrange(1000)
        now = self._now
        await self._same(f"signal {key} {payload!r}", lambda store: store.waits.signal(key, payload, now))

    async def _signals(self) -> None:
        key, after = WaitKey(self._key(), "signal", "go"), self._random.randrange(3)
        await self._same(f"signals {key} {after}", lambda store: store.waits.signals(key, after))

    async def _remembered(self) -> None:
        session = self._random.choice(("s1", "s2"))
        await self._same(f"remembered {session}", lambda store: store.waits.remembered(session))

    async def _waits_of(self) -> None:
        key, kind = self._key(), self._random.choice(_WAITS)[0]
        await self._same(f"waits_of {key} {kind}", lambda store: store.waits.waits_of(key, kind))

    async def _end(self) -> None:
        """An owner closes, or is killed; another opens."""
        owner = self._owners.pop(self._random.randrange(len(self._owners)))
        if self._random.random() < 0.5:
            for store in owner.both:
                await store.close()
        else:
            await self._database.kill(owner.both[0])
            await self._model.kill(owner.both[1])
            self._ghosts.append(owner)
        self._said.append(f"owner {self._names[0][owner.both[0].journal.owner]} ends")
        await self._open()


def _plain(answer: object, names: dict[str, int]) -> object:
    """An answer in a form that two stores share: owners by number, cursors left out."""
    if isinstance(answer, tuple):
        return [_plain(item, names) for item in answer]
    if isinstance(answer, Holder):
        return replace(answer, owner=str(names.get(answer.owner)))
    if isinstance(answer, list):
        if answer and isinstance(answer[0], Kept):
            answer = sorted(answer, key=lambda kept: kept.label)  # promised in no order
        return [_plain(item, names) for item in answer]
    if isinstance(answer, Entry):
        # A database that is tried as if all calls may run again counts other crashes than the model.
        return replace(answer, owner=str(names.get(answer.owner)), crashes=0)
    if isinstance(answer, Arrivals):
        return msgspec.to_builtins(replace(answer, cursor=""))
    return answer


async def play_random_verbs(database: Database, *, seed: int, steps: int = 300, owners: int = 3) -> None:
    """Play the same random verbs on a new database and on the model, and close the database.

    Raises:
        AssertionError: an answer differs; the last verbs are listed.
    """
    try:
        await _Play(database, seed, owners).run(steps)
    finally:
        await database.close()
