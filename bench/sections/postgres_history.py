"""Whether a long history slows anything down on PostgreSQL: the verbs of workers and recovery, a batch, and every list.

A store with a million finished calls, runs, turns and events is measured beside one with a thousand of each. The rows
are copies of those of a real call, run and turn, a hundred of each kind in a session, made inside the database.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from bench.pairing import Pairing
from bench.probe import ProbeError, emit, probe_parser, run_probe
from bench.report import Line, Report
from bench.servers import postgres_server

LONG, SHORT = 1_000_000, 1_000
OF_SESSION = 100
"""How many of each kind a session has."""
LIMIT = 1.5
PAGE = 10
CALLS = 100
"""The calls of a batch, those that are recovered, and the runs that are queued."""
CLAIMED = 10
Verb = Callable[[], Awaitable[object]]


class Effort(NamedTuple):
    """How many rows the long history has, and how often each verb is measured, each time the fastest of some."""

    long: int
    pairs: int
    tries: int


THOROUGH, QUICK = Effort(LONG, 9, 5), Effort(50_000, 3, 3)

COPIES: dict[str, dict[str, str]] = {
    "calls": {
        "session": "'past ' || n / {of}",
        "call_id": "'call ' || n",
        "batch": "'batch_' || md5((n / 10)::text)",
        "position": "n % 10",
        "queued_at": "1e9 + n",
    },
    "processes": {
        "id": "'run_' || lpad(n::text, 9, '0')",
        "session": "'past ' || n / {of}",
        "created_at": "1e9 + n",
        "changed": "0",
    },
    "process_events": {"process": "'run_' || lpad(n::text, 9, '0')"},
    "turns": {
        "id": "'turn_' || lpad(n::text, 9, '0')",
        "session": "'past ' || n / {of}",
        "number": "n % {of} + 1",
        "created_at": "1e9 + n",
    },
    "events": {"number": "nextval('event_numbers')", "session": "'past ' || n / {of}", "subject": "'run_' || n"},
}
"""The columns of each table that differ from those of the row which is copied; `n` counts the copies."""
ORIGINAL = {"processes": "state = 'completed'", "process_events": "type = 'started'", "events": "kind = 'run.started'"}
"""Which row is copied: the first of the session `past` of which this is true."""


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Fill two schemas of one server, and measure each verb in both."""
    long = (QUICK if quick else THOROUGH).long
    about = f"{long:,} finished calls, runs, turns and events on PostgreSQL, beside {SHORT:,} of each"
    try:
        found = run_probe("bench.sections.postgres_history", quick=quick)
    except ProbeError as error:
        return Report("postgres-history", about, [Line("postgres-history", error=str(error))])
    lines = [Line.paired(name, Pairing.from_json(each), target=LIMIT, unit="µs") for name, each in found.items()]
    return Report("postgres-history", about, lines)


async def measure(effort: Effort) -> dict[str, Any]:
    """Each verb in the long history, between two samples in the short one."""
    with postgres_server(max_wal_size="4GB") as server:
        short, long = (f"{server.url}?schema={name}" for name in ("short", "long"))
        for url, count in ((short, SHORT), (long, effort.long)):
            await fill(url, count)
        await asyncio.to_thread(server.execute, "CHECKPOINT")
        found = {}
        async with History(short) as few, History(long) as many:
            for name in few.verbs:
                triples = [
                    (
                        await few.quickest(name, effort.tries),
                        await many.quickest(name, effort.tries),
                        await few.quickest(name, effort.tries),
                    )
                    for _ in range(effort.pairs)
                ]
                found[name] = Pairing.of(triples).to_json()
    return found


async def fill(url: str, count: int) -> None:
    """Run one call, one run and one turn, and copy their rows."""
    from toolwright.stores.postgres.address import Address

    async with open_runtime(url, worker=True) as runtime:
        from toolwright import ToolCall

        session = runtime.session("past")
        await session.run_batch([ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})])
        await (await session.spawn("add_later", {"a": 1, "b": 2})).wait()
        await (await session.start_turn("Go.")).wait()
    connection = Address(url).connect()
    try:
        connection.command("SET session_replication_role = replica; SET synchronous_commit = off")
        for table, changed in COPIES.items():
            columns = [
                name
                for (name,) in connection.run(
                    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0"
                    " AND NOT attisdropped AND attidentity = ''",
                    (table,),
                )
            ]
            names = ", ".join(f'"{name}"' for name in columns)
            values = ", ".join(
                changed[name].format(of=OF_SESSION) if name in changed else f'"{name}"' for name in columns
            )
            which = ORIGINAL.get(table, "true")
            connection.command(
                f"INSERT INTO {table} ({names}) SELECT {values} FROM generate_series(1, {count}) AS n,"
                f" (SELECT {names} FROM {table} WHERE {which} LIMIT 1) AS original"
            )
        connection.command(
            "INSERT INTO usage (session, service, entries, bytes)"
            f" SELECT 'past ' || n, 'resources', 10, 1000 FROM generate_series(0, {count // OF_SESSION}) AS n; ANALYZE"
        )
    finally:
        connection.raw.close()


