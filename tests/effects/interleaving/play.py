"""One random world: several processes on one database, and whoever calls, resolves, cancels, closes and kills.

Owns the order of what happens. The loop gives the turns, the disk its delays, and the ledger says what was wrong.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.effects.interleaving.judge import judge_world
from tests.effects.interleaving.members import Member, Processes
from tests.effects.interleaving.scripts import LEDGER, NAMES, random_script
from toolwright import Batch
from toolwright.effects.wait_keys import KeyRing
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import WaitKey

ACTS = {
    "batch": 8,
    "resolve": 6,
    "signal": 3,
    "decide": 4,
    "cancel": 2,
    "cancel_waits": 1,
    "revoke": 0.3,
    "close": 1,
    "crash": 1.5,
    "crash_at_a_verb": 1.5,
    "freeze": 1,
    "lose_its_lock": 0.4,
    "break_its_disk": 0.4,
    "open": 2,
}
STOP = "somebody said so"
PATIENCE = 60.0
"""Virtual seconds until everything must have come to an end."""


class World(Processes):
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed))
        self._stopped: set[Batch] = set()
        sessions = self.chance.choice(("s", "st"))
        self.specs = [
            (self.chance.choice(sessions), f"c{number}", self.chance.choice(NAMES), random_script(self.chance))
            for number in range(self.chance.randint(1, 4))
        ]

    def play(self) -> None:
        LEDGER[:] = [self.ledger]
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._play())
        finally:
            self.ledger.closed = True
            try:
                self._bury()
            finally:
                asyncio.set_event_loop(None)
                self.loop.close()

    async def _play(self) -> None:
        for _ in range(self.chance.choice((1, 2, 2, 3))):
            await self._open()
        acts, weights = list(ACTS), list(ACTS.values())
        for act in self.chance.choices(acts, weights, k=self.chance.randint(3, 14)):
            await getattr(self, f"_{act}")()
            for _ in range(self.chance.choice((0, 1, 3, 10))):
                await asyncio.sleep(0)
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.choice((0.001, 0.02, 0.1, 0.4)))
        await self._end()

    # --- what is asked of them

    async def _batch(self) -> None:
        member = self._some()
        if member is None:
            return
        session = self.chance.choice(self.specs)[0]
        specs = [spec for spec in self.specs if spec[0] == session]
        chosen = self.chance.sample(specs, self.chance.randint(1, len(specs)))
        self.ledger.note(f"{member} is asked for {[spec[1] for spec in chosen]}")
        self.spawn(member, self._run(member, session, chosen))

    async def _run(self, member: Member, session: str, specs: list[Any]) -> None:
        calls = [
            {"id": call_id, "name": name, "arguments": {"script": script, "about": f"{session}/{call_id}"}}
            for _, call_id, name, script in specs
        ]
        batch = member.runtime.session(session).start_batch(calls)
        member.batches.append(batch)
        try:
            outcomes = await batch
        finally:
            member.batches.remove(batch)
        for (_, call_id, _, _), outcome in zip(specs, outcomes, strict=True):
            if outcome.reason == STOP and not outcome.may_have_run and batch not in self._stopped:
                self.ledger.wrong(f"{call_id} was cancelled by those who cancelled another's batch")
            self.ledger.acknowledged(CallKey(session, "", call_id), outcome, closing=member.closing)

    async def _cancel(self) -> None:
        members = [member for member in self.members if member.usable and member.batches]
        if members:
            member = self.chance.choice(members)
            batch = self.chance.choice(member.batches)
            self.ledger.note(f"{member}: a batch is cancelled")
            self.ledger.cancels += 1
            self.loop.call_soon(batch.cancel, STOP, context=member.context)
            self._stopped.add(batch)

    def _key(self, *kinds: str) -> tuple[WaitKey, str] | None:
        keys = [(key, text) for key, text in self.ledger.keys.items() if key.kind in kinds]
        fresh = [pair for pair in keys if pair[0].call not in self.ledger.finished]
        if fresh and self.chance.random() < 0.8:
            keys = fresh
        return self.chance.choice(keys) if keys else None

    async def _resolve(self) -> None:
        found = self._key("completion", "event")
        if found is None:
            return
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            member = self._some()
            if member is not None:
                self.spawn(member, self._resolving(member, *found, self.chance.choice(("ok", "ok", "no", "off"))))

    async def _resolving(self, member: Member, named: WaitKey, key: str, how: str) -> None:
        runtime = member.runtime
        verbs: dict[str, Callable[[], Awaitable[Any]]] = {
            "ok": lambda: runtime.resolve(key, {"by": self.chance.randrange(10**9)}),
            "no": lambda: runtime.reject(key, code="refused"),
            "off": lambda: runtime.cancel(key, reason="called off"),
        }
        resolved = await verbs[how]()
        self.ledger.resolved(named, resolved.status, resolved.value)

    async def _signal(self) -> None:
        found = self._key("signal")
        if found is None:
            return
        for _ in range(self.chance.choice((1, 1, 2, 4))):
            member = self._some()
            if member is not None:
                self.spawn(member, member.runtime.signal(found[1], self.chance.randrange(10**9)))

    async def _decide(self) -> None:
        for _ in range(self.chance.choice((1, 1, 2))):
            member = self._some()
            if member is not None:
                self.spawn(member, self._deciding(member, self.chance.choice(("yes", "yes", "no", "other"))))

    async def _deciding(self, member: Member, how: str) -> None:
        for approval in await member.runtime.approvals():
            always = {} if self.chance.random() < 0.1 and approval.cause == "policy" else None
            if how == "no":
                resolved = await member.runtime.deny(approval.key, reason="no", always=always)
            else:
                arguments = None
                if how == "other" and approval.cause == "policy":
                    arguments = dict(approval.arguments, script=[["value"]])
                resolved = await member.runtime.approve(approval.key, arguments=arguments, always=always)
            named = KeyRing(self.rows.secret).read(approval.key)
            self.ledger.resolved(named, resolved.status, resolved.value)

    async def _cancel_waits(self) -> None:
        if (member := self._some()) is not None:
            self.ledger.note(f"{member}: the waits of s are cancelled")
            self.spawn(member, member.runtime.session("s").cancel_waits("enough"))

    async def _revoke(self) -> None:
        if (member := self._some()) is not None:
            self.ledger.note(f"{member}: s is revoked")
            self.spawn(member, member.runtime.session("s").revoke("for good"))

    # --- the end

    async def _end(self) -> None:
        """Let everything come to an end, and ask once more for all that was ever asked for."""
        self.ledger.note("--- the end begins")
        for member in self.members:
            member.disk.faulty = 0.0
            member.verbs_left = None
            if member.usable and (member.stale or self.chance.random() < 0.5):
                self.close(member)
        last = await self.new_member("last")
        last.disk.slow = 0.0
        helper = self.spawn(last, self._help(last))
        self.spawn(last, self._recover(last))
        await self._until(lambda: not any(member.work - {helper} for member in self.members if not member.dead))
        for member in self.members:
            if member.usable and member is not last:
                self.close(member)
        await self._until(lambda: not any(member.work - {helper} for member in self.members if not member.dead))
        self.ledger.note("--- everything once more")
        self.spawn(last, self._recover(last))
        for session in sorted({spec[0] for spec in self.specs}):
            self.spawn(last, self._run(last, session, [spec for spec in self.specs if spec[0] == session]))
        await self._until(lambda: not last.work - {helper})
        # A call that was released meanwhile, such as one that a call made which timed out, is for the next to recover.
        self.spawn(last, self._recover(last))
        await self._until(lambda: all(call.entry and call.entry.outcome for call in self.rows.calls.values()))
        judge_world(self)
        last.closing = True
        helper.cancel()
        self.spawn(last, self._closed(last))
        await self._until(lambda: not last.work)

    async def _until(self, done: Callable[[], bool]) -> None:
        until = self.loop.time() + PATIENCE
        while not done():
            await asyncio.sleep(0.05)
            if self.loop.time() > until:
                busy = {member.name: [repr(task) for task in member.work] for member in self.members if not member.dead}
                unfinished = [(key, call.owner) for key, call in self.rows.calls.items() if not call.over]
                self.ledger.wrong(f"somebody still waits after {PATIENCE} s: {busy} {unfinished}")
                raise AssertionError("\n".join(self.ledger.problems))

    async def _help(self, member: Member) -> None:
        """Give every call what it waits for, sooner or later."""
        runtime, memory = member.runtime, member.disk.memory
        while True:
            await asyncio.sleep(0.3)
            for wait in await memory.waiting():
                key = KeyRing(self.rows.secret).write(wait.key)
                decides = wait.key.kind in ("approval", "crash")
                await self._guarded(member, runtime.approve(key) if decides else runtime.resolve(key, "helped"))
            for named in sorted(self.ledger.listening):
                if named.call not in self.ledger.finished:
                    await self._guarded(member, runtime.signal(self.ledger.keys[named], "helped"))
