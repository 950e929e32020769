"""An MCP server for tests, over the low-level server of the SDK: `python plain_server.py FOLDER [--http PORT]`.

Its tools write a line for each effect into `FOLDER/effects`. It is a program of its own, and imports nothing of ours.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

BUS = InMemorySubscriptionBus()
OBJECT: dict[str, Any] = {"type": "object"}
TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tools(folder: Path) -> list[types.Tool]:
    listed = [
        types.Tool(name="echo", description="Repeats a text.", input_schema=TEXT),
        types.Tool(
            name="add",
            description="Adds two numbers.",
            input_schema={
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
            output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
            annotations=types.ToolAnnotations(read_only_hint=True),
        ),
        types.Tool(name="effect", description="Writes a line.", input_schema=TEXT),
        types.Tool(
            name="repeatable",
            description="Writes a line; may be called again.",
            input_schema=TEXT,
            annotations=types.ToolAnnotations(idempotent_hint=True, destructive_hint=False),
        ),
        types.Tool(name="fail", description="Fails.", input_schema=OBJECT),
        types.Tool(name="media", description="Gives everything.", input_schema=OBJECT),
        types.Tool(name="progress", description="Reports progress.", input_schema=OBJECT),
        types.Tool(
            name="optional",
            description="Has an optional parameter.",
            input_schema={**TEXT, "properties": {"text": {"type": "string"}, "more": {"type": "string"}}},
        ),
        types.Tool(name="logs", description="Writes to the log.", input_schema=OBJECT),
        types.Tool(name="tell_change", description="Says that the list has changed.", input_schema=OBJECT),
        types.Tool(name="ask", description="Asks a person.", input_schema=TEXT),
        types.Tool(name="wait", description="Never ends.", input_schema=OBJECT),
        types.Tool(name="die", description="Ends the server.", input_schema=TEXT),
        types.Tool(name="environment", description="Its variables.", input_schema=OBJECT),
        types.Tool(
            name="broken",
            description="Breaks its own output schema.",
            input_schema=OBJECT,
            output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
        ),
    ]
    if (folder / "changed").exists():
        listed[0] = types.Tool(name="echo", description="Does something else.", input_schema=TEXT)
        listed.append(types.Tool(name="new", description="Was not there.", input_schema=OBJECT))
        del listed[4]
    return listed


def note(folder: Path, name: str, text: str) -> None:
    with (folder / name).open("a") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())


def text(*said: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=one) for one in said])


async def call(folder: Path, context: Any, params: types.CallToolRequestParams) -> Any:
    given = params.arguments or {}
    match params.name:
        case "echo" | "new":
            return text(given.get("text", ""))
        case "add":
            total = given["a"] + given["b"]
            return types.CallToolResult(
                content=[types.TextContent(type="text", text=str(total))], structured_content={"sum": total}
            )
        case "effect" | "repeatable":
            note(folder, "effects", given["text"])
            return text(f"wrote {given['text']}")
        case "die":
            note(folder, "effects", given["text"])
            os._exit(9)
        case "fail":
            return types.CallToolResult(content=[types.TextContent(type="text", text="no such thing")], is_error=True)
        case "media":
            data = base64.b64encode(b"\x89PNG").decode()
            return types.CallToolResult(
                content=[
                    types.TextContent(type="text", text="here"),
                    types.ImageContent(type="image", data=data, mime_type="image/png"),
                    types.AudioContent(type="audio", data=data, mime_type="audio/wav"),
                    types.EmbeddedResource(
                        type="resource",
                        resource=types.BlobResourceContents(uri="file:///a.bin", blob=data, mime_type="a/b"),
                    ),
                    types.EmbeddedResource(
                        type="resource", resource=types.TextResourceContents(uri="file:///a.txt", text="hello")
                    ),
                    types.ResourceLink(type="resource_link", name="page", uri="https://example.com/page"),
                ]
            )
        case "progress":
            for part in range(1, 4):
                await context.session.report_progress(part, 3, f"part {part}")
            return text("done")
        case "ask":
            return await ask(folder, context, params)
        case "optional":
            return text(json.dumps(given))
        case "logs":
            await context.session.send_log_message("info", "looking", related_request_id=context.request_id)
            return text("done")
        case "tell_change":
            await BUS.publish(ToolsListChanged())
            if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                await context.session.send_tool_list_changed()
            return text("done")
        case "wait":
            note(folder, "started", "wait")
            try:
                await asyncio.Event().wait()
            finally:
                note(folder, "cancelled", "wait")
        case "environment":
            return types.CallToolResult(content=[], structured_content=dict(os.environ))
        case "broken":
            return types.CallToolResult(content=[], structured_content={"sum": "three"})
    raise ValueError(params.name)


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "seat": {"type": "string", "default": "window"}},
    "required": ["name"],
}


async def ask(folder: Path, context: Any, params: types.CallToolRequestParams) -> Any:
    """Ask which one: by the result in the newest revision, by a request before it."""
    said = (params.arguments or {})["text"]
    question = f"Which {said}?"
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        if params.input_responses is None:
            note(folder, "effects", f"asked {said}")
            form = types.ElicitRequest(params=types.ElicitRequestFormParams(message=question, requested_schema=FORM))
            return types.InputRequiredResult(input_requests={"which": form}, request_state=f"state {said}")
        assert params.request_state == f"state {said}"
        note(folder, "effects", f"answered {said}")
        answer = params.input_responses["which"]
    else:
        answer = await context.session.elicit_form(question, FORM, related_request_id=context.request_id)
    return text(json.dumps(answer.model_dump(by_alias=True, mode="json", exclude_none=True)))


def make(folder: Path) -> Server[Any]:
    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools(folder))

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        return await call(folder, context, params)

    return Server(
        "plain",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(BUS),
    )


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--http", type=int)
    given = parser.parse_args()
    note(given.folder, "pids", str(os.getpid()))
    server = make(given.folder)
    if given.http is None:
        asyncio.run(serve_stdio(server))
        return
    import uvicorn

    # A test run that is killed closes this, and leaves no server behind.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=given.http, log_level="error")


if __name__ == "__main__":
    main()
