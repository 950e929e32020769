"""Batches over HTTP: any shape in, the same shape out, and the records of their calls."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.http.client import Client, opened
from tests.support import fail_after
from toolwright import App, Image, Policy, Rule, Success, ToolContext, ToolError, tool
from toolwright.http.access.caller import Caller


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def refuse() -> None:
    """Fail."""
    raise ToolError("Nothing doing", code="refused", data={"why": [1]})


@tool
async def draw() -> Success:
    """Draw something."""
    return Success({"ok": True}, raw_output="raw", images=[Image("aGk=")], metadata={"m": 1}, text="A drawing.")


@tool(approval="required")
async def launch(where: str) -> str:
    """Do something grave."""
    return f"launched {where}"


@tool
async def steps(ctx: ToolContext) -> list[int]:
    """Do it in steps."""
    return [await ctx.step(name, lambda: 1) for name in ("one", "two")]


TOOLS = (add, refuse, draw, launch, steps)


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ":memory:" if request.param == "memory" else tmp_path / "agent.db"


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 5_000])
@pytest.mark.parametrize("shape", [b'{"calls":[%s]}', b"[%s]", b"%s"])
async def test_a_number_that_nothing_can_hold_is_a_problem_of_the_request(number: bytes, shape: bytes) -> None:
    call = b'{"id":"1","name":"add","arguments":{"a":1,"b":' + number + b"}}"
    async with opened(TOOLS) as client:
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/v1/sessions/s/batches", content=shape % call, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert "out of range" in answer.json()["detail"]


@pytest.mark.promise("HTTP-01")
async def test_calls_in_our_shape_give_their_outcomes_in_order(place: Any) -> None:
    async with opened(TOOLS, place) as client:
        calls = [
            {"id": "1", "name": "add", "arguments": {"a": 1, "b": 2}},
            {"id": "2", "name": "add", "arguments": '{"a": 3, "b": 4}'},
            {"id": "3", "name": "add", "arguments": {"a": "x"}},
            {"id": "4", "name": "refuse"},
            {"id": "5", "name": "none"},
            {"id": "6", "name": "draw", "arguments": {}},
        ]
        answer = await client.post("/v1/sessions/s/batches", json={"calls": calls, "scope": "t"})
        assert answer.status_code == 200
        done = answer.json()
        assert (done["session"], done["scope"], done["status"]) == ("s", "t", "done")
        results = done["results"]
        assert [one["call_id"] for one in results] == ["1", "2", "3", "4", "5", "6"]
        assert [one["status"] for one in results] == ["success", "success", *["failure"] * 3, "success"]
        assert [one.get("value") for one in results[:2]] == [3, 7]
        assert results[3]["failure"]["data"] == {"why": [1]}
        assert results[5]["images"][0]["data"] == "aGk="
        shown = (await client.get(f"/v1/batches/{done['batch']}")).json()
        assert [one["outcome"] for one in shown["calls"]] == results
        assert shown["status"] == "done"


@pytest.mark.promise("HTTP-01")
async def test_an_outcome_over_http_is_that_of_the_api() -> None:
    from toolwright import Runtime

    calls = [{"id": "1", "name": "add", "arguments": {"a": 1, "b": 2}}, {"id": "2", "name": "draw", "arguments": {}}]
    async with Runtime.open(tools=TOOLS) as runtime:
        expected = [one.to_json() for one in await runtime.session("s").run_batch(calls)]
    async with opened(TOOLS) as client:
        assert (await client.post("/v1/sessions/s/batches", json={"calls": calls})).json()["results"] == expected


CHAT = {
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
                ],
            },
            "finish_reason": "tool_calls",
        }
    ]
}
ANTHROPIC = {
    "role": "assistant",
    "stop_reason": "tool_use",
    "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": 2}}],
}
RESPONSES = {
    "object": "response",
    "output": [{"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1,"b":2}'}],
}
MCP = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}
PLAIN = [{"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}]


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize(
    ("payload", "check"),
    [
        (CHAT, lambda out: out == [{"role": "tool", "tool_call_id": "c1", "content": "3"}]),
        (ANTHROPIC, lambda out: out[0]["content"][0]["tool_use_id"] == "c1"),
        (RESPONSES, lambda out: out == [{"type": "function_call_output", "call_id": "c1", "output": "3"}]),
        (MCP, lambda out: (out[0]["id"], out[0]["result"]["content"][0]["text"]) == (1, "3")),
        (PLAIN, lambda out: (out[0]["call_id"], out[0]["value"]) == ("c1", 3)),
        ({"calls": ANTHROPIC["content"]}, lambda out: out[0]["content"][0]["tool_use_id"] == "c1"),
    ],
    ids=["chat", "anthropic", "responses", "mcp", "plain", "wrapped"],
)
async def test_results_come_in_the_shape_of_the_calls(payload: Any, check: Any) -> None:
    async with opened(TOOLS) as client:
        answer = await client.post("/v1/sessions/s/batches?scope=t", json=payload)
        assert answer.status_code == 200
        assert check(answer.json()), answer.json()
        (call,) = (await client.get("/v1/calls")).json()["items"]
        assert (call["scope"], call["tool"], call["status"]) == ("t", "add", "success")


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize(
    ("payload", "status", "code"),
    [
        ({"what": 1}, 422, "unknown_shape"),
        (7, 422, "unknown_shape"),
        ({"calls": 7}, 422, "unknown_shape"),
        ({"calls": [], "scope": 7}, 422, "invalid"),
        ({"calls": [{"name": "add", "source": "host"}]}, 422, "invalid"),
        ([{"name": "add", "arguments": {}, "source": "schedule"}], 422, "invalid"),
        ({"calls": [{"name": "add"}] * 10_001}, 413, "too_large"),
    ],
    ids=str,
)
async def test_a_batch_that_cannot_be_read_is_refused(payload: Any, status: int, code: str) -> None:
    async with opened(TOOLS) as client:
        answer = await client.post("/v1/sessions/s/batches", json=payload)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.promise("HTTP-01")
async def test_the_same_id_with_other_content_is_a_conflict_that_tells_the_differences(place: Any) -> None:
    async with opened(TOOLS, place) as client:
        for value, status in ((1, 200), (1, 200), (2, 409)):
            call = {"id": "1", "name": "add", "arguments": {"a": value, "b": 2}}
            answer = await client.post("/v1/sessions/s/batches", json={"calls": [call]})
            assert answer.status_code == status
        assert answer.json()["code"] == "replay_mismatch"
        assert "a" in answer.json()["differences"][0]


@pytest.mark.promise("HTTP-01")
async def test_a_batch_whose_calls_wait_for_a_person_is_answered_and_goes_on_after_the_decision(place: Any) -> None:
    async with opened(TOOLS, place) as client, fail_after(20):
        calls = [
            {"id": "1", "name": "add", "arguments": {"a": 1, "b": 2}},
            {"id": "2", "name": "launch", "arguments": {"where": "north"}},
        ]
        answer = await client.post("/v1/sessions/s/batches", json={"calls": calls})
        assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
        assert [one["status"] for one in answer.json()["results"]] == ["success", "pending"]
        (asked,) = (await client.get("/v1/approvals")).json()["items"]
        assert (asked["kind"], asked["approval"]["arguments"]) == ("approval", {"where": "north"})
        decided = await client.post(
            f"/v1/approvals/{asked['key']}/approve", json={"arguments": {"where": "south"}, "always": {"where": "s*"}}
        )
        assert (decided.status_code, decided.json()["first"]) == (200, True)
        path = f"{answer.headers['location']}?session=s"
        await settled(client)
        batch = (await client.get(path)).json()
        assert batch["status"] == "done"
        outcome = batch["calls"][1]["outcome"]
        assert outcome["value"] == "launched south"
        assert (outcome["decision"]["by"], outcome["decision"]["edited"]) == ("root", True)
        (decision,) = (await client.get("/v1/decisions")).json()["items"]
        assert decision["approval"]["decision"]["via"] == "http"
        again = await client.post(f"/v1/approvals/{asked['key']}/deny", json={"reason": "no"})
        assert (again.status_code, again.json()["code"]) in ((409, "already_decided"), (410, "key_over"))


@pytest.mark.promise("HTTP-01")
async def test_a_call_is_shown_with_its_steps(tmp_path: Path) -> None:
    async with opened(TOOLS, tmp_path / "agent.db") as client:
        await client.post("/v1/sessions/s/batches", json={"calls": [{"id": "1", "name": "steps"}], "scope": "t"})
        call = (await client.get("/v1/sessions/s/calls/1?scope=t")).json()
        assert [(one["name"], one["done"]) for one in call["steps"]] == [("one", True), ("two", True)]
        assert (call["status"], call["outcome"]["value"]) == ("success", [1, 1])
        assert (await client.get("/v1/sessions/s/calls/1")).status_code == 404


@pytest.mark.promise("HTTP-01")
async def test_calls_are_listed_page_by_page_and_by_filters(place: Any) -> None:
    async with opened(TOOLS, place) as client:
        for number in range(5):
            call = {"id": f"c{number}", "name": "add" if number % 2 else "refuse", "arguments": {"a": 1, "b": number}}
            await client.post(f"/v1/sessions/s{number % 2}/batches", json={"calls": [call]})
        assert [one async for one in pages(client, "/v1/calls?limit=2")] == ["c4", "c3", "c2", "c1", "c0"]
        assert [one async for one in pages(client, "/v1/calls?limit=1&session=s1")] == ["c3", "c1"]
        assert [one async for one in pages(client, "/v1/calls?limit=2&tool=refuse&status=failure")] == [
            "c4",
            "c2",
            "c0",
        ]
        batches = (await client.get("/v1/sessions/s0/batches?limit=2")).json()
        assert len(batches["items"]) == 2
        rest = (await client.get(f"/v1/sessions/s0/batches?cursor={batches['next']}")).json()
        assert (len(rest["items"]), rest["next"]) == (1, None)


@pytest.mark.promise("HTTP-01")
async def test_unfinished_calls_are_found_by_an_index(tmp_path: Path) -> None:
    file, asked = tmp_path / "agent.db", dict[str, Any]()

    def trace(connection: apsw.Connection) -> None:
        if connection.filename == str(file):
            connection.exec_trace = lambda cursor, sql, values: asked.update({sql: values}) or True

    apsw.connection_hooks.append(trace)
    try:
        async with opened(TOOLS, file) as client, fail_after(20):
            asked.clear()
            for query in ("status=running", "status=waiting&tool=add", "status=running&session=s"):
                assert (await client.get(f"/v1/calls?{query}")).json()["items"] == []
            listed = {sql: values for sql, values in asked.items() if sql.startswith("SELECT rowid")}
    finally:
        apsw.connection_hooks.remove(trace)
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        plans = [connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchone() for sql, values in listed.items()]
    assert ["unfinished_calls" in str(plan) for plan in plans] == [True, True, True]


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize("kind", ["file", "postgres"])
async def test_calls_of_a_rare_tool_are_looked_for_part_by_part(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwright.stores.sql.calls.history.MOST_WALKED", 3)
    with contextlib.ExitStack() as stack:
        store: Any = tmp_path / "agent.db"
        if kind == "postgres":
            server = request.getfixturevalue("postgres")
            store = f"{server.url}?schema={stack.enter_context(server.schema())}"
        async with opened(TOOLS, store) as client, fail_after(30):
            for number in range(12):
                name = "refuse" if number in (1, 10, 11) else "add"
                call = {"id": f"c{number}", "name": name, "arguments": {"a": 1, "b": number}}
                await client.post("/v1/sessions/s/batches", json={"calls": [call]})
            first = (await client.get("/v1/calls?tool=refuse")).json()
            assert [one["call_id"] for one in first["items"]] == ["c11", "c10"]
            second = (await client.get(f"/v1/calls?tool=refuse&cursor={first['next']}")).json()
            assert second["items"] == []
            assert second["next"] is not None
            for path in ("/v1/calls?tool=refuse", "/v1/calls?status=failure", "/v1/calls?tool=refuse&session=s"):
                for limit in (1, 2, 100):
                    assert [one async for one in pages(client, f"{path}&limit={limit}")] == ["c11", "c10", "c1"]
            assert (await client.get("/v1/calls?tool=refuse&session=s")).json()["next"] is None


@pytest.mark.promise("HTTP-01")
async def test_calls_are_found_by_the_state_they_are_in(tmp_path: Path) -> None:
    running = asyncio.Event()

    @tool(readonly=True)
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    store, headers = tmp_path / "agent.db", {"Prefer": "respond-async"}
    async with opened([*TOOLS, hang], store) as client, fail_after(20):
        calls: list[Any] = [{"id": f"h{number}", "name": "hang"} for number in range(3)]
        calls.append({"id": "l", "name": "launch", "arguments": {"where": "x"}})
        await client.post("/v1/sessions/s/batches", json={"calls": calls}, headers=headers)
        await running.wait()
        while not (await client.get("/v1/calls?status=waiting")).json()["items"]:
            pass  # each look waits for the store
        assert [one async for one in pages(client, "/v1/calls?status=waiting&limit=1")] == ["l"]
        assert sorted([one async for one in pages(client, "/v1/calls?status=running&limit=1")]) == ["h0", "h1", "h2"]
        (session,) = (await client.get("/v1/sessions")).json()["items"]
        assert (session["calls"], session["unfinished"]) == (4, 4)


@pytest.mark.promise("HTTP-01")
async def test_a_session_that_only_has_calls_is_listed(place: Any) -> None:
    async with opened(TOOLS, place) as client:
        await client.post("/v1/sessions/s/batches", json={"calls": [{"name": "refuse"}]})
        (session,) = (await client.get("/v1/sessions")).json()["items"]
        assert (session["id"], session["calls"], session["unfinished"]) == ("s", 1, 0)
        assert (await client.get("/v1/sessions/s")).json() == session


@pytest.mark.promise("HTTP-03")
async def test_lists_show_a_restricted_caller_only_its_sessions(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    async with opened(TOOLS, store) as client:
        for session in ("own", "other"):
            calls = [{"id": f"{session}-{number}", "name": "add", "arguments": {"a": 1, "b": 2}} for number in range(3)]
            calls.append({"id": f"{session}-l", "name": "launch", "arguments": {"where": "x"}})
            await client.post(f"/v1/sessions/{session}/batches", json={"calls": calls})
        approvals = (await client.get("/v1/approvals")).json()["items"]
        batch = (await client.get("/v1/sessions/other/batches")).json()["items"][0]["batch"]
    caller = Caller("ann", frozenset({"read", "approve"}), ("own",))
    foreign = next(one["key"] for one in approvals if one["session"] == "other")
    async with opened(TOOLS, store, caller=caller) as client:
        found = [one async for one in pages(client, "/v1/calls?limit=2")]
        assert sorted(found) == ["own-0", "own-1", "own-2", "own-l"]
        assert [one["session"] for one in (await client.get("/v1/approvals")).json()["items"]] == ["own"]
        assert (await client.get("/v1/calls?session=other")).status_code == 403
        assert (await client.get(f"/v1/batches/{batch}")).status_code == 404
        assert (await client.post(f"/v1/approvals/{foreign}/approve")).status_code == 404
        assert (await client.post("/v1/approvals/twk1.forged.key/approve")).status_code == 404


@pytest.mark.promise("HTTP-01")
async def test_a_running_batch_is_cancelled() -> None:
    running = asyncio.Event()

    @tool
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    async with opened([hang]) as client, fail_after(20):
        headers = {"Prefer": "respond-async"}
        answer = await client.post("/v1/sessions/s/batches", json={"calls": [{"name": "hang"}]}, headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (202, "running")
        await running.wait()
        path = answer.headers["location"]
        assert (await client.post(f"{path}/cancel", json={"reason": "enough"})).json() == {"cancelled": True}
        await settled(client)
        batch = (await client.get(path)).json()
        assert batch["status"] == "done"
        assert batch["calls"][0]["outcome"]["reason"] == "enough"
        assert (await client.post(f"{path}/cancel")).json() == {"cancelled": False}


@pytest.mark.promise("HTTP-01")
async def test_a_call_that_a_rule_denies_is_an_outcome_that_names_the_rule() -> None:
    policy = Policy(rules=[Rule("deny", tools=("add",), name="no-sums")])
    async with opened(app=App(tools=TOOLS, policy=policy)) as client:
        call = {"id": "1", "name": "add", "arguments": {"a": 1, "b": 2}}
        (result,) = (await client.post("/v1/sessions/s/batches", json={"calls": [call]})).json()["results"]
        assert (result["failure"]["category"], result["decided_by"]) == ("permission_denied", "no-sums")


async def settled(client: Client) -> None:
    """Wait until the batches of session s have ended."""
    for batch in client.runtime.session("s").batches:
        await batch.settled()


async def pages(client: Client, path: str) -> Any:
    cursor = ""
    while True:
        page = (await client.get(path + cursor)).json()
        for one in page["items"]:
            yield one["call_id"]
        if page["next"] is None:
            return
        cursor = f"&cursor={page['next']}"
