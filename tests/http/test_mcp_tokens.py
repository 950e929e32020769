"""MCP clients with the tokens of the store: who may connect, in which session, and who decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from typer.testing import CliRunner

from tests.mcp.server.conftest import http_server
from tests.support import fail_after
from toolwright import Runtime
from toolwright.cli.app import app as command_line
from toolwright.http.access.tokens import Tokens
from toolwright.runtime.runtime import tokens_of

pytestmark = pytest.mark.promise("HTTP-03", "MCP-05")
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def made(store: Path, **tokens: tuple[list[str], list[str]]) -> dict[str, str]:
    """The values of new tokens, by their names."""
    async with Runtime.open(store) as runtime:
        found = Tokens(tokens_of(runtime), runtime.clock)
        return {name: (await found.create(name, *given)).value for name, given in tokens.items()}


async def test_a_client_needs_a_token_that_may_run_and_calls_in_its_session(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    values = await made(
        store,
        ann=(["run"], ["*"]),
        reader=(["read"], ["*"]),
        team=(["run"], ["team-7"]),
        lost=(["run"], ["other-*"]),
    )
    with http_server(tmp_path, "--tokens", "--db", str(store)) as (url, _):
        async with fail_after(60), httpx.AsyncClient() as web:
            for value, status in (("", 401), ("tw_wrong", 401), (values["reader"], 403)):
                headers = {**HEADERS, "Authorization": f"Bearer {value}"} if value else HEADERS
                assert (await web.post(url, json=INITIALIZE, headers=headers)).status_code == status
            own = {**HEADERS, "Authorization": f"Bearer {values['ann']}"}
            for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                refused = await web.post(url, json=INITIALIZE, headers={**own, **header})
                assert refused.status_code in (403, 421)
            for name in ("ann", "team"):
                async with (
                    httpx.AsyncClient(headers={"Authorization": f"Bearer {values[name]}"}) as http,
                    Client(streamable_http_client(url, http_client=http)) as client,
                ):
                    assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"total": 3}
            async with (
                httpx.AsyncClient(headers={"Authorization": f"Bearer {values['lost']}"}) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                with pytest.raises(MCPError, match="not valid in the session 'mcp:lost'"):
                    await client.call_tool("add", {"a": 1, "b": 2})
    async with Runtime.open(store) as runtime:
        assert [one.id for one in await runtime.sessions() if one.calls] == ["mcp:ann", "team-7"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_approves_calls_only_with_a_token_that_may(tmp_path: Path, mode: str) -> None:
    store = tmp_path / "agent.db"
    values = await made(store, runner=(["run"], ["*"]), chief=(["run", "approve"], ["*"]))
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    with http_server(tmp_path, "--tokens", "--db", str(store), "--wait", "0") as (url, _):
        told = {}
        for name, value in values.items():
            async with (
                fail_after(60),
                httpx.AsyncClient(headers={"Authorization": f"Bearer {value}"}) as http,
                Client(
                    streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=approve
                ) as client,
            ):
                told[name] = str((await client.call_tool("launch", {"rocket": name})).content)
    assert len(asked) == 1
    assert "was cancelled" in told["runner"]
    assert "was cancelled" not in told["chief"]
    async with Runtime.open(store) as runtime:
        decided = {one.session: one.decision for one in await runtime.decisions()}
        assert set(decided) == {"mcp:chief"}
        chief = decided["mcp:chief"]
        assert (chief.verdict, chief.by) == ("approved", "chief")
        assert chief.via == f"mcp {values['chief'].split('_')[1]}"


def test_tokens_of_an_mcp_server_need_a_store_and_http() -> None:
    for options in (["--tokens"], ["--tokens", "--http", "127.0.0.1:0"], ["--allowed-host", "agent.example.com"]):
        done = CliRunner().invoke(command_line, ["mcp", "serve", "--tools", "time", "--db", ":memory:", *options])
        assert done.exit_code == 2
        assert "--tokens" in done.output
