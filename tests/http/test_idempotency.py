"""`Idempotency-Key`: the same answer for the same key, and the work once; and completion keys as URLs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.client import opened
from tests.support import fail_after
from toolwright import App, Pending, ToolContext, tool
from toolwright.http.access.caller import Caller
from toolwright.testing import ScriptedModel


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ":memory:" if request.param == "memory" else tmp_path / "agent.db"


class Counter:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.ran = 0
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

        @tool
        async def count() -> int:
            self.ran += 1
            self.started.set()
            await self.may_end.wait()
            return self.ran

        self.tool = count


KEY = {"Idempotency-Key": "k1"}
BATCH = {"calls": [{"name": "count"}]}


@pytest.mark.promise("HTTP-04")
async def test_the_same_key_gives_the_same_answer_and_the_work_is_done_once(place: Any) -> None:
    counter = Counter()
    async with opened([counter.tool], place) as client:
        first = await client.post("/v1/sessions/s/batches", json=BATCH, headers=KEY)
        again = await client.post("/v1/sessions/s/batches", json=BATCH, headers=KEY)
        assert (again.status_code, again.content) == (first.status_code, first.content) == (200, first.content)
        assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
        assert counter.ran == 1
        other = await client.post("/v1/sessions/s/batches", json=BATCH, headers={"Idempotency-Key": "k2"})
        assert other.json()["results"][0]["value"] == 2
        for path, body in (
            ("/v1/sessions/s/batches", {"calls": [{"name": "count"}, {"name": "count"}]}),
            ("/v1/sessions/s/batches?scope=t", BATCH),
        ):
            refused = await client.post(path, json=body, headers=KEY)
            assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
        elsewhere = await client.post("/v1/sessions/s2/batches", json=BATCH, headers=KEY)
        assert elsewhere.json()["results"][0]["value"] == 3  # another path has keys of its own


@pytest.mark.promise("HTTP-04")
async def test_the_answer_of_a_key_survives_the_process_and_is_the_callers_alone(tmp_path: Path) -> None:
    counter, store = Counter(), tmp_path / "agent.db"
    async with opened([counter.tool], store) as client:
        first = await client.post("/v1/sessions/s/batches", json=BATCH, headers=KEY)
    async with opened([counter.tool], store) as client:
        again = await client.post("/v1/sessions/s/batches", json=BATCH, headers=KEY)
        assert (again.content, counter.ran) == (first.content, 1)
    async with opened([counter.tool], store, caller=Caller("ann", frozenset({"run"}))) as client:
        own = await client.post("/v1/sessions/s/batches", json=BATCH, headers=KEY)
        assert own.json()["results"][0]["value"] == 2


@pytest.mark.promise("HTTP-04", "SES-06")
@pytest.mark.parametrize("character", ["#", "?"])
async def test_a_key_is_another_one_in_a_session_whose_id_looks_like_an_encoded_one(place: Any, character: str) -> None:
    sessions = [f"team{character}1", f"team{quote(character)}1"]
    async with opened(store=place) as client:
        for session in sessions:
            path = f"/v1/sessions/{quote(session, safe='')}/messages"
            answer = await client.post(path, json={"content": f"for {character}"}, headers=KEY)
            assert (answer.status_code, answer.headers.get("idempotent-replayed")) == (201, None)
            assert [one.content for one in await client.runtime.session(session).messages.list()] == [
                f"for {character}"
            ]


@pytest.mark.promise("HTTP-04")
async def test_two_requests_of_a_key_at_once_share_the_work(place: Any) -> None:
    counter = Counter()
    counter.may_end.clear()
    async with opened([counter.tool], place) as client, fail_after(20):
        sent = [asyncio.ensure_future(client.post("/v1/sessions/s/batches", json=BATCH, headers=KEY)) for _ in range(3)]
        await counter.started.wait()
        counter.may_end.set()
        answers = await asyncio.gather(*sent)
        assert len({one.content for one in answers}) == 1
        assert counter.ran == 1


@pytest.mark.promise("HTTP-04")
async def test_every_post_takes_a_key(place: Any) -> None:
    app = App(tools=[Counter().tool], model=ScriptedModel(["Hi.", "Again."]))
    async with opened(app=app, store=place) as client:
        for path, body in (
            ("/v1/sessions", {}),
            ("/v1/sessions", {"id": "mine", "title": "Mine"}),
            ("/v1/sessions/s/messages", {"content": "hello"}),
            ("/v1/sessions/s/turns", {"message": "?"}),
        ):
            headers = {"Idempotency-Key": f"{path} {body}"}
            first = await client.post(path, json=body, headers=headers)
            again = await client.post(path, json=body, headers=headers)
            assert first.status_code in (200, 201), first.text
            assert (first.status_code, first.content) == (again.status_code, again.content)
            assert again.headers["idempotent-replayed"] == "true"
            assert again.headers.get("location") == first.headers.get("location")
        found = [one["content"] for one in (await client.get("/v1/sessions/s/messages")).json()["items"]]
        assert found.count("hello") == 1
        assert len((await client.get("/v1/sessions/s/turns")).json()["items"]) == 1


@pytest.mark.promise("HTTP-04")
async def test_a_key_that_is_not_usable_is_refused_and_a_failure_may_be_tried_again(place: Any) -> None:
    async with opened([Counter().tool], place) as client:
        for key in (b"", b"x" * 256, b"\xff\x01"):
            answer = await client.post("/v1/sessions", json={}, headers={b"Idempotency-Key": key})
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_idempotency_key")
        # A body that does not fit never began: the key is still free.
        assert (await client.post("/v1/sessions", json={"id": 7}, headers=KEY)).status_code == 422
        assert (await client.post("/v1/sessions", json={"id": "x"}, headers=KEY)).status_code == 201


@pytest.mark.promise("HTTP-04")
async def test_a_completion_key_is_a_url_that_needs_no_token(place: Any) -> None:
    keys: list[str] = []

    @tool
    async def order(ctx: ToolContext) -> Pending:
        keys.append(ctx.completion_key())
        return Pending()

    nobody = Caller("nobody", frozenset(), ())
    async with opened([order], place) as client, fail_after(20):
        for id in ("1", "2"):
            answer = await client.post("/v1/sessions/s/batches", json={"calls": [{"id": id, "name": "order"}]})
            assert answer.json()["results"][0]["status"] == "pending"
        client.service.authenticate = _refuses(nobody)
        done = await client.post(f"/v1/waits/{keys[0]}", json={"value": {"paid": 12}})
        assert (done.status_code, done.json()["first"]) == (200, True)
        # Webhooks are delivered twice now and then; another value is a conflict.
        again = await client.post(f"/v1/waits/{keys[0]}", json={"value": {"paid": 12}})
        assert again.status_code in (200, 410)
        other = await client.post(f"/v1/waits/{keys[0]}", json={"value": 7})
        assert other.status_code in (409, 410)
        failed = await client.post(f"/v1/waits/{keys[1]}", json={"error": {"message": "No stock", "code": "stock"}})
        assert failed.json()["failure"]["code"] == "stock"
        for body, status in (({}, 422), ({"value": 1, "error": "x"}, 422), ({"error": {"message": ""}}, 422)):
            assert (await client.post(f"/v1/waits/{keys[1]}", json=body)).status_code == status
        bad = {"error": {"message": "x", "category": "odd"}}
        assert (await client.post(f"/v1/waits/{keys[1]}", json=bad)).status_code == 422
        forged = await client.post(f"/v1/waits/{keys[1]}x", json={"value": 1})
        assert (forged.status_code, forged.json()["code"]) == (404, "key_forged")


def _refuses(caller: Caller) -> Any:
    async def authenticate(connection: object) -> Caller:
        return caller

    return authenticate


@pytest.mark.promise("HTTP-03", "HTTP-04")
async def test_nothing_is_kept_for_a_stranger_who_has_no_key_of_a_wait(place: Any) -> None:
    async with opened(store=place) as client:
        for body in ({"value": 1}, {"value": 1}, {"value": 2}):
            refused = await client.post("/v1/waits/no-such-key", json=body, headers=KEY)
            assert (refused.status_code, refused.json()["code"]) == (404, "key_forged")
            assert "idempotent-replayed" not in refused.headers
