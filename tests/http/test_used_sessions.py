"""A service that runs for months comes to very many sessions, and has few of them in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http.client import opened
from tests.support import fail_after, in_memory, until
from toolwright import tool
from toolwright.runtime import used_sessions
from toolwright.session.core import SessionCore


@tool(readonly=True)
async def look(city: str) -> str:
    """Look at a city."""
    return f"seen {city}"


@tool(approval="required")
async def book(city: str) -> str:
    """Book a journey."""
    return f"booked {city}"


@pytest.mark.promise("HTTP-03", "HTTP-05")
async def test_sessions_in_which_nothing_happens_do_not_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(used_sessions, "MOST_SESSIONS", 5)
    before = in_memory(SessionCore)
    async with fail_after(60), opened([look, book], tmp_path / "agent.db") as client:
        asked = {"calls": [{"id": "c", "name": "book", "arguments": {"city": "Oslo"}}]}
        waiting = await client.post("/v1/sessions/waits/batches", json=asked)
        assert waiting.status_code == 202
        for number in range(30):
            path = f"/v1/sessions/s{number}"
            put = await client.request("PUT", f"{path}/kv/k", json={"value": number})
            assert put.status_code == 200
            called = {"calls": [{"name": "look", "arguments": {"city": "Rome"}}]}
            assert (await client.post(f"{path}/batches", json=called)).json()["results"][0]["value"] == "seen Rome"
            assert (await client.post(f"{path}/messages", json={"content": "Hello"})).status_code == 201
            later = {"calls": [{"id": "c", "name": "book", "arguments": {"city": "Oslo"}}]}
            if number % 10 == 0:
                assert (await client.post(f"{path}/batches", json=later)).status_code == 202
        listed = (await client.get("/v1/approvals")).json()["items"]
        for one in listed:
            assert (await client.post(f"/v1/approvals/{one['key']}/deny")).status_code == 200
        assert (await client.get("/v1/decisions")).json()["items"]
        assert len(listed) == 4
        for number in range(30, 40):
            assert (await client.get(f"/v1/sessions/s{number}/kv")).status_code == 200
        assert (await client.get("/v1/sessions/s0/kv/k")).json()["value"] == 0
        ended = (await client.get("/v1/sessions/waits/calls/c")).json()
        assert ended["outcome"]["failure"]["code"] == "denied"
        await until(lambda: in_memory(SessionCore) - before <= 6)  # a batch that ended is held for a moment
