"""The client that the conformance suite of MCP runs: `python -m tests.peers.conformance_client URL`.

It opens an app with the server of the suite among its tools, calls what the scenario asks for, and answers questions.
The suite looks at what arrives; how a call ends is not its subject.
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2

from toolwright import App, Runtime
from toolwright.mcp import McpServer, OAuth

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
PROTOCOL = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ISSUER = CONTEXT.get("issuer") or os.environ.get("MCP_CONFORMANCE_ISSUER")
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
ARGUMENTS: dict[str, Any] = {"integer": 5, "number": 3, "string": "text", "boolean": True, "array": [], "object": {}}


class Browser:
    """The person: follows the page of the authorisation server, which sends them back at once."""

    def __init__(self) -> None:
        self.came_back = ""

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url, follow_redirects=False)
        self.came_back = answer.headers["location"]

    async def back(self) -> str:
        return self.came_back


def authorisation() -> OAuth | None:
    if not SCENARIO.startswith("auth/"):
        return None
    if "client-credentials" in SCENARIO:
        return OAuth(client_id=CONTEXT["client_id"], client_secret=CONTEXT.get("client_secret"), issuer=ISSUER)
    browser = Browser()
    return OAuth(
        client_id=CONTEXT.get("client_id"),
        client_secret=CONTEXT.get("client_secret"),
        client_metadata_url=CLIENT_DOCUMENT,
        redirect_uri="http://localhost:3000/callback",
        redirect=browser.open,
        callback=browser.back,
    )


def arguments_of(schema: dict[str, Any]) -> dict[str, Any]:
    required = schema.get("required", [])
    return {
        name: field.get("default", ARGUMENTS.get(field.get("type", "string"), "text"))
        for name, field in schema.get("properties", {}).items()
        if name in required
    }


async def answer_questions(runtime: Runtime) -> None:
    """Accept every question, with what its fields ask for."""
    while True:
        for question in await runtime.questions():
            fields = (question.schema or {}).get("properties", {})
            answer = {} if "defaults" in SCENARIO else arguments_of({**(question.schema or {}), "required": [*fields]})
            with suppress(Exception):
                await runtime.answer(question.key, answer)
        await asyncio.sleep(0.02)


async def main() -> None:
    url = sys.argv[-1]
    assert urlsplit(url).scheme == "http"
    protocol: Any = PROTOCOL if PROTOCOL in ("2025-11-25", "2026-07-28") else "auto"
    server = McpServer.http("suite", url, protocol=protocol, auth=authorisation(), connect_timeout=30.0, timeout=20.0)
    async with App(tools=[server]).open() as runtime:
        answering = asyncio.create_task(answer_questions(runtime))
        definitions = {each.id.removeprefix("mcp.suite."): each for each in runtime.tools.definitions()}
        calls = CONTEXT.get("toolCalls") or [
            {"name": name, "arguments": arguments_of(definition.input_schema)}
            for name, definition in definitions.items()
        ]
        for call in calls:
            made = {"name": f"mcp.suite.{call['name']}", "arguments": call.get("arguments", {})}
            [outcome] = await runtime.session("suite").run_batch([made])
            print(call["name"], outcome.status, outcome.failure or outcome.value, file=sys.stderr)
        answering.cancel()
        if not runtime.servers()[0].connected:
            sys.exit(f"not connected: {runtime.servers()[0].error}")


if __name__ == "__main__":
    asyncio.run(main())
