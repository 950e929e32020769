"""Requests that are refused say what is wrong with them, and what is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.http.client import opened
from tests.http.live import live
from tests.support import fail_after
from toolwright import App, Policy, Rule, tool
from toolwright.http import create_app


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(supports_background=True)
async def film(title: str = "") -> str:
    """Make a film."""
    return "done"


LONG = "x" * 501


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/calls?status=zz", "?status: it is not one of 'cancelled', 'cut off', 'failure', 'running'"),
        ("/v1/runs?status=zz", "?status: it is not one of 'abandoned'"),
        ("/v1/calls?limit=zz", "?limit: it is not a whole number from 1 to 1000"),
        ("/v1/calls?limit=0", "?limit: it is not a whole number from 1 to 1000"),
        ("/v1/calls?limit=1&limit=2", "?limit: the parameter is given twice"),
        (f"/v1/calls?session={LONG}", "?session: it is not text of 1 to 500 characters"),
        (f"/v1/sessions/s/calls/1?scope={LONG}", "?scope: it is not text of 0 to 500 characters"),
        ("/v1/runs?active=zz", "?active: it is not true or false"),
        ("/v1/events?types=zz", "?types: no event has such a kind; use kinds such as 'call.finished', or one of"),
        ("/v1/events?types=call.*,zz.*", "?types: no event has such a kind"),
    ],
)
async def test_a_parameter_that_does_not_fit_is_named_with_what_it_may_be(path: str, said: str) -> None:
    async with opened([add]) as client:
        answer = await client.get(path)
        assert answer.status_code == 422
        assert said in answer.json()["detail"]


async def test_a_provider_that_is_not_known_is_named_with_those_that_are() -> None:
    async with opened([add]) as client:
        answer = await client.post("/v1/sessions/s/batches?provider=zz", json={"calls": []})
        assert answer.status_code == 422
        assert "?provider: it is not one of 'anthropic', 'mcp', 'openai-chat'" in answer.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_id_in_a_path_that_is_too_long_is_refused(method: str) -> None:
    async with opened([add]) as client:
        answer = await client.request(method, f"/v1/sessions/{LONG}")
        assert answer.status_code == 400
        assert "The session in the path has 501 characters" in answer.json()["detail"]
        assert (await client.get(f"/v1/sessions/s/calls/{LONG}")).status_code == 400
        posted = await client.post(f"/v1/sessions/{LONG}/batches", json={"calls": []})
        assert posted.status_code == 400
        assert (await client.get(f"/v1/sessions/{'y' * 500}/turns")).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {"calls": [{"name": "add", "id": "y" * 100_000}]},
        [{"type": "tool_use", "name": "add", "id": "y" * 100_000, "input": {}}],
        {"calls": [{"name": "add", "id": "1"}], "scope": LONG},
    ],
)
async def test_ids_of_calls_and_scopes_are_bounded_in_every_shape(body: Any) -> None:
    async with opened([add]) as client:
        answer = await client.post("/v1/sessions/s/batches", json=body)
        assert answer.status_code == 422, answer.text[:500]
        assert "too long" in answer.text or "the scope is not usable" in answer.text
        assert len(answer.content) < 5_000
        assert (await client.get("/v1/calls")).json()["items"] == []


@pytest.mark.parametrize("path", ["batches", "messages"])
@pytest.mark.parametrize(
    ("text", "half"), [(r"\ud83d", r"\ud83d"), (r"\\ \ude00", r"\ude00"), (r"\ud83d\ude00 \uD800", r"\uD800")]
)
async def test_half_of_a_character_is_named_as_such(path: str, text: str, half: str) -> None:
    bodies = {"batches": '{"calls":[{"name":"%s"}]}', "messages": '{"content":"%s"}'}
    async with opened([add]) as client:
        answer = await client.post(f"/v1/sessions/s/{path}", content=(bodies[path] % text).encode())
        assert answer.status_code == 400
        assert f"half of a surrogate pair, {half} at byte" in answer.json()["detail"]
        for other in (rb'{"a": "\\ud83d", }', rb'{"a": tru, "b": "\ud83d"}'):
            broken = await client.post(f"/v1/sessions/s/{path}", content=other)
            assert "half" not in broken.json()["detail"]
        # The search for it is bounded: a client could hold up the server with a body of nothing but escapes.
        far = await client.post("/v1/sessions/s/messages", content=rb'{"content":"%s\ud83d"}' % (rb"\u00e9" * 100_000))
        assert far.status_code == 400
        assert "The body is not JSON" in far.json()["detail"]


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize("tools_only", [True, False])
async def test_a_run_that_a_rule_refuses_names_the_rule(tools_only: bool) -> None:
    rule = Rule("deny", tools=("film",), name="no films", when=None if tools_only else lambda call: True)
    async with opened(app=App(tools=[film], policy=Policy(rules=[rule]))) as client:
        answer = await client.post("/v1/sessions/s/runs", json={"tool": "film"})
        assert (answer.status_code, answer.json()["rule"]) == (403, "no films")


@pytest.mark.promise("HTTP-03")
async def test_a_request_line_may_have_a_whole_url_whose_host_is_checked(tmp_path: Path) -> None:
    service = create_app(App(tools=[add]))
    async with fail_after(30), live(service) as server:

        async def asked(target: str, host: str) -> Any:
            async with server.connection() as connection:
                head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"
                await connection.send(head.encode())
                return await connection.reply()

        own = f"127.0.0.1:{server.port}"
        assert (await asked(f"http://{own}/v1/health", own)).status == 200
        assert (await asked(f"HTTP://{own}/v1/health?x=1", own)).status in (200, 422)
        assert (await asked(f"http://{own}/v1/tools", own)).status == 401
        assert (await asked("http://evil.example/v1/health", own)).status == 403
        assert (await asked(f"http://{own}/v1/health", "evil.example")).status == 200  # the URL counts (RFC 9112)
        assert (await asked(f"http://{own}", own)).status == 200  # the page


@pytest.mark.promise("HTTP-03")
async def test_logins_are_listed_and_ended(tmp_path: Path) -> None:
    async with opened([add], tmp_path / "agent.db") as client:
        tokens = await client.service.sign_in.tokens()
        token = await tokens.create("desk", ["read"])
        first, second = await tokens.login(token.value), await tokens.login(token.value)
        await tokens.login_by_link(await tokens.link("ann", ["admin"]))
        page = (await client.get("/v1/logins?limit=2")).json()
        rest = (await client.get(f"/v1/logins?cursor={page['next']}")).json()
        listed = [*page["items"], *rest["items"]]
        assert sorted((one["name"], one["token"] or "", one["state"]) for one in listed) == [
            ("ann", "", "valid"),
            ("desk", token.info.id, "valid"),
            ("desk", token.info.id, "valid"),
        ]
        assert "twc_" not in str(listed)
        ended = await client.delete(f"/v1/logins/{first.caller.login}")
        assert (ended.status_code, ended.json()["state"]) == (200, "revoked")
        states = {one["id"]: one["state"] for one in (await client.get("/v1/logins")).json()["items"]}
        assert (states[first.caller.login], states[second.caller.login]) == ("revoked", "valid")
        assert await tokens.still_valid([first.caller, second.caller]) == {second.caller.login}
        assert (await client.delete(f"/v1/logins/{token.info.id}")).status_code == 404  # that is a token
        assert (await client.delete("/v1/logins/nobody")).status_code == 404
        assert (await tokens.verify(token.value)).name == "desk"
