"""Servers over HTTP: both revisions, many clients, and requests that are not from a client."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client

from tests.mcp.server.conftest import APP, MODES, command, http_server
from tests.support import fail_after
from toolwright import App, ToolwrightError, tool
from toolwright.cli.app import app as command_line
from toolwright.mcp import server
from toolwright.mcp.serve import loopback_address

HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


@pytest.mark.promise("MCP-05", "MCP-06")
async def test_an_app_is_served_over_http_to_many_clients_at_both_revisions(tmp_path: Path) -> None:
    key = {"dev.toolwright/idempotency-key": "k"}
    with http_server(tmp_path) as (url, _):
        async with fail_after(60), Client(url, mode="legacy") as old, Client(url, mode="2026-07-28") as new:
            for client in (old, new):
                assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"total": 3}
                assert text_of(await client.call_tool("charge", {"order": "o1"}, meta=key)) == "charged o1"
            said: list[float] = []

            async def note(progress: float, total: float | None, message: str | None) -> None:
                said.append(progress)

            assert text_of(await new.call_tool("count", {"to": 4}, progress_callback=note)) == "4"
            assert said == [1, 2, 3, 4]
            # At 2026-07-28 closing the request cancels the call.
            began = asyncio.Event()

            async def begin(*progress: object) -> None:
                began.set()

            calling = asyncio.ensure_future(new.call_tool("hang", {"order": "a"}, progress_callback=begin))
            await began.wait()
            calling.cancel()
            await asyncio.wait({calling})
            assert text_of(await old.call_tool("wait_for_cancelled", {})) == "cancelled"
        assert (tmp_path / "effects.txt").read_text().splitlines() == ["o1", "begin a"]


@pytest.mark.promise("MCP-05")
async def test_requests_of_web_pages_and_rubbish_are_refused_and_the_server_lives(tmp_path: Path) -> None:
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    modern = {**HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
    with http_server(tmp_path) as (url, _):
        async with fail_after(60), httpx.AsyncClient() as web:
            for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
                refused = await web.post(url, json=initialize, headers={**HEADERS, **headers})
                assert refused.status_code in (403, 421)
            deep = "[" * 100_000 + "]" * 100_000
            for body in (b"", b"{", b"\xff\xfe", b"null", b"[]", b'"x"', deep.encode(), b"{}", b'{"jsonrpc": "2.0"}'):
                for headers in (HEADERS, modern):
                    answer = await web.post(url, content=body, headers=headers)
                    assert 400 <= answer.status_code < 500 or answer.status_code == 202
            for params in (
                {},
                {"name": 7},
                {"name": "add", "arguments": []},
                {"name": "add", "arguments": {"a": {"b": [None] * 1000}}},
                {"name": "x" * 100_000, "arguments": {}},
                {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"dev.toolwright/idempotency-key": {}}},
            ):
                called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                answer = await web.post(url, content=json.dumps(called), headers=modern)
                assert answer.status_code == 400
        async with fail_after(30), Client(url, mode="2026-07-28") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"total": 3}


@pytest.mark.parametrize("address", ["0.0.0.0:80", "192.168.1.1:80", "example.com:80", "[::]:80", "1:2:3"])
def test_an_address_that_others_can_reach_is_refused(address: str) -> None:
    with pytest.raises(ToolwrightError, match="can be reached by other machines"):
        loopback_address(address)


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_without_a_port_is_refused(address: str) -> None:
    with pytest.raises(ToolwrightError, match="has no port"):
        loopback_address(address)


def test_an_address_of_this_machine_is_taken() -> None:
    assert loopback_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert loopback_address("localhost:80") == ("127.0.0.1", 80)
    assert loopback_address("[::1]:80") == ("::1", 80)
    assert loopback_address("127.0.0.5:0") == ("127.0.0.5", 0)


def test_the_command_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    base = ["mcp", "serve", "--app", f"{APP}:app"]
    for options, said in (
        (["--http", "0.0.0.0:1"], "can be reached by other machines"),
        (["--session", "s", "--per-connection"], "leave out one"),
        (["--approvals", "nobody"], 'use "client" or "inbox"'),
    ):
        done = CliRunner().invoke(command_line, [*base, *options])
        assert done.exit_code == 2
        assert said in done.output


@pytest.mark.parametrize("mode", MODES.values())
async def test_a_server_can_be_asked_by_many_at_once(mode: str) -> None:
    @tool(readonly=True)
    async def double(number: int) -> int:
        """Double a number."""
        await asyncio.sleep(0)
        return 2 * number

    async with fail_after(30), Client(server(App(tools=[double])), mode=mode) as client:
        results = await asyncio.gather(*(client.call_tool("double", {"number": n}) for n in range(200)))
    assert [text_of(result) for result in results] == [str(2 * n) for n in range(200)]


async def test_a_client_that_leaves_in_the_middle_of_a_request_is_no_error(tmp_path: Path) -> None:
    with http_server(tmp_path, "--only", "add") as (url, program):
        host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
        async with fail_after(30):
            for _ in range(3):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\n".encode())
                writer.write(b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n")
                writer.write(b"Content-Length: 100\r\n\r\n{")
                await writer.drain()
                writer.close()
                await writer.wait_closed()
            async with Client(url, mode="legacy") as client:
                assert [each.name for each in (await client.list_tools()).tools] == ["add"]
        program.terminate()
        assert program.stderr is not None
        assert "Traceback" not in program.stderr.read()


LASTING_APP = """
import asyncio, sys
from contextlib import asynccontextmanager
from toolwright import App, ToolContext, tool

@asynccontextmanager
async def lifespan():
    yield
    print("the app is closed", file=sys.stderr)

@tool
async def hang(ctx: ToolContext) -> str:
    await ctx.progress(1)
    try:
        await asyncio.Event().wait()
    finally:
        print("the call is stopped", file=sys.stderr)

app = App(tools=[hang], lifespan=lifespan)
"""


@pytest.mark.promise("MCP-05")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_is_told_to_stop_stops_its_calls_and_closes_its_app(tmp_path: Path, number: int) -> None:
    (tmp_path / "lasting.py").write_text(LASTING_APP)
    with http_server(tmp_path, app=tmp_path / "lasting.py") as (url, program):
        async with fail_after(30), Client(url, mode="2026-07-28") as client:
            began = asyncio.Event()

            async def begin(*progress: object) -> None:
                began.set()

            calling = asyncio.ensure_future(client.call_tool("hang", {}, progress_callback=begin))
            await began.wait()
            program.send_signal(number)
            assert await asyncio.to_thread(program.wait, 20) == 0
            calling.cancel()
            await asyncio.wait({calling})
        assert program.stderr is not None
        told = program.stderr.read().splitlines()
    assert ("the call is stopped" in told, "the app is closed" in told) == (True, True)


def test_the_command_warns_of_names_of_no_tool(tmp_path: Path) -> None:
    arguments, environment = command(tmp_path, "--only", "add", "--ask-about", "chrage", "--ask-about", "charge")
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [line for line in done.stderr.splitlines() if "Warning" in line] == [
        "Warning: --ask-about 'chrage' names no tool that is here; see: toolwright tools"
    ]
