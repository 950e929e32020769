"""Batches that are cancelled at another server than the one that runs them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.http.client import opened
from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.http import batch_cancels

ASYNC = {"Prefer": "respond-async"}


@tool
async def hang(ctx: ToolContext) -> None:
    """Run until it is stopped."""
    await asyncio.Event().wait()


@tool(readonly=True)
async def confirm(ctx: ToolContext) -> object:
    """Wait for a person."""
    return await ctx.ask("sure", "Sure?", {"type": "string"})


@pytest.mark.promise("HTTP-05")
@pytest.mark.parametrize("name", ["hang", "confirm"])
async def test_any_server_of_the_store_cancels_a_batch(tmp_path: Path, name: str) -> None:
    file, tools = tmp_path / "agent.db", [hang, confirm]
    async with fail_after(60), opened(tools, file) as first, opened(tools, file) as second:
        calls = {"calls": [{"id": "1", "name": name}, {"id": "2", "name": name}]}
        posted = await first.post("/v1/sessions/s/batches", json=calls, headers=ASYNC)
        assert posted.status_code == 202
        other = await first.post("/v1/sessions/t/batches", json=calls, headers=ASYNC)
        answer = await second.post(f"{posted.headers['location']}/cancel?session=s", json={"reason": "no need"})
        assert (answer.status_code, answer.json()) == (200, {"cancelled": True})
        await first.runtime.session("s").wait_for_idle()
        assert first.runtime.session("s").batches == ()
        listed = (await second.get("/v1/calls?session=s")).json()["items"]  # those that did nothing are forgotten
        assert [one["status"] for one in listed] == ["cancelled"] * len(listed)
        assert name != "hang" or "no need" in str(listed)
        left = (await second.get(f"{other.headers['location']}?session=t")).json()
        assert not {"cancelled", "success"} & {one["status"] for one in left["calls"]}
        again = await second.post(f"{posted.headers['location']}/cancel?session=s")
        assert again.json().get("cancelled", False) is False


async def test_a_batch_of_a_program_that_is_no_server_is_told_to_be_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_cancels, "ANSWERED", 0.3)
    file = tmp_path / "agent.db"
    async with fail_after(60), Runtime.open(file, tools=[hang]) as program, opened([hang], file) as client:
        batch = program.session("s").start_batch([ToolCall("hang", {}, "1")])
        while (listed := (await client.get("/v1/sessions/s/batches")).json()["items"]) == []:
            pass
        answer = await client.post(f"/v1/batches/{listed[0]['batch']}/cancel")
        assert (answer.status_code, answer.json()["code"]) == (409, "elsewhere")
        batch.cancel()
        await batch.wait()