def open_runtime(url: str, *, worker: bool = False) -> Any:
    """A runtime with the tools of the history."""
    from toolwright import Runtime, tool
    from toolwright.testing import FunctionModel

    @tool(readonly=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @tool(idempotent=True, supports_background=True)
    async def add_later(a: int, b: int) -> int:
        return a + b

    return Runtime.open(url, tools=[add, add_later], model=FunctionModel(lambda request: "Done."), worker=worker)


class History:
    """An open store with a history, and what is measured in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._next = 0

    async def __aenter__(self) -> "History":
        from toolwright.stores.contracts.background_run import Options, Registration
        from toolwright.stores.contracts.run_store import Limits
        from toolwright.stores.postgres.store import PostgresStore

        self._opened = AsyncExitStack()
        self._runtime = await self._opened.enter_async_context(open_runtime(self._url))
        self._store = await PostgresStore.open(self._url)
        limits = Limits(queue=True, per_session=CALLS)
        queued = [
            Registration(
                id=f"queued{number}",
                session="queue",
                tool="add_later",
                arguments=b"{}",
                title="add",
                options=Options(),
                at=2e9 + number,
            )
            for number in range(CALLS)
        ]
        await self._store.services.runs.register(queued, limits, None)
        await self._store.services.runs.renew("w", [], 2e9, 30.0, CALLS)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._store.close()
        await self._opened.aclose()

    async def quickest(self, name: str, tries: int) -> float:
        """Microseconds of a verb, the fewest of some tries."""
        times = []
        for _ in range(tries):
            prepare = self.prepared.get(name)
            if prepare is not None:
                await prepare()
            began = time.perf_counter()
            await self.verbs[name]()
            times.append(time.perf_counter() - began)
        return min(times) * 1e6

    @property
    def verbs(self) -> dict[str, Verb]:
        """What is measured."""
        from toolwright.stores.contracts.call_history import CallFilters
        from toolwright.stores.contracts.journal import CallKey

        services, session = self._store.services, "past 5"
        history, runs, turns = services.history, services.runs, services.turns

        def calls(**filters: Any) -> Verb:
            return lambda: history.list_calls(CallFilters(**filters), None, PAGE)

        return {
            f"a batch of {CALLS} calls": self._batch,
            f"claim {CLAIMED} of {CALLS} queued runs": self._claim,
            "look for runs to claim": lambda: runs.work_waits("w", ["add_later"], 30.0),
            f"recover {CALLS} calls": self._runtime.recover,
            "list calls": calls(),
            "list calls of a session": calls(session=session),
            "list calls of a batch": calls(batch="batch_" + md5("50")),
            "list failed calls of a session": calls(session=session, status="failed"),
            "list unfinished calls": calls(status="running"),
            "list batches of a session": lambda: history.list_batches(session, None, PAGE),
            "show a call": lambda: history.find_call(CallKey(session, "", "call 510")),
            "list runs": lambda: runs.list(None, limit=PAGE),
            "list runs of a session": lambda: runs.list(session, limit=PAGE),
            "list active runs": lambda: runs.list(None, active=True, limit=PAGE),
            "list turns": lambda: turns.list(None, limit=PAGE),
            "list turns of a session": lambda: turns.list(session, limit=PAGE),
            "list unfinished turns": lambda: turns.list(None, active=True, limit=PAGE),
            "look for turns to continue": lambda: turns.ready(anywhere=True),
            "list sessions": lambda: services.archives.list_sessions(limit=PAGE),
            "one session": lambda: services.archives.list_sessions(session),
            "list approvals": lambda: self._store.waits.waiting(kinds=("approval", "crash", "question")),
            "read the newest events": self._events,
        }

    @property
    def prepared(self) -> dict[str, Verb]:
        """What comes before some of them, and is not measured."""
        return {f"claim {CLAIMED} of {CALLS} queued runs": self._hand_back, f"recover {CALLS} calls": self._cut_off}

    async def _batch(self) -> None:
        from toolwright import ToolCall

        self._next += 1
        calls = [
            ToolCall(id=f"{self._next}.{number}", name="add", arguments={"a": number, "b": 1})
            for number in range(CALLS)
        ]
        await self._runtime.session("present").run_batch(calls)

    async def _claim(self) -> None:
        self._claimed = await self._store.services.runs.claim("w", ["add_later"], 2e9, 30.0, CLAIMED)
        assert len(self._claimed) == CLAIMED

    async def _hand_back(self) -> None:
        holds = [(each.run.id, each.run.token) for each in getattr(self, "_claimed", [])]
        await self._store.services.runs.hand_back("w", holds, 2e9)

    async def _cut_off(self) -> None:
        """Leave calls as a killed process would."""
        from toolwright import ToolCall

        session = self._runtime.session("cut off")
        await session.run_batch(
            [ToolCall(id=str(number), name="add", arguments={"a": number, "b": 1}) for number in range(CALLS)]
        )

        def work(connection: Any) -> None:
            connection.execute(
                "UPDATE calls SET outcome = NULL, status = NULL, finished_at = NULL, owner = 'gone' WHERE session = ?",
                ("cut off",),
            )
            connection.execute("DELETE FROM crashes WHERE session = ?", ("cut off",))

        await self._store._writer.do(work)

    async def _events(self) -> None:
        log = self._store.services.events
        newest = (await log.after(None, 1)).last
        await log.after(newest - 1_000, PAGE)


def md5(text: str) -> str:
    """As the database has it."""
    import hashlib

    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    emit(asyncio.run(measure(QUICK if probe_parser(__doc__).parse_args().quick else THOROUGH)))
