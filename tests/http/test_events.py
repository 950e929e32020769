"""Events over SSE: from every process, resumed without a gap or a repeat, and no client in the way of another."""

from __future__ import annotations

import asyncio
import re
import socket
import tracemalloc
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import httpx
import pytest

from tests.http.client import everyone, opened
from tests.http.live import served
from tests.http.sse_client import following
from tests.support import fail_after, until
from toolwright import App, Runtime, ToolCall, tool
from toolwright.errors import StoreUnavailable
from toolwright.http import create_app, events, sse
from toolwright.http.access.caller import Caller, Scope
from toolwright.stores import SqliteStore, prune
from toolwright.stores.contracts.event_log import EventLogStore, EventPage


@tool(readonly=True)
async def look(city: str) -> str:
    """Look at a city."""
    return f"seen {city}"


def calls(*ids: str) -> list[ToolCall]:
    return [ToolCall(id=id, name="look", arguments={"city": "Rome"}) for id in ids]


@pytest.mark.promise("HTTP-02", "HTTP-05")
async def test_the_events_of_another_process_come_and_a_client_that_returns_misses_nothing(file):
    async with fail_after(30), httpx.AsyncClient() as http, Runtime.open(file, tools=[look]) as other:
        session = other.session("s")
        async with served(create_app(App(tools=[look]), file, authenticate=everyone())) as address:
            async with following(http, address) as stream:
                await session.run_batch(calls("a"))
                first = await stream.take(2)
                last = stream.last_id
            await session.run_batch(calls("b"))
        await session.run_batch(calls("c"))  # while no server runs
        async with (
            served(create_app(App(tools=[look]), file, authenticate=everyone())) as address,
            following(http, address, last) as stream,
        ):
            later = await stream.take(4)
            await session.run_batch(calls("d"))
            later += await stream.take(2)
    told = [(event["kind"], event.get("call_id")) for event in first + later]
    assert told == [pair for id in "abcd" for pair in (("batch.started", None), ("call.finished", id))]
    numbers = [event["number"] for event in first + later]
    assert numbers == sorted(set(numbers))
    assert first[1]["outcome"] == {"value": "seen Rome"}


@pytest.mark.promise("HTTP-02")
async def test_events_are_filtered_by_session_kind_and_call(place):
    service = create_app(App(tools=[look]), place, authenticate=everyone())
    async with fail_after(30), httpx.AsyncClient() as http, served(service) as address:
        runtime = await service.open()
        async with (
            following(http, address, session="b") as of_session,
            following(http, address, types="call.finished") as of_kind,
            following(http, address, types="call.*,kv.set") as of_group,
            following(http, address, session="a", call="two") as of_call,
        ):
            await runtime.session("a").run_batch(calls("one", "two"))
            await runtime.session("b").run_batch(calls("three"))
            await runtime.session("b").kv.set("k", 1)

            assert {event["session"] for event in await of_session.take(3)} == {"b"}
            assert [event["call_id"] for event in await of_kind.take(3)] == ["one", "two", "three"]
            grouped = [event["kind"] for event in await of_group.take(4)]
            assert "batch.started" not in grouped
            assert (await of_call.take(1))[0]["call_id"] == "two"


@pytest.mark.promise("HTTP-02", "HTTP-03")
async def test_a_caller_gets_only_the_events_of_its_sessions(file):
    caller = Caller("ann", frozenset[Scope]({"read"}), ("ann-*",))
    service = create_app(App(tools=[look]), file, authenticate=everyone(caller))
    async with fail_after(30), httpx.AsyncClient() as http, served(service) as address:
        runtime = await service.open()
        refused = await http.get(f"{address}/v1/events?session=bob-1", headers={"Accept": "text/event-stream"})
        assert refused.status_code == 403
        async with following(http, address) as live:
            for session in ("bob-1", "ann-1", "bob-2", "ann-2"):
                await runtime.session(session).run_batch(calls("c"))
            shown = await live.take(4)
        async with following(http, address, 0) as again:
            assert await again.take(4) == shown
        page = (await http.get(f"{address}/v1/events?after=0")).json()
    assert [event["session"] for event in shown] == ["ann-1", "ann-1", "ann-2", "ann-2"]
    assert page["items"] == shown


class SlowClient:
    """A client over a bare socket with a small buffer, which reads nothing until it is asked to."""

    def __init__(self, address: str, query: str) -> None:
        self._host = urlsplit(address)
        self._query = query
        self._socket = socket.socket()

    async def __aenter__(self) -> SlowClient:
        self._loop = asyncio.get_running_loop()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)
        await self._loop.sock_connect(self._socket, (self._host.hostname, self._host.port))
        asked = (
            f"GET /v1/events?{self._query} HTTP/1.1\r\nHost: {self._host.netloc}\r\nAccept: text/event-stream\r\n\r\n"
        )
        await self._loop.sock_sendall(self._socket, asked.encode())
        assert (await self._loop.sock_recv(self._socket, 12)) == b"HTTP/1.1 200"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._socket.close()

    async def read_all(self) -> bytes:
        """All that was sent, up to the end of the stream; without the framing of HTTP."""
        received = bytearray()
        while not received.endswith(b"\r\n0\r\n\r\n"):
            more = await self._loop.sock_recv(self._socket, 65_536)
            assert more, "the connection was cut"
            received += more
        return re.sub(rb"\r\n[0-9a-f]+\r\n", b"", bytes(received)).removesuffix(b"\r\n")


