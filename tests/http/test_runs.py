"""Background runs and schedules over HTTP."""

from __future__ import annotations

import httpx
import pytest

from tests.http.client import client_of, everyone, opened
from tests.http.live import served
from tests.http.sse_client import following
from tests.support import fail_after
from toolwright import App, ToolContext, tool
from toolwright.http import create_app
from toolwright.http.access.caller import Caller, Scope


@tool(supports_background=True)
async def talk(ctx: ToolContext, words: list[str]) -> str:
    """Say words, each after a signal."""
    for word in words:
        await ctx.receive("next")
        await ctx.output("stdout", word + "\n")
    return "said"


@tool(supports_background=True)
async def quick(number: int) -> int:
    """Double a number."""
    return number * 2


@pytest.mark.promise("HTTP-01")
async def test_a_run_is_started_signalled_followed_and_looked_at(place) -> None:
    service = create_app(App(tools=[talk, quick]), place, authenticate=everyone(), worker=True)
    async with fail_after(30), served(service) as address, httpx.AsyncClient(base_url=address) as http:
        made = await http.post("/v1/sessions/s/runs", json={"tool": "talk", "arguments": {"words": ["one", "two"]}})
        assert made.status_code == 201, made.text
        run = f"/v1/runs/{made.json()['run_id']}"
        async with following(http, "", path=f"{run}/log") as log:
            sent = await http.post(f"{run}/signals/next", json={"payload": 1})
            assert sent.json() == {"sent": 1}
            assert await log.take(1) == [{"stream": "stdout", "text": "one\n"}]
            last = log.last_id
        await http.post(f"{run}/signals/next")
        async with following(http, "", last, path=f"{run}/log") as log:
            assert await log.take(1) == [{"stream": "stdout", "text": "two\n"}]
            assert await log.next() == ("end", {"kind": "end", "status": "completed"})
            assert await log.next() is None
        shown = (await http.get(run)).json()
        assert (shown["status"], shown["outcome"]["value"], shown["arguments"]) == (
            "completed",
            "said",
            {"words": ["one", "two"]},
        )
        assert [event["type"] for event in shown["events"]][:2] == ["queued", "started"]
        log_text = await http.get(f"{run}/log")
        assert (log_text.text, log_text.headers["content-type"]) == ("[stdout] one\ntwo\n", "text/plain; charset=utf-8")
        part = await http.get(f"{run}/log", headers={"Range": "bytes=13-15"})
        assert (part.status_code, part.text) == (206, "two")
        late = await http.post(f"{run}/cancel")
        assert late.json() == {"cancelled": False, "status": "completed"}
        over = await http.post(f"{run}/signals/next")
        assert (over.status_code, over.json()["code"]) == (409, "over")


@pytest.mark.promise("HTTP-01")
async def test_runs_are_listed_filtered_cancelled_and_those_of_others_hidden(place) -> None:
    service = create_app(App(tools=[talk, quick]), place, authenticate=everyone(), worker=False)
    async with service.lifespan(), client_of(service) as client:
        ids = []
        for session in ("a", "b", "a"):
            made = await client.post(f"/v1/sessions/{session}/runs", json={"tool": "quick", "arguments": {"number": 2}})
            ids.append(made.json()["run_id"])
        cancelled = await client.post(f"/v1/runs/{ids[0]}/cancel", json={"reason": "not needed"})
        assert cancelled.json() == {"cancelled": True, "status": "cancelled"}
        assert (await client.get(f"/v1/runs/{ids[0]}")).json()["cancel_reason"] == "not needed"

        async def listed(path: str) -> list[str]:
            return [one["run_id"] for one in (await client.get(path)).json()["items"]]

        assert await listed("/v1/runs") == ids[::-1]
        assert await listed("/v1/runs?session=b") == [ids[1]]
        assert await listed("/v1/sessions/a/runs") == [ids[2], ids[0]]
        assert await listed("/v1/runs?status=cancelled") == [ids[0]]
        assert await listed("/v1/runs?active=true") == [ids[2], ids[1]]
        page = (await client.get("/v1/runs?limit=2")).json()
        rest = await listed(f"/v1/runs?limit=2&cursor={page['next']}")
        assert [one["run_id"] for one in page["items"]] + rest == ids[::-1]
        assert (await client.get("/v1/runs/none")).status_code == 404
        refused = await client.post("/v1/sessions/a/runs", json={"tool": "quick", "arguments": {"number": "x"}})
        assert refused.status_code == 422

        other = create_app(
            await service.open(), authenticate=everyone(Caller("bob", frozenset[Scope]({"read", "run"}), ("b",)))
        )
        async with client_of(other) as bob:
            shown = [one["run_id"] for one in (await bob.get("/v1/runs")).json()["items"]]
            assert shown == [ids[1]]
            assert (await bob.get(f"/v1/runs/{ids[0]}")).status_code == 404
            assert (await bob.post(f"/v1/runs/{ids[2]}/cancel")).status_code == 404
            assert (await bob.get(f"/v1/runs/{ids[0]}/log")).status_code == 404
            assert (await bob.get("/v1/sessions/a/runs")).status_code == 403


