"""Finding sessions, calls and runs by a part of a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.http.client import opened
from tests.support import fail_after
from toolwright import ToolContext, tool
from toolwright.http.access.caller import Caller, Scope


@tool(readonly=True)
async def plus(a: int, b: int) -> int:  # no word that hexadecimal ids may contain
    """Add two numbers."""
    return a + b


@tool(supports_background=True)
async def film(ctx: ToolContext) -> str:
    """Make a film."""
    return "done"


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ":memory:" if request.param == "memory" else tmp_path / "agent.db"


def call(id: str) -> dict[str, Any]:
    return {"calls": [{"id": id, "name": "plus", "arguments": {"a": 1, "b": 2}}]}


@pytest.mark.promise("HTTP-01")
async def test_sessions_calls_and_runs_are_found_by_parts_of_their_names(place: Any) -> None:
    async with fail_after(30), opened([plus, film], place) as client:
        await client.post("/v1/sessions", json={"id": "ann-1", "title": "Über die Reise"})
        await client.post("/v1/sessions", json={"id": "bob-1", "title": "Taxes 100%"})
        await client.post("/v1/sessions/only-calls/batches", json=call("call_ABC"))
        run = (await client.post("/v1/sessions/bob-1/runs", json={"tool": "film", "title": "The Night"})).json()

        async def found(text: str, **query: Any) -> dict[str, list[Any]]:
            answer = await client.get("/v1/search", params={"q": text, **query})
            assert answer.status_code == 200, answer.text
            names = {"sessions": "id", "calls": "call_id", "runs": "run_id"}
            return {kind: [one[names[kind]] for one in items] for kind, items in answer.json().items()}

        nothing = {"sessions": [], "calls": [], "runs": []}
        assert await found("über") == {**nothing, "sessions": ["ann-1"]}
        assert (await found("-1"))["sessions"] == ["ann-1", "bob-1"]
        assert (await found("-1", limit=1))["sessions"] == ["ann-1"]
        assert await found("all_abc") == {**nothing, "calls": ["call_ABC"]}
        assert await found("only-") == {**nothing, "sessions": ["only-calls"], "calls": ["call_ABC"]}
        assert await found("plus") == {**nothing, "calls": ["call_ABC"]}
        assert (await found("night"))["runs"] == [run["run_id"]]
        assert (await found(run["run_id"][:20]))["runs"] == [run["run_id"]]
        assert await found("100%") == {**nothing, "sessions": ["bob-1"]}
        assert await found("nowhere") == await found("'; --") == nothing
        assert await found("") == await found(" ") == nothing
        assert (await client.get("/v1/search", params={"q": "x" * 201})).status_code == 422


@pytest.mark.promise("HTTP-03")
async def test_nobody_finds_what_is_not_theirs(place: Any) -> None:
    ann = Caller("ann", frozenset[Scope]({"read", "run"}), ("ann-*",))
    async with fail_after(30), opened([plus, film], place) as client:
        await client.post("/v1/sessions/bob-1/batches", json=call("c1"))
        await client.post("/v1/sessions", json={"id": "bob-2", "title": "the ann"})
        await client.post("/v1/sessions/bob-1/runs", json={"tool": "film", "title": "ann"})
        await client.post("/v1/sessions/ann-1/batches", json=call("c1"))

        async def only_ann(connection: Any) -> Caller:
            return ann

        client.service.authenticate = only_ann
        for text in ("ann", "bob", "c1", "plus"):
            told = (await client.get("/v1/search", params={"q": text})).json()
            assert {one["session"] for kind in ("calls", "runs") for one in told[kind]} <= {"ann-1"}
            assert {one["id"] for one in told["sessions"]} <= {"ann-1"}
        assert [one["call_id"] for one in (await client.get("/v1/search?q=c1")).json()["calls"]] == ["c1"]
