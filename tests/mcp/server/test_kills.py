"""MCP servers that are killed in the middle of calls and tasks. The client connects to the next, gives the same keys
again, and gets one outcome for each call."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.mcp.server.conftest import MODES
from tests.support import fail_after
from toolwright.mcp.server_request import TASKS

KILLS = 16
"""At each revision."""
CALLS, BUILDS = 5, 2
KEY = "dev.toolwright/idempotency-key"
ENVELOPE = {
    types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
    types.CLIENT_CAPABILITIES_META_KEY: {"extensions": {TASKS: {}}},
}

Start = Callable[[], tuple[int, str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server, and gives its pid and its address."""
    program = Path(__file__).with_name("forking_server.py")
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as forking:
        assert forking.stdin is not None
        assert forking.stdout is not None
        requests, answers, servers = forking.stdin, forking.stdout, []

        def started() -> tuple[int, str]:
            requests.write(f"{tmp_path}\n")
            requests.flush()
            pid, url = json.loads(answers.readline())
            servers.append(pid)
            return pid, url

        try:
            yield started
        finally:
            for pid in servers:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            requests.close()


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

    async def do(self, url: str, *, last: bool = False) -> None:
        """Ask for the outcome of each call that is not known yet, all at once; a server may die meanwhile."""
        mode = MODES["2026-07-28" if self.modern else "2025-11-25"]
        try:
            async with Client(url, mode=mode) as client:
                open_keys = [key for key in self.asked if key not in self.told]
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
            assert state["status"] == "working", state


@pytest.mark.promise("MCP-06")
async def test_a_killed_server_repeats_no_effect_and_loses_no_outcome(
    start: Start, tmp_path: Path, revision: str
) -> None:
    rng, work, killed = random.Random(revision), Work(revision), 0
    for round in range(KILLS):
        work.add(round)
        pid, url = start()
        doing = asyncio.ensure_future(work.do(url))
        # Some are killed before they answer anything, some in the middle, some when nearly all is done.
        await asyncio.wait({doing}, timeout=rng.choice((0.05, 0.15, 0.3, 0.5)) * rng.random() + 0.02)
        os.kill(pid, signal.SIGKILL)
        killed += 1
        async with fail_after(30):
            await doing
    before = dict(work.told)
    _, url = start()
    async with fail_after(60):
        await work.do(url, last=True)
    assert work.told.keys() == work.asked.keys()
    assert before.items() <= work.told.items()

    effects = Counter((tmp_path / "effects.txt").read_text().splitlines())
    assert max(effects.values()) == 1, [line for line, count in effects.items() if count > 1]
    for key, (name, arguments) in work.asked.items():
        failed, text = work.told[key]
        if name == "pay" and not failed:
            assert text == f"paid {arguments['order']}"
            assert effects[arguments["order"]] == 1
        elif name == "build" and not failed:
            assert all(effects[f"{arguments['name']} step {number}"] == 1 for number in range(4))
    assert killed == KILLS
    paid = sum(not failed for failed, _ in work.told.values())
    assert paid > len(work.asked) // 2, f"only {paid} of {len(work.asked)} succeeded"