@pytest.mark.promise("HTTP-02")
async def test_a_slow_client_is_sent_away_holds_nobody_up_and_misses_nothing(file, monkeypatch):
    monkeypatch.setattr(events, "MOST_EVENTS", 20)
    monkeypatch.setattr(events, "MOST_BYTES", 2_000_000)

    @tool(readonly=True)
    async def fill(number: int) -> str:
        return f"{number}:" + "x" * 50_000

    service = create_app(App(tools=[fill]), file, authenticate=everyone())
    async with fail_after(60), httpx.AsyncClient() as http, served(service) as address:
        session = (await service.open()).session("s")
        count = 400  # far more than the buffers of both sides and the feed can hold
        ids = [f"c{number}" for number in range(count)]
        async with (
            following(http, address, types="call.finished") as quick,
            SlowClient(address, "types=call.finished") as slow,
        ):
            seen: list[str] = []
            for first in range(0, count, 5):
                numbers = range(first, first + 5)
                batch = [ToolCall(id=f"c{one}", name="fill", arguments={"number": one}) for one in numbers]
                await session.run_batch(batch)
                seen += [event["call_id"] for event in await quick.take(5)]
            assert seen == ids
            sent = await slow.read_all()
        assert sent.endswith(b'event: reconnect\ndata: {"kind":"reconnect","reason":"too_slow"}\n\n')
        got = re.findall(rb'"call_id":"(c\d+)"', sent)
        assert [id.decode() for id in got] == ids[: len(got)]
        last = re.findall(rb"id: (\d+)\n", sent)[-1].decode()
        async with following(http, address, last, types="call.finished") as again:
            rest = await again.take(count - len(got))
        assert [event["call_id"] for event in rest] == ids[len(got) :]


@pytest.mark.promise("HTTP-05")
async def test_a_service_that_stops_ends_its_streams_with_a_hint(file):
    service = create_app(App(tools=[look]), file, authenticate=everyone())
    async with fail_after(30), httpx.AsyncClient() as http, served(service) as address:
        async with following(http, address) as stream:
            service.stop()
            assert await stream.next() == ("reconnect", {"kind": "reconnect", "reason": "stopping"})
            assert await stream.next() is None
        assert (await http.get(f"{address}/v1/ready")).status_code == 503


@pytest.mark.promise("HTTP-02")
async def test_a_heartbeat_moves_the_place_of_a_client_that_wants_nothing_of_what_happens(file, monkeypatch):
    monkeypatch.setattr(sse, "HEARTBEAT", 0.01)
    service = create_app(App(tools=[look]), file, authenticate=everyone())
    async with fail_after(30), httpx.AsyncClient() as http, served(service) as address:
        runtime = await service.open()
        async with following(http, address, types="session.removed") as stream:
            await runtime.session("s").run_batch(calls("a"))
            last = (await runtime.event_log()).last
            reading = asyncio.ensure_future(stream.next())
            async with fail_after(10):
                await stream.reached(last)
            assert stream.heartbeats
            reading.cancel()


@pytest.mark.promise("HTTP-02")
async def test_a_client_is_told_what_it_cannot_get(file):
    async with fail_after(30), httpx.AsyncClient() as http:
        async with served(create_app(App(tools=[look]), file, authenticate=everyone())) as address:
            async with following(http, address, 10**12) as stream:
                assert await stream.next() == ("events.reset", {"kind": "events.reset", "last": 0})
            for wrong in ("x", "-1", "9" * 30, "1.5"):
                refused = await http.get(f"{address}/v1/events", headers={"Last-Event-ID": wrong})
                assert (refused.status_code, refused.json()["code"]) == (400, "bad_event_id")
        async with Runtime.open(file, tools=[look]) as runtime:
            await runtime.session("s").run_batch(calls("a"))
            await runtime.session("s").run_batch(calls("b"))
        await prune(file, float("inf"))
        async with (
            served(create_app(App(tools=[look]), file, authenticate=everyone())) as address,
            following(http, address, 1) as stream,
        ):
            first = await stream.next()
            assert first is not None
            kind, told = first
            assert (kind, told["after"]) == ("events.removed", 1)
            assert [event["call_id"] for event in await stream.take(1)] == ["b"]


@pytest.mark.promise("HTTP-01", "HTTP-02")
async def test_events_are_read_page_by_page_without_a_stream(file):
    async with opened([look], file) as client:
        async with Runtime.open(file, tools=[look]) as other:
            await other.session("s").run_batch(calls("a", "b"))
        first = (await client.get("/v1/events?after=0&limit=2")).json()
        rest = (await client.get(f"/v1/events?after={first['last']}")).json()
        assert [event["kind"] for event in first["items"] + rest["items"]] == [
            "batch.started",
            "call.finished",
            "call.finished",
        ]
        assert (await client.get("/v1/events")).json() == {"items": [], "last": rest["last"]}
        assert (await client.get("/v1/events?types=batch.*&after=0")).json()["items"] == first["items"][:1]


