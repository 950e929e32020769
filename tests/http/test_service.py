"""What happens around every operation: paths, checks, problems, pages and the document."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.client import client_of, everyone, opened
from toolwright import App, Runtime, tool
from toolwright.http import create_app
from toolwright.http.access.caller import Caller
from toolwright.http.routes import sessions


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.promise("HTTP-01")
async def test_the_service_says_that_it_lives_and_is_ready_without_a_token() -> None:
    service = create_app(App(tools=[add]))
    async with service.lifespan(), client_of(service) as client:
        assert (await client.get("/v1/health")).json() == {"status": "ok"}
        assert (await client.get("/v1/ready")).json() == {"status": "ready", "problems": []}
        refused = await client.get("/v1/tools")
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert refused.headers["content-type"] == "application/problem+json"


@pytest.mark.promise("HTTP-01")
async def test_the_tools_are_listed_with_their_schemas() -> None:
    async with opened([add]) as client:
        (shown,) = (await client.get("/v1/tools")).json()["items"]
        assert shown["name"] == "add"
        assert shown["definition"]["input_schema"]["required"] == ["a", "b"]
        assert (await client.get("/v1/tools/add")).json() == shown
        missing = await client.get("/v1/tools/none")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


@pytest.mark.promise("HTTP-01")
async def test_a_session_is_made_listed_looked_at_and_removed() -> None:
    async with opened() as client:
        made = await client.post("/v1/sessions", json={"id": "a/b", "title": "Trip"})
        assert (made.status_code, made.json()["title"]) == (201, "Trip")
        again = await client.post("/v1/sessions", json={"id": "a/b"})
        assert (again.status_code, again.json()["title"]) == (200, "Trip")
        assert [one["id"] for one in (await client.get("/v1/sessions")).json()["items"]] == ["a/b"]
        assert (await client.get("/v1/sessions/a%2Fb")).json()["title"] == "Trip"
        assert (await client.delete("/v1/sessions/a%2Fb")).status_code == 204
        assert (await client.get("/v1/sessions/a%2Fb")).status_code == 404
        assert (await client.delete("/v1/sessions/a%2Fb")).status_code == 404


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize("body", [{"id": "s", "title": " "}, {"id": " \n"}])
async def test_a_session_without_a_visible_name_is_refused_and_not_said_to_be_made(body: dict[str, str]) -> None:
    async with opened() as client:
        refused = await client.post("/v1/sessions", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        assert (await client.get("/v1/sessions")).json()["items"] == []


@pytest.mark.promise("HTTP-01")
async def test_a_conversation_is_written_and_read_page_by_page() -> None:
    async with opened() as client:
        for number in range(5):
            said = await client.post("/v1/sessions/s/messages", json={"content": f"m{number}"})
            assert (said.status_code, said.json()["sender"]) == (201, "user")
        texts, cursor = [], ""
        for _ in range(3):
            page = (await client.get(f"/v1/sessions/s/messages?limit=2{cursor}")).json()
            texts += [one["content"] for one in page["items"]]
            cursor = f"&cursor={page['next']}"
        assert texts == ["m0", "m1", "m2", "m3", "m4"]
        assert page["next"] is None


@pytest.mark.promise("HTTP-01")
async def test_a_request_that_does_not_fit_is_told_every_problem_and_changes_nothing() -> None:
    async with opened() as client:
        refused = await client.post("/v1/sessions", json={"id": 7, "titel": "x", "locale": 1})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        assert sorted(problem["path"] for problem in refused.json()["problems"]) == ["$.id", "$.locale", "$.titel"]
        for path, problem in (
            ("/v1/sessions?limit=0", "?limit"),
            ("/v1/sessions?limit=x", "?limit"),
            ("/v1/sessions?lim=1", "?lim"),
            ("/v1/sessions?limit=1&limit=2", "?limit"),
        ):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["problems"][0]["path"]) == (422, problem)
        assert (await client.get("/v1/sessions?cursor=no")).json()["code"] == "bad_cursor"
        assert (await client.get("/v1/sessions")).json()["items"] == []


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", {}, 400, "not_json"),
        (b"\xff", {}, 400, "not_json"),
        (b'{"sender": 5, "content": "\xff"}', {}, 400, "not_json"),
        (b'["\xed\xa0\x80"]', {}, 400, "not_json"),
        (b"[" * 5_000, {}, 400, "not_json"),
        (b"[]", {}, 422, "invalid"),
        (b"", {}, 400, "not_json"),
        (b"{}", {"content-type": "text/html"}, 415, "not_json"),
        (b'{"content": 1e400}', {}, 422, "invalid"),
        (b'{"content": "plain"}', {"content-encoding": "gzip"}, 415, "encoded"),
        (b" " * (16 * 1024 * 1024 + 1), {}, 413, "too_large"),
    ],
)
async def test_a_body_that_is_no_fitting_json_is_refused(
    content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    async with opened() as client:
        answer = await client.post("/v1/sessions/s/messages", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.promise("HTTP-01")
async def test_a_path_or_method_that_is_not_served_is_a_problem_too() -> None:
    async with opened() as client:
        for path in ("/v1/nothing", "/v1", "/nothing", "/v1//", "/v1/sessions/a/b/c/d"):
            assert (await client.get(path)).status_code == 404
        refused = await client.request("PUT", "/v1/sessions")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
        assert (await client.get("/v1/tools/%ff")).json()["code"] == "bad_path"


@pytest.mark.promise("HTTP-03")
async def test_a_caller_gets_only_what_its_scopes_and_sessions_allow() -> None:
    reader = Caller("reader", frozenset({"read"}), ("own-*",))
    async with Runtime.open() as runtime:
        for id in ("own-1", "other"):
            await runtime.session(id).details.set(title=id)
        async with client_of(create_app(runtime, authenticate=everyone(reader))) as client:
            assert [one["id"] for one in (await client.get("/v1/sessions")).json()["items"]] == ["own-1"]
            assert (await client.get("/v1/sessions/own-1")).status_code == 200
            for answer in (
                await client.get("/v1/sessions/other"),
                await client.delete("/v1/sessions/own-1"),
                await client.post("/v1/sessions", json={}),
            ):
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.promise("HTTP-01")
async def test_a_service_that_is_mounted_opens_its_app_at_the_first_request() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    service = create_app(App(tools=[add]), authenticate=everyone())
    async with client_of(service) as inner:
        inner.http._transport.app = Starlette(routes=[Mount("/agent", service)])  # type: ignore[attr-defined]
        assert (await inner.http.get("/agent/v1/tools")).json()["items"][0]["name"] == "add"
    await service.close()


@pytest.mark.promise("HTTP-01")
@given(path=st.lists(st.text(min_size=1, max_size=10), max_size=6))
def test_any_path_finds_one_operation_or_none(path: list[str]) -> None:
    from urllib.parse import quote

    from toolwright.http.problems import Problem
    from toolwright.http.routes import OPERATIONS
    from toolwright.http.routing import Routes

    raw = "/v1/" + "/".join(quote(part, safe="", errors="replace") for part in path)
    found, refused = None, 0
    try:
        found = Routes(OPERATIONS).find("GET", raw.encode())
    except Problem as problem:
        refused = problem.status
    assert refused in (0, 400, 405)
    assert found is None or (found[0].method == "GET" and found[0] in OPERATIONS)


@pytest.mark.promise("HTTP-03")
@pytest.mark.parametrize("durable", [False, True])
async def test_a_list_for_a_restricted_caller_reads_so_many_sessions_at_once(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_MOST_READS", 2)
    monkeypatch.setattr(sessions, "_LEAST_READ", 3)
    mine = Caller("ann", frozenset({"read"}), ("mine-*", "zebra"))
    async with Runtime.open(tmp_path / "agent.db" if durable else ":memory:") as runtime:
        for name in (*(f"{each:02}" for each in range(20)), "mine-1", "mine-2", "mine-3", "other", "zebra"):
            await runtime.session(name).kv.set("a", 1)
        service = create_app(runtime, authenticate=everyone(mine))
        async with client_of(service) as client:
            pages, path = list[list[str]](), "/v1/sessions?limit=2"
            cursor: str | None = ""
            while cursor is not None:
                page = (await client.get(f"{path}&cursor={cursor}" if cursor else path)).json()
                pages.append([one["id"] for one in page["items"]])
                cursor = page["next"]
    assert pages[0] == []
    assert [id for page in pages for id in page] == ["mine-1", "mine-2", "mine-3", "zebra"]
    assert all(len(page) <= 2 for page in pages)
