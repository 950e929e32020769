"""Turns over HTTP: the answer in the response, later, or as a stream."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from tests.http.client import Client, client_of, opened
from tests.support import fail_after
from toolwright import App, ToolCall, tool
from toolwright.http import create_app
from toolwright.http.access.caller import Caller
from toolwright.testing import FunctionModel, ScriptedModel
from toolwright.tools.model import ModelAnswer


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(approval="required")
async def launch() -> str:
    """Do something grave."""
    return "launched"


def agent(*answers: Any) -> App:
    return App(tools=[add, launch], model=ScriptedModel(list(answers)))


SUM = [ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})]
LAUNCH = [ToolCall(id="1", name="launch", arguments={})]


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ":memory:" if request.param == "memory" else tmp_path / "agent.db"


@pytest.mark.promise("HTTP-01")
async def test_a_message_is_answered_in_the_response(place: Any) -> None:
    async with opened(store=place, app=agent(SUM, "It is 3.")) as client:
        answer = await client.post("/v1/sessions/s/turns", json={"message": "1 + 2?", "budget": {"model_calls": 5}})
        assert answer.status_code == 200
        outcome = answer.json()
        assert (outcome["status"], outcome["text"]) == ("answered", "It is 3.")
        assert [one["value"] for one in outcome["calls"]] == [3]
        shown = (await client.get(answer.headers["location"])).json()
        assert (shown["turn"]["state"], shown["outcome"]["text"]) == ("answered", "It is 3.")
        listed = (await client.get("/v1/sessions/s/turns")).json()
        assert [one["id"] for one in listed["items"]] == [outcome["turn_id"]]
        said = (await client.get("/v1/sessions/s/messages")).json()["items"]
        assert [one["sender"] for one in said] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.promise("HTTP-01")
async def test_a_turn_may_go_on_after_the_response(place: Any) -> None:
    go = asyncio.Event()

    async def answer(request: Any) -> ModelAnswer:
        await go.wait()
        return ModelAnswer(text="Done.")

    app = App(tools=[add], model=FunctionModel(answer))
    async with opened(store=place, app=app) as client, fail_after(30):
        headers = {"Prefer": "respond-async"}
        answered = await client.post("/v1/sessions/s/turns", json={"message": "?"}, headers=headers)
        assert (answered.status_code, answered.json()["outcome"]) == (202, None)
        assert answered.headers["preference-applied"] == "respond-async"
        path = answered.headers["location"]
        assert (await client.get(path)).json()["turn"]["state"] in ("running", "queued")
        assert (await client.post(f"{path}/steer", json={"message": "Hurry."})).json() == {"steered": True}
        go.set()
        events = await followed(client, path)
        assert events[-1][1] == "turn.ended"
        assert (await client.get(path)).json()["outcome"]["text"] == "Done."


@pytest.mark.promise("HTTP-01")
async def test_a_turn_is_streamed_and_resumed_by_the_id_of_the_last_event(place: Any) -> None:
    async with opened(store=place, app=agent(SUM, "It is 3.")) as client, fail_after(30):
        headers = {"Accept": "text/event-stream"}
        async with client.http.stream(
            "POST", "/v1/sessions/s/turns", json={"message": "?"}, headers=headers
        ) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            path = response.headers["location"]
            events = read_events(await response.aread())
        kinds = [kind for _, kind, _ in events]
        assert (kinds[0], kinds[-1]) == ("turn.started", "turn.ended")
        assert "call.finished" in kinds
        again = await followed(client, path)
        assert [one for one in again if one[1] not in ("text",)] == [one for one in events if one[1] not in ("text",)]
        middle = events[3][0]
        rest = await followed(client, path, last=middle)
        assert [one for one in rest if one[1] != "text"] == [one for one in events[4:] if one[1] != "text"]
        refused = await client.get(path, headers={**headers, "Last-Event-ID": "x"})
        assert refused.status_code == 422


@pytest.mark.promise("HTTP-01")
async def test_a_turn_that_waits_for_a_person_says_for_what(place: Any) -> None:
    async with opened(store=place, app=agent(LAUNCH, "It flies.")) as client, fail_after(30):
        answer = await client.post("/v1/sessions/s/turns", json={"message": "Go."})
        assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
        assert [one["tool"] for one in answer.json()["waits"]] == ["launch"]
        (asked,) = (await client.get("/v1/approvals?session=s")).json()["items"]
        assert (await client.post(f"/v1/approvals/{asked['key']}/approve")).status_code == 200
        path = answer.headers["location"]
        assert (await followed(client, path))[-1][1] == "turn.ended"
        assert (await client.get(path)).json()["outcome"]["text"] == "It flies."


@pytest.mark.promise("HTTP-01")
async def test_an_id_of_any_characters_is_found_by_its_location() -> None:
    async with opened(app=agent(*["Hi."] * 4)) as client:
        for id in ("a/b", "☀\r\nX-Evil: 1", "?x#y", "%2F"):
            answer = await client.post("/v1/sessions/s%2F1/turns", json={"message": "?", "id": id})
            assert answer.status_code == 200
            assert (await client.http.get(answer.headers["location"])).json()["turn"]["id"] == id
        listed = (await client.get("/v1/sessions/s%2F1/turns")).json()["items"]
        assert [one["session"] for one in listed] == ["s/1"] * 4


@pytest.mark.promise("HTTP-01")
async def test_turns_are_listed_page_by_page(place: Any) -> None:
    async with opened(store=place, app=agent(*["Hi."] * 5)) as client:
        for number in range(5):
            await client.post("/v1/sessions/s/turns", json={"message": f"m{number}"})
        first = (await client.get("/v1/sessions/s/turns?limit=2")).json()
        rest = (await client.get(f"/v1/sessions/s/turns?limit=3&cursor={first['next']}")).json()
        found = [one["message"] for one in (*first["items"], *rest["items"])]
        assert (found, rest["next"]) == (["m4", "m3", "m2", "m1", "m0"], None)


@pytest.mark.promise("HTTP-01")
async def test_a_turn_is_cancelled() -> None:
    async def answer(request: Any) -> ModelAnswer:
        await asyncio.Event().wait()
        raise AssertionError

    async with opened(app=App(model=FunctionModel(answer))) as client, fail_after(30):
        headers = {"Prefer": "respond-async"}
        path = (await client.post("/v1/sessions/s/turns", json={"message": "?"}, headers=headers)).headers["location"]
        assert (await client.post(f"{path}/cancel", json={"reason": "enough"})).json() == {"cancelled": True}
        assert (await followed(client, path))[-1][2]["data"]["status"] == "cancelled"
        assert (await client.post(f"{path}/cancel")).json() == {"cancelled": False}


@pytest.mark.promise("HTTP-01", "HTTP-03")
async def test_a_turn_that_is_not_there_or_not_the_callers_is_not_found() -> None:
    async with opened(app=agent("Hi.")) as client:
        await client.post("/v1/sessions/other/turns", json={"message": "?", "id": "t1"})
        assert (await client.get("/v1/turns/t1")).status_code == 200
        assert (await client.get("/v1/turns/none")).json()["code"] == "not_found"
        for body, status in (
            ({"message": ""}, 422),
            ({"message": " "}, 422),
            ({"message": "?", "model": "nowhere:x"}, 422),
            ({"message": "other", "id": "t1"}, 409),
            ({"message": "?", "tool_choice": "none-such"}, 422),
        ):
            assert (await client.post("/v1/sessions/other/turns", json=body)).status_code == status, body
    async with opened(app=App(tools=[add])) as client:
        refused = await client.post("/v1/sessions/s/turns", json={"message": "?"})
        assert (refused.status_code, refused.json()["code"]) == (422, "no_model")


@pytest.mark.promise("HTTP-03")
async def test_a_restricted_caller_does_not_see_turns_of_other_sessions(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    async with opened(store=store, app=agent("Hi.")) as client:
        await client.post("/v1/sessions/other/turns", json={"message": "?", "id": "t1"})
    async with opened(store=store, app=agent(), caller=Caller("ann", frozenset({"read", "run"}), ("own",))) as client:
        for answer in (await client.get("/v1/turns/t1"), await client.post("/v1/turns/t1/cancel")):
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def read_events(data: bytes) -> list[tuple[str, str, Any]]:
    events = []
    for block in data.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in lines:
            events.append((lines["id"], lines["event"], json.loads(lines["data"])))
    return events


async def followed(client: Client, path: str, last: str | None = None) -> list[tuple[str, str, Any]]:
    headers = {"Accept": "text/event-stream", **({} if last is None else {"Last-Event-ID": last})}
    async with client.http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        return read_events(await response.aread())


@pytest.mark.promise("SES-06", "HTTP-03")
async def test_the_id_of_a_turn_does_not_tell_a_restricted_caller_its_session(place: Any) -> None:
    who = Caller("root", frozenset({"admin"}))

    async def authenticate(connection: HTTPConnection) -> Caller:
        return who

    service = create_app(agent("Hello."), place, authenticate=authenticate)
    async with service.lifespan(), client_of(service) as client:
        asked = {"message": "Hi", "id": "t1"}
        assert (await client.post("/v1/sessions/of-somebody-else/turns", json=asked)).status_code == 200
        who = Caller("ann", frozenset({"read", "run"}), ("own",))
        refused = await client.post("/v1/sessions/own/turns", json=asked)
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "somebody" not in refused.text
