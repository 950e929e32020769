"""MCP servers that are killed in the middle of calls and tasks. The client connects to the next, gives the same keys
again, and gets one outcome for each call."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.mcp.server.conftest import MODES
from tests.support import fail_after
from toolwright.mcp.server_request import TASKS

KILLS, KILLS_OVER_STDIO = 14, 2
"""At each revision."""
CALLS, BUILDS = 5, 2
KEY = "dev.toolwright/idempotency-key"
ENVELOPE = {
    types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
    types.CLIENT_CAPABILITIES_META_KEY: {"extensions": {TASKS: {}}},
}


class Servers:
    """Servers of a folder, one after the other, and the effects that they tell of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        program = Path(__file__).with_name("forking_server.py")
        self._forking = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self._pid = 0
        loop = asyncio.get_running_loop()
        self._reader = threading.Thread(target=self._read, args=(loop,))
        self._reader.start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._forking.stdout is not None
        for line in self._forking.stdout:
            loop.call_soon_threadsafe(self._told.put_nowait, json.loads(line))

    async def start(self) -> str:
        """Start a server, and give its address."""
        assert self._forking.stdin is not None
        self._forking.stdin.write(f"{self._folder}\n")
        self._forking.stdin.flush()
        while isinstance(told := await self._told.get(), str):  # an effect of the server before
            pass
        self._pid, url = told
        return str(url)

    async def effects(self, count: int) -> None:
        """Wait for so many effects of the server."""
        for _ in range(count):
            await self._told.get()

    def kill(self) -> None:
        """Kill the server."""
        os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End everything."""
        self.kill()
        assert self._forking.stdin is not None
        self._forking.stdin.close()
        self._forking.wait()
        self._reader.join()
        assert self._forking.stdout is not None
        self._forking.stdout.close()


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    """Servers that can be killed."""
    made = Servers(tmp_path)
    yield made
    made.close()


class Work:
    """Calls with keys, and the outcomes that the client was told."""

    def __init__(self, revision: str) -> None:
        self.modern = revision == "2026-07-28"
        self.asked: dict[str, tuple[str, dict[str, Any]]] = {}
        self.told: dict[str, tuple[bool, str]] = {}
        self.tasks: dict[str, str] = {}

    def add(self, round: int) -> None:
        """Add the calls of a round."""
        for number in range(CALLS):
            self.asked[f"pay {round}.{number}"] = ("pay", {"order": f"order {round}.{number}"})
        for number in range(BUILDS):
            self.asked[f"build {round}.{number}"] = ("build", {"name": f"part {round}.{number}"})

    async def do(self, server: Any, *, last: bool = False) -> None:
        """Ask for the outcome of each call that is not known yet, all at once; the server, which is an address or a
        transport, may die meanwhile. The last one is asked for every outcome, which must be the one that was told."""
        mode = MODES["2026-07-28" if self.modern else "2025-11-25"]
        try:
            async with Client(server, mode=mode) as client:
                open_keys = [key for key in self.asked if last or key not in self.told]
                await asyncio.gather(*(self._one(client, key) for key in open_keys), return_exceptions=not last)
        except Exception:  # the transport's, of whichever kind: the server was killed
            if last:
                raise

    async def _one(self, client: Client, key: str) -> None:
        name, arguments = self.asked[key]
        if name == "build" and self.modern:
            result = await self._task(client, key, arguments)
        else:
            said = await client.call_tool(name, arguments, meta={KEY: key})
            result = said.model_dump(mode="json", by_alias=True)
        outcome = (bool(result.get("isError")), result["content"][0]["text"])
        assert self.told.setdefault(key, outcome) == outcome

    async def _task(self, client: Client, key: str, arguments: dict[str, Any]) -> dict[str, Any]:
        async def send(method: str, named: str, **params: Any) -> dict[str, Any]:
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": named}
            return await client.session._dispatcher.send_raw_request(method, params, {"headers": headers})

        created = await send("tools/call", "build", name="build", arguments=arguments, _meta={**ENVELOPE, KEY: key})
        task = created["taskId"]
        assert self.tasks.setdefault(key, task) == task
        while True:
            state = await send("tasks/get", task, taskId=task, _meta=ENVELOPE)
            if state["status"] == "completed":
                return dict(state["result"])
            if state["status"] == "failed":  # It was interrupted too often, and given up.
                return {"isError": True, "content": [{"text": state["error"]["message"]}]}
            assert state["status"] == "working", state
            await asyncio.sleep(0.01)  # as a client that minds others: all of them ask, on the cores of the server


@pytest.mark.promise("MCP-06")
async def test_a_killed_server_repeats_no_effect_and_loses_no_outcome(
    servers: Servers, tmp_path: Path, revision: str
) -> None:
    rng, work = random.Random(revision), Work(revision)
    for round in range(KILLS):
        work.add(round)
        async with fail_after(60):
            doing = asyncio.ensure_future(work.do(await servers.start()))
            # The last effect that is waited for has happened, and its outcome is hardly recorded yet.
            seen = asyncio.ensure_future(servers.effects(rng.randrange(1, CALLS + 4 * BUILDS)))
            await asyncio.wait({doing, seen}, return_when=asyncio.FIRST_COMPLETED)
            servers.kill()
            seen.cancel()
            await doing
    async with fail_after(60):
        await work.do(await servers.start(), last=True)
    check(work, tmp_path)


@pytest.mark.promise("MCP-06")
async def test_a_server_over_stdio_that_is_killed_repeats_no_effect_and_loses_no_outcome(
    tmp_path: Path, revision: str
) -> None:
    rng, work = random.Random(f"stdio {revision}"), Work(revision)
    program = Path(__file__).with_name("killed_app.py")
    served = ["-m", "toolwright.cli", "mcp", "serve", "--app", f"{program}:app", "--db", str(tmp_path / "mcp.db")]
    environment = {**os.environ, "FOLDER": str(tmp_path), "PYTHONWARNINGS": ""}
    started = StdioServerParameters(command=sys.executable, args=served, env=environment, cwd=tmp_path)
    with (tmp_path / "stderr.txt").open("a") as log:
        for round in range(KILLS_OVER_STDIO + 1):
            last = round == KILLS_OVER_STDIO
            if not last:
                work.add(round)
            (tmp_path / "kill-after").write_text("0" if last else str(rng.randrange(1, CALLS + 4 * BUILDS)))
            async with fail_after(120):
                await work.do(stdio_client(started, errlog=log), last=last)
    assert len((tmp_path / "kills.txt").read_text().splitlines()) == KILLS_OVER_STDIO
    check(work, tmp_path)


def check(work: Work, folder: Path) -> None:
    """Every call has an outcome, and no effect happened twice."""
    assert work.told.keys() == work.asked.keys()
    effects = Counter((folder / "effects.txt").read_text().splitlines())
    assert max(effects.values()) == 1, [line for line, count in effects.items() if count > 1]
    for key, (name, arguments) in work.asked.items():
        failed, text = work.told[key]
        if name == "pay" and not failed:
            assert text == f"paid {arguments['order']}"
            assert effects[arguments["order"]] == 1
        elif name == "build" and not failed:
            assert all(effects[f"{arguments['name']} step {number}"] == 1 for number in range(4))
    paid = sum(not failed for failed, _ in work.told.values())
    assert paid > len(work.asked) // 2, f"only {paid} of {len(work.asked)} succeeded"
