"""Requests whose work cannot go on: they are answered, and say why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.http.client import Client, opened
from tests.support import fail_after
from toolwright import App, ToolCall, ToolContext, tool
from toolwright.http.access.limits import Limits
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelAnswer, ModelRequest


@tool
async def confirm(ctx: ToolContext) -> str:
    """Ask a person, in the middle of the work."""
    answer = await ctx.ask("sure", "Are you sure?", {"type": "string"})
    return f"said {answer}"


@tool
async def write(ctx: ToolContext) -> str:
    """Change something."""
    return "written"


gate, begun = asyncio.Event(), asyncio.Event()


@tool
async def slow() -> str:
    """Take long."""
    begun.set()
    await gate.wait()
    return "done"


@tool
async def outer(ctx: ToolContext) -> list[str]:
    """Make a call that asks."""
    return [one.text for one in await ctx.run_batch([{"name": "confirm", "id": "inner"}])]


@pytest.fixture(autouse=True)
def closed_gate() -> None:
    global gate, begun
    gate, begun = asyncio.Event(), asyncio.Event()


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ":memory:" if request.param == "memory" else tmp_path / "agent.db"


def batch(*names: str, id: str = "") -> dict[str, Any]:
    return {"calls": [{"name": name, "id": f"{name}{id}"} for name in names]}


async def answer_question(client: Client) -> None:
    (asked,) = (await client.get("/v1/approvals")).json()["items"]
    answered = await client.post(f"/v1/approvals/{asked['key']}/approve", json={"answer": "yes"})
    assert answered.status_code == 200, answered.text


@pytest.mark.promise("HTTP-01")
async def test_a_batch_behind_a_call_that_waits_for_a_person_is_answered_with_the_call_that_holds_it_up(
    place: Any,
) -> None:
    async with fail_after(20), opened([confirm, write], place) as client:
        first = await client.post("/v1/sessions/s/batches", json=batch("confirm"))
        assert first.status_code == 202
        assert "waited_for" not in first.json()
        behind = await client.post("/v1/sessions/s/batches", json=batch("write"))
        assert behind.status_code == 202
        told = behind.json()
        assert told["status"] == "waiting"
        assert [one["status"] for one in told["results"]] == ["pending"]
        held = {"batch": first.json()["batch"], "scope": "", "call_id": "confirm", "tool": "confirm"}
        assert told["waited_for"] == [held]
        third = await client.post("/v1/sessions/s/batches", json=batch("write", id="2"))
        assert third.json()["waited_for"] == [held]
        shown = (await client.get(behind.headers["location"])).json()
        assert [one["waited_for"] for one in shown["calls"]] == [["confirm"]]

        await answer_question(client)
        await client.runtime.session("s").wait_for_idle()
        done = await client.post("/v1/sessions/s/batches", json=batch("write"))
        assert done.status_code == 200
        assert done.json()["results"][0]["value"] == "written"


async def test_a_call_that_a_waiting_call_made_holds_up_others_too() -> None:
    async with fail_after(20), opened([outer, confirm, write]) as client:
        assert (await client.post("/v1/sessions/s/batches", json=batch("outer"))).status_code == 202
        behind = await client.post("/v1/sessions/s/batches", json=batch("write"))
        assert [one["call_id"] for one in behind.json()["waited_for"]] == ["outer"]


async def test_a_batch_behind_a_call_that_runs_waits_for_it() -> None:
    async with fail_after(20), opened([slow, write]) as client:
        first = asyncio.ensure_future(client.post("/v1/sessions/s/batches", json=batch("slow")))
        await begun.wait()
        bounded = await client.post("/v1/sessions/s/batches", json=batch("write"), headers={"Prefer": "wait=0"})
        assert (bounded.status_code, bounded.json()["status"]) == (202, "running")
        second = asyncio.ensure_future(client.post("/v1/sessions/s/batches", json=batch("write")))
        gate.set()
        assert [(await each).status_code for each in (first, second)] == [200, 200]


async def test_no_request_waits_longer_than_the_limit() -> None:
    async def think(request: ModelRequest) -> ModelAnswer:
        await gate.wait()
        return ModelAnswer(text="hello")

    app = App(tools=[slow], model=FunctionModel(think))
    async with fail_after(20), opened(app=app, limits=Limits(answer_seconds=0.05)) as client:
        late = await client.post("/v1/sessions/s/batches", json=batch("slow"), headers={"Prefer": "wait=1000"})
        assert (late.status_code, late.json()["status"]) == (202, "running")
        turn = await client.post("/v1/sessions/t/turns", json={"message": "?"})
        assert (turn.status_code, turn.json()["outcome"]) == (202, None)
        gate.set()
        outcome = await (await client.runtime.turn(turn.json()["turn"]["id"]))
        assert outcome.text == "hello"


async def test_a_turn_behind_one_that_waits_for_a_person_is_answered(place: Any) -> None:
    answers = [ModelAnswer(calls=(ToolCall("confirm", {}, "1"),), stop="calls")]

    async def think(request: ModelRequest) -> ModelAnswer:
        return answers.pop() if answers else ModelAnswer(text="hello")

    app = App(tools=[confirm], model=FunctionModel(think))
    async with fail_after(20), opened(app=app, store=place) as client:
        first = await client.post("/v1/sessions/s/turns", json={"message": "?"})
        assert first.status_code == 202, first.text
        second = await client.post("/v1/sessions/s/turns", json={"message": "?"}, headers={"Prefer": "wait=1"})
        assert second.status_code == 202, second.text
        assert second.json()["status"] == "waiting"
        assert first.json()["turn_id"] in second.json()["reason"]
