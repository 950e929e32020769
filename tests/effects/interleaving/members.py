"""Several processes in one: opened, closed, killed, frozen. Owns their lives; not what is asked of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from typing import Any

from tests.effects.interleaving.disk import Disk
from tests.effects.interleaving.judge import judge_runtime
from tests.effects.interleaving.ledger import Ledger
from tests.effects.interleaving.loop import LoopClock, Process, SeededLoop
from tests.effects.interleaving.scripts import make_tools
from toolwright import Batch, KeyRefused, Policy, Runtime, RuntimeClosed, StoreError, ToolRegistry
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.stores.contracts.journal import CallKey

TOOLS = ToolRegistry(make_tools())


class Member(Process):
    """A process with a runtime, as the world sees it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.runtime: Runtime
        self.disk: Disk
        self.events: Any = None
        self.batches: list[Batch] = []
        self.work: set[asyncio.Task[Any]] = set()
        self.closing = False
        self.stale = False
        self.broken = False
        self.verbs_left: int | None = None

    @property
    def usable(self) -> bool:
        return not self.dead and not self.closing


class Processes:
    """The processes of one world, on one database."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.loop = SeededLoop(chance, 60_000)
        self.ledger = Ledger()
        self.loop.set_exception_handler(self._broken)
        self.rows = MemoryDatabase()
        self.members: list[Member] = []
        self._spawned: list[Coroutine[Any, Any, Any]] = []
        self.policy = Policy(
            timeout=5.0,
            approval_timeout=self.chance.choice((None, 0.3, 2.0)),
            max_concurrency=self.chance.choice((1, 2, 8)),
            session_concurrency=self.chance.choice((1, 2, 16)),
            on_loop="ignore",
        )

    async def _open(self) -> None:
        if sum(member.usable for member in self.members) >= 3:
            return
        member = await self.new_member(f"P{len(self.members)}")
        if self.chance.random() < 0.7:
            self.spawn(member, self._recover(member))

    async def new_member(self, name: str) -> Member:
        member = Member(name)
        member.disk = Disk(self.rows, member, self.loop, self.chance)
        member.disk.ledger = self.ledger
        member.disk.struck = self._struck
        self.members.append(member)
        self.ledger.note(f"{member} opens")
        await self.in_process(member, self._opened(member))
        return member

    async def _opened(self, member: Member) -> None:
        clock = LoopClock(self.loop)
        member.runtime = await Runtime.open(member.disk, tools=TOOLS, policy=self.policy, clock=clock)
        member.events = member.runtime.subscribe(limit=1_000_000)

    async def _recover(self, member: Member) -> None:
        for recovered in await member.runtime.recover():
            if recovered.outcome.status != "pending":
                call = CallKey(recovered.session, recovered.scope, recovered.call_id)
                self.ledger.acknowledged(call, recovered.outcome, closing=member.closing)

    def spawn(self, member: Member, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(self._guarded(member, work), context=member.context.copy())
        member.work.add(task)

        self._spawned.append(work)
        task.add_done_callback(member.work.discard, context=member.context)
        return task

    async def in_process(self, member: Member, work: Coroutine[Any, Any, Any]) -> None:
        """Do something in a process and wait for it, unless that dies meanwhile."""
        task = self.spawn(member, work)
        while not task.done() and not member.dead:  # noqa: ASYNC110 (of virtual time)
            await asyncio.sleep(0.001)

    async def _guarded(self, member: Member, work: Awaitable[Any]) -> None:
        try:
            await work
        except (RuntimeClosed, asyncio.CancelledError) as error:
            if not member.closing:
                self.ledger.wrong(f"{member}: {error!r}")
        except StoreError as error:
            self.ledger.note(f"{member}: {error!r}")
            if not (member.stale or member.broken or member.closing):
                self.ledger.wrong(f"{member}: {error!r}")
        except KeyRefused as error:
            self.ledger.note(f"{member}: {error!r}")
        except Exception as error:
            self.ledger.wrong(f"{member}: {error!r}")

    def _broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised, of the runtime or of the world itself. Tasks of the dead may go as they are."""
        if "exception" in context:
            self.ledger.wrong(f"{context['message']}: {context['exception']!r}")

    def _some(self) -> Member | None:
        usable = [member for member in self.members if member.usable]
        return self.chance.choice(usable) if usable else None

    async def _crash(self) -> None:
        if (member := self._some()) is not None:
            self._kill(member)

    def _kill(self, member: Member) -> None:
        self.ledger.note(f"{member} crashes")
        member.dead = True
        self.rows.end(member.disk.owner)

    async def _crash_at_a_verb(self) -> None:
        if (member := self._some()) is not None:
            member.verbs_left = self.chance.randint(1, 12)

    def _struck(self, member: Member) -> bool:
        """Called after each verb: True when the process ends there."""
        if member.verbs_left is not None and not member.dead:
            member.verbs_left -= 1
            if member.verbs_left <= 0:
                self._kill(member)
        return member.dead

    async def _freeze(self) -> None:
        if (member := self._some()) is not None:
            member.asleep_until = self.loop.time() + self.chance.choice((0.01, 0.2, 1.0))
            self.ledger.note(f"{member} stands still until {member.asleep_until:.3f}")

    async def _lose_its_lock(self) -> None:
        """Everybody takes it for dead, and it does not know."""
        if (member := self._some()) is not None:
            self.ledger.note(f"{member} is taken for dead")
            member.stale = True
            self.rows.end(member.disk.owner)

    async def _break_its_disk(self) -> None:
        if (member := self._some()) is not None:
            self.ledger.note(f"{member} has a bad disk")
            member.broken = True
            member.disk.faulty = self.chance.choice((0.05, 0.3, 1.0))

    async def _close(self) -> None:
        if (member := self._some()) is not None:
            self.close(member)

    def close(self, member: Member) -> None:
        self.ledger.note(f"{member} closes")
        member.closing = True
        self.spawn(member, self._closed(member))

    async def _closed(self, member: Member) -> None:
        await member.runtime.close()
        others = member.work - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)
        judge_runtime(self.ledger, member)
        self.ledger.note(f"{member} is closed")

    def _bury(self) -> None:
        """End the tasks of those that died, where nobody looks any more."""
        for member in self.members:
            member.dead, member.asleep_until = False, 0.0
            member.disk.closed = True
        tasks = asyncio.all_tasks(self.loop)
        self.loop.most = self.loop.turns + 20_000
        for _ in range(5):
            for task in tasks:
                self.loop.call_soon(task.cancel, context=Context())
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=60))
            tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for work in self._spawned:
            work.close()  # One that was stopped before its first step never awaited it.
