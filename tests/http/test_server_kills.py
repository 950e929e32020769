"""Servers that are killed under load: no acknowledged request is lost, none is done twice, and streams go on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.sse_client import following
from tests.support import fail_after
from toolwright import Runtime
from toolwright.testing import CrashKit, Zygote

SERVER = """
import socket
import uvicorn
from toolwright import App
from toolwright.http import create_app
from toolwright.http.access.caller import Caller
from toolwright.http.connections import server_config

@tool
async def book(order: str) -> str:
    note(order)
    return f"booked {order}"

async def everyone(connection):
    return Caller("root", frozenset({"admin"}))

async def main():
    listening = socket.create_server(("127.0.0.1", 0))
    service = create_app(App(tools=[book]), store, authenticate=everyone, worker=False)
    server = uvicorn.Server(server_config(service, lifespan="on"))
    say(listening.getsockname()[1])
    await server.serve(sockets=[listening])
"""
CLIENTS, ORDERS, READERS, KILLS = 3, 12, 3, 5


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote("uvicorn", "toolwright.http.service", "toolwright.http.connections")
    yield made
    made.close()


class Servers:
    """Two servers on one store. One after the other is killed and started again."""

    def __init__(self, kit: CrashKit) -> None:
        self._kit = kit
        self._running: list[Any] = []
        self.addresses: list[str] = []
        self.started = asyncio.Condition()
        self._alone = asyncio.Lock()  # the process that starts servers does one thing at a time

    async def start(self) -> None:
        async with self._alone:
            server = await asyncio.to_thread(self._kit.start, SERVER)
        port = await asyncio.to_thread(server.hear)
        async with self.started:
            self._running.append(server)
            self.addresses.append(f"http://127.0.0.1:{port}")
            self.started.notify_all()

    async def kill(self, which: int) -> None:
        server = self._running.pop(which)
        del self.addresses[which]
        async with self._alone:
            await asyncio.to_thread(server.kill)

    async def any(self, choose: random.Random) -> str:
        """The address of one that runs."""
        async with self.started:
            await self.started.wait_for(lambda: self.addresses)
        return choose.choice(self.addresses)

    @asynccontextmanager
    async def two(self) -> AsyncIterator[None]:
        await asyncio.gather(self.start(), self.start())
        try:
            yield
        finally:
            while self._running:
                await self.kill(0)


@pytest.mark.promise("HTTP-02", "HTTP-04", "HTTP-05")
@pytest.mark.parametrize("seed", range(2))
async def test_servers_that_are_killed_lose_nothing_do_nothing_twice_and_their_streams_go_on(
    zygote: Zygote, tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    answers: dict[str, Any] = {}
    seen: list[list[int]] = [[] for _ in range(READERS)]
    answered = asyncio.Condition()

    async def order_all(http: httpx.AsyncClient, servers: Servers, client: int) -> None:
        for number in range(ORDERS):
            order = f"{client}-{number}"
            body = {"calls": [{"name": "book", "arguments": {"order": order}}]}
            while order not in answers:
                address = await servers.any(choose)
                with suppress(httpx.TransportError):
                    got = await http.post(
                        f"{address}/v1/sessions/s{client}/batches", json=body, headers={"Idempotency-Key": order}
                    )
                    if got.status_code == 200:
                        answers[order] = got.json()
                    else:
                        assert got.status_code in (409, 503), got.text
            async with answered:
                answered.notify_all()

    async def read(http: httpx.AsyncClient, servers: Servers, numbers: list[int]) -> None:
        while True:
            address = await servers.any(choose)
            with suppress(httpx.TransportError):
                async with following(http, address, numbers[-1] if numbers else 0) as stream:
                    while (event := await stream.next()) is not None:
                        if event[0] == "message":
                            numbers.append(event[1]["number"])
                        if event[1].get("session") == "the end":
                            return

    async def kill_some(servers: Servers) -> None:
        for kill in range(1, KILLS + 1):
            enough = kill * CLIENTS * ORDERS // (KILLS + 2)
            async with answered:
                while len(answers) <= enough:
                    await answered.wait()
            await servers.kill(choose.randrange(len(servers.addresses)))
            await servers.start()

    with CrashKit(tmp_path, zygote=zygote) as kit:
        limits = httpx.Limits(max_connections=100)
        async with fail_after(100), Runtime.open(kit.store) as runtime, httpx.AsyncClient(limits=limits) as http:
            servers = Servers(kit)
            async with servers.two():
                readers = [asyncio.ensure_future(read(http, servers, numbers)) for numbers in seen]
                killer = asyncio.ensure_future(kill_some(servers))
                await asyncio.gather(*(order_all(http, servers, client) for client in range(CLIENTS)))
                await killer
                await runtime.recover()
                await runtime.session("the end").kv.set("seen", True)
                await asyncio.gather(*readers)
                expected = [event.number for event in (await runtime.event_log(0, limit=10_000)).events]
        ledger = kit.ledger
        calls = kit.calls()

    assert seen == [expected] * READERS
    assert len(ledger) == len(set(ledger))
    booked = {order for order, answer in answers.items() if answer["results"][0]["status"] == "success"}
    assert booked <= set(ledger)
    # A call that was cut off in the middle is told as such, and not run again.
    assert len(booked) >= CLIENTS * ORDERS - KILLS * CLIENTS
    assert len(calls) == CLIENTS * ORDERS
