"""Why the calls of a batch waited, as the API tells it."""

import asyncio
from pathlib import Path

import pytest

from tests.http.client import opened
from tests.support import fail_after
from toolwright import Runtime, tool


@pytest.mark.promise("UI-01")
async def test_a_batch_names_the_calls_that_each_waited_for() -> None:
    @tool(key="{account}")
    async def book(account: str) -> str:
        await asyncio.sleep(0.01)
        return account

    @tool(readonly=True)
    async def look() -> str:
        return "seen"

    names = ["ann", "ann", "bob", "ann"]
    calls = [{"name": "book", "id": f"c{place}", "arguments": {"account": name}} for place, name in enumerate(names)]
    async with opened([book, look]) as client:
        done = (
            await client.post("/v1/sessions/s1/batches", json={"calls": [*calls, {"name": "look", "id": "l"}]})
        ).json()
        batch = (await client.get(f"/v1/batches/{done['batch']}")).json()

    assert {call["call_id"]: call["waited_for"] for call in batch["calls"]} == {
        "c0": [],
        "c1": ["c0"],
        "c2": [],
        "c3": ["c1", "c0"],
        "l": [],
    }


@pytest.mark.promise("UI-01", "ENG-03")
async def test_a_batch_names_the_call_of_another_program_that_it_waits_for(file: Path) -> None:
    inside, leave = asyncio.Event(), asyncio.Event()

    @tool(key="{account}")
    async def book(account: str) -> str:
        inside.set()
        await leave.wait()
        return account

    async with fail_after(20), opened([book], file) as client, Runtime.open(file, tools=[book]) as other:
        call = {"name": "book", "arguments": {"account": "ann"}}
        theirs = other.session("s1").start_batch([{"id": "theirs", **call}])
        await inside.wait()
        ours = client.runtime.session("s1").start_batch([{"id": "ours", **call}])
        await ours.launched()
        shown = (await client.get(f"/v1/batches/{ours.id}")).json()
        leave.set()
        await theirs
        await ours
    assert [(one["call_id"], one["waited_for"]) for one in shown["calls"]] == [("ours", ["theirs"])]
