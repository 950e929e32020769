"""The attributes of the SDK that are read though they are not public: the installed version has them, and they mean
what `toolwright.mcp.sdk_internals` says."""

from typing import Any

import mcp_types as types
from mcp import Client
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

from tests.mcp.server.conftest import MODES
from tests.support import fail_after
from toolwright.mcp.sdk_internals import channel_of, connection_of, has_progress_function, is_in_process


async def test_a_request_has_a_connection_and_a_channel_that_knows_whether_it_was_cancelled(revision: str) -> None:
    contexts: list[ServerRequestContext[Any, Any]] = []

    async def call(context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> dict[str, Any]:
        contexts.append(context)
        assert not channel_of(context).cancel_requested.is_set()
        return {"content": [], "resultType": "complete"}

    async def tools(context: object, params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="a", input_schema={"type": "object"})])

    async def note(progress: float, total: float | None, message: str | None) -> None:
        pass

    sdk: Server[Any] = Server("sdk", on_list_tools=tools)
    sdk.add_request_handler("tools/call", types.CallToolRequestParams, call)
    async with fail_after(20), Client(sdk, mode=MODES[revision]) as client:
        await client.call_tool("a", {})
        await client.call_tool("a", {}, progress_callback=note)
    plain, followed = contexts
    modern = revision == "2026-07-28"
    assert all(isinstance(connection_of(context), Connection) for context in contexts)
    assert (connection_of(plain) is connection_of(followed)) != modern
    assert is_in_process(plain) == modern
    assert not has_progress_function(plain)
    assert has_progress_function(followed) == modern
    assert ("progress_token" in (followed.meta or {})) != modern