@pytest.mark.promise("HTTP-01", "HTTP-04")
async def test_a_run_and_a_schedule_are_started_once_for_an_idempotency_key(file) -> None:
    async with opened([quick], file) as client:
        key = {"Idempotency-Key": "order-1"}
        for path, body, name in (
            ("/v1/sessions/s/runs", {"tool": "quick", "arguments": {"number": 2}}, "run_id"),
            (
                "/v1/sessions/s/schedules",
                {"tool": "quick", "arguments": {"number": 2}, "cron": "0 3 * * *"},
                "schedule_id",
            ),
        ):
            first = await client.post(path, json=body, headers=key)
            again = await client.post(path, json=body, headers=key)
            assert first.json()[name] == again.json()[name]
            other = await client.post(path, json=body)
            assert other.json()[name] != first.json()[name]


@pytest.mark.promise("HTTP-01")
async def test_a_schedule_is_added_paused_resumed_run_and_cancelled(place) -> None:
    async with opened([quick], place) as client:
        body = {"tool": "quick", "arguments": {"number": 2}, "cron": "0 3 * * *", "timezone": "Europe/Paris"}
        made = await client.post("/v1/sessions/s/schedules", json=body)
        assert made.status_code == 201
        shown = made.json()
        url = f"/v1/schedules/{shown['schedule_id']}"
        assert (shown["state"], len(shown["upcoming"]), shown["history"]) == ("active", 5, [])
        assert shown["upcoming"][0] == shown["next_trigger_at"]
        for state in ("paused", "paused", "active"):
            changed = await client.request("PATCH", url, json={"state": state})
            assert (changed.status_code, changed.json()["state"]) == (200, state)
        started = await client.post(f"{url}/run-now")
        assert started.status_code == 201
        run = (await client.get(f"/v1/runs/{started.json()['run_id']}")).json()
        assert (run["schedule"], run["arguments"]) == (shown["schedule_id"], {"number": 2})
        (fired,) = (await client.get(url)).json()["history"]
        assert (fired["what"], fired["run"]) == ("now", run["run_id"])
        for path in ("/v1/schedules", "/v1/sessions/s/schedules", "/v1/schedules?session=s&active=true"):
            assert [one["schedule_id"] for one in (await client.get(path)).json()["items"]] == [shown["schedule_id"]]
        assert (await client.get("/v1/sessions/other/schedules")).json()["items"] == []
        assert (await client.delete(url)).status_code == 204
        gone = await client.request("PATCH", url, json={"state": "active"})
        assert (gone.status_code, gone.json()["stands"]["state"]) == (409, "cancelled")
        assert (await client.get("/v1/schedules/none")).status_code == 404
        for wrong in (
            {"cron": "never"},
            {},
            {"cron": "0 3 * * *", "at": "2030-01-01T00:00:00Z"},
            {"at": "2001-01-01T00:00:00Z"},
        ):
            refused = await client.post("/v1/sessions/s/schedules", json={"tool": "quick", **wrong})
            assert refused.status_code == 422, wrong
