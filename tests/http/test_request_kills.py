"""Requests with a key whose server is killed, at every point where it writes: done once, and answered the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolwright.testing import CrashKit, Zygote

CLIENT = """
import httpx
from toolwright import App
from toolwright.http import create_app
from toolwright.http.access.caller import Caller
from toolwright.testing import ScriptedModel

@tool(on_crash="rerun")
async def count(ctx: ToolContext) -> str:
    return await ctx.step("count", lambda: ctx.call_id)

async def everyone(connection):
    return Caller("root", frozenset({"admin"}))

REQUESTS = [
    ("/v1/sessions", {"title": "Trip"}),
    ("/v1/sessions/s/messages", {"content": "hello"}),
    ("/v1/sessions/s/batches", {"calls": [{"name": "count"}]}),
    ("/v1/sessions/t/turns", {"message": "?"}),
]

async def main():
    app = App(tools=[count], model=ScriptedModel(["Hi."]))
    service = create_app(app, store, authenticate=everyone)
    async with service.lifespan():
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            for path, body in REQUESTS[which : which + 1]:
                answer = await http.post(path, json=body, headers={"Idempotency-Key": path})
                assert answer.status_code in (200, 201), answer.text
                say([path, answer.status_code, answer.text])
            listed = [(await http.get(path)).json()["items"] for path in (
                "/v1/sessions", "/v1/sessions/s/messages", "/v1/calls", "/v1/sessions/t/turns")]
            say(["end", [len(items) for items in listed]])
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote("httpx", "toolwright.http.service", "toolwright.testing")
    yield made
    made.close()


@pytest.mark.promise("HTTP-04")
@pytest.mark.parametrize("which", range(4), ids=["session", "message", "batch", "turn"])
def test_a_request_with_a_key_is_done_once_wherever_its_server_is_killed(
    zygote: Zygote, tmp_path: Path, which: int
) -> None:
    def kit(name: str) -> CrashKit:
        (tmp_path / name).mkdir()
        return CrashKit(tmp_path / name, zygote=zygote)

    with kit("whole") as whole:
        points = [point for point in whole.points(CLIENT, which=which) if point[0] == "after a commit"]
        *_, counted = whole.run(CLIENT, which=which).said
    assert points
    for point, nth in points:
        with kit(str(nth)) as crashed:
            answered = crashed.kill_at(point, CLIENT, nth=nth, which=which).said
            again = crashed.run(CLIENT, which=which).said
            assert again[: len(answered)] == answered, nth
            assert again[-1] == counted, nth  # nothing is there twice
