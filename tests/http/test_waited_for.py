"""Why the calls of a batch waited, as the API tells it."""

import asyncio
from pathlib import Path

import pytest

from tests.http.client import opened
from tests.support import fail_after
from toolwright import App, Policy, Runtime, tool


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


@pytest.mark.promise("UI-01")
async def test_a_batch_names_the_limit_that_a_call_waited_for(file: Path) -> None:
    @tool(readonly=True)
    async def look(shelf: int) -> int:
        await asyncio.sleep(0)
        return shelf

    calls = [{"name": "look", "id": f"c{shelf}", "arguments": {"shelf": shelf}} for shelf in range(3)]
    app = App(tools=[look], policy=Policy(max_concurrency=2))
    async with opened(store=file, app=app) as client:
        done = (await client.post("/v1/sessions/s1/batches", json={"calls": calls})).json()
        shown = (await client.get(f"/v1/batches/{done['batch']}")).json()
    assert [one["waited_for"] for one in shown["calls"]] == [[], [], ["a slot of the batch"]]


@pytest.mark.promise("UI-01")
async def test_a_batch_says_when_a_readonly_call_began_that_still_runs(file: Path) -> None:
    inside, leave = asyncio.Event(), asyncio.Event()

    @tool(readonly=True)
    async def look() -> str:
        inside.set()
        await leave.wait()
        return "seen"

    async with fail_after(20), opened([look], file) as client:
        batch = client.runtime.session("s1").start_batch([{"id": "c1", "name": "look"}])
        await inside.wait()
        (shown,) = (await client.get(f"/v1/batches/{batch.id}")).json()["calls"]
        leave.set()
        await batch
        (ended,) = (await client.get(f"/v1/batches/{batch.id}")).json()["calls"]
    assert shown["finished_at"] is None
    assert shown["started_at"] == ended["started_at"] is not None