@pytest.mark.promise("HTTP-02", "HTTP-05")
async def test_a_client_that_another_server_told_more_gets_nothing_twice(file, monkeypatch):
    # This server looks once, and is behind from then on.
    monkeypatch.setattr(events.EventFeed, "_wait_for_more", lambda feed, patience: asyncio.sleep(3600.0))
    service = create_app(App(), file, authenticate=everyone())
    async with (
        fail_after(30),
        Runtime.open(file, tools=[look]) as other,
        httpx.AsyncClient() as http,
        served(service) as address,
        AsyncExitStack() as stack,
    ):
        await other.session("s").kv.set("a", 1)
        first = await stack.enter_async_context(following(http, address, types="session.removed"))
        reading = asyncio.ensure_future(first.next())
        await first.reached(1)
        await other.session("s").run_batch(calls("a", "b"))
        last = (await other.event_log()).last
        async with following(http, address, last) as ahead, following(http, address, 0) as all_of_it:
            assert [event["number"] for event in await all_of_it.take(last)] == list(range(1, last + 1))
            feed = events.feed_of(await service.open())
            anything = events.Wanted(lambda session: True, ("*",))
            assert feed.piece(anything, last) == (b"", last)
            service.stop()
            stopping = ("reconnect", {"kind": "reconnect", "reason": "stopping"})
            assert await ahead.next() == await all_of_it.next() == stopping
        assert await reading == stopping


class AwayOnce(EventLogStore):
    """The log of a store that does not answer when it is read for the first time."""

    def __init__(self, log: EventLogStore) -> None:
        self._log = log
        self._away = True

    async def after(self, number: int | None, limit: int) -> EventPage:
        if self._away:
            self._away = False
            raise StoreUnavailable("The store does not answer; try again")
        return await self._log.after(number, limit)


@pytest.mark.promise("HTTP-02")
async def test_events_come_again_after_the_store_was_away_when_the_first_client_came(file):
    store = SqliteStore(file)
    store.services.events = AwayOnce(store.services.events)  # type: ignore[assignment]
    service = create_app(App(tools=[look]), store, authenticate=everyone())
    async with fail_after(30), httpx.AsyncClient() as http, served(service) as address:
        stream = {"Accept": "text/event-stream"}
        assert (await http.get(f"{address}/v1/events", headers=stream)).status_code == 503
        async with following(http, address) as live:
            await (await service.open()).session("s").run_batch(calls("a"))
            assert [event["kind"] for event in await live.take(2)] == ["batch.started", "call.finished"]


class HeldOnce(AwayOnce):
    """A log of events whose first reading waits until it may go on."""

    def __init__(self, log: EventLogStore) -> None:
        super().__init__(log)
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def after(self, number: int | None, limit: int) -> EventPage:
        self.asked.set()
        await self.go.wait()
        return await self._log.after(number, limit)


@pytest.mark.promise("HTTP-02")
async def test_the_store_is_not_read_for_a_client_that_is_gone_before_its_stream_began(file):
    store = SqliteStore(file)
    store.services.events = held = HeldOnce(store.services.events)  # type: ignore[assignment]
    service = create_app(App(tools=[look]), store, authenticate=everyone())
    transport = httpx.ASGITransport(service)
    async with fail_after(30), service.lifespan() as runtime, httpx.AsyncClient(transport=transport) as http:
        stream = {"Accept": "text/event-stream"}
        asking = asyncio.ensure_future(http.get("http://127.0.0.1/v1/events", headers=stream))
        await held.asked.wait()
        asking.cancel()
        await asyncio.wait({asking})
        held.go.set()
        await until(lambda: not [task for task in asyncio.all_tasks() if "EventFeed" in repr(task.get_coro())])
        await runtime.session("s").run_batch(calls("a"))
        feed = events.feed_of(runtime)
        await feed.join()
        assert feed.last == await feed.newest() > 0
        feed.leave()


@pytest.mark.promise("HTTP-02")
async def test_clients_that_all_want_something_else_take_no_memory_while_nothing_happens(file):
    async with fail_after(30), Runtime.open(file, tools=[look]) as runtime:
        feed = events.feed_of(runtime)
        await feed.join()
        await runtime.session("s").run_batch([ToolCall("look", {"city": "R" * 5_000}, id) for id in "ab"])
        while feed.last < 3:
            await feed.changed()
        tracemalloc.start()
        try:
            for number in range(2_000):
                wanted = events.Wanted(
                    lambda session: True, ("*",), kinds=frozenset({"call.finished", f"run.{number}"})
                )
                assert b"RRRR" in feed.piece(wanted, 0)[0]
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        feed.leave()
    assert held < 10_000_000
