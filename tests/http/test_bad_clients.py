"""Clients that are slow, cut off, too large, malformed or in a hurry, on real connections to a real server."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.http.live import LiveServer, live
from tests.support import fail_after
from toolwright import App
from toolwright.http import create_app
from toolwright.http.access.limits import Limits

pytestmark = pytest.mark.promise("HTTP-03")
QUICK = Limits(header_seconds=1.0, body_seconds=0.2, idle_seconds=5.0)
ONCE = Limits(header_seconds=1.0, body_seconds=0.2, idle_seconds=0.5)
"""For who sends one request, and waits until the connection is closed."""


@asynccontextmanager
async def server(limits: Limits | None = None) -> AsyncIterator[tuple[LiveServer, str]]:
    """A server, and the value of a token for everything."""
    service = create_app(App(), limits=limits)
    async with fail_after(60), live(service) as found:
        yield found, (await (await service.sign_in.tokens()).create("root", ["admin"])).value


async def still_serves(found: LiveServer, value: str) -> None:
    """Nothing that a client did holds up the others."""
    while True:  # a machine that stands still for longer than the limit is a slow client itself
        async with httpx.AsyncClient(base_url=found.url) as client:
            try:
                answer = await client.get("/v1/sessions", headers={"Authorization": f"Bearer {value}"})
            except httpx.TransportError:
                continue
        assert answer.status_code == 200
        return


async def test_a_client_that_says_nothing_or_only_a_part_of_its_headers_is_closed() -> None:
    async with server(QUICK) as (found, value):
        for begin in (b"", b"GET /v1/health HT", b"GET /v1/health HTTP/1.1\r\n" + found.host):
            async with found.connection() as connection:
                await connection.send(begin)
                assert await connection.rest() == b""
        await still_serves(found, value)


async def test_a_client_that_drips_headers_is_closed() -> None:
    async with server(QUICK) as (found, value), found.connection() as connection:
        await connection.send(b"GET /v1/health HTTP/1.1\r\n")
        ended = asyncio.ensure_future(connection.rest())
        while not ended.done():
            try:
                await connection.send(b"x: 1\r\n")
            except ConnectionError:
                break
            await asyncio.wait({ended}, timeout=0.02)
        assert await ended == b""
        await still_serves(found, value)


async def test_a_part_of_a_second_request_is_not_waited_for_either() -> None:
    async with server(QUICK) as (found, value), found.connection() as connection:
        await connection.send(b"GET /v1/health HTTP/1.1\r\n", found.host, b"\r\n")
        assert (await connection.reply()).status == 200
        await connection.send(b"GET /v1/hea")
        assert await connection.rest() == b""
        await still_serves(found, value)


async def test_a_body_that_does_not_come_is_answered_and_closed() -> None:
    async with server(QUICK) as (found, value), found.connection() as connection:
        head = f"Authorization: Bearer {value}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        await connection.send(b"POST /v1/sessions HTTP/1.1\r\n", found.host, head.encode(), b'{"id":')
        reply = await connection.reply()
        assert (reply.status, reply.headers["connection"]) == (408, "close")
        assert b"too_slow" in reply.body
        assert await connection.rest() == b""
        await still_serves(found, value)


async def test_a_request_that_is_cut_off_changes_nothing_and_breaks_nothing(caplog: Any) -> None:
    async with server() as (found, value):
        head = f"Authorization: Bearer {value}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        whole = b"POST /v1/sessions HTTP/1.1\r\n" + found.host + head.encode() + b'{"id": "cut"' + b" " * 87 + b"}"
        with caplog.at_level(logging.ERROR):
            for length in range(1, len(whole), 17):
                async with found.connection() as connection:
                    await connection.send(whole[:length])
            await still_serves(found, value)
        async with httpx.AsyncClient(base_url=found.url) as client:
            listed = await client.get("/v1/sessions", headers={"Authorization": f"Bearer {value}"})
            assert listed.json()["items"] == []
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read() -> None:
    async with server(Limits(body_bytes=1000)) as (found, value):
        for framing in (b"Content-Length: 100000000\r\n", b"Transfer-Encoding: chunked\r\n"):
            async with found.connection() as connection:
                head = f"Authorization: Bearer {value}\r\nContent-Type: application/json\r\n"
                await connection.send(b"POST /v1/sessions HTTP/1.1\r\n", found.host, head.encode(), framing, b"\r\n")
                if framing.startswith(b"Transfer"):
                    await connection.send(b"7d0\r\n" + b"a" * 2000 + b"\r\n")
                reply = await connection.reply()
                assert (reply.status, reply.headers["connection"]) == (413, "close")
                assert await connection.rest() == b""
        await still_serves(found, value)


@pytest.mark.parametrize(("path", "status"), [("/v1/waits/none", 404), ("/v1/login", 413)])
async def test_a_large_body_of_a_client_without_a_token_is_refused_before_it_is_read(path: str, status: int) -> None:
    async with server() as (found, value):
        for framing in (b"Content-Length: 10000000\r\n", b"Transfer-Encoding: chunked\r\n"):
            async with found.connection() as connection:
                head = b"POST " + path.encode() + b" HTTP/1.1\r\nContent-Type: application/json\r\n"
                await connection.send(head, found.host, framing, b"\r\n")
                if framing.startswith(b"Transfer"):
                    await connection.send(b"2000\r\n" + b" " * 8192 + b"\r\n")
                reply = await connection.reply()
                assert (reply.status, reply.headers["connection"]) == (status, "close")
                assert await connection.rest() == b""
        await still_serves(found, value)


@pytest.mark.parametrize(
    "raw",
    [
        b"NONSENSE\r\n\r\n",
        b"GET  /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nBad Header: 1\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nx\0y: 1\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"x: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=range(14),
)
async def test_a_malformed_request_is_refused_and_closed(raw: bytes) -> None:
    async with server(ONCE) as (found, value):
        async with found.connection() as connection:
            with suppress(ConnectionError):
                await connection.send(raw)
            told = await connection.rest()
            assert told == b"" or told.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), told[:200]
            assert not told.startswith(b"HTTP/1.1 500")
        await still_serves(found, value)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../v1/health",
        "/v1//health",
        "/v1/%2e%2e/health",
        "/v1/health%00",
        "/..%2f..%2fetc/passwd",
        "/v1/sessions/%ff",
    ],
)
async def test_an_odd_path_leads_nowhere(path: str) -> None:
    async with server() as (found, value), found.connection() as connection:
        head = f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {value}\r\n"
        await connection.send(head.encode(), found.host, b"\r\n")
        reply = await connection.reply()
        assert reply.status in (400, 403, 404), reply.body
        assert b"root:" not in reply.body


async def test_requests_in_a_row_are_answered_in_their_order() -> None:
    async with server() as (found, value), found.connection() as connection:
        requests = b""
        for number in range(50):
            body = b'{"id": "s%02d"}' % number
            requests += b"POST /v1/sessions HTTP/1.1\r\n" + found.host
            requests += f"Authorization: Bearer {value}\r\nContent-Length: {len(body)}\r\n".encode()
            requests += b"Content-Type: application/json\r\n\r\n" + body
        sending = asyncio.ensure_future(connection.send(requests))
        replies = [await connection.reply() for _ in range(50)]
        await sending
        assert {one.status for one in replies} == {201}
        assert [one.body.partition(b'"id":"')[2][:3] for one in replies] == [b"s%02d" % number for number in range(50)]


async def test_a_second_request_that_is_hidden_in_the_body_of_the_first_is_no_request() -> None:
    hidden = b"DELETE /v1/sessions/s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with server(ONCE) as (found, value):
        auth = f"Authorization: Bearer {value}\r\n".encode()
        async with found.connection() as connection:
            both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            await connection.send(b"POST /v1/sessions HTTP/1.1\r\n", found.host, auth, both, hidden)
            told = await connection.rest()
            assert told.count(b"HTTP/1.1 ") <= 2
            assert b"204" not in told
        await still_serves(found, value)


async def test_many_connections_that_do_nothing_hold_nobody_up() -> None:
    limits = Limits(header_seconds=30.0, connections=200)
    async with server(limits) as (found, value):
        idle = [await asyncio.open_connection("127.0.0.1", found.port) for _ in range(100)]
        await still_serves(found, value)
        more = [await asyncio.open_connection("127.0.0.1", found.port) for _ in range(150)]
        async with found.connection() as connection:
            await connection.send(b"GET /v1/health HTTP/1.1\r\n", found.host, b"\r\n")
            assert (await connection.reply()).status == 503
        for _, writer in (*idle, *more):
            writer.close()
        for _, writer in (*idle, *more):
            await writer.wait_closed()
        while True:  # the server hears of it a little later
            async with httpx.AsyncClient(base_url=found.url) as client:
                if (await client.get("/v1/health")).status_code == 200:
                    break
        await still_serves(found, value)


@pytest.mark.promise("HTTP-02")
@pytest.mark.parametrize("path", ["/v1/sessions/s/messages", "/v1/sessions/s/files/f"])
async def test_a_client_that_does_not_read_its_answer_keeps_neither_memory_nor_a_connection(path: str) -> None:
    limits = Limits(send_seconds=0.2, idle_seconds=0.2, connections=3)
    async with server(limits) as (found, value):
        headers = {"Authorization": f"Bearer {value}"}
        async with httpx.AsyncClient(base_url=f"{found.url}/v1/sessions/s", headers=headers) as client:
            for _ in range(10):
                await client.post("/messages", json={"content": "m" * 900_000})
            await client.put("/files/f", content=b"f" * 9_000_000)
        stuck = [socket.create_connection(("127.0.0.1", found.port)) for _ in range(2)]
        for one in stuck:
            one.sendall(f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {value}\r\n".encode() + found.host + b"\r\n")
        while True:  # with both of them there, nobody else is served
            async with httpx.AsyncClient(base_url=found.url) as client:
                if (await client.get("/v1/health")).status_code == 200:
                    break
        await still_serves(found, value)
        for one in stuck:
            one.close()


async def test_a_web_socket_is_not_opened() -> None:
    async with server() as (found, value), found.connection() as connection:
        upgrade = (
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: YQ==\r\nSec-WebSocket-Version: 13\r\n"
        )
        await connection.send(b"GET /v1/events HTTP/1.1\r\n", found.host, upgrade, b"\r\n")
        assert (await connection.reply()).status in (401, 404)
        await still_serves(found, value)
