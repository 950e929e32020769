"""One history: machines, one server, what people ask of them, and what goes wrong. Owns the plan of a seed, playing it,
and what must hold during it and in the end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.effects.interleaving.loop import SeededLoop
from tests.simulation.ledger import Ledger
from tests.simulation.machines import Died, Machine, simulated
from tests.simulation.server import UNSYNCED, Server
from tests.simulation.threads import EPOCH, Threads
from tests.simulation.work import APP, RERUN
from toolwright import KeyRefused, RuntimeClosed, StoreError, ToolCall
from toolwright.errors import RunError, ScheduleError
from toolwright.stores.postgres.life import LEASE

RUNS = ("pay", "look", "steps", "hear", "write")
KINDS = ("run", "run", "run", "batch", "batch", "turn", "message", "schedule", "follow")
CALLS = ("pay", "look", "put", "put", "write")
PATIENCE = 300.0
"""Seconds after the last fault until everything must have come to its end."""
SLOW = 0.1
"""Seconds each way from which on a link is slow."""
FAULTS = {
    "kill": 3.0,
    "power": 1.0,
    "freeze": 2.0,
    "cut": 2.0,
    "slow": 1.0,
    "drops": 2.0,
    "clock": 1.0,
    "close": 1.0,
    "open": 1.0,
    "restart": 1.5,
    "failover": 1.5,
}


class Order(NamedTuple):
    """Something that is asked for at an instant."""

    at: float
    kind: str
    id: str
    session: str


class Fault(NamedTuple):
    """Something that goes wrong at an instant, on a machine or on the server, for some seconds."""

    at: float
    kind: str
    machine: int
    seconds: float
    number: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """What happens in a history, but for the order of events, which the seed gives, too."""

    seed: int
    machines: int
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]
    length: float

    @classmethod
    def of(
        cls,
        seed: int,
        *,
        machines: int = 0,
        orders: int = 0,
        faults: int = 0,
        length: float = 15.0,
        kinds: Sequence[str] = KINDS,
        only: Collection[str] = FAULTS.keys(),
    ) -> Plan:
        """The plan of a seed, of a small world unless told otherwise."""
        chance = random.Random(f"plan {seed}")
        machines = machines or chance.choice((1, 2, 2, 3))
        weights = {fault: weight for fault, weight in FAULTS.items() if fault in only}
        sessions = max(2, (orders or 4) // 4)
        placed = sorted(
            Order(
                round(chance.random() * length / 2, 3),
                chance.choice(kinds),
                f"{number}",
                f"s{chance.randrange(sessions)}",
            )
            for number in range(orders or chance.randint(2, 5))
        )
        wrong = sorted(
            Fault(
                round(chance.random() * length, 3),
                chance.choices([*weights], [*weights.values()])[0],
                chance.randrange(machines),
                chance.choice((0.3, 1.0, 3.0, 8.0, 14.0, 40.0)),
                chance.random(),
            )
            for _ in range(faults or chance.choice((0, 1, 1, 2, 2, 3)))
        )
        return cls(seed, machines, tuple(placed), tuple(wrong), length)


class World:
    """Everything of one plan."""

    claims_hold_everywhere = True
    """True where claims of a session hold across processes (ENG-03)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(f"play {plan.seed}")
        self.loop = SeededLoop(self.chance, 2_000_000 + 20_000 * len(plan.orders))
        self.loop.set_exception_handler(self._broken)
        self.threads = Threads(self.loop)
        self.context = copy_context()
        self.ledger = Ledger()
        self.machines: list[Machine] = []
        self.owners: dict[str, Machine] = {}
        self.workers: dict[str, Machine] = {}
        self.tasks: list[tuple[asyncio.Task[Any], Coroutine[Any, Any, Any]]] = []
        self._going: dict[str, asyncio.Task[None]] = {}
        self._seen: list[tuple[int, str, str]] = []
        self._fires: list[str] = []
        self._calls: list[tuple[str, ToolCall]] = []
        self._outages: list[float] = []
        self._over = False

    # --- telling

    def note(self, who: object, what: str) -> None:
        self.ledger.note(self.loop.time(), who, what)

    def wrong(self, problem: str) -> None:
        self.ledger.wrong(self.loop.time(), problem)

    def _broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "exception" in context and not self._over:
            error = context["exception"]
            self.wrong(f"{context['message']}: {error!r}")

    # --- what is judged while it happens

    def judge_dead(self, machine: Any, dead: set[str]) -> None:
        """Nobody is taken for dead who lives, and whose sign of life could reach the server."""
        for owner in sorted(dead):
            other = self.owners.get(owner)
            if other is not None and not other.excused(LEASE - 2.0):
                self.wrong(f"{machine} takes {other} for dead, which lives")

    def judge_takeover(self, machine: Any, run: Any) -> None:
        """No run is taken from a worker that lives, and whose renewals could reach the server."""
        other = self.workers.get(run.worker)
        # It may take its own: the answer to its claim was lost, and it does not know that it has it.
        if other not in (None, machine) and not other.excused(LEASE - 2.0):
            self.wrong(f"{machine} takes run {run.id} from {other}, which lives")

    # --- playing

    def play(self) -> list[str]:
        """Play it to its end, and return the promises that were broken."""
        asyncio.set_event_loop(self.loop)
        logging.disable(logging.CRITICAL)
        scratch = Path(tempfile.gettempdir()) / "toolwright-simulation"
        scratch.mkdir(exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=scratch) as folder, simulated(self, self.chance):
                self.server = Server(
                    self.threads, Path(folder), lambda what: self.note("server", what.removeprefix("server: "))
                )
                try:
                    self.loop.run_until_complete(self.loop.create_task(self._play(), context=self.context))
                except Exception as error:
                    self.wrong(f"the history broke off: {error!r}")
                    self.ledger.story.append(_trace(error))
                finally:
                    self._bury()
                    self.server.close()
        finally:
            logging.disable(logging.NOTSET)
            asyncio.set_event_loop(None)
            self.loop.close()
        return self.ledger.problems

    async def _play(self) -> None:
        for _ in range(self.plan.machines):
            self._new_machine()
        for fault in self.plan.faults:
            self._later(fault.at, self._go_wrong, fault)
            if fault.kind in ("restart", "failover"):
                self.server.doom(fault.at, self.chance.random() * UNSYNCED)
        for order in self.plan.orders:
            self._later(order.at, self._place, order)
        self._helping = self.loop.create_task(self._help())
        await asyncio.sleep(self.plan.length)
        await self._finish()

    def _later(self, at: float, do: Callable[..., None], *given: Any) -> None:
        self.loop.call_at(at, do, *given, context=self.context)

    def _new_machine(self) -> Machine:
        machine = Machine(f"M{len(self.machines)}", self)
        self.machines.append(machine)
        self.note(machine, "starts")
        machine.begin(machine.open(APP, worker=True))
        return machine

    async def some(self) -> Machine:
        """A machine that can be asked."""
        while True:
            usable = [machine for machine in self.machines if machine.usable]
            if usable:
                return self.chance.choice(usable)
            await asyncio.sleep(0.25)

    # --- what goes wrong

    def _go_wrong(self, fault: Fault) -> None:
        usable = [machine for machine in self.machines if machine.usable]
        if fault.kind in ("restart", "failover"):
            self._crash_server(fault)
            return
        if fault.kind == "open":
            self._new_machine()
            return
        if not usable:
            return
        machine = usable[fault.machine % len(usable)]
        if fault.kind in ("kill", "power"):
            self.note(machine, "is killed" if fault.kind == "kill" else "loses its power")
            machine.kill(silent=fault.kind == "power")
            self.loop.call_later(1.0, self._new_machine, context=self.context)
        elif fault.kind == "freeze":
            self.note(machine, f"stands still for {fault.seconds:g} s")
            machine.freeze(fault.seconds)
        elif fault.kind == "cut":
            self.note(machine, f"cannot reach the server for {fault.seconds:g} s")
            machine.cut_off(fault.seconds)
        elif fault.kind in ("slow", "drops"):
            self._disturb(machine, fault)
        elif fault.kind == "clock":
            machine.ahead += (fault.number - 0.5) * 240
            self.note(machine, f"has its clock set to {machine.ahead:+.1f} s")
        elif fault.kind == "close":
            self.note(machine, "is closed by its operator")
            machine.closing = True
            machine.begin(machine.close())
            self.loop.call_later(1.0, self._new_machine, context=self.context)

    def _disturb(self, machine: Machine, fault: Fault) -> None:
        link, base = machine.link, machine.link.base
        if fault.kind == "slow":
            link.base = SLOW + fault.number
            self.note(machine, f"has a slow link for {fault.seconds:g} s: {link.base:.2f} s each way")
        else:
            link.drops = 0.3
            if fault.seconds > 20:  # a renewal may not come through in all that time
                machine.silenced(fault.seconds)
            self.note(machine, f"loses connections for {fault.seconds:g} s")
        if link.drops and link.base > SLOW:  # each new try takes seconds
            machine.silenced(fault.seconds + LEASE)

        def calm() -> None:
            link.base, link.drops = base, 0.0

        self.loop.call_later(fault.seconds, calm, context=self.context)

    def _crash_server(self, fault: Fault) -> None:
        if not self.server.up:
            return
        promoted = fault.kind == "failover"
        silent = promoted and fault.number < 0.7
        self.note("server", f"crashes{' with its machine' if silent else ''}")
        if fault.seconds > 30:  # longer than anybody waits for it
            for machine in self.machines:
                machine.silenced(fault.seconds)
        self.server.crash(silent=silent)
        ahead = self.server.ahead + ((fault.number - 0.5) * 4 if promoted else 0.0)

        def start() -> None:
            what = f"is promoted, its clock {ahead:+.2f} s" if promoted else "runs again"
            self.note("server", f"{'the replica ' if promoted else ''}{what}")
            self.server.start(promoted=promoted, ahead=ahead)

        self.loop.call_later(fault.seconds, start, context=self.context)

    # --- what is asked for

    def _place(self, order: Order) -> None:
        verb = getattr(self, f"_{order.kind}")
        self._going[f"{order.kind} {order.id}"] = self.loop.create_task(verb(order), context=self.context.copy())

    async def _ask(self, what: str, work: Callable[[Machine], Coroutine[Any, Any, Any]]) -> Any:
        """Have something done by some machine, and by another one where that fails."""
        while True:
            machine = await self.some()
            try:
                return await machine.do(work(machine))
            except (Died, RuntimeClosed, StoreError) as error:
                self.note(machine, f"{what}: {error!r:.200}")
            except RunError as error:
                if error.code not in ("session_limit", "worker_limit"):
                    raise
                self.note(machine, f"{what}: {error}")
            except asyncio.CancelledError:
                if not machine.closing and not machine.dead:
                    raise
            await asyncio.sleep(0.5)

    async def _run(self, order: Order) -> None:
        tool = random.Random(f"{self.plan.seed} {order.id}").choice(RUNS)
        id = f"run-{order.id}"

        async def spawn(machine: Machine) -> None:
            await machine.runtime.session(order.session).spawn(tool, {"key": id}, id=id)

        async def wait(machine: Machine) -> Any:
            return await (await machine.runtime.run(id)).wait()

        await self._ask(f"spawn {id}", spawn)
        self.note("user", f"{id} ({tool}) is registered")
        self._told(id, tool, await self._ask(f"wait for {id}", wait))

    async def _batch(self, order: Order) -> None:
        chance = random.Random(f"{self.plan.seed} {order.id}")
        calls = []
        for number in range(chance.randint(1, 4)):
            name, id = chance.choice(CALLS), f"call-{order.id}-{number}"
            account = {"account": chance.randint(0, 1)} if name == "put" else {}
            calls.append(ToolCall(name, {"key": id} | account, id))
        self._calls += [(order.session, call) for call in calls]
        self.note("user", f"asks for {[f'{call.id} ({call.name})' for call in calls]}")
        await self._batch_of(order.session, calls)

    async def _batch_of(self, session: str, calls: list[ToolCall]) -> None:
        left = {call.id: call for call in calls}
        while left:

            async def run(machine: Machine) -> Any:
                return await machine.runtime.session(session).run_batch([*left.values()])

            for outcome in await self._ask(f"batch of {[*left]}", run):
                if outcome.status in ("success", "failure"):
                    self._told(outcome.call_id, left.pop(outcome.call_id).name, outcome)
                else:
                    self.note("user", f"{outcome.call_id} is {outcome.status}: {outcome.reason}")
            if left:
                await asyncio.sleep(0.5)

    def _told(self, id: str, tool: str, outcome: Any) -> None:
        code = None if outcome.failure is None else outcome.failure.code
        told = (outcome.status, outcome.value, code)
        self.note("user", f"{id} ({tool}) is {told}")
        if self.ledger.told.setdefault(id, told) != told:
            self.wrong(f"{id} was told as {self.ledger.told[id]}, and now is {told}")
        if outcome.ok and str(outcome.value) not in self.ledger.values[id]:
            self.wrong(f"{id} has a value that nobody gave: {outcome.value!r}")
        if not outcome.ok:
            troubled = any(machine.excused(1e9) or machine.troubles for machine in self.machines)
            if tool in RERUN and not (tool == "steps" and code == "interrupted"):
                self.wrong(f"{id} ({tool}) may run again, and ended as {told}: {outcome.failure}")
            elif code != "interrupted" or not troubled:
                self.wrong(f"{id} ({tool}) ended as {told} without a reason: {outcome.failure}")

    async def _turn(self, order: Order) -> None:
        id, session = f"turn-{order.id}", f"turn-session-{order.id}"

        async def begin(machine: Machine) -> None:
            await machine.runtime.session(session).start_turn("Go.", id=id, background=True)

        async def wait(machine: Machine) -> Any:
            return await (await machine.runtime.turn(id))

        await self._ask(f"start {id}", begin)
        self.note("user", f"{id} is registered")
        while True:
            outcome = await self._ask(f"wait for {id}", wait)
            if outcome.status not in ("waiting", "cancelled"):
                break
            await asyncio.sleep(0.5)
        self.note("user", f"{id} is {outcome.status}")
        if (outcome.status, outcome.text) != ("answered", "Done."):
            self.wrong(f"{id} ended as {outcome.status}: {outcome}")
        self.ledger.told[id] = (outcome.status, outcome.text, None)

    async def _message(self, order: Order) -> None:
        text = f"message {order.id}"

        async def send(machine: Machine) -> None:
            await machine.runtime.session(order.session).messages.append(text, sender="user")

        machine = await self.some()
        try:
            await machine.do(send(machine))
            self.ledger.messages.add(text)
            self.note("user", f"{text} is acknowledged")
        except (Died, RuntimeClosed, StoreError) as error:
            self.note(machine, f"{text}: {error!r:.200}")
            self.ledger.maybe_messages.add(text)

    async def _schedule(self, order: Order) -> None:
        id = f"schedule-{order.id}"

        async def add(machine: Machine) -> None:
            session = machine.runtime.session(order.session)
            if id in {known.id for known in await session.schedules()}:
                return  # by somebody who died before it was told
            when = datetime.fromtimestamp(EPOCH + self.loop.time() + machine.ahead + 6.0, UTC)
            try:
                await session.schedule("tick", {"key": id}, at=when, misfire="all", id=id)
            except ScheduleError as error:
                raise StoreError("the instant has passed while the store was slow") from error

        await self._ask(f"add {id}", add)
        self._fires.append(id)
        self.note("user", f"{id} is registered")

        async def fired(machine: Machine) -> bool:
            ended = (await machine.runtime.scheduled(id)).state == "ended"
            return ended and all(run.record.over for run in await self._fired(machine.runtime, id))

        while not await self._ask(f"look at {id}", fired):  # noqa: ASYNC110 (of virtual time)
            await asyncio.sleep(2.0)

    async def _fired(self, runtime: Any, schedule: str) -> list[Any]:
        """The runs that a schedule started."""
        return [run for run in await runtime.runs() if run.record.schedule == schedule]

    async def _follow(self, order: Order) -> None:
        """Read the event log to its end, on one machine after the other."""
        after = 0
        while not self._over:
            machine = await self.some()

            async def read(machine: Machine, after: int) -> Any:
                return await machine.runtime.event_log(after)

            try:
                page = await machine.do(read(machine, after))
            except (Died, RuntimeClosed, StoreError) as error:
                self.note(machine, f"follower: {error!r:.200}")
                await asyncio.sleep(0.5)
                continue
            for event in page.events:
                if event.number <= after:
                    self.wrong(f"the follower was told event {event.number} again, after {after}")
                after = event.number
                self._seen.append((event.number, event.session, event.kind))
            after = max(after, page.last)
            await asyncio.sleep(0.7)

    async def _help(self) -> None:
        """Give every call what it waits for, sooner or later."""
        number = 0
        while True:
            await asyncio.sleep(self.chance.choice((0.2, 1.0)))
            for name, key in sorted(self.ledger.keys.items()):
                if name in self.ledger.resolved or (name.startswith("signals") and len(self.ledger.sent[name]) >= 3):
                    continue
                number += 1
                machine = await self.some()
                with contextlib.suppress(KeyRefused):
                    await (self._signal if name.startswith("signals") else self._resolve)(machine, name, key, number)

    async def _resolve(self, machine: Machine, name: str, key: str, number: int) -> None:
        async def resolve() -> Any:
            return await machine.runtime.resolve(key, number)

        try:
            resolved = await machine.do(resolve())
        except (Died, RuntimeClosed, StoreError) as error:
            self.note(machine, f"resolve {name}: {error!r:.200}")
            return
        self.note("user", f"the {name} stands as {resolved.value}")
        self.ledger.resolved[name] = resolved.value

    async def _signal(self, machine: Machine, name: str, key: str, number: int) -> None:
        async def signal() -> Any:
            return await machine.runtime.signal(key, number)

        maybe_sent = self.ledger.maybe_sent[name]
        maybe_sent.add(number)  # the history may end before its sender is told
        try:
            await machine.do(signal())
        except KeyRefused:
            maybe_sent.discard(number)
            raise
        except (Died, RuntimeClosed, StoreError) as error:
            self.note(machine, f"signal {number}: {error!r:.200}")
            return
        self.note("user", f"the {name} have {number}")
        maybe_sent.discard(number)
        self.ledger.sent[name].append(number)

    # --- the end

    async def _finish(self) -> None:
        """Let everything come to an end, and look at what is there."""
        self.note("world", "from here on nothing goes wrong")
        for machine in self.machines:
            machine.ahead = 0.0
        until = self.loop.time() + PATIENCE
        while not all(task.done() for name, task in self._going.items() if not name.startswith("follow")):
            if self.loop.time() > until:
                going = [name for name, task in self._going.items() if not task.done()]
                self.wrong(f"{going} have not come to their end after {PATIENCE:g} s")
                self._explain()
                return
            await asyncio.sleep(0.5)
        self._helping.cancel()
        for name, task in self._going.items():
            if task.done() and task.exception() is not None:
                self.wrong(f"{name}: {task.exception()!r}")
                self.ledger.story.append(_trace(task.exception()))
        while True:
            machine = await self.some()
            try:
                await machine.do(self._judge(machine))
                break
            except (Died, StoreError):
                await asyncio.sleep(1.0)  # a server that was away for long is back before that
        self._over = True
        for machine in self.machines:
            if machine.usable:
                try:
                    async with asyncio.timeout(PATIENCE):
                        await machine.do(machine.close())
                except TimeoutError:
                    self.wrong(f"{machine} does not close")
        self._judge_rows()

    def _explain(self) -> None:
        rows = self.server.rows
        for table, query in (
            ("call", "SELECT session, scope, call_id, tool, owner, started_at FROM every_call WHERE outcome IS NULL"),
            ("run", "SELECT id, state, worker, token, lease_until, status_text FROM processes WHERE ended_at IS NULL"),
            ("turn", "SELECT id, state, owner, token FROM turns WHERE ended_at IS NULL"),
            ("wait", "SELECT session, call_id, kind, name, open FROM waits WHERE open = 1"),
            ("worker", "SELECT name, owner, until FROM workers"),
        ):
            with contextlib.suppress(Exception):
                for row in rows.execute(query):
                    self.note("rows", f"{table} {row}")
        self.note("rows", f"owners { {owner: machine.name for owner, machine in self.owners.items()} }")

    async def _judge(self, machine: Machine) -> None:
        """What a last reader finds."""
        runtime, ledger = machine.runtime, self.ledger
        for session, call in self._calls:
            (outcome,) = await runtime.session(session).run_batch([call])
            self._told(call.id, call.name, outcome)
        for id in [id for id in ledger.told if id.startswith("run-")]:
            outcome = (await runtime.run(id)).outcome
            code = None if outcome.failure is None else outcome.failure.code
            if (outcome.status, outcome.value, code) != ledger.told[id]:
                self.wrong(f"{id} was told as {ledger.told[id]}, and now is {outcome}")
        for id in self._fires:
            fired = await self._fired(runtime, id)
            if len(fired) != 1:
                self.wrong(f"{id} fired {len(fired)} times")
        said: Counter[str] = Counter()
        for known in await runtime.sessions():
            for message in await runtime.session(known.id).messages.list():
                said[str(message.content)] += 1
        for text in ledger.messages:
            if said[text] != 1:
                self.wrong(f"{text!r} was acknowledged, and is there {said[text]} times")
        for text in ledger.maybe_messages:
            if said[text] > 1:
                self.wrong(f"{text!r} is there {said[text]} times")
        for name, seen in ledger.saw.items():
            if name.startswith("event") and name in ledger.resolved and ledger.resolved[name] != seen:
                self.wrong(f"the {name} stands as {ledger.resolved[name]}, and its call saw {seen}")
            if name.startswith("signals"):
                sent, maybe = ledger.sent[name], ledger.maybe_sent[name]
                known = [one for one in seen if one in sent]
                if known != sent[: len(known)] or any(one not in sent and one not in maybe for one in seen):
                    self.wrong(f"{name}: heard {seen}, sent {sent}, perhaps {maybe}")
        if self._seen:
            await self._judge_follower(runtime)

    async def _judge_follower(self, runtime: Any) -> None:
        """The follower has seen all that is in the log up to where it came."""
        seen, last, after = set(self._seen), max(number for number, *_ in self._seen), 0
        while True:
            page = await runtime.event_log(after)
            if not page.events:
                break
            for event in page.events:
                after = event.number
                if after <= last and (event.number, event.session, event.kind) not in seen:
                    self.wrong(f"the follower missed event {event.number}: {event.kind} of {event.session}")

    def _judge_rows(self) -> None:
        """Nothing is left unfinished in the rows."""
        rows = self.server.rows
        for row in rows.execute("SELECT session, scope, call_id, owner FROM every_call WHERE outcome IS NULL"):
            self.wrong(f"the call {row} is unfinished")
        for row in rows.execute("SELECT id, state FROM processes WHERE ended_at IS NULL"):
            self.wrong(f"the run {row} is unfinished")
        for row in rows.execute("SELECT id, state FROM turns WHERE ended_at IS NULL"):
            self.wrong(f"the turn {row} is unfinished")

    def _bury(self) -> None:
        """End all tasks and threads, where nobody looks any more."""
        self._over = self.ledger.closed = True
        self.threads.end()
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(Exception):
                task.get_coro().close()  # type: ignore[union-attr]
        for _, work in self.tasks:
            with contextlib.suppress(Exception):
                work.close()


def _trace(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)) if error is not None else ""


def play(plan: Plan) -> World:
    """Play a plan, and return its world."""
    world = World(plan)
    world.play()
    return world


def shrunk(plan: Plan, seconds: float = 30.0) -> World:
    """The smallest history that still breaks a promise, of those that leave out parts of a plan: as far as one comes
    in some seconds."""
    until = time.monotonic() + seconds
    best = play(plan)
    shorter = True
    while shorter:
        shorter = False
        for field in ("faults", "orders"):
            for part in getattr(best.plan, field):
                if time.monotonic() > until:
                    return best
                rest = tuple(one for one in getattr(best.plan, field) if one is not part)
                world = play(dataclasses.replace(best.plan, **{field: rest}))
                if world.ledger.problems:
                    best, shorter = world, True
                    break
    return best
