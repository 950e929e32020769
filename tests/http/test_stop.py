"""A server that is told to stop while streams are open: they end with a hint, and go on at another server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.http.sse_client import EventReader
from tests.support import fail_after
from toolwright.cli.app import app as command

AGENT = '''
import asyncio
from pathlib import Path
from toolwright import App, ToolCall, tool
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelAnswer


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def think(request):
    if request.number == 0:
        return ModelAnswer(calls=(ToolCall("add", {"a": 1, "b": 2}, "c1"),), stop="calls")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return ModelAnswer(text="three")


app = App(tools=[add], model=FunctionModel(think))
'''


class Server:
    """A real server process."""

    def __init__(self, folder: Path) -> None:
        arguments = ["-m", "toolwright.cli", "serve", "--app", "my_agent:app", "--db", "agent.db", "--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, *arguments, "--grace", "1"], cwd=folder, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found, said + self.process.stderr.read()
        self.url = found[0]


@contextmanager
def two_servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    (folder / "my_agent.py").write_text(AGENT)
    servers: list[Server] = []
    try:
        for _ in range(2):
            servers.append(Server(folder))
        yield servers[0], servers[1]
    finally:
        for server in servers:
            server.process.kill()
            server.process.communicate()


class Reader:
    """Reads a stream to its end, and keeps the ids and data of its events, without those about the stream itself."""

    def __init__(self) -> None:
        self.events: list[tuple[int, Any]] = []
        self.control: list[tuple[str, Any]] = []
        self.new = asyncio.Event()

    async def read(self, response: httpx.Response, until: str | None = None) -> None:
        stream = EventReader(response)
        while (event := await stream.next()) is not None:
            if event[0] in ("reconnect", "events.reset", "events.removed"):
                self.control.append(event)
            else:
                assert stream.last_id is not None
                self.events.append((int(stream.last_id), event[1]))
                self.new.set()
            if until is not None and until in json.dumps(event[1]):
                return

    async def seen(self, text: str) -> None:
        while not any(text in json.dumps(data) for _, data in self.events):
            self.new.clear()
            await self.new.wait()

    @property
    def last(self) -> dict[str, str]:
        return {"Last-Event-ID": str(self.events[-1][0])} if self.events else {}


@asynccontextmanager
async def stream(
    http: httpx.AsyncClient, method: str, url: str, headers: dict[str, str], **options: Any
) -> AsyncIterator[httpx.Response]:
    headers = {"Accept": "text/event-stream", **headers}
    async with http.stream(method, url, headers=headers, timeout=60, **options) as response:
        assert response.status_code == 200, await response.aread()
        yield response


@pytest.mark.promise("HTTP-02", "HTTP-05")
async def test_streams_of_a_server_that_stops_go_on_at_another_without_gap_or_repeat(tmp_path: Path) -> None:
    with two_servers(tmp_path) as (first, second):
        create = ["tokens", "create", "me", "--scope", "admin", "--db", str(tmp_path / "agent.db")]
        made = await asyncio.to_thread(CliRunner().invoke, command, create)
        token = {"Authorization": f"Bearer {made.stdout.strip()}"}
        events, turn = Reader(), Reader()
        async with fail_after(120), httpx.AsyncClient(headers=token, timeout=60) as http:

            async def call(url: str, name: str) -> None:
                body = {"calls": [{"id": name, "name": "add", "arguments": {"a": 1, "b": 1}}]}
                assert (await http.post(f"{url}/v1/sessions/{name}/batches", json=body)).status_code == 200

            async with (
                stream(http, "GET", f"{first.url}/v1/events", {"Last-Event-ID": "0"}) as all_events,
                stream(http, "POST", f"{first.url}/v1/sessions/s/turns", {}, json={"message": "1+2?"}) as of_turn,
            ):
                where = of_turn.headers["location"]
                reading = [asyncio.ensure_future(events.read(all_events)), asyncio.ensure_future(turn.read(of_turn))]
                await call(second.url, "before")
                await events.seen('"before"')
                await turn.seen('"c1"')
                first.process.send_signal(signal.SIGTERM)
                await call(second.url, "meanwhile")
                await asyncio.gather(*reading)
            assert await asyncio.to_thread(first.process.wait, 60) == 0
            assert [kind for kind, _ in events.control] == ["reconnect"]
            assert [kind for kind, _ in turn.control] == ["reconnect"]
            assert events.control[0][1]["reason"] == turn.control[0][1]["reason"] == "stopping"

            (tmp_path / "go").touch()
            async with stream(http, "GET", second.url + where, turn.last) as rest:
                await turn.read(rest)
            whole = Reader()
            async with stream(http, "GET", second.url + where, {}) as again:
                await whole.read(again)
            assert turn.events == whole.events
            ended = (await http.get(second.url + where)).json()
            assert (ended["outcome"]["status"], ended["outcome"]["text"]) == ("answered", "three")

            await call(second.url, "the end")
            async with stream(http, "GET", f"{second.url}/v1/events", events.last) as rest:
                await events.read(rest, until='"the end"')
            listed = (await http.get(f"{second.url}/v1/events", params={"after": 0, "limit": 1000})).json()["items"]
            numbers = [number for number, _ in events.events]
            assert numbers == [one["number"] for one in listed][: len(numbers)]
            assert {"before", "meanwhile", "the end"} <= {data["session"] for _, data in events.events}
