"""What a worker tells over HTTP while it is well, and while it is not."""

import asyncio
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, jsonx, tool
from toolwright.cli import health
from toolwright.cli.health import Health


@tool(supports_background=True)
async def rest() -> None:
    """Do nothing."""


def ask(url: str) -> tuple[int, Any]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, jsonx.decode(answer.read())
    finally:
        connection.close()


async def test_a_worker_is_healthy_while_its_loop_and_its_store_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Health("127.0.0.1", 0) as told:
        status, body = await asyncio.to_thread(ask, told.url)
        assert (status, body["why"]) == (503, "it is starting")
        async with fail_after(20), Runtime.open(tmp_path / "agent.db", tools=[rest], worker=True) as runtime:
            told.watch(runtime.worker)
            await (await runtime.session("s1").spawn("rest")).wait()
            status, body = await asyncio.to_thread(ask, told.url)
            assert (status, body["healthy"], body["runs"]["completed"]) == (200, True, 1)

            monkeypatch.setattr(health, "PATIENCE", 0.05)
            status, body = ask(told.url)  # on the loop, which cannot answer meanwhile
            assert (status, body["why"]) == (503, "its loop or its store does not answer within 0.05 s")
            monkeypatch.undo()
            assert (await asyncio.to_thread(ask, told.url))[0] == 200

            await runtime.drain(0)
            status, body = await asyncio.to_thread(ask, told.url)
            assert (status, body["why"]) == (503, "it is stopping")
