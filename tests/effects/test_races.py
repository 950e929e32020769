"""A thousand decisions that everybody makes at once, from two runtimes on one file: one stands, and all are told it."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import KeyRefused, Pending, Policy, Runtime, ToolCall, ToolContext, jsonx, tool
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FakeClock

CALLS = 100
ROUNDS = 5


class Race:
    """The calls of one round, and what everybody was told about each."""

    def __init__(self, runtimes: list[Runtime], clock: FakeClock, chance: random.Random) -> None:
        self.runtimes = runtimes
        self.clock = clock
        self.chance = chance
        self.told: dict[int, list[Any]] = {}
        self.lasting: dict[int, set[str]] = {}
        self.stopped: set[int] = set()
        self.batches: dict[int, Any] = {}
        self.ticking = asyncio.Lock()

    async def run(
        self, name: str, numbers: range, key_of: Callable[[int], Awaitable[str]], ticks: int
    ) -> dict[int, Any]:
        """Start the calls in one runtime, let everybody decide about them in both, and return the outcomes.

        Meanwhile the clock makes some `ticks`, of which four pass every deadline.
        """
        home = self.chance.choice(self.runtimes)
        events = home.subscribe()
        for number in numbers:
            calls = [ToolCall(id=f"c{number}", name=name, arguments={"n": number})]
            self.batches[number] = home.session("s").start_batch(calls)
        for _ in numbers:
            await waiting(events)
        contenders: list[Callable[[], Awaitable[None]]] = []
        for number in numbers:
            key = await key_of(number)
            contenders += [self._contender(name, number, key) for _ in range(self.chance.randint(0, 4))]
        contenders += [self._tick] * ticks
        self.chance.shuffle(contenders)
        await asyncio.gather(*(contender() for contender in contenders))
        outcomes = {}
        for number in numbers:
            settled = asyncio.ensure_future(self.batches[number].wait())
            while not settled.done():
                await self.clock.advance(0.1)
                await asyncio.wait((settled,), timeout=0.01)
            (outcomes[number],) = settled.result()
        return outcomes

    def _contender(self, name: str, number: int, key: str) -> Callable[[], Awaitable[None]]:
        runtime = self.chance.choice(self.runtimes)
        tag = f"{self.chance.randrange(10**9)}"
        always = {"n": number} if name == "gated" and self.chance.random() < 0.3 else None
        verbs: dict[str, Callable[[], Awaitable[Any]]] = {
            "approve": lambda: runtime.approve(key, always=always, by=tag),
            "deny": lambda: runtime.deny(key, reason=tag, always=always),
            "resolve": lambda: runtime.resolve(key, tag),
            "reject": lambda: runtime.reject(key, message=tag),
            "cancel": lambda: runtime.cancel(key, reason=tag),
        }
        choices = ("approve", "deny") if name == "gated" else ("resolve", "reject", "cancel")
        verb = self.chance.choice(choices)
        if self.chance.random() < 0.1:
            return lambda: self._stop(number)

        async def contend() -> None:
            try:
                told = await verbs[verb]()
            except KeyRefused as refused:
                told = refused
            self.told.setdefault(number, []).append(told)
            if not isinstance(told, KeyRefused) and told.first and always is not None:
                self.lasting.setdefault(number, set()).add("allow" if verb == "approve" else "deny")

        return contend

    async def _tick(self) -> None:
        async with self.ticking:  # The clock goes one step after the other.
            await self.clock.advance(15.5)

    async def _stop(self, number: int) -> None:
        self.stopped.add(number)
        self.batches[number].cancel("stopped")

    def judge(self, number: int, outcome: Any) -> str:
        """Who won; everybody must have been told the same, and the outcome must agree."""
        told = self.told.get(number, [])
        resolved = [one for one in told if not isinstance(one, KeyRefused)]
        firsts = [one for one in resolved if one.first]
        stands = {(one.status, jsonx.encode(one.value), one.reason, one.at) for one in resolved}
        assert len(stands) <= 1, told
        assert len(firsts) <= 1, told
        if outcome.status == "cancelled" and outcome.reason == "stopped":
            assert number in self.stopped
            return "stopped"
        if firsts or resolved:
            status = resolved[0].status
            assert (status == "expired") == (not firsts), told
        else:
            status = "expired"
        shown = {"success": "ok", "cancelled": "cancelled"}.get(outcome.status, "error")
        if outcome.failure is not None and outcome.failure.code in ("approval_expired", "expired"):
            shown = "expired"
        assert shown == status, (outcome, told)
        if firsts and firsts[0].reason is not None:
            assert firsts[0].reason in outcome.text
        return status


@pytest.mark.promise("AUTH-03", "AUTH-04", "WAIT-01", "WAIT-02")
async def test_of_a_thousand_decisions_made_at_once_each_has_one_winner_and_all_are_told(file, open_runtime):
    clock, chance = FakeClock(), random.Random(20240611)
    ran: Counter[int] = Counter()
    keys: dict[int, str] = {}

    @tool(parallel=True, approval="required")
    async def gated(n: int) -> int:
        ran[n] += 1
        return n

    @tool(parallel=True)
    async def pending(ctx: ToolContext, n: int) -> Pending:
        ran[n] += 1
        keys[n] = ctx.completion_key()
        return Pending(deadline=5 + n % 55)

    policy = Policy(approval_timeout=60, on_loop="ignore", grace=1)
    options = {"clock": clock, "policy": policy, "sync": "normal"}
    store = SqliteStore(file, clock=clock)
    runtimes = [await open_runtime(place, gated, pending, **options) for place in (store, file)]
    race = Race(runtimes, clock, chance)

    async def approval_key(number: int) -> str:
        if number not in keys:
            keys.update({approval.arguments["n"]: approval.key for approval in await runtimes[0].approvals()})
        return keys[number]

    async def completion_key(number: int) -> str:
        return keys[number]

    won: Counter[tuple[str, str]] = Counter()
    async with fail_after(60):
        firsts = itertools.count(0, CALLS)
        # In the first round nothing expires, however slow the machine is: there, people decide.
        for ticks in (0, *[4] * (ROUNDS - 1)):
            for name, key_of in (("gated", approval_key), ("pending", completion_key)):
                first = next(firsts)
                outcomes = await race.run(name, range(first, first + CALLS), key_of, ticks)
                for number, outcome in outcomes.items():
                    winner = race.judge(number, outcome)
                    won[name, winner] += 1
                    assert ran[number] == (1 if name == "pending" else outcome.ok), (outcome, winner)
        remembered = await store.waits.remembered("s")
    kept = {jsonx.decode(one.pattern)["n"]: {one.effect} for one in remembered}
    assert kept == race.lasting
    assert len(remembered) == len(kept) > 0
    assert set(won) == {("gated", end) for end in ("ok", "error", "expired", "stopped")} | {
        ("pending", end) for end in ("ok", "error", "cancelled", "expired", "stopped")
    }
