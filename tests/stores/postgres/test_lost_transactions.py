"""Transactions that a server lost, or carried out when nobody waited for them any more; and machines without power."""

import asyncio
import threading

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.support import fail_after
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.store import PostgresStore
from toolwright.stores.postgres.writer import _MAKE_SAFE, Writer


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


class Firings:
    """Adds a row each time it is done, whose number is how often that was."""

    def __init__(self) -> None:
        self.made = 0

    def add(self, connection) -> int:
        self.made += 1
        query = "INSERT INTO firings (schedule, instant, at, what) VALUES ('s', ?, 0, 'x')"
        connection.execute(query, (self.made,))
        return self.made


@pytest.mark.promise("ENG-02")
async def test_a_commit_that_the_server_carries_out_after_its_client_gave_up_is_not_repeated(server, monkeypatch):
    store = await PostgresStore.open(f"{server.url}?schema=late")
    firings, real = Firings(), PostgresConnection.run
    late: list[threading.Timer] = []
    said: list[str] = []

    def carry_out(connection):
        real(connection, "COMMIT")
        psycopg.Connection.close(connection.raw)

    def run(self, statement, values=()):
        if statement == "COMMIT" and firings.made == 1 and not late:
            self.raw.close = lambda: None  # the server has not noticed yet
            late.append(threading.Timer(0.3, carry_out, (self,)))
            late[0].start()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        said.append(statement)
        return real(self, statement, values)

    # As where the server does not find it by the number that the client knows, such as behind a pooler.
    monkeypatch.setattr(Writer, "_end_former", lambda self, connection: None)
    monkeypatch.setattr(PostgresConnection, "run", run)
    async with fail_after(60):
        assert await store._writer.do(firings.add) == 1
        assert firings.made == 2  # it was tried again
        assert said[-1] == _MAKE_SAFE  # nobody waited until a replica had the first try
        assert server.execute("SELECT instant FROM late.firings") == [(1.0,)]
        await store.close()
    await asyncio.to_thread(late[0].join)


@pytest.mark.promise("ENG-02")
async def test_what_a_crash_of_the_server_lost_of_acknowledged_work_is_written_again(server):
    store = await PostgresStore.open(f"{server.url}?schema=unsynced")
    firings = Firings()
    async with fail_after(60):
        await store._writer.do(firings.add, synced=False)
        # As a crash leaves it before the transaction is on the disk.
        await asyncio.to_thread(server.execute, "DELETE FROM unsynced.firings")
        back = f"UPDATE unsynced.commits SET number = number - 1 WHERE owner = '{store.owner}'"
        await asyncio.to_thread(server.execute, back)
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolwright'"
        await asyncio.to_thread(server.execute, ended)
        await store._writer.do(lambda connection: None)
        assert server.execute("SELECT instant FROM unsynced.firings") == [(2.0,)]
        await store.close()


@pytest.mark.promise("ENG-02")
async def test_the_server_asks_whether_a_silent_machine_is_still_there(server):
    store = await PostgresStore.open(f"{server.url}?schema=silent")
    connection = store.address.connect()
    by_network = connection.execute("SELECT inet_server_addr() IS NOT NULL").fetchone()[0]
    seconds = connection.execute("SELECT current_setting('tcp_keepalives_idle')").fetchone()[0]
    assert seconds == ("5" if by_network else "0")
    connection.raw.close()
    await store.close()
