"""A simulated PostgreSQL server. Owns sessions, locks, transactions, its clock, and what a crash of it leaves.

The rows are in a real SQLite database, and the statements are those of the store: the shared ones as they are, those in
the words of PostgreSQL rewritten where the two differ. Readers see the last committed state while a transaction is
open. Transactions that write are carried out one after the other, also those that PostgreSQL would let run together.

A crash loses what was committed without waiting for the disk, back to some instant less than a second ago, unless a
later transaction did wait for it. A failover to a synchronous replica loses the same.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import shutil
from collections.abc import Callable
from collections.abc import Sequence as Values
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import psycopg
from psycopg import errors

from tests.effects.interleaving.loop import PROCESS, Process
from tests.simulation.threads import EPOCH, Readable, Threads
from toolwright.stores.postgres import address, batches, life
from toolwright.stores.postgres.connection import Rows
from toolwright.stores.sqlite.core.schema import bring_up_to_date

IDLE = 15.0
"""Seconds after which the server ends a session that does nothing in a transaction."""
LOCK = 30.0
"""Seconds that a session waits for a lock (`lock_timeout`)."""
KEEPALIVE = 7_200.0
"""Seconds after which a server asks a silent client whether it is there, where nobody sets that."""
UNSYNCED = 0.6
"""Seconds for which a transaction that did not wait for the disk may not be there yet."""
_PLACE = re.compile(r"\$(\d+)(::\w+(\[\])?)?")
_UNNEST = re.compile(r"unnest\(([^()]*)\) AS (\w+) \(([^()]*)\)")
_ANY = re.compile(r"= ANY \(\$(\d+)\)")
_LOCKED = re.compile(r"EXISTS \(SELECT 1 FROM pg_locks .*?current_database\(\)\)\)")
_NEWEST = "(SELECT coalesce(max(number), 0) FROM events) +"
_CHANGED = re.compile(r"WITH changed AS \((UPDATE .*) RETURNING 1\) SELECT CAST\(CASE WHEN count\(\*\) = \$(\d+)")
_BEGUN = re.compile(
    r"WITH others AS MATERIALIZED \((SELECT .*? AS there)\), begun AS \((INSERT .*) RETURNING 1\) SELECT"
)
_OWN = (
    " WHERE calls.session = $1 AND calls.scope = $2 AND calls.call_id = each.call_id"
    " AND calls.owner = $4 AND calls.outcome IS NULL"
)
_IS_COMMAND = re.compile(r"BEGIN|COMMIT|ROLLBACK|SET |SAVEPOINT|RELEASE|SELECT pg_advisory")
_VERB = re.compile(r"\s*(\w+)")


def lost() -> psycopg.OperationalError:
    """What a client is told whose connection ended."""
    return psycopg.OperationalError("server closed the connection unexpectedly")


class Session:
    """A connection as the server sees it. `machine` is at its other end."""

    def __init__(self, server: Server, machine: Any) -> None:
        self.server = server
        self.number = next(server.session_numbers)
        self.machine = machine
        self.ended = False
        self.silent = False
        """True where its client is not told of the end, and finds out when nobody answers."""
        self.locks: dict[Lock, None] = {}
        """Those that it has or waits for."""
        self.rows: apsw.Connection | None = None
        """The connection to the rows, while there is a transaction."""
        self.writes = False
        self.synced = True
        self.failed = False
        self.told: list[str] = []
        self.channel: str | None = None
        self.socket = Readable(server.threads)
        self.notices: list[bytes] = []
        self.active_at = 0.0
        self.changes = 0
        self.total = 0


class Waiting(NamedTuple):
    """A session that waits for a lock, and how it is woken."""

    session: Session
    shared: bool
    waiters: list[Callable[[], None]]


class Lock:
    """An advisory lock: who has it, and who waits for it, in the order they came."""

    def __init__(self) -> None:
        self.holders: list[tuple[Session, bool]] = []
        self.queue: list[Waiting] = []

    def may_have(self, session: Session, shared: bool) -> bool:
        if any(holder is not session and not (shared and with_others) for holder, with_others in self.holders):
            return False
        for other in self.queue:
            if other.session is session:
                return True
            if not (shared and other.shared):
                return False
        return True

    def wake(self) -> None:
        """Let those go on who may have it now."""
        for waiting in [*self.queue]:
            if not self.may_have(waiting.session, waiting.shared):
                break
            for wake in [*waiting.waiters]:
                wake()

    def free(self, session: Session) -> None:
        """A session has it no more, and does not wait for it."""
        session.locks.pop(self, None)
        self.holders = [pair for pair in self.holders if pair[0] is not session]
        for waiting in [one for one in self.queue if one.session is session]:
            self.queue.remove(waiting)
            for wake in [*waiting.waiters]:
                wake()
        self.wake()


class Sequence:
    """The sequence of the event numbers. It notes down 32 numbers ahead, and goes on there after a crash; but what it
    noted may be lost, as any transaction that did not wait for the disk."""

    STEP = 100_000

    def __init__(self) -> None:
        self.last = 1_000_000
        self.noted = self.last
        self.safe = self.last

    def next(self) -> int:
        self.last += self.STEP
        if self.last > self.noted:
            self.noted = self.last + 32 * self.STEP
        return self.last

    def crash(self) -> None:
        self.last = self.noted = self.safe


class Server:
    """The one database of a world."""

    def __init__(self, threads: Threads, folder: Path, note: Callable[[str], None]) -> None:
        self.threads = threads
        self.loop = threads.loop
        self.note = note
        self.process = Process("server")
        self.ahead = 0.0
        self.up = True
        self.silent = False
        self.started = -3_600.0
        self.commits = 0
        self.observers: list[Callable[[apsw.Connection], None]] = []
        self.numbers = Sequence()
        self._path = folder / "database"
        shutil.copyfile(_template(folder.parent), self._path)
        self._open()
        self._signs = apsw.Connection(":memory:")
        self._signs.execute("CREATE TABLE owners (name TEXT PRIMARY KEY, until REAL, program TEXT)")
        self._signs.execute("CREATE TABLE server_starts (started REAL PRIMARY KEY, seen REAL)")
        for name, function in (
            ("clock_timestamp", self.now),
            ("pg_postmaster_start_time", lambda: EPOCH + self.started),
            ("is_locked", self._is_locked),
        ):
            self._signs.create_scalar_function(name, function, -1)
        self.sessions: dict[Session, None] = {}
        self.session_numbers = itertools.count(1)
        self._locks: dict[int, Lock] = {}
        self._turn = Lock()
        self._fragile_from: float | None = None
        self._left: apsw.Connection | None = None
        """The rows that a crash would leave."""

    def _open(self) -> None:
        self.rows = self._connected()
        self._readers: list[apsw.Connection] = []

    def _connected(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        connection.execute("PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON")
        connection.create_scalar_function("nextval", self.numbers.next, 0)
        return connection

    def now(self) -> float:
        """The clock of the server."""
        return EPOCH + self.loop.time() + self.ahead

    # --- sessions

    def connect(self, machine: Any) -> Session:
        """A new session.

        Raises:
            psycopg.OperationalError: it does not run.
        """
        if not self.up:
            raise psycopg.OperationalError("connection refused")
        session = Session(self, machine)
        self.sessions[session] = None
        return session

    def end(self, session: Session, *, silent: bool = False) -> None:
        """End a session: its transaction is rolled back, and its locks are free."""
        if session.ended:
            return
        session.ended = True
        session.silent = silent
        self.sessions.pop(session, None)
        self._leave(session, "ROLLBACK")
        for lock in [*session.locks]:
            lock.free(session)
        if silent:
            self.loop.call_later(IDLE, self._be_noticed, session)  # by the keepalives of the client
        else:
            session.socket.ring()

    def _be_noticed(self, session: Session) -> None:
        session.silent = False
        session.socket.ring()

    def hang_up(self, machine: Any, *, silent: bool) -> None:
        """A machine is gone. Where it could not tell, its sessions last until the server asks whether it is there."""
        idle = float(address._SETTINGS.get("tcp_keepalives_idle", KEEPALIVE))
        for session in [one for one in self.sessions if one.machine is machine]:
            if silent:
                self.loop.call_later(idle + 10, self.end, session)
            else:
                self.end(session)

    def later(self, seconds: float, session: Session, work: Callable[[], Any]) -> None:
        """Carry out what arrives after its client has given up the connection, and then end the session."""

        def do() -> None:
            self.threads.sleep(seconds)
            with contextlib.suppress(psycopg.Error):
                if not session.ended:
                    work()
                    self.note(f"does what {session.machine} sent before it lost the connection")
            self.end(session)

        self.threads.run(do, self.process)

    # --- what a session asks for

    def command(self, session: Session, statements: str) -> None:
        """Carry out statements without values."""
        for statement in statements.split("; "):
            self._command(session, statement)
        session.active_at = self.loop.time()

    def _command(self, session: Session, statement: str) -> None:
        words = statement.split()
        if statement == "BEGIN":
            session.writes, session.synced, session.failed = True, True, False
        elif words[0] == "BEGIN":
            session.writes, session.failed = False, False
            session.rows = self._reader()
            session.rows.execute("BEGIN")
        elif statement in ("COMMIT", "ROLLBACK"):
            self._leave(session, "ROLLBACK" if session.failed else statement)
        elif words[:2] == ["SET", "LOCAL"]:
            session.synced = False
        elif words[0] == "SET":
            pass  # of the connection of `Life`: its sign is seen at once in any case
        elif words[0] == "LISTEN":
            session.channel = words[1]
        elif words[:2] == ["ROLLBACK", "TO"]:
            assert session.rows is not None
            session.rows.execute(statement)
            session.failed = False
        elif (
            found := re.fullmatch(r"SELECT pg_advisory_(xact_)?(un)?lock(_shared)?\((-?\d+)\)", statement)
        ) is not None:
            key = int(found[4])
            if found[2]:
                self._locks[key].free(session)
            else:
                self._take(self._locks.setdefault(key, Lock()), session, bool(found[3]))
                if found[1]:
                    self._take_turn(session)
        else:
            self._run(session, statement, ())

    def run(self, session: Session, statement: str, values: Values[Any]) -> Rows:
        """Carry out a statement with values, and return its rows."""
        session.active_at = self.loop.time()
        if statement == "SELECT pg_advisory_lock_shared($1)":
            self._take(self._locks.setdefault(values[0], Lock()), session, True)
            return Rows([])
        if statement == life._ARRIVE:
            started = EPOCH + self.started
            before = self._signs.execute(
                "DELETE FROM server_starts WHERE started <> ? RETURNING 1", (started,)
            ).fetchall()
            self._signs.execute(
                "INSERT OR IGNORE INTO server_starts VALUES (?, ?)", (started, self.now() if before else 0)
            )
            return Rows([])
        if statement.startswith("SELECT pg_terminate_backend"):
            for former in [one for one in self.sessions if one.number == values[0]]:
                self.end(former)
            return Rows([])
        if statement.startswith("SELECT pg_logical_emit_message"):
            self._committed(True)
            return Rows([])
        if statement in (life._LOOK, life._RENEW_AND_LOOK):
            return self._others(session, statement, values)
        if statement == batches._BEGIN:
            return self._begin_calls(session, values)
        if (changed := _CHANGED.match(statement)) is not None:
            self._run(session, changed[1].replace(batches._OWN, _OWN), values)
            if session.changes != values[int(changed[2]) - 1]:
                session.failed = True
                raise errors.InvalidTextRepresentation("a call is not an unfinished one of this process any more")
            return Rows([])
        if statement.startswith("SELECT pg_notify"):
            session.told.append(values[1])
            return Rows([])
        if not values and _IS_COMMAND.match(statement):
            self.command(session, statement)
            return Rows([])
        if statement == "SELECT pg_advisory_xact_lock($1)":
            self._take(self._locks.setdefault(values[0], Lock()), session, False)
            return Rows([])
        return self._run(session, statement, values)

    def _begin_calls(self, session: Session, values: Values[Any]) -> Rows:
        """Statements that write and read in one, which SQLite has not."""
        found = _BEGUN.match(batches._BEGIN)
        assert found is not None
        (there,) = self._run(session, found[1], values).fetchone()
        insert = found[2].replace("FROM others,", f"FROM (SELECT {int(there)} AS there) AS others,")
        self._run(session, insert, values)
        return Rows([(session.changes, bool(there))])

    def _others(self, session: Session, statement: str, values: Values[Any]) -> Rows:
        """What `Life` asks for: its sign of life, and the others that live, each with its news."""
        owner, grace = values[0], values[5]
        if statement == life._RENEW_AND_LOOK:
            self._signs.execute(
                "INSERT INTO owners VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET until = excluded.until",
                (owner, self.now() + values[6], values[7]),
            )
        reader = self._reader()
        news = dict(reader.execute("SELECT owner, news FROM commits").fetchall())
        self._readers.append(reader)
        asked = dict(zip(values[1], zip(values[2], values[3], strict=True), strict=True))
        is_new, given = in_sqlite(f"SELECT {life._NEW_SERVER.format('$1')}", (grace,))
        spared = values[4] > 0 or bool(self._signs.execute(is_new, given).fetchone()[0])  # type: ignore[index]
        rows: list[Any] = []
        signs: list[Any] = self._signs.execute("SELECT name, until FROM owners WHERE name <> ?", (owner,)).fetchall()
        for name, until in signs:
            held, ends = name in asked and bool(self._is_locked(*asked[name])), until - self.now()
            if name in news and (ends > 0 or held or spared):
                rows.append((name, news[name], ends, held))
        return Rows(rows)

    def _run(self, session: Session, statement: str, values: Values[Any]) -> Rows:
        if session.failed and session.rows is not None:
            raise errors.InFailedSqlTransaction("current transaction is aborted")
        text, bound = in_sqlite(statement, values)
        of_signs = "owners" in text or "clock_timestamp" in text or "server_starts" in text
        verb = _VERB.match(text)[1].upper()  # type: ignore[index]
        reads = verb in ("SELECT", "WITH")
        alone = session.rows is None and not of_signs
        if alone and not reads:
            session.synced = True
            self._take_turn(session)
        rows = self._signs if of_signs else session.rows or self._reader()
        try:
            found = rows.execute(text, bound).fetchall()
            session.changes = 0 if reads else rows.changes()
            session.total += session.changes
        except apsw.ConstraintError as error:
            session.failed = True
            kind = errors.NotNullViolation if "NOT NULL" in str(error) else errors.UniqueViolation
            raise kind(str(error)) from error
        except apsw.Error as error:
            session.failed = True
            raise psycopg.ProgrammingError(f"{error} in {text}") from error
        finally:
            if alone:
                if reads:
                    self._readers.append(rows)
                else:
                    self._leave(session, "ROLLBACK" if session.failed else "COMMIT")
        return Rows(found)

    # --- transactions

    def _reader(self) -> apsw.Connection:
        return self._readers.pop() if self._readers else self._connected()

    def _take_turn(self, session: Session) -> None:
        self._take(self._turn, session, False)
        session.rows = self.rows
        self.rows.execute("BEGIN IMMEDIATE")

    def _leave(self, session: Session, how: str) -> None:
        """End the transaction of a session."""
        rows, told = session.rows, session.told
        session.rows, session.told, session.failed = None, [], False
        if rows is None:
            return
        if rows is not self.rows:
            rows.execute("ROLLBACK")
            self._readers.append(rows)
            return
        if how == "COMMIT":
            for observer in self.observers:
                observer(rows)
            rows.execute("COMMIT")
            self.commits += 1
            self._committed(session.synced)
        else:
            rows.execute("ROLLBACK")
        # A lock of the session itself, its sign of life, is on a session that never writes.
        for lock in [*session.locks] if session.writes else [self._turn]:
            lock.free(session)
        session.writes = False
        if how == "COMMIT":
            for owner in told:
                for other in self.sessions:
                    if other.channel is not None:
                        self.loop.call_later(other.machine.link.latency(), self._tell, other, owner)

    def _tell(self, session: Session, owner: str) -> None:
        if session.machine.link.down:
            self.loop.call_later(0.5, self._tell, session, owner)
        elif not session.ended:
            session.notices.append(owner.encode())
            session.socket.ring()

    # --- locks

    def _take(self, lock: Lock, session: Session, shared: bool) -> None:
        waiting = Waiting(session, shared, [])
        lock.queue.append(waiting)
        session.locks[lock] = None
        until = self.loop.time() + LOCK
        while not lock.may_have(session, shared):
            if self.loop.time() >= until:
                lock.free(session)
                raise errors.LockNotAvailable("canceling statement due to lock timeout")
            self.threads.wait(waiting.waiters, 1.0)
            if session.ended:
                raise lost()
            self._end_idle(lock)
        lock.queue.remove(waiting)
        lock.holders.append((session, shared))
        lock.wake()

    def _end_idle(self, lock: Lock) -> None:
        for holder, _ in [*lock.holders]:
            if holder.rows is not None and self.loop.time() - holder.active_at >= IDLE:
                self.note(f"server: ends the transaction of {holder.machine}, which is idle")
                self.end(holder)

    def _is_locked(self, high: int, low: int) -> int:
        key = (high << 32) | low
        lock = self._locks.get(key - 2**64 if key >= 2**63 else key)
        return int(lock is not None and bool(lock.holders))

    # --- crashes

    def doom(self, at: float, unsynced: float) -> None:
        """It will crash at an instant, which loses the unsynced transactions of the last seconds before that."""
        self._fragile_from = at - unsynced

    def _committed(self, synced: bool) -> None:
        if synced or self._fragile_from is None or self.loop.time() < self._fragile_from:
            self.numbers.safe = self.numbers.noted
        if self._fragile_from is not None and self.loop.time() >= self._fragile_from and (synced or self._left is None):
            self._left = _copy(self.rows)

    def crash(self, *, silent: bool) -> None:
        """End all sessions at once. With `silent`, the machine is gone, and no client is told."""
        self.up = False
        self.silent = silent
        for session in [*self.sessions]:
            self.end(session, silent=silent)
        self._locks.clear()
        if self._left is not None:
            before: Any = self.rows.execute("SELECT count(*), sum(number) FROM commits").fetchall()
            for reader in self._readers:
                reader.close()
            with self.rows.backup("main", self._left, "main") as backup:
                backup.step()
            self._left.close()
            self._readers = []
            after: Any = self.rows.execute("SELECT count(*), sum(number) FROM commits").fetchall()
            if after != before:
                self.note(f"server: the crash loses {before[0][1] - after[0][1]} unsynced transactions")
        self.numbers.crash()
        self._left = self._fragile_from = None

    def start(self, *, promoted: bool, ahead: float) -> None:
        """Run again: the same server, or a replica that has been running for long, with a clock of its own."""
        self.up = True
        self.silent = False
        self.ahead = ahead
        self.started = -3_600.0 - self.loop.time() if promoted else self.loop.time()

    def close(self) -> None:
        """Close the files."""
        for connection in (self.rows, *self._readers, self._signs):
            connection.close()


def _copy(rows: apsw.Connection) -> apsw.Connection:
    copy = apsw.Connection(":memory:")
    with copy.backup("main", rows, "main") as backup:
        backup.step()
    return copy


_templates: dict[Path, Path] = {}


def _template(folder: Path) -> Path:
    """An empty database with the schema of a store, made once."""
    path = folder / "empty"
    if not path.exists():
        connection: Any = apsw.Connection(str(path))
        connection.execute("PRAGMA page_size = 4096; PRAGMA journal_mode = WAL")
        with connection:
            bring_up_to_date(connection, None)
            connection.create_scalar_function("nextval", lambda: 0, 0)
            for text in _log_triggers():
                connection.execute(text)
            numbers = "number INTEGER NOT NULL, news INTEGER NOT NULL DEFAULT 0"
            connection.execute(f"CREATE TABLE commits (owner TEXT PRIMARY KEY, {numbers})")
            connection.execute("UPDATE meta SET value = ? WHERE name = 'secret'", (bytes(32),))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    return path


def _log_triggers() -> list[str]:
    """The triggers of the event log, which a database in memory goes without, with the numbers of a sequence."""
    from toolwright.stores.sqlite.core.schema import _HERE

    scratch = apsw.Connection(":memory:")
    scratch.execute(_HERE.joinpath("schema.sql").read_text("utf-8"))
    found: Any = scratch.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'noted_%'")
    numbered = []
    for (text,) in found:
        text = re.sub(
            r"events \(session(.*?)(VALUES \(|SELECT )", r"events (number, session\1\2nextval(), ", text, flags=re.S
        )
        numbered.append(text.replace(_NEWEST, "nextval() + 0 *"))
    return numbered


def in_sqlite(statement: str, values: Values[Any]) -> tuple[str, Values[Any]]:
    """A statement of PostgreSQL in the words of SQLite; a shared one is as it is."""
    if "$" not in statement and "clock_timestamp" not in statement:
        return _simple(statement)[0], values
    bound = [None if isinstance(value, list) else value for value in values]
    if "unnest" not in statement:
        text, places = _simple(statement)
        return text, bound[:places]

    def rows(found: re.Match[str]) -> str:
        places = [int(place) - 1 for place, *_ in _PLACE.findall(found[1])]
        names = [name.strip() for name in found[3].split(",")]
        lines = []
        for row in zip(*(values[place] for place in places), strict=True):
            lines.append("(" + ", ".join(f"?{len(bound) + n + 1}" for n in range(len(row))) + ")")
            bound.extend(row)
        columns = ", ".join(f"column{n + 1} AS {name}" for n, name in enumerate(names))
        return f"(SELECT {columns} FROM (VALUES {', '.join(lines)})) AS {found[2]}"

    def among(found: re.Match[str]) -> str:
        first = len(bound) + 1
        bound.extend(values[int(found[1]) - 1])
        return f"IN ({', '.join(f'?{place}' for place in range(first, len(bound) + 1))})"

    text, places = _simple(_ANY.sub(among, _UNNEST.sub(rows, statement)))
    if statement.startswith("INSERT"):
        text = text.replace(" ON CONFLICT", " WHERE true ON CONFLICT")
    return text, bound[:places]


@functools.lru_cache(1_000)
def _simple(statement: str) -> tuple[str, int]:
    """A statement without lists in the words of SQLite, and how many values it has."""
    text = _LOCKED.sub("is_locked(asked.high, asked.low)", statement.replace(_NEWEST, "nextval() + 0 *"))
    text = _PLACE.sub(r"?\1", text)
    text = text.replace(" * interval '1 second'", "").replace(
        "extract(epoch FROM clock_timestamp())::float8", "clock_timestamp()"
    )
    return text, max((int(place) for place in re.findall(r"\?(\d+)", text)), default=0)


def machine_here() -> Process:
    """The process whose code runs now."""
    process = PROCESS.get()
    assert process is not None
    return process
