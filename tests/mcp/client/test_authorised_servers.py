"""Servers that want to know who asks: bearer tokens, and OAuth with its tokens among the secrets."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest

from tests.support import fail_after
from toolwright import App
from toolwright.mcp import McpServer, OAuth


class Guarded(BaseHTTPRequestHandler):
    """A server of the revision of 2025 that answers in JSON, and an authorisation server that knows one client."""

    token = "token-1-of-the-service"
    granted: ClassVar[list[str]] = []
    secret = "none"
    """That of the client, which it tells, too."""
    renews = False
    """Whether it grants another token each time, and a token is good for one call."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        base = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        if "oauth-protected-resource" in self.path:
            return self.reply(200, {"resource": f"{base}/mcp", "authorization_servers": [base]})
        if "oauth-authorization-server" in self.path or "openid-configuration" in self.path:
            found = {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            }
            return self.reply(200, found)
        return self.reply(405, {})

    def do_DELETE(self):
        self.reply(405, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/token":
            assert parse_qs(body.decode())["grant_type"] == ["client_credentials"]
            self.granted.append("token")
            if self.renews:
                type(self).token = f"token-{len(self.granted)}-of-the-service"
            return self.reply(200, {"access_token": self.token, "token_type": "Bearer", "expires_in": 3600})
        if self.headers.get("authorization") != f"Bearer {self.token}":
            base = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            where = f'Bearer resource_metadata="{base}/.well-known/oauth-protected-resource/mcp"'
            return self.reply(401, {}, **{"WWW-Authenticate": where})
        message = json.loads(body)
        result: dict[str, Any]
        match message.get("method"):
            case "initialize":
                info = {"name": "guarded", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": [{"name": "leak", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": f"your token is {self.token} {self.secret}"}]}
                if self.renews:
                    earlier = [f"token-{number + 1}-of-the-service" for number in range(len(self.granted))]
                    result["structuredContent"] = {"tokens": earlier}
                    type(self).token = "none"
            case method:
                if "id" not in message:
                    return self.reply(202, None)
                return self.reply(
                    200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": f"no {method}"}}
                )
        return self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def reply(self, status, body, **headers):
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def guarded():
    Guarded.granted = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    thread.join()
    server.server_close()


async def leak(runtime):
    [outcome] = await runtime.session("s").run_batch([{"name": "guarded__leak", "arguments": {}}])
    return outcome


@pytest.mark.promise("MCP-02")
async def test_a_bearer_token_authorises_each_request_and_is_redacted(opened, guarded, monkeypatch):
    monkeypatch.setenv("GUARDED_TOKEN", Guarded.token)
    runtime = await opened(McpServer.http("guarded", guarded, auth="${GUARDED_TOKEN}"))
    outcome = await leak(runtime)
    assert outcome.ok, outcome
    assert outcome.value.startswith("your token is [secret:")


@pytest.mark.promise("MCP-02")
async def test_headers_authorise_each_request(opened, guarded):
    runtime = await opened(McpServer.http("guarded", guarded, headers={"Authorization": f"Bearer {Guarded.token}"}))
    outcome = await leak(runtime)
    assert outcome.value.startswith("your token is [secret:")


@pytest.mark.promise("MCP-02")
async def test_a_server_that_refuses_the_token_is_told(opened, guarded):
    runtime = await opened(McpServer.http("guarded", guarded, auth="wrong-token", connect_timeout=3.0))
    [status] = runtime.servers()
    assert status.state != "connected"
    assert "wrong-token" not in repr(status)


@pytest.mark.promise("MCP-02")
async def test_the_tokens_of_oauth_are_stored_among_the_secrets_and_used_again(opened, guarded, file):
    auth = OAuth(client_id="me", client_secret="my-client-secret", issuer=guarded.removesuffix("/mcp"))
    first = await opened(McpServer.http("guarded", guarded, auth=auth), store=file)
    outcome = await leak(first)
    assert outcome.value.startswith("your token is [secret:"), (outcome, first.servers())
    stored = json.loads(await first.session("mcp").secrets.get("oauth.guarded.tokens"))
    assert stored["access_token"] == Guarded.token
    await first.close()
    second = await opened(McpServer.http("guarded", guarded, auth=auth), store=file)
    assert (await leak(second)).ok
    await asyncio.sleep(0)
    assert Guarded.token.encode() not in file.read_bytes()


@pytest.mark.promise("MCP-07")
async def test_the_secret_that_a_client_was_registered_with_is_redacted_in_the_next_process(
    opened, guarded, file, monkeypatch
):
    async def nobody(*given: str) -> str:
        raise AssertionError("nobody is to be asked")

    monkeypatch.setattr(Guarded, "secret", "secret-of-a-registered-client")
    registered = {"client_id": "c1", "client_secret": Guarded.secret, "redirect_uris": ["http://127.0.0.1:1/callback"]}
    before = await opened(store=file)
    for name, value in {"tokens": {"access_token": Guarded.token}, "client": registered}.items():
        await before.session("mcp").secrets.set(f"oauth.guarded.{name}", json.dumps(value))
    await before.close()
    runtime = await opened(McpServer.http("guarded", guarded, auth=OAuth(redirect=nobody, callback=nobody)), store=file)
    outcome = await leak(runtime)
    assert outcome.value == "your token is [secret:oauth.guarded] [secret:oauth.guarded]", runtime.servers()


@pytest.mark.promise("MCP-07")
async def test_only_the_latest_tokens_of_a_server_are_looked_for(opened, guarded, monkeypatch):
    # Each token that is looked for costs memory and time, and a program that runs for months gets thousands of them.
    monkeypatch.setattr(Guarded, "token", "none")
    monkeypatch.setattr(Guarded, "renews", True)
    auth = OAuth(client_id="me", client_secret="my-client-secret", issuer=guarded.removesuffix("/mcp"))
    runtime = await opened(McpServer.http("guarded", guarded, auth=auth))
    for _ in range(30):
        outcome = await leak(runtime)
        assert outcome.ok, outcome
    shown = outcome.value["tokens"]
    assert len(shown) >= 30
    assert shown[0] == "token-1-of-the-service"
    assert {*shown[-10:]} == {"[secret:oauth.guarded]"}


@pytest.mark.promise("MCP-02", "MCP-03")
async def test_a_runtime_closes_while_a_person_has_not_authorised_yet(guarded):
    asked = asyncio.Event()

    async def redirect(url: str) -> None:
        asked.set()

    async def callback() -> str:
        await asyncio.Event().wait()  # nobody comes back from the page
        return ""

    auth = OAuth(client_id="me", client_secret="my-client-secret", redirect=redirect, callback=callback)
    server = McpServer.http("guarded", guarded, auth=auth, connect_timeout=0.1)
    async with fail_after(30), App(tools=[server]).open() as runtime:
        await asked.wait()
        assert runtime.servers()[0].state == "connecting"
