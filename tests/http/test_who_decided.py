"""Who decided what: over HTTP with who, when, from where, and what was changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import App, ToolCall, tool
from toolwright.clock import rfc3339
from toolwright.http import create_app
from toolwright.testing import FakeClock

pytestmark = pytest.mark.promise("HTTP-03", "AUTH-03")


@tool(approval="required")
async def launch(where: str = "moon") -> str:
    return f"launched to {where}"


async def test_a_decision_over_http_is_kept_with_the_name_the_token_and_the_address(tmp_path: Path) -> None:
    clock = FakeClock()
    service = create_app(App(tools=[launch]), tmp_path / "agent.db", clock=clock)
    async with fail_after(30), service.lifespan() as runtime:
        tokens = await service.sign_in.tokens()
        ann = await tokens.create("ann", ["read", "approve"], ["s"])
        bob = await tokens.create("bob", ["read", "approve"])
        session = runtime.session("s")
        transport = httpx.ASGITransport(service, client=("10.0.0.7", 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http:
            events, batches = session.subscribe(), []
            for number in range(2):
                batches.append(session.start_batch([ToolCall(id=f"c{number}", name="launch")], scope=f"m{number}"))
                await waiting(events)
            asked = {one.call_id: one.key for one in await runtime.approvals()}

            async def post(verb: str, key: str, value: str, body: dict[str, Any]) -> httpx.Response:
                headers = {"Authorization": f"Bearer {value}"}
                return await http.post(f"/v1/approvals/{key}/{verb}", json=body, headers=headers)

            approved = await post("approve", asked["c0"], ann.value, {"arguments": {"where": "mars"}})
            assert approved.status_code == 200, approved.text
            late = await post("deny", asked["c0"], bob.value, {"reason": "no"})
            assert late.status_code == 409
            await http.post("/v1/login", json={"token": bob.value}, headers={"Origin": "http://127.0.0.1:8700"})
            denied = await http.post(
                f"/v1/approvals/{asked['c1']}/deny",
                json={"reason": "windy"},
                headers={"Origin": "http://127.0.0.1:8700"},
            )
            assert denied.status_code == 200, denied.text
            (first,), (second,) = await batches[0], await batches[1]
            listed = await http.get("/v1/decisions", headers={"Authorization": f"Bearer {ann.value}"})
    assert (first.decision.by, first.decision.via) == ("ann", f"http {ann.info.id} 10.0.0.7")
    assert (second.decision.by, second.decision.via) == ("bob", f"page {bob.info.id} 10.0.0.7")
    assert first.value == "launched to mars"
    newest, oldest = (one["approval"]["decision"] for one in listed.json()["items"])
    assert newest["by"] == "bob"
    assert (newest["verdict"], newest["reason"], newest["via"]) == ("denied", "windy", f"page {bob.info.id} 10.0.0.7")
    assert oldest == {
        "verdict": "approved",
        "at": rfc3339(first.decision.at),
        "by": "ann",
        "via": f"http {ann.info.id} 10.0.0.7",
        "edited": True,
        "always": False,
        "arguments": {"where": "mars"},
    }
