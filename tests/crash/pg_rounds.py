"""Rounds of the kill matrix on PostgreSQL. Owns the faults, and letting one of them hit all work at all its points.

A round starts a program for each point, which does every kind of work and stops there; each has a store of its own, in
one database. Another program has all these stores open, too, as a worker. Then the fault comes. What everybody said and
did is collected, for tests to judge.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from tests.crash.pg_agent import POINTS, WORKS, holder, onlooker
from tests.postgres_server import PostgresServer
from tests.tcp_proxy import TcpProxy
from toolwright.stores.postgres.life import LEASE
from toolwright.testing import CrashKit, Running, Zygote

PATIENCE = 30.0
"""Seconds for anything that programs are to do or say."""
LONG = LEASE + 2.0
"""Seconds that are longer than a sign of life lasts."""
SHORT = LEASE / 5
"""Seconds that are shorter, by far, also where a sign of life was given a while ago."""

MODULES = ("toolwright.stores.postgres.scheme", "toolwright.http.service", "uvicorn")
"""Those that the process imports which starts the programs."""
Seen = dict[str, Any]
"""What a round saw, as JSON: by point and work, the lines of the ledger, and what the programs said."""


class Round:
    """One fault, which hits a program at each point."""

    def __init__(self, folder: Path, zygote: Zygote, servers: list[PostgresServer], fault: str) -> None:
        self.servers = servers
        self._stack = ExitStack()
        self._kit = self._stack.enter_context(CrashKit(folder, zygote=zygote))
        self._ahead = 7200.0 if fault == "clock set" else 0.0
        self._served = fault == "server killed"
        self.schemas = {point: f"{folder.name}_{point}".replace(" ", "_").replace("-", "_") for point in POINTS}
        self.proxies: dict[str, list[TcpProxy]] = {}
        self.holders: dict[str, Running] = {}
        self.owners: dict[str, str] = {}
        self.onlooker: Running | None = None
        self.keys: dict[str, list[str]] = {}
        self.ended: dict[str, dict[str, Any]] = {point: {} for point in POINTS}
        self.refused: dict[str, dict[str, str]] = {point: {} for point in POINTS}
        self.again: dict[str, dict[str, Any]] = {point: {} for point in POINTS}
        self.committed: dict[str, list[str]] = {}
        self._blocks: list[psycopg.Connection[Any]] = []

    def url(self, point: str, ports: list[int], name: str) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://postgres@{hosts}/postgres?schema={self.schemas[point]}&application_name={name}"

    def stand(self) -> None:
        """Bring all work to its point, in all programs."""
        for point in POINTS:
            proxies = [self._stack.enter_context(TcpProxy(server.port)) for server in self.servers]
            self.proxies[point] = proxies
            url = self.url(point, [proxy.port for proxy in proxies], "holder")
            self.holders[point] = self._kit.start(holder, url=url, point=point, served=self._served)
        for point, running in self.holders.items():
            at: set[str] = set()
            while at != set(WORKS):
                try:
                    what, work, more = self._hear(running)
                except AssertionError as error:
                    raise AssertionError(f"{point}: {set(WORKS) - at} did not come there: {error}") from error
                if what == "owner":
                    self.owners[point] = work
                    continue
                assert what == "at", f"{point}: {work} {what} {more}"
                at.add(work)
                if more is not None:
                    self.keys[work] = more
        ports = [server.port for server in self.servers]
        urls = {point: self.url(point, ports, "onlooker") for point in POINTS}
        self.onlooker = self._kit.start(onlooker, urls=urls, ahead=self._ahead)
        assert self._hear(self.onlooker)[0] == "ready"
        self._enter_commits()
        self.resolve(list(self.keys)[::2])

    def _enter_commits(self) -> None:
        """Let the outcomes of one program come to the server, which does not commit them, and of another to be
        committed without an answer."""
        point = "in a commit"
        block = psycopg.connect(self.servers[0].url)
        self._blocks.append(block)
        table = f"{self.schemas[point]}.commits"
        block.execute(f"SELECT 1 FROM {table} WHERE owner = '{self.owners[point]}' FOR UPDATE")  # type: ignore[arg-type]
        blocked = f"SELECT count(*) FROM pg_stat_activity WHERE {block.info.backend_pid} = ANY(pg_blocking_pids(pid))"
        self.holders[point].tell("go")
        self._until(lambda: self.servers[0].execute(blocked) != [(0,)])
        point = "after a commit"
        proxy = self.proxies[point][0]
        outcomes = f"SELECT count(*) FROM {self.schemas[point]}.calls WHERE outcome IS NOT NULL"
        proxy.lose_answer()
        self.holders[point].tell("go")
        while proxy.wait_lost(PATIENCE) and self.servers[0].execute(outcomes) == [(0,)]:
            proxy.lose_answer()
            proxy.give_answer()  # that was another one, such as the renewal of a lease
        for point in POINTS:
            rows = self.servers[0].execute(
                f"SELECT convert_from(arguments, 'UTF8') FROM {self.schemas[point]}.calls WHERE outcome IS NOT NULL"
            )
            self.committed[point] = sorted(json.loads(str(row))["work"] for (row,) in rows)

    def unblock(self) -> None:
        """Let the server carry out the commit that it holds, if it still has it."""
        for block in self._blocks:
            block.close()
        self._blocks.clear()

    def resolve(self, works: list[str]) -> None:
        """Give waits their answers from outside; they are acknowledged."""
        assert self.onlooker is not None
        self.onlooker.tell(json.dumps(["resolve", [self.keys[work] for work in works]]))
        while self._note(self.onlooker, "") != "resolved":
            pass

    def see_life(self, point: str) -> None:
        """Wait until the program at this point has given a sign of life that still holds."""
        alive = (
            f"SELECT count(*) FROM {self.schemas[point]}.owners"
            f" WHERE name = '{self.owners[point]}' AND until > clock_timestamp()"
        )
        self._until(lambda: self.servers[-1].execute(alive) == [(1,)])

    def go(self) -> None:
        """Let everything go on from where it stands."""
        for running in self.holders.values():
            running.tell("go")

    def finish(self) -> None:
        """Wait until the programs have ended all their work."""
        for point, running in self.holders.items():
            with suppress(AssertionError):  # what is missing is seen by the tests
                while len(self.ended[point]) + len(self.refused[point]) < len(WORKS):
                    self._note(running, point)

    def repeat(self) -> None:
        """Let the other program do all work again, or take it over."""
        assert self.onlooker is not None
        self.onlooker.tell('["again"]')
        with suppress(AssertionError):
            while any(len(self.again[point]) < len(WORKS) for point in POINTS):
                self._note(self.onlooker, "")

    def close(self) -> Seen:
        """End everything; what was seen."""
        server = self.servers[-1]
        seen: Seen = {
            point: {work: {"lines": [], "committed": work in self.committed[point]} for work in WORKS}
            for point in POINTS
        }
        for point in POINTS:
            for work in WORKS:
                cell = seen[point][work]
                cell["ended"] = self.ended[point].get(work)
                cell["refused"] = self.refused[point].get(work)
                cell["again"] = self.again[point].get(work)
            schema = self.schemas[point]
            for id, attempts, state in server.execute(f"SELECT id, attempts, state FROM {schema}.processes"):
                name = str(id) if id in WORKS else "schedule:fail"
                seen[point][name]["run"] = [attempts, state]
            for id, token in server.execute(f"SELECT id, token FROM {schema}.turns"):
                seen[point][str(id)]["token"] = token
            open_calls = server.execute(
                f"SELECT convert_from(arguments, 'UTF8') FROM {schema}.calls WHERE outcome IS NULL"
            )
            for (arguments,) in open_calls:
                seen[point][json.loads(str(arguments))["work"]]["unfinished"] = True
        for line in self._kit.ledger:
            what, point, work, *_ = json.loads(line)
            seen[point][work]["lines"].append(what)
        return seen

    def _note(self, running: Running, point: str) -> str:
        what, work, more = self._hear(running)
        if what == "ended":
            self.ended[point][work] = more
        elif what == "refused":
            self.refused[point][work] = more
        elif what == "again":
            where, name = work
            self.again[where][name] = more
        return str(what)

    def _hear(self, running: Running) -> Any:
        try:
            return running.hear(PATIENCE)
        except AssertionError as error:
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGUSR1)  # it prints where its threads are
                running.listen(0.5)
            raise AssertionError(f"{error}\n{running.output}") from error

    def _until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < until, "It did not come to that."
            time.sleep(0.02)

    def end(self) -> None:
        """End everything that still runs."""
        self.unblock()
        for running in (*self.holders.values(), *filter(None, [self.onlooker])):
            with suppress(AssertionError):  # what went wrong is known already
                running.kill()
        self._stack.close()


# --- the faults: each is called when all work stands at its point


def kill(round: Round) -> None:
    """The process is killed, and another one takes its work over."""
    for running in round.holders.values():
        running.kill()
    round.unblock()
    round.resolve(list(round.keys)[1::2])
    round.repeat()


def survive(round: Round) -> None:
    """The process goes on; then another one finds what was recorded."""
    round.unblock()
    round.see_life("after a commit")
    for proxy in round.proxies["after a commit"]:
        # The connection on which an answer does not come ends at some time. A process that lost its connections without
        # a sign of life since it stood still would be taken for dead.
        proxy.drop()
        proxy.mend()
    round.go()
    round.resolve(list(round.keys)[1::2])
    round.finish()
    round.repeat()


def kill_database(round: Round) -> None:
    """The database is killed, and starts again."""
    (server,) = round.servers
    server.stop(signal.SIGKILL)
    server.start()
    survive(round)


def promote_replica(round: Round) -> None:
    """The primary is killed, and its synchronous replica takes its place."""
    primary, replica = round.servers
    primary.stop(signal.SIGKILL)
    replica.execute("SELECT pg_promote()")
    survive(round)


def cut(round: Round) -> None:
    """The server ends all connections of the process, several times."""
    for _ in range(3):
        cut_holders(round.servers[0])
        time.sleep(0.5)
    survive(round)


def cut_holders(server: PostgresServer) -> None:
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holder'")


def lose_network(round: Round) -> None:
    """The network of the process is away for less than its sign of life lasts."""
    drop(round)
    round.unblock()
    time.sleep(SHORT)
    mend(round)
    survive(round)


def drop(round: Round) -> None:
    for proxies in round.proxies.values():
        for proxy in proxies:
            proxy.drop()


def mend(round: Round) -> None:
    for proxies in round.proxies.values():
        for proxy in proxies:
            proxy.mend()


def stall_network(round: Round) -> None:
    """Nothing passes for longer than a sign of life lasts, and nobody is told."""
    for proxies in round.proxies.values():
        for proxy in proxies:
            proxy.stall()
    round.unblock()
    time.sleep(LONG)
    mend(round)
    survive(round)


def freeze(round: Round) -> None:
    """The process stands still for longer than its sign of life lasts, and keeps its connections."""
    for running in round.holders.values():
        running.freeze()
    round.unblock()
    time.sleep(LONG)
    for running in round.holders.values():
        running.thaw()
    survive(round)


def sleep(round: Round) -> None:
    """The process stands still and loses its connections, as on a machine that sleeps; another takes its work over."""
    for running in round.holders.values():
        running.freeze()
    cut_holders(round.servers[0])
    for proxy in round.proxies["after a commit"]:
        proxy.drop()
        proxy.mend()
    round.unblock()
    round.resolve(list(round.keys)[1::2])
    round.repeat()
    for running in round.holders.values():
        running.thaw()
    round.go()
    round.finish()


def lose_network_for_long(round: Round) -> None:
    """The network of the process is away until another took its work over, and it goes on all the while."""
    drop(round)
    round.unblock()
    round.resolve(list(round.keys)[1::2])
    round.repeat()
    mend(round)
    round.go()
    round.finish()


def set_clock(round: Round) -> None:
    """The clock of the process is set by an hour; that of the other is ahead by two."""
    for place, running in enumerate(round.holders.values()):
        running.tell("3600" if place % 2 else "-3600")
    survive(round)


FAULTS: dict[str, Callable[[Round], None]] = {
    "process killed": kill,
    "server killed": kill,
    "database killed": kill_database,
    "replica promoted": promote_replica,
    "connections ended": cut,
    "network away": lose_network,
    "network stalled": stall_network,
    "process frozen": freeze,
    "machine asleep": sleep,
    "network away for long": lose_network_for_long,
    "clock set": set_clock,
}
TAKEN_OVER = ("process killed", "server killed", "machine asleep", "network away for long")
"""The faults after which another process takes the work over. After all others nobody may."""


@contextmanager
def servers_for(fault: str) -> Iterator[list[PostgresServer]]:
    """The servers of a round: its own, because it may kill them."""
    with ExitStack() as stack:
        if fault != "replica promoted":
            yield [stack.enter_context(PostgresServer())]
            return
        following = {
            "wal_level": "replica",
            "max_wal_senders": "4",
            "synchronous_standby_names": "*",
            "hot_standby_feedback": "on",
        }
        primary = stack.enter_context(PostgresServer(**following))
        replica = primary.replica()
        stack.callback(replica.remove)
        replica.start()
        yield [primary, replica]


def play(fault: str, folder: Path, zygote: Zygote, chance: Random | None = None) -> Seen:
    """Play the round of a fault; what was seen.

    With a `chance`, a fault that programs survive comes at any instant after they went on from their points.
    """
    with servers_for(fault) as servers:
        round = Round(folder, zygote, servers, fault)
        try:
            round.stand()
            if chance is not None and fault not in TAKEN_OVER:
                round.go()
                time.sleep(chance.uniform(0, 0.5))
            FAULTS[fault](round)
            return round.close()
        finally:
            round.end()
