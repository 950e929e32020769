"""Claude Code without Claude Code: a transport of the Claude Agent SDK that plays a script of tool calls.

It speaks the control protocol as the command line does: it initialises the servers of the SDK over MCP, asks for
permission where it is told to, calls tools with their ids in `_meta`, and ends with a result.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from claude_agent_sdk import Transport

Use = tuple[str, str, dict[str, Any]]
"""A tool use: its id, the name of the tool on the server, and its input."""


class ScriptedClaude(Transport):
    """Makes the tool uses of each answer at once, and one answer after the other."""

    def __init__(
        self,
        *answers: Sequence[Use],
        server: str = "toolwright",
        asks: bool = False,
        gives_ids: bool = True,
        interrupts: str | None = None,
    ) -> None:
        self.results: dict[str, dict[str, Any]] = {}
        self.tools: list[dict[str, Any]] = []
        self.initialized: dict[str, Any] = {}
        self._answers = answers
        self._server = server
        self._asks = asks
        self._gives_ids = gives_ids
        self._interrupts = interrupts
        self._out: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._playing: asyncio.Task[None] | None = None
        self._number = 0

    async def connect(self) -> None:
        pass

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        pass

    async def close(self) -> None:
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.wait({self._playing})
        await self._out.put(None)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._out.get()) is not None:
            yield message

    async def write(self, data: str) -> None:
        for line in data.splitlines():
            message = json.loads(line)
            if message["type"] == "control_request":
                answer = {"subtype": "success", "request_id": message["request_id"], "response": {}}
                await self._out.put({"type": "control_response", "response": answer})
            elif message["type"] == "control_response":
                response = message["response"]
                waiting = self._waiting.pop(response["request_id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(response)
            elif message["type"] == "user" and self._playing is None:
                self._playing = asyncio.ensure_future(self._play())

    async def _play(self) -> None:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude", "version": "1"}}
        self.initialized = await self._mcp("initialize", hello)
        await self._mcp("notifications/initialized", None)
        self.tools = (await self._mcp("tools/list", {}))["tools"]
        for answer in self._answers:
            await asyncio.gather(*(self._use(*use) for use in answer))
        end = {"is_error": False, "num_turns": 1, "duration_ms": 1, "duration_api_ms": 1, "session_id": "s"}
        await self._out.put({"type": "result", "subtype": "success", "result": "done", **end})

    async def _use(self, id: str, tool: str, given: dict[str, Any]) -> None:
        if self._asks:
            asked = {"subtype": "can_use_tool", "tool_name": f"mcp__{self._server}__{tool}", "input": given}
            permission = (await self._control({**asked, "tool_use_id": id}))["response"]
            if permission["behavior"] == "deny":
                self.results[id] = {"denied": permission["message"]}
                return
            given = permission["updatedInput"]
        meta = {"_meta": {"claudecode/toolUseId": id}} if self._gives_ids else {}
        self.results[id] = await self._mcp("tools/call", {"name": tool, "arguments": given, **meta})

    async def cancel(self, number: int) -> None:
        """Give a call up, by its number, as when a user presses escape."""
        await self._mcp("notifications/cancelled", {"requestId": number})

    async def _mcp(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        if not method.startswith("notifications/"):
            message["id"] = self._number = self._number + 1
        response = await self._control({"subtype": "mcp_message", "server_name": self._server, "message": message})
        answer = response["response"]["mcp_response"]
        found: dict[str, Any] = answer["result"] if "result" in answer else {"error": answer["error"]}
        return found

    async def _control(self, request: dict[str, Any]) -> dict[str, Any]:
        id = f"cli_{len(self._waiting)}_{id_of(request)}"
        waiting = self._waiting[id] = asyncio.get_running_loop().create_future()
        await self._out.put({"type": "control_request", "request_id": id, "request": request})
        return await waiting


def id_of(request: dict[str, Any]) -> str:
    """A name for a control request that no other one in flight has."""
    return f"{id(request):x}"
